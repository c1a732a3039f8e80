"""Consecutive ports without a listener, for programs that can't be given any free one."""

from __future__ import annotations

import contextlib
import os
import random
import socket

_FIRST, _LAST = 20_000, 30_000
"""Below the ports that systems give to outgoing connections, which would take one at any time."""


def ports_in_a_row(count: int) -> int:
    """The first of ``count`` ports on loopback that were all free a moment ago."""
    rng = random.Random(os.urandom(8))  # tests of other processes look, too
    while True:
        first = rng.randrange(_FIRST, _LAST)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return first

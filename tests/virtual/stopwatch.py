"""``within``: what may take only so long, on the clock of the loop. Used by the workload."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

GRACE = 0.01
"""Seconds for what runs in threads elsewhere; all else takes no virtual time."""


@contextmanager
def within(seconds: float, what: str) -> Iterator[None]:
    """Raise AssertionError if the block takes longer than ``seconds``, however it ends."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    try:
        yield
    finally:
        took = loop.time() - started
        if took > seconds + GRACE:
            raise AssertionError(f"{what} took {took:.3f} s, allowed are {seconds:g}")

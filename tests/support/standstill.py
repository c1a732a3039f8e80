"""Whether the machine let this process run: what waits for seconds proves nothing if it didn't.

A virtual machine may stand still for seconds. On the clock of a test that looks like a client that
is stuck; here a thread looks at the clock, and would have looked however stuck the loop was.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

_INTERVAL = 0.05


class Standstill:
    """A context in which it is watched. Has a thread.

    Attributes:
        longest: Seconds for which nothing of this process ran at a stretch, not even a computation.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="standstill", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        seen, spent = time.monotonic(), time.process_time()
        over = False
        while not over:
            over = self._over.wait(_INTERVAL)
            now, spent_now = time.monotonic(), time.process_time()
            # What computes and keeps the interpreter to itself is the process's own affair.
            still = now - seen - _INTERVAL - (spent_now - spent)
            self.longest = max(self.longest, still)
            seen, spent = now, spent_now

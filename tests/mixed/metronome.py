"""How long the machine delayed a runnable thread: what a noisy one adds to a recovery.

Bounds on times are those of clients and brokers; what the machine itself took is added to them. It
reads the clock only.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

_BEAT = 0.02
_USUAL = 0.05


class Metronome:
    """Beats in a thread for the time of its context."""

    def __init__(self) -> None:
        self._late: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def held(self, since: float, until: float) -> float:
        """Seconds by which beats came too late between two instants."""
        return sum(late for at, late in list(self._late) if since <= at <= until)

    def _beat(self) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            time.sleep(_BEAT)
            late = time.monotonic() - began - _BEAT
            if late > _USUAL:
                self._late.append((time.monotonic(), late))

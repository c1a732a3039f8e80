"""A world in which time stands still, so that no count depends on how fast the machine is.

``stop_clocks`` comes before the first import of kclient, which takes functions of ``time`` by name;
``sow`` lets randomness (sticky choices, jitter) be the same in each run.
``StillLoop`` jumps to the next timer when nothing else can run. Unlike kclient's own loop of
virtual time it is nothing that a client knows of: what is counted is what runs in production.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from itertools import repeat
from typing import Any

WALL_NS = 1_767_225_600_000_000_000
"""2026-01-01."""


def stop_clocks() -> None:
    """Put clocks that stand still in place of the machine's; in C, as those are."""
    monotonic: Any = repeat(1000.0).__next__
    wall: Any = repeat(WALL_NS).__next__
    time.monotonic = time.perf_counter = time.thread_time = time.process_time = monotonic
    time.time_ns = wall


class _Sown(random.Random):
    """Starts from the same seed wherever none is given."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)


def sow() -> None:
    """Put generators with a fixed seed in place of those that the machine seeds."""
    random.Random = _Sown  # type: ignore[assignment, misc]


class StillLoop(asyncio.BaseEventLoop):
    """An event loop without sockets; time passes only while all tasks wait."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 1000.0
        self._selector = self

    def time(self) -> float:
        """Seconds."""
        return self._now

    def select(self, timeout: float | None) -> Sequence[object]:
        """What the base class asks of a selector: here, to go to the next timer."""
        if timeout is None:
            raise RuntimeError("everybody waits and no timer is set")
        if timeout > 0:
            self._now = self._scheduled[0].when()  # type: ignore[attr-defined]
        return ()

    def _process_events(self, event_list: Sequence[object]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

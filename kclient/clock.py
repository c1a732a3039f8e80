"""Time as a value: the one place where the package reads a clock.

Drivers take a ``Clock`` and hand ``now`` to the sans-IO files; nothing else calls ``time`` or
``loop.time``. Another clock (virtual time) is plugged in through the same protocol.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol, runtime_checkable

from kclient.surroundings import surroundings


@runtime_checkable
class Clock(Protocol):
    """What the package asks of time."""

    def now(self) -> float:
        """Monotonic seconds, in the same scale as the running loop's timers."""
        ...

    def wall_ms(self) -> int:
        """Int milliseconds since the Unix epoch, for record timestamps."""
        ...


class SystemClock:
    """The running loop's monotonic time and the wall clock: the machine's, or the loop's own."""

    __slots__ = ("_wall_ns",)

    def __init__(self) -> None:
        self._wall_ns = time.time_ns

    def settle(self) -> None:
        """Take the wall clock of the running loop's surroundings, if it has any."""
        world = surroundings()
        if world is not None:
            self._wall_ns = world.wall_ns

    def now(self) -> float:
        """Monotonic seconds of the running loop. Raises RuntimeError where no loop runs."""
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        """Int milliseconds since the Unix epoch."""
        return self._wall_ns() // 1_000_000

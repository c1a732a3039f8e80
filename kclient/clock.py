"""Time as a value: the one place where the package reads a clock.

Drivers take a ``Clock`` and hand ``now`` to the sans-IO files; nothing else calls ``time`` or
``loop.time``. Another clock (virtual time) is plugged in through the same protocol.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol, runtime_checkable


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
    """The running loop's monotonic time and the machine's wall clock."""

    __slots__ = ()

    def now(self) -> float:
        """Monotonic seconds of the running loop. Raises RuntimeError where no loop runs."""
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        """Int milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

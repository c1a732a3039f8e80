"""Time as a value: the one place where the package reads a clock.

Drivers take a ``Clock`` and hand ``now`` to the sans-IO files; nothing else calls ``time`` or
``loop.time``. A loop of virtual time carries ``LoopEnvironment`` as ``loop.kclient_surroundings``:
another clock, network and chance, which a client that starts there uses by itself, so that a
service under test needs no plumbing. They must not be consulted per record.
"""

from __future__ import annotations

import asyncio
import random
import time
from asyncio.events import _get_running_loop
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient.hooks import Dialer

_ASYNCIO_TIME = asyncio.BaseEventLoop.time


class LoopEnvironment(Protocol):
    """What clients ask of the world, beside the loop's own timers."""

    @property
    def dialer(self) -> Dialer:
        """Opens the connections of clients that were given no other dialer."""
        ...

    @property
    def rng(self) -> random.Random:
        """Seeds the randomness of clients, in the order of their starts."""
        ...

    def wall_ns(self) -> int:
        """Int nanoseconds since the Unix epoch."""
        ...

    def effort(self) -> float:
        """Seconds of work done, as far as that world counts it: when to let others run."""
        ...


def loop_environment() -> LoopEnvironment | None:
    """That of the running loop; None in the real world, and where no loop runs."""
    return cast(
        "LoopEnvironment | None", getattr(_get_running_loop(), "kclient_surroundings", None)
    )


def work_clock(real: Callable[[], float]) -> Callable[[], float]:
    """The clock by which long work yields to the loop: ``real``, or the environment's."""
    world = loop_environment()
    return real if world is None else world.effort


@runtime_checkable
class Clock(Protocol):
    """What the package asks of time."""

    def now(self) -> float:
        """Monotonic seconds, in the same scale as the running loop's timers."""
        ...

    def wall_ms(self) -> int:
        """Int milliseconds since the Unix epoch, for record timestamps."""
        ...


def wall_ns_of(clock: Clock) -> Callable[[], int]:
    """A function for ``clock``'s wall time in nanoseconds, by the shortest way."""
    if isinstance(clock, SystemClock):
        return clock.wall_ns
    return lambda: clock.wall_ms() * 1_000_000


class SystemClock:
    """The running loop's monotonic time and the wall clock: the machine's, or the loop's own.

    Attributes:
        now: Gives monotonic seconds of the running loop. Before ``bind_to_loop`` it raises
            RuntimeError where no loop runs.
        wall_ns: Gives int nanoseconds since the Unix epoch.
    """

    __slots__ = ("now", "wall_ns")

    def __init__(self) -> None:
        self.now = _running_time
        self.wall_ns = time.time_ns

    def use_environment(self) -> None:
        """Take the wall clock of the running loop's environment, if it has any."""
        world = loop_environment()
        if world is not None:
            self.wall_ns = world.wall_ns

    def bind_to_loop(self) -> None:
        """Be the clock of the running loop alone.

        Which loop runs is not asked at each look then: that costs a system call (getpid) until
        Python 3.12. And where the loop takes the time from ``time.monotonic``, so does the clock:
        each request looks at it about ten times.
        """
        loop = asyncio.get_running_loop()
        plain = getattr(loop.time, "__func__", None) is _ASYNCIO_TIME
        self.now = time.monotonic if plain else loop.time

    def wall_ms(self) -> int:
        """Int milliseconds since the Unix epoch."""
        return self.wall_ns() // 1_000_000


def wall_seconds() -> float:
    """Seconds since the Unix epoch, by the wall clock of the running loop, if it has its own."""
    clock = SystemClock()
    clock.use_environment()
    return clock.wall_ns() / 1e9


def _running_time() -> float:
    return asyncio.get_running_loop().time()

"""No callback of a client may hold the event loop for long: how tests measure that.

CPU time of the thread, so that other processes hardly count; without the garbage collector, which
walks over what the whole suite keeps; on an asyncio loop, as ``LoopProbe`` sees no other.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

from kclient.record import IMPLEMENTATION
from kclient.testing import LoopProbe
from tests.support.yardstick import NOMINAL, yardstick

LONGEST_HOLD = 0.050
"""Seconds of thread CPU that one callback may take, on the machine that ``NOMINAL`` is of."""
SLOWEST = 2.0
"""On a machine that is slower by more than that, no verdict is possible."""
ATTEMPTS = 5
SCALE = 0.1 if IMPLEMENTATION == "pure" else 1.0


def scaled(count: int) -> int:
    """The pure build does a tenth of the work."""
    return int(count * SCALE)


class HeldTooLong(AssertionError):
    """A callback took longer than it may."""


class Speed:
    """How slow the machine is, as seen just before an attempt: it swings within a second."""

    before = 1.0


def slowness() -> float:
    """How many times longer than on the machine of ``NOMINAL`` work takes now."""
    return min(max(1.0, yardstick() / NOMINAL), SLOWEST)


def held(probe: LoopProbe) -> None:
    """Fail if a callback took longer than ``LONGEST_HOLD``; asks for the machine's speed if so."""
    assert probe.callbacks > 0
    if probe.longest >= LONGEST_HOLD:
        slower = max(Speed.before, slowness())
        if probe.longest >= LONGEST_HOLD * slower:
            raise HeldTooLong(
                f"{probe.longest:.3f} s by {probe.longest_callback}, machine slower x{slower:.2f}"
            )


def run_held(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run ``main`` until its probes find no long hold, ``ATTEMPTS`` times at most.

    A hold that is the code's own is there each time; one that the machine added is not.
    """
    for attempt in range(1, ATTEMPTS + 1):
        Speed.before = slowness()
        gc.collect()
        gc.disable()
        try:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(main())
            return
        except HeldTooLong:
            if attempt == ATTEMPTS:
                raise
        finally:
            gc.enable()

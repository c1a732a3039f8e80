"""A fixed piece of Python work: how fast this machine is just now.

CPU seconds of one and the same work swing by more than twice where others use the same processor.
Tests that bound CPU time measure it in yardsticks, taken right beside what they measure.
"""

from __future__ import annotations

import struct
import time

from kclient.testing import LoopProbe

ROUNDS = 100_000
NOMINAL = 0.045
"""Seconds that it takes on the machine whose seconds the bounds are given in."""
LONGEST_HOLD = 0.050
"""Seconds of thread CPU on that machine that one callback may take."""
SLOWEST = 2.0
"""A machine that is slower by more than that fails, as then nothing can be said."""

_FIELDS = struct.Struct(">ihq")
_DATA = bytes(range(256)) * 4


def yardstick() -> float:
    """CPU seconds of this thread that the work takes now, the best of two."""
    return min(_once(), _once())


def held(probe: LoopProbe) -> None:
    """Fail if a callback took longer than ``LONGEST_HOLD``; asks for the machine's speed if so."""
    assert probe.callbacks > 0
    if probe.longest >= LONGEST_HOLD:
        slowness = min(max(1.0, yardstick() / NOMINAL), SLOWEST)
        said = f"{probe.longest:.3f} s by {probe.longest_callback}, machine slower x{slowness:.2f}"
        assert probe.longest < LONGEST_HOLD * slowness, said


def _once() -> float:
    started = time.thread_time()
    unpack, kept = _FIELDS.unpack_from, []
    for number in range(ROUNDS):
        first, second, third = unpack(_DATA, number & 511)
        kept.append([first, (second, third), number])
    return time.thread_time() - started

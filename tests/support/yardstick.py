"""A fixed piece of Python work: how fast this machine is just now.

CPU seconds of one and the same work swing by more than twice where others use the same processor.
Tests that bound CPU time measure it in yardsticks, taken right beside what they measure.
"""

from __future__ import annotations

import struct
import time

ROUNDS = 100_000
NOMINAL = 0.045
"""Seconds that it takes on the machine whose seconds the bounds are given in."""

_FIELDS = struct.Struct(">ihq")
_DATA = bytes(range(256)) * 4


def yardstick() -> float:
    """CPU seconds of this thread that the work takes now, the best of two."""
    return min(_once(), _once())


def _once() -> float:
    started = time.thread_time()
    unpack, kept = _FIELDS.unpack_from, []
    for number in range(ROUNDS):
        first, second, third = unpack(_DATA, number & 511)
        kept.append([first, (second, third), number])
    return time.thread_time() - started

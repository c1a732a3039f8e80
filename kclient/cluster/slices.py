"""Long pieces of work in slices, so that the event loop is never held for long.

Used by the metadata refresh and by Admin for answers of thousands of topics. The work itself is a
generator that yields wherever it may be interrupted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import TypeVar

from kclient.surroundings import effort_clock

T = TypeVar("T")

SLICE = 0.010
"""Seconds of thread CPU time after which the loop gets a turn."""


async def run_sliced(steps: Generator[None, None, T], budget: float = SLICE) -> T:
    """Run ``steps`` to its end and return its value, with a trip through the loop every ``budget``.

    Work that fits into one slice doesn't suspend at all.

    Cancellation: the generator is closed where it stands.
    """
    spent = effort_clock(time.thread_time)
    started = spent()
    try:
        while True:
            next(steps)
            if spent() - started >= budget:
                await asyncio.sleep(0)
                started = spent()
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()

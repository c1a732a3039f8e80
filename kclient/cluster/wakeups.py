"""Waiting for something to happen, or for a while; and long work in slices, so that others may run.

``Wakeup`` is one sleeper (a task of a client), ``Broadcast`` any number of them (polls, callers,
waiters for metadata). ``run_sliced`` runs a generator that yields wherever it may be
interrupted, as the metadata refresh, and Admin's responses of thousands of topics. They decide
nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import TypeVar

from kclient.clock import work_clock

T = TypeVar("T")

LONGEST_SLEEP = 3600.0
"""Seconds; a task with nothing to wait for is woken by an event, and looks again then."""
SLICE = 0.010
"""Seconds of thread CPU time after which the loop gets a turn."""


class Wakeup:
    """Wakes one sleeper. A notification while none sleeps ends the next sleep at once."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None
        self._rung = False

    def notify(self) -> None:
        """Wake the sleeper."""
        self._rung = True
        if self._future is not None:
            _finish(self._future)

    async def sleep(self, seconds: float) -> None:
        """Sleep until it rings, ``seconds`` at most.

        Cancellation: leaves nothing behind.
        """
        if not self._rung:
            loop = asyncio.get_running_loop()
            self._future = future = loop.create_future()
            timer = loop.call_later(min(max(seconds, 0.0), LONGEST_SLEEP), _finish, future)
            try:
                await future
            finally:
                timer.cancel()
                self._future = None
        self._rung = False


class Broadcast:
    """Wakes all waiters."""

    def __init__(self) -> None:
        # In the order of their coming, so that a run can be repeated exactly.
        self._waiters: dict[asyncio.Future[None], None] = {}

    def notify(self) -> None:
        """Wake all waiters; later ones wait for the next notification."""
        if self._waiters:
            waiters, self._waiters = self._waiters, {}
            for waiter in waiters:
                _finish(waiter)

    async def wait(self, seconds: float) -> None:
        """Wait until it rings, ``seconds`` at most.

        Cancellation: leaves nothing behind.
        """
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(min(max(seconds, 0.0), LONGEST_SLEEP), _finish, waiter)
        self._waiters[waiter] = None
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiters.pop(waiter, None)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def run_sliced(steps: Generator[None, None, T], budget: float = SLICE) -> T:
    """Run ``steps`` to its end and return its value, with a trip through the loop every ``budget``.

    Work that fits into one slice doesn't suspend at all.

    Cancellation: the generator is closed where it stands.
    """
    spent = work_clock(time.thread_time)
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

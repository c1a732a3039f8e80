"""Closing a client is one task, however many callers start it, cancel their wait, or kill it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kclient.clock import SystemClock
from kclient.cluster.supervision import ATTEMPTS, Closing, Supervisor
from kclient.hooks import Counters, Hooks
from tests.unit.cluster.virtual import run, turns


class Rig:
    """A ``Closing`` whose work is given by the test."""

    def __init__(self, work: Callable[[Rig], Awaitable[Any]]) -> None:
        self.supervisor = Supervisor(Hooks(), Counters(), lambda error: None)
        self.runs = 0
        self._work = work
        self.closing: Closing[Any] = Closing(self.supervisor, SystemClock(), "close", self._counted)

    async def _counted(self) -> Any:
        self.runs += 1
        return await self._work(self)

    @property
    def task(self) -> asyncio.Task[Any]:
        """The task that does the work."""
        [found] = [t for t in asyncio.all_tasks() if t.get_name() == "kclient:close"]
        return found


async def a_second(rig: Rig) -> int:
    await asyncio.sleep(1.0)
    return rig.runs


async def until_the_limit(rig: Rig) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(TimeoutError):
        async with rig.closing.limit():
            await asyncio.Event().wait()
    return loop.time() - began


def test_it_is_done_once_for_all_callers() -> None:
    async def main() -> None:
        rig = Rig(a_second)
        assert not rig.closing.begun
        assert await asyncio.gather(*(rig.closing.run(9.0) for _ in range(3))) == [1, 1, 1]
        assert await rig.closing.run(9.0) == 1
        assert rig.closing.begun

    run(main())


def test_a_caller_that_is_cancelled_does_not_interrupt_it() -> None:
    async def main() -> None:
        rig = Rig(a_second)
        caller = asyncio.create_task(rig.closing.run(9.0))
        await turns(3)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert await rig.closing.run(9.0) == 1

    run(main())


@pytest.mark.parametrize("callers", [1, 3])
def test_where_it_is_killed_it_is_started_again_once(callers: int) -> None:
    async def main() -> None:
        rig = Rig(a_second)
        waiting = [asyncio.create_task(rig.closing.run(9.0)) for _ in range(callers)]
        await turns(3)
        rig.task.cancel()
        assert await asyncio.gather(*waiting) == [2] * callers
        assert rig.supervisor.restarts == 1

    run(main())


def test_one_that_always_fails_raises_in_the_end() -> None:
    async def broken(rig: Rig) -> None:
        raise ZeroDivisionError("a bug")

    async def main() -> None:
        rig = Rig(broken)
        with pytest.raises(ZeroDivisionError):
            await rig.closing.run(9.0)
        assert rig.runs == ATTEMPTS
        with pytest.raises(ZeroDivisionError):
            await rig.closing.run(9.0)
        assert rig.runs == ATTEMPTS

    run(main())


def test_the_limit_is_that_of_the_caller_with_the_least_time() -> None:
    async def main() -> None:
        rig = Rig(until_the_limit)
        patient = asyncio.create_task(rig.closing.run(60.0))
        await asyncio.sleep(1.0)
        assert await rig.closing.run(2.0) == pytest.approx(3.0)
        assert await patient == pytest.approx(3.0)
        assert rig.closing.time_left == 0.0

    run(main())


def test_a_caller_with_more_time_gives_it_no_more() -> None:
    async def main() -> None:
        rig = Rig(until_the_limit)
        hurried = asyncio.create_task(rig.closing.run(2.0))
        await asyncio.sleep(1.0)
        assert await rig.closing.run(60.0) == pytest.approx(2.0)
        await hurried

    run(main())


def test_a_deadline_shortened_at_the_very_moment_it_expires_does_no_harm() -> None:
    async def main() -> None:
        rig = Rig(until_the_limit)
        closing = asyncio.create_task(rig.closing.run(2.0))
        loop = asyncio.get_running_loop()
        await turns(3)
        loop.call_at(loop.time() + 2.0, rig.closing.shorten_deadline, -1.0)
        assert await closing == pytest.approx(2.0)

    run(main())

"""Flushing and closing one consumer's commits, in virtual time: bounded despite silent brokers."""

from __future__ import annotations

import asyncio

import pytest

from kclient.errors import BackgroundTaskDied, ClientClosed, RequestTimedOut
from kclient.testing import run_virtually
from tests.virtual.commit_scene import COMMIT, P0, P1, at, scene


def test_flush_waits_for_a_request_without_a_waiter() -> None:
    async def main() -> None:
        async with scene() as here:
            await here.commit({P0: at(1)})
            held = here.cluster.faults.hold(COMMIT)
            slow = here.commits.submit({P0: at(2)}, timeout=30.0)
            quick = here.commits.submit({P1: at(2)}, timeout=1.0)
            await held.wait_hits()
            with pytest.raises(RequestTimedOut):
                await quick
            assert not await here.commits.flush(here.now(1.0))
            begun, patience = here.now(), iter((True, True, False))
            flush = asyncio.create_task(here.commits.flush(here.now(9.0), lambda: next(patience)))
            await asyncio.sleep(0.1)
            here.commits.recheck()
            await asyncio.sleep(0.1)
            here.commits.recheck()
            assert not await flush
            assert here.now() - begun < 1.0
            held.release()
            assert await here.commits.flush(here.now(1.0))
            assert slow.done()

    run_virtually(main())


def test_the_end_waits_for_what_is_in_flight_within_its_bound() -> None:
    async def main() -> None:
        async with scene() as here:
            here.cluster.faults.delay(COMMIT, 1.0)
            outcome = here.commits.submit({P0: at(1)})
            await here.commits.close(here.now(5.0))
            assert outcome.result() is None
            assert await here.committed() == [1]
            with pytest.raises(ClientClosed):
                await here.commit({P0: at(2)})

    run_virtually(main())


def test_the_end_is_bounded_where_no_broker_responds() -> None:
    async def main() -> None:
        async with scene() as here:
            await here.commit({P0: at(1)})
            with here.cluster.faults.hang():
                outcome = here.commits.submit({P0: at(2)})
                begun = here.now()
                await here.commits.close(here.now(5.0))
                assert here.now() - begun == pytest.approx(5.0, abs=0.01)
                with pytest.raises(ClientClosed):
                    await outcome
                await here.commits.close(here.now(5.0))
                assert here.now() - begun == pytest.approx(5.0, abs=0.01)

    run_virtually(main())


def test_the_end_of_the_client_ends_the_waiting() -> None:
    async def main() -> None:
        async with scene() as here:
            await here.commit({P0: at(1)})
            with here.cluster.faults.hang():
                outcome = here.commits.submit({P0: at(2)})
                await asyncio.sleep(1.0)
                await here.core.close(0.1)
                with pytest.raises(ClientClosed):
                    await outcome

    run_virtually(main())


def test_killing_the_task_fails_the_client_and_all_waiters() -> None:
    async def main() -> None:
        async with scene() as here:
            held = here.cluster.faults.hold(COMMIT)
            under_way = here.commits.submit({P0: at(1)})
            queued = here.commits.submit({P0: at(2)})
            await held.wait_hits()
            [task] = [one for one in asyncio.all_tasks() if one.get_name() == "kclient:commits"]
            task.cancel()
            for outcome in (under_way, queued):
                with pytest.raises(BackgroundTaskDied, match="kclient:commits"):
                    await outcome
            with pytest.raises(BackgroundTaskDied):
                await here.commit({P0: at(3)})
            begun = here.now()
            await here.commits.close(here.now(5.0))
            assert here.now() == begun

    run_virtually(main())

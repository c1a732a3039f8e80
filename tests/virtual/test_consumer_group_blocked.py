"""User code that blocks the loop for longer than the session: others own all of it by then."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

import kclient
from kclient.consumer import poller
from kclient.error_codes import ErrorCode
from kclient.testing import Cluster, run_virtually
from tests.virtual.consumer_scene import T, fill, the_loop, until
from tests.virtual.group_scene import GROUP, SETTINGS

AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE


def consumer_of(cluster: Cluster, **settings: Any) -> Any:
    return kclient.Consumer(cluster.bootstrap, T, group=GROUP, **{**SETTINGS, **settings})


@pytest.mark.parametrize("trouble", ["none", "silence", "frozen", "refused", "moved"])
@pytest.mark.parametrize("way", ["poll", "poll_arrow", "async for"])
@pytest.mark.parametrize("turns", [1, 3, 5])
def test_nothing_is_handed_over_once_the_loop_stood_still_for_a_session(
    monkeypatch: pytest.MonkeyPatch, way: str, trouble: str, turns: int
) -> None:
    """However few loop iterations there were since, and whatever the state of the heartbeats."""
    monkeypatch.setattr(poller, "TURNS_AFTER", turns)

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 2000, 1)
            lost: list[Any] = []
            late = 0
            async with consumer_of(cluster, on_lost=lost.append) as consumer:
                steps = aiter(consumer)

                async def take() -> int:
                    if way == "async for":
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(2.0):
                                await anext(steps)
                                return 1
                        return 0
                    if way == "poll":
                        return len(await consumer.poll(max_records=50, timeout=1.0))
                    return (await consumer.poll_arrow(timeout=1.0)).num_rows

                while not await take():
                    pass
                if trouble == "silence":
                    cluster.faults.drop("Heartbeat", times=None)
                elif trouble == "frozen":
                    the_loop().network.freeze("broker-1")
                elif trouble == "refused":
                    cluster.faults.error("Heartbeat", ErrorCode.NOT_COORDINATOR, times=None)
                    cluster.faults.hold("FindCoordinator", times=None)
                elif trouble == "moved":
                    cluster.faults.error("Heartbeat", ErrorCode.NOT_COORDINATOR, times=None)
                    cluster.faults.error("FindCoordinator", AWAY, times=None)
                await asyncio.sleep(1.5)
                the_loop()._now += 8.0  # as under time.sleep
                the_loop()._effort += 8.0
                while not lost:
                    taken = await take()
                    late += 0 if lost else taken  # else of the next assignment
            assert late == 0

    run_virtually(main())


@pytest.mark.parametrize("trouble", ["none", "silence", "frozen"])
@pytest.mark.parametrize("ordering", ["partition", "key", "none"])
@pytest.mark.parametrize("works", [0.0, 0.01])
def test_no_handler_begins_once_the_loop_stood_still_for_a_session(
    trouble: str, ordering: Any, works: float
) -> None:
    """Records that were taken before are left to the owner of their partition by then."""

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 400, 2)
            lost: list[Any] = []
            begun: list[tuple[int, int]] = []
            late: list[tuple[int, int]] = []
            over = False

            async def handle(record: Any) -> None:
                nonlocal over
                begun.append((record.partition, record.offset))
                if over and not lost:
                    late.append(begun[-1])
                if len(begun) == 50:
                    if trouble == "silence":
                        cluster.faults.drop("Heartbeat", times=None)
                    elif trouble == "frozen":
                        the_loop().network.freeze("broker-1")
                    the_loop()._now += 8.0  # as under time.sleep
                    the_loop()._effort += 8.0
                    over = True
                await asyncio.sleep(works)

            async with consumer_of(cluster, on_lost=lost.append) as consumer:
                run = asyncio.create_task(consumer.run(handle, concurrency=8, ordering=ordering))
                await until(lambda: lost)
                assert late == []
                cluster.faults.clear()
                if trouble == "frozen":
                    the_loop().network.heal()
                await until(lambda: len(set(begun)) == 800)
                await consumer.close()
                await run

    run_virtually(main())

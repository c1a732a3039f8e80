"""Heartbeats go on while user code is slow, and what is too slow is reported; R20 of the promises.

Sessions of 10 s. User code that blocks the loop itself is in ``tests.embedded``, in real time.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

import kclient
from kclient.errors import MaxPollExceeded
from kclient.testing import Cluster, run_virtually
from tests.virtual.consumer_scene import T, batch, fill, the_loop, until
from tests.virtual.group_scene import GROUP, SETTINGS, Reader, settled

INTERVAL = 3.0
SLOW: dict[str, Any] = {"session_timeout": 10.0, "heartbeat_interval": INTERVAL}


def largest_gap(cluster: Cluster, seconds: float) -> float:
    """Between two heartbeats of the only member, over the latest ``seconds``."""
    now = the_loop().time()
    times = [one.at for one in cluster.requests.of("Heartbeat") if one.at >= now - seconds]
    assert len(times) >= seconds / (1.5 * INTERVAL)
    return max(later - sooner for sooner, later in itertools.pairwise([*times, now]))


@pytest.mark.parametrize("way", ["poll", "async for", "poll_arrow", "run"])
def test_user_code_that_awaits_for_minutes_costs_neither_heartbeat_nor_rebalance(way: str) -> None:
    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            fill(cluster, 20, 2)
            reached = asyncio.Event()

            async def work(record: object) -> None:
                reached.set()
                await asyncio.sleep(120.0)

            async def read(consumer: Any) -> None:
                if way == "poll":
                    await work(await consumer.poll(timeout=None))
                elif way == "poll_arrow":
                    await work(await consumer.poll_arrow(timeout=None))
                elif way == "async for":
                    async for record in consumer:
                        await work(record)
                else:
                    await consumer.run(work)

            settings = {**SETTINGS, **SLOW}
            async with kclient.Consumer(cluster.bootstrap, T, group=GROUP, **settings) as consumer:
                reading = asyncio.create_task(read(consumer))
                await reached.wait()
                rebalances = consumer.health().group.rebalances
                await asyncio.sleep(119.0)
                health = consumer.health().group
                assert (health.joined, health.state) == (True, "STABLE")
                assert health.rebalances == rebalances
                assert health.late_heartbeats == 0
                assert len(cluster.requests.of("JoinGroup")) <= 2  # one gives the member its id
                assert largest_gap(cluster, 115.0) <= 1.5 * INTERVAL
                reading.cancel()
                await asyncio.wait([reading])

    run_virtually(main(), limit=1000.0)


def test_heartbeats_go_on_while_a_rebalance_waits_for_slow_user_code() -> None:
    """The others wait for it, and it isn't thrown out meanwhile."""

    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            fill(cluster, 20, 2)
            slow = await Reader(cluster, **SLOW).start()
            await until(lambda: slow.seen == 40)

            async def work(records: list[Any]) -> None:
                await asyncio.sleep(60.0)

            slow.work = work
            await asyncio.sleep(2.0)
            other = await Reader(cluster, **SLOW).start()
            await asyncio.sleep(40.0)
            assert slow.reported("lost") == []
            slow.work = None
            await settled(slow, other, partitions=2, seconds=60.0)
            assert slow.reported("lost") == []
            assert slow.errors == other.errors == []
            await slow.stop()
            await other.stop()

    run_virtually(main(), limit=1000.0)


@pytest.mark.parametrize("way", ["poll", "async for"])
def test_a_consumer_that_is_too_slow_leaves_at_once_and_the_next_call_raises(way: str) -> None:
    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            fill(cluster, 20, 2)
            settings: Any = {**SETTINGS, **SLOW, "max_poll_interval": 20.0}
            lost: list[float] = []
            consumer = kclient.Consumer(
                cluster.bootstrap,
                T,
                group=GROUP,
                on_lost=lambda _: lost.append(the_loop().time()),
                **settings,
            )
            async with consumer:
                records = aiter(consumer)
                await (anext(records) if way == "async for" else consumer.poll(timeout=None))
                came = the_loop().time()
                await asyncio.sleep(19.9)
                assert consumer.health().group.joined
                assert consumer.health().last_poll_age == pytest.approx(19.9, abs=0.1)
                await asyncio.sleep(1.1)
                [left] = cluster.requests.of("LeaveGroup")
                assert 20.0 <= left.at - came <= 21.0
                assert [at - came <= 21.0 for at in lost] == [True]
                assert not consumer.health().ok
                await asyncio.sleep(60.0)
                began = the_loop().time()
                with pytest.raises(MaxPollExceeded, match="max_poll_interval is 20 s"):
                    await (anext(records) if way == "async for" else consumer.poll(timeout=None))
                assert the_loop().time() - began <= 1.0
                again = await consumer.poll(timeout=None)  # in the group again, from the commit
                assert again[0].offset == 0
                await asyncio.sleep(1.0)
                assert consumer.health().ok

    run_virtually(main(), limit=1000.0)


@pytest.mark.parametrize("since", [0.3, 0.8, 1.3, 1.8, 2.3, 2.8])
def test_slow_code_has_its_partitions_alone_for_max_poll_interval(since: float) -> None:
    """The group has waited for it since before it learned of the rebalance."""

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 2, partitions=2)
            patience = {"max_poll_interval": 10.0, "partition_assignment_strategy": "range"}
            slow = await Reader(cluster, **patience, heartbeat_interval=3.0).start()
            await settled(slow, partitions=2)
            quick = await Reader(cluster, **patience).start()
            await asyncio.sleep(since)

            async def work(records: Any) -> None:
                await asyncio.sleep(30.0)

            slow.work = work
            for index in range(2):
                cluster.append(T, index, batch(2, 1))
            ends = the_loop().time() + 20.0
            while the_loop().time() < ends:
                await asyncio.sleep(0.01)
                assert not set(slow.owned) & set(quick.owned)
            assert quick.owned == [0, 1]
            await quick.stop()
            await slow.stop()

    run_virtually(main())

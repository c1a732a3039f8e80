"""Many partitions and many members: what each costs and gets; R24, R25 of the promises.

On virtual time, with brokers in the same process. What is counted are tasks, timers, connections
and requests; memory and CPU are the benchmark's.
"""

from __future__ import annotations

import asyncio
import collections
from typing import Any

import pytest

import kclient
from kclient.testing import Cluster, run_virtually
from tests.unit.consumer.log_bytes import batch
from tests.virtual.cancelling import client_timers
from tests.virtual.consumer_scene import T, fill, lead, the_loop, until
from tests.virtual.group_scene import COOPERATIVE, GROUP, SETTINGS, Reader

PARTITIONS = 1000
CONSUMERS = 20
MOST_TASKS = 6
MOST_TIMERS = 14
"""Of an idle member with three brokers, the user's own poll included."""


@pytest.mark.parametrize("strategy", ["range", "sticky", COOPERATIVE])
def test_a_rebalance_of_a_thousand_partitions_takes_seconds(strategy: str) -> None:
    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            cluster.create_topic(T, partitions=PARTITIONS, replication_factor=3)
            settings: Any = {
                "partition_assignment_strategy": strategy,
                "heartbeat_interval": 1.0,
                "session_timeout": 45.0,
            }
            first, second = (Reader(cluster, **settings) for _ in range(2))
            began = the_loop().time()
            await first.start()
            await until(lambda: len(first.consumer.assignment) == PARTITIONS)
            assert the_loop().time() - began <= 5.0
            await asyncio.sleep(10.0)
            began = the_loop().time()
            await second.start()
            each = PARTITIONS // 2
            await until(
                lambda: (
                    len(first.consumer.assignment) == len(second.consumer.assignment) == each
                    and None not in second.consumer.positions().values()
                )
            )
            assert the_loop().time() - began <= 5.0
            began = the_loop().time()
            await second.stop()
            await until(lambda: len(first.consumer.assignment) == PARTITIONS)
            assert the_loop().time() - began <= 5.0
            await first.stop()

    run_virtually(main())


def test_a_thousand_partitions_are_assigned_evenly() -> None:
    """There is always more to read of each than is read."""

    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            cluster.create_topic(T, partitions=PARTITIONS, replication_factor=3)
            for index in range(PARTITIONS):
                lead(cluster, index, index % 3 + 1)
                for first in range(0, 200, 20):
                    cluster.append(T, index, batch(first, 20))
            settings: Any = {**SETTINGS, "max_partition_fetch_bytes": 500}
            shares: collections.Counter[int] = collections.Counter()
            async with kclient.Consumer(cluster.bootstrap, T, group=GROUP, **settings) as consumer:
                begun = 0
                while begun < 60 * PARTITIONS:  # one broker may be there before the others
                    begun += len(await consumer.poll(max_records=500, timeout=5.0))
                while sum(shares.values()) < 60 * PARTITIONS:
                    for record in await consumer.poll(max_records=500, timeout=5.0):
                        shares[record.partition] += 1
                assert len(shares) == PARTITIONS
                assert max(shares.values()) <= 1.2 * min(shares.values()) + 20  # one batch
                consumer.pause()
                await asyncio.sleep(5.0)
                consumer.seek_to_end()
                consumer.resume()
                await consumer.poll(timeout=20.0)
                fetches = cluster.requests.of("Fetch")
                assert max(one.size_bytes for one in fetches[-3:]) <= 2048  # nothing has changed

    run_virtually(main())


def test_an_idle_member_has_few_tasks_timers_connections_and_requests() -> None:
    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            fill(cluster, 1, 3)
            settings: Any = {"auto_offset_reset": "latest"}
            consumers = [
                kclient.Consumer(cluster.bootstrap, T, group=f"{GROUP}-{number}", **settings)
                for number in range(CONSUMERS)
            ]

            async def poll_on(consumer: Any) -> None:
                while True:
                    assert await consumer.poll(timeout=1.5) == []

            for consumer in consumers:
                await consumer.start()
            tasks = [asyncio.create_task(poll_on(consumer)) for consumer in consumers]
            await until(lambda: all(len(one.assignment) == 3 for one in consumers))
            await asyncio.sleep(60.0)
            cluster.requests.clear()
            await asyncio.sleep(60.0)
            for consumer in consumers:
                health = consumer.health()
                assert health.ok
                assert len(health.client.tasks) <= MOST_TASKS + 2  # one fetches for each broker
                lanes = collections.Counter(
                    (one.lane, one.node_id)
                    for one in health.client.connections
                    if one.state == "ready"
                )
                assert all(count == 1 for count in lanes.values())
                kinds = collections.Counter(lane for lane, _ in lanes)
                assert kinds["fetch"] == 3
                assert kinds["group"] == 1
                assert kinds["general"] <= 1
            timers = client_timers(the_loop())
            assert len(timers) <= CONSUMERS * MOST_TIMERS
            per_minute = collections.Counter(one.api for one in cluster.requests)
            assert per_minute.keys() <= {"Fetch", "Heartbeat", "Metadata"}
            assert per_minute["Heartbeat"] <= CONSUMERS * 21  # every 3 s
            assert per_minute["Fetch"] <= CONSUMERS * 3 * 125  # fetch_max_wait is 0.5 s
            assert per_minute["Metadata"] <= CONSUMERS
            for task in tasks:
                task.cancel()
            await asyncio.gather(*(consumer.close() for consumer in consumers))

    run_virtually(main())

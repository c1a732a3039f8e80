"""A consumer in a group where commits and coordinators are slow, at the worst of moments."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kclient
from kclient.errors import ClientClosed
from kclient.testing import Cluster, run_virtually
from kclient.types import TopicPartition
from tests.unit.consumer.log_bytes import batch
from tests.virtual.cancelling import client_timers
from tests.virtual.consumer_scene import T, fill, the_loop, until
from tests.virtual.group_scene import COOPERATIVE, GROUP, SETTINGS, Reader, settled


@pytest.mark.parametrize("strategy", ["range", COOPERATIVE])
def test_a_commit_in_flight_lands_before_partitions_are_revoked(strategy: str) -> None:
    """Otherwise the next owner would read again what it was for."""

    async def main() -> None:
        async with Cluster() as cluster:
            fill(cluster, 20, 4)
            settings: Any = {
                "partition_assignment_strategy": strategy,
                "auto_commit_interval": 1.0,
                "heartbeat_interval": 0.1,
            }
            first = await Reader(cluster, **settings).start()
            await until(lambda: first.seen >= 80)
            cluster.faults.delay("OffsetCommit", 1.5, times=None)
            await until(lambda: any(cluster.requests.of("OffsetCommit")), 5.0)
            second = await Reader(cluster, **settings).start()
            await settled(first, second)
            await asyncio.sleep(5.0)
            cluster.faults.clear()
            assert first.seen + second.seen == 80
            await first.stop()
            await second.stop()

    run_virtually(main())


@pytest.mark.parametrize("strategy", ["range", COOPERATIVE])
def test_a_waiter_for_a_commit_learns_of_the_loss_in_time(strategy: str) -> None:
    """The coordinator falls silent while partitions are revoked: the session's end is the end."""

    async def main() -> None:
        async with Cluster() as cluster:
            fill(cluster, 20, 4)
            settings: Any = {"partition_assignment_strategy": strategy, "heartbeat_interval": 0.1}
            first = await Reader(cluster, **settings).start()
            await until(lambda: first.seen >= 80)
            held = cluster.faults.hold("OffsetCommit", times=None)
            second = await Reader(cluster, **settings).start()
            await until(lambda: held.held)
            began = the_loop().time()
            the_loop().network.freeze(f"broker-{cluster.coordinator(GROUP)}")
            await until(lambda: first.reported("lost"))
            assert the_loop().time() - began < 7.0  # session_timeout is 6 s
            the_loop().network.heal()
            cluster.faults.clear()
            held.release()
            await settled(first, second)
            await first.stop()
            await second.stop()

    run_virtually(main())


def test_nothing_can_be_subscribed_to_while_the_consumer_closes() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            fill(cluster, 20, 1)
            consumer = kclient.Consumer(cluster.bootstrap, T, group=GROUP, **SETTINGS)
            await consumer.start()
            assert await consumer.poll(timeout=None)
            held = cluster.faults.hold("LeaveGroup")
            closing = asyncio.create_task(consumer.close())
            await until(lambda: held.held)
            with pytest.raises(ClientClosed):
                consumer.subscribe(T)
            held.release()
            await closing
            assert client_timers(the_loop()) == []
            assert consumer.assignment == frozenset()

    run_virtually(main())


def test_a_consumer_that_subscribes_while_it_unsubscribes_is_back_in_the_group() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            fill(cluster, 20, 1)
            async with kclient.Consumer(cluster.bootstrap, T, group=GROUP, **SETTINGS) as consumer:
                assert len(await consumer.poll(timeout=None)) == 20
                held = cluster.faults.hold("OffsetCommit")
                consumer.commit_nowait()
                await until(lambda: held.held)
                leaving = asyncio.create_task(consumer.unsubscribe())
                await asyncio.sleep(0.1)
                leaving.cancel()
                consumer.subscribe(T)
                held.release()
                cluster.append(T, 0, batch(20, 5))
                records = await consumer.poll(timeout=30.0)
                assert [record.offset for record in records] == [20, 21, 22, 23, 24]

    run_virtually(main())


@pytest.mark.parametrize("ends", ["close", "unsubscribe"])
@pytest.mark.parametrize(("what", "expected"), [("all", 20), ("record", 5), ("offsets", 3)])
def test_what_was_committed_by_hand_is_not_taken_back_at_the_end(
    what: str, expected: int, ends: str
) -> None:
    """Automatic commits know less of what the latest poll gave than the user does."""

    async def main() -> None:
        async with Cluster() as cluster:
            fill(cluster, 20, 1)
            part = TopicPartition(T, 0)
            consumer: Any = kclient.Consumer(cluster.bootstrap, T, group=GROUP, **SETTINGS)
            await consumer.start()
            records = await consumer.poll(timeout=None)
            assert len(records) == 20
            await consumer.commit({"all": None, "record": records[4], "offsets": {part: 3}}[what])
            if ends == "unsubscribe":
                await consumer.unsubscribe()
            await consumer.close()
            async with kclient.Consumer(cluster.bootstrap, group=GROUP, **SETTINGS) as other:
                found = (await other.committed([part]))[part]
                assert found is not None and found.offset == expected

    run_virtually(main())


@pytest.mark.parametrize("silent", [0.0, 5.0, 5.99, 7.0])
@pytest.mark.parametrize("cancels", [False, True])
def test_a_consumer_that_subscribes_again_joins_whatever_was_in_flight(
    cancels: bool, silent: float
) -> None:
    """A JoinGroup without a waiter leaves late, and has no effect."""

    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            fill(cluster, 5, 2)
            async with kclient.Consumer(cluster.bootstrap, T, group=GROUP, **SETTINGS) as consumer:
                while len(consumer.assignment) < 2:
                    await consumer.poll(timeout=1.0)
                the_loop().network.freeze(f"broker-{cluster.coordinator(GROUP)}")
                await asyncio.sleep(silent)
                leaving = asyncio.create_task(consumer.unsubscribe())
                await asyncio.sleep(0.01)
                if cancels:
                    leaving.cancel()
                await asyncio.wait([leaving])
                the_loop().network.heal()
                consumer.subscribe(T)
                async with asyncio.timeout(60.0):
                    while not consumer.health().ok or len(consumer.assignment) < 2:
                        await consumer.poll(timeout=1.0)

    run_virtually(main(), limit=10_000.0)

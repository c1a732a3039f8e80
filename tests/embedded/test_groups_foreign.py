"""Groups of foreign consumers on several brokers; `tests/foreign` covers them on one broker.

The cluster runs on a loop in a thread of its own, as these clients block. What they see is
compared with the brokers' state.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import aiokafka
import confluent_kafka
import pytest

from kclient.testing import Cluster
from kclient.testing.groups.classic_group import ClassicGroup, State
from tests.unit.testing.batches import batch_bytes

T = TypeVar("T")
PARTITIONS, EACH = 6, 10
PATIENCE = 30.0
"""Seconds after which a wait counts as failed."""


class Box:
    """A cluster of three brokers and its thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.cluster = self.run(self._start())

    @staticmethod
    async def _start() -> Cluster:
        cluster = Cluster(3)
        await cluster.start()
        cluster.create_topic("t", partitions=PARTITIONS, replication_factor=3)
        for partition in range(PARTITIONS):
            cluster.append("t", partition, batch_bytes(EACH))
        return cluster

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    def see(self, function: Callable[[Cluster], T]) -> T:
        """Call ``function`` with the cluster, in its thread."""

        async def look() -> T:
            return function(self.cluster)

        return self.run(look())

    def coordinator(self, group: str) -> int:
        """Node id of a group's coordinator."""

        def find(cluster: Cluster) -> int:
            up = next(one for one in cluster.brokers.values() if one.running)
            found = up.groups.find(group)
            assert found is not None
            return found.node_id

        return self.see(find)

    def group(self, name: str) -> ClassicGroup:
        """A group, as its coordinator has it."""
        node_id = self.coordinator(name)
        return self.see(lambda cluster: cluster.brokers[node_id].groups.shard(name).groups[name])

    def end(self) -> None:
        """Close the cluster, and end the thread."""
        self.run(self.cluster.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(PATIENCE)
        self.loop.close()


@pytest.fixture
def box() -> Iterator[Box]:
    one = Box()
    try:
        yield one
    finally:
        one.end()


def until(condition: Callable[[], bool], what: str) -> None:
    """Poll the condition until it holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, what


# librdkafka


def rdkafka(box: Box, group: str, **settings: object) -> confluent_kafka.Consumer:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": box.cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    consumer.subscribe(["t"])
    return consumer


def shared(*consumers: confluent_kafka.Consumer) -> Callable[[], bool]:
    """Whether all members have equally many partitions."""

    def check() -> bool:
        for one in consumers:
            one.poll(0.02)
        return all(len(one.assignment()) == PARTITIONS // len(consumers) for one in consumers)

    return check


def drain(*consumers: confluent_kafka.Consumer) -> set[tuple[int, int]]:
    """Poll until all records of the topic came; return their (partition, offset) pairs."""
    seen: set[tuple[int, int]] = set()

    def check() -> bool:
        for one in consumers:
            message = one.poll(0.02)
            if message is not None and message.error() is None:
                seen.add((message.partition(), message.offset()))
        return len(seen) == PARTITIONS * EACH

    until(check, f"{len(seen)} records came")
    return seen


def test_a_group_of_librdkafka_outlives_its_coordinator(box: Box) -> None:
    first, second = rdkafka(box, "g"), rdkafka(box, "g")
    until(shared(first, second), "both have three")
    drain(first, second)
    was = box.coordinator("g")
    members = {*box.group("g").members}
    box.run(box.cluster.stop(was))
    until(
        lambda: shared(first, second)() and {*box.group("g").members} == members,
        "the same members at another coordinator",
    )
    assert box.coordinator("g") != was
    for one in (first, second):
        one.commit(asynchronous=False)
    places = [confluent_kafka.TopicPartition("t", index) for index in range(PARTITIONS)]
    found = first.committed(places, timeout=PATIENCE)
    assert [one.offset for one in found] == [EACH] * PARTITIONS
    first.close()
    second.close()


# aiokafka


def test_consumers_of_aiokafka_divide_partitions_and_hand_over(box: Box) -> None:
    async def consumer() -> aiokafka.AIOKafkaConsumer:
        one = aiokafka.AIOKafkaConsumer(
            "t",
            bootstrap_servers=box.cluster.bootstrap,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6000,
            heartbeat_interval_ms=200,
        )
        await one.start()
        return one

    async def shared_by(*consumers: aiokafka.AIOKafkaConsumer) -> None:
        each = PARTITIONS // len(consumers)
        while not all(len(one.assignment()) == each for one in consumers):
            for one in consumers:
                await one.getmany(timeout_ms=20)

    async def main() -> None:
        first = await consumer()
        came = 0
        while came < PARTITIONS * EACH:
            came += sum(len(records) for records in (await first.getmany(timeout_ms=20)).values())
        await first.commit()
        second = await consumer()
        await shared_by(first, second)
        await second.stop()
        await shared_by(first)
        assert await first.committed(aiokafka.TopicPartition("t", 0)) == EACH
        await first.stop()

    async def in_time() -> None:
        async with asyncio.timeout(PATIENCE):
            await main()

    asyncio.run(in_time())
    assert box.group("g").state is State.EMPTY

"""No callback of a client holds the event loop for long, whatever the load: at most 50 ms of CPU.

Measured in CPU time of the thread, so other processes on the machine don't count, with the
collector out, whose walks are over what the whole suite keeps. Each test has an asyncio loop of its
own, as ``LoopProbe`` sees no other kind. The pure build does a tenth of the work.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pyarrow  # noqa: F401 - loaded before a probe looks
import pytest

import kclient
from kclient.consumer import iteration
from kclient.errors import DeliveryTimedOut, FlushFailed, KafkaError
from kclient.producer import turns
from kclient.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kclient.record import IMPLEMENTATION
from kclient.testing import Cluster, LoopProbe
from kclient.types import TopicPartition
from tests.support.yardstick import held
from tests.unit.consumer.log_bytes import batch

T = "flights"
MIB = 1024 * 1024
SCALE = 0.1 if IMPLEMENTATION == "pure" else 1.0
VALUE = b"x" * 100
START: Any = {"auto_offset_reset": "earliest", "fetch_max_wait": 0.1}


@pytest.fixture(autouse=True)
def the_collector_keeps_out() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def scaled(count: int) -> int:
    return int(count * SCALE)


def run(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(main)


# Reading


async def by_poll(consumer: Any, count: int) -> None:
    while count > 0:
        count -= len(await consumer.poll(max_records=1_000_000, timeout=5.0))


async def by_loop(consumer: Any, count: int) -> None:
    async for _ in consumer:
        count -= 1
        if not count:
            break


async def by_columns(consumer: Any, count: int) -> None:
    while count > 0:
        count -= (await consumer.poll_arrow(timeout=5.0)).num_rows


READ: dict[str, Callable[[Any, int], Awaitable[None]]] = {
    "poll": by_poll,
    "loop": by_loop,
    "columns": by_columns,
}


@pytest.mark.parametrize("way", READ)
def test_reading_a_million_small_records(way: str) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic(T, partitions=4)
            data = batch(0, 500, value_bytes=100)
            for index in range(4):
                for _ in range(scaled(500)):
                    cluster.append(T, index, data)
            async with kclient.Consumer(cluster.bootstrap, T, **START) as consumer:
                with LoopProbe() as probe:
                    await READ[way](consumer, scaled(1_000_000))
            held(probe)

    run(main())


@pytest.mark.parametrize("way", READ)
def test_large_compressed_values_both_ways(way: str) -> None:
    """They are worth a thread, out and in."""
    part = random.Random(1).randbytes(10_000)
    value = (part * 11)[: 100 * 1024]
    count = scaled(10_000)

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic(T, partitions=4)
            settings: Any = {"compression": "zstd", "batch_size": 1_000_000}
            async with kclient.Producer(cluster.bootstrap, **settings) as producer:
                with LoopProbe() as probe:
                    assert await producer.send_many(T, (value for _ in range(count))) == count
            held(probe)
            async with kclient.Consumer(cluster.bootstrap, T, **START) as consumer:
                with LoopProbe() as probe:
                    await READ[way](consumer, count)
            held(probe)

    run(main())


class UsersWork:
    """A clock that only the user's own code moves, and what it showed at each turn of the loop."""

    RECORD = 0.0003
    """Seconds that the user's code takes over one record."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns = [0.0]

    def clock(self) -> float:
        return self.now

    def do(self) -> None:
        self.now += self.RECORD

    async def watch(self) -> None:
        while True:
            self.turns.append(self.now)
            await asyncio.sleep(0)

    def longest(self) -> float:
        """Seconds of work between two turns at most."""
        pairs = itertools.pairwise([*self.turns, self.now])
        return max(later - earlier for earlier, later in pairs)


def test_a_loop_over_records_lets_others_run_every_few_milliseconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long the user's own code takes over each: 5 ms and one record."""
    work = UsersWork()
    monkeypatch.setattr("kclient.consumer.iteration.monotonic", work.clock)

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic(T)
            data = batch(0, 500, value_bytes=100)
            for _ in range(10):
                cluster.append(T, 0, data)
            async with kclient.Consumer(cluster.bootstrap, T, **START) as consumer:
                await consumer.poll(max_records=1, timeout=5.0)
                others = asyncio.create_task(work.watch())
                count = 0
                async for _ in consumer:
                    work.do()
                    count += 1
                    if count == 3000:
                        break
                others.cancel()
            assert work.now > 0.8
            assert work.longest() < iteration.TURN + 2 * work.RECORD

    run(main())


# Writing


def records(count: int, *, keyed: bool = True) -> Iterator[tuple[bytes | None, bytes]]:
    for number in range(count):
        yield (b"%d" % number if keyed else None), VALUE


async def by_send(producer: Any, count: int) -> None:
    """A plain call, so its loop has to be let go by the user."""
    for number, (key, value) in enumerate(records(count)):
        producer.send(T, value, key=key)
        if number % 1000 == 0:
            await asyncio.sleep(0)
    await producer.flush()


async def by_enqueue(producer: Any, count: int) -> None:
    for key, value in records(count):
        await producer.enqueue(T, value, key=key)
    await producer.flush()


async def by_send_many(producer: Any, count: int) -> None:
    assert await producer.send_many(T, records(count)) == count


WRITE: dict[str, Callable[[Any, int], Awaitable[None]]] = {
    "send": by_send,
    "enqueue": by_enqueue,
    "send_many": by_send_many,
}


@pytest.mark.parametrize("partitions", [6, 1000])
@pytest.mark.parametrize("way", WRITE)
def test_a_burst_of_half_a_million_records(way: str, partitions: int) -> None:
    """Also where it fills no batch for long, being spread over a thousand of them."""

    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            cluster.create_topic(T, partitions=partitions)
            settings: Any = {"buffer_memory": 256 * MIB, "linger": 0.5}
            async with kclient.Producer(cluster.bootstrap, **settings) as producer:
                await producer.partitions_for(T)
                with LoopProbe() as probe:
                    await WRITE[way](producer, scaled(500_000))
            held(probe)

    run(main())


@pytest.mark.parametrize("way", ["enqueue", "send_many"])
def test_a_loop_that_writes_lets_others_run_every_few_milliseconds(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = UsersWork()
    monkeypatch.setattr("kclient.producer.turns.monotonic", work.clock)

    def slow() -> Iterator[bytes]:
        for _ in range(1000):
            work.do()
            yield VALUE

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic(T)
            async with kclient.Producer(cluster.bootstrap, batch_size=MIB // 2) as producer:
                await producer.partitions_for(T)
                others = asyncio.create_task(work.watch())
                if way == "enqueue":
                    for value in slow():
                        await producer.enqueue(T, value)
                else:
                    await producer.send_many(T, slow())
                others.cancel()
            assert work.now > 0.25
            assert work.longest() < turns.TURN + 10 * work.RECORD  # send_many looks at each 8th

    run(main())


# The end


async def filled(cluster: Cluster, count: int, **settings: Any) -> tuple[Any, list[Any]]:
    """A producer with ``count`` records that its brokers don't answer for yet."""
    if IMPLEMENTATION == "pure":
        settings["max_request_size"] = MIB // 4  # the brokers are in this loop, and look at it all
    producer: Any = kclient.Producer(cluster.bootstrap, buffer_memory=256 * MIB, **settings)
    await producer.start()
    await producer.partitions_for(T)
    deliveries = []
    for number, (key, value) in enumerate(records(count)):
        deliveries.append(producer.send(T, value, key=key))
        if number % 1000 == 0:
            await asyncio.sleep(0)
    return producer, deliveries


async def watch(delivery: Any) -> bool:
    try:
        await delivery
    except KafkaError:
        return False
    return True


def watchers(deliveries: list[Any]) -> list[asyncio.Task[bool]]:
    return [asyncio.create_task(watch(delivery)) for delivery in deliveries]


async def count_delivered(tasks: list[asyncio.Task[bool]]) -> int:
    """In an order that asks for no callback over all of them."""
    return sum([await task for task in tasks])


@pytest.mark.parametrize("partitions", [6, 1000])
@pytest.mark.parametrize("awaited", [False, True], ids=["alone", "awaited"])
def test_closing_with_a_hundred_thousand_records_to_deliver(awaited: bool, partitions: int) -> None:
    count = scaled(100_000)

    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            cluster.create_topic(T, partitions=partitions)
            held_back = cluster.faults.hold("Produce", times=None)
            producer, deliveries = await filled(cluster, count)
            tasks = watchers(deliveries) if awaited else []
            await asyncio.sleep(0)
            with LoopProbe() as probe:
                closing = asyncio.create_task(producer.close())
                await asyncio.sleep(0)
                cluster.faults.clear()
                held_back.release()
                await closing
            held(probe)
            assert sum(cluster.end_offset(T, n) for n in range(partitions)) == count
            assert await count_delivered(tasks) == len(tasks)

    run(main())


@pytest.mark.parametrize("partitions", [6, 1000])
@pytest.mark.parametrize("awaited", [False, True], ids=["alone", "awaited"])
def test_closing_with_a_hundred_thousand_records_to_give_up(awaited: bool, partitions: int) -> None:
    count = scaled(100_000)

    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            cluster.create_topic(T, partitions=partitions)
            cluster.faults.drop("Produce", times=None)
            producer, deliveries = await filled(cluster, count)
            tasks = watchers(deliveries) if awaited else []
            await asyncio.sleep(0)
            with LoopProbe() as probe:
                with pytest.raises(FlushFailed) as caught:
                    await producer.close(timeout=0.0)
            held(probe)
            assert caught.value.count == count
            assert await count_delivered(tasks) == 0

    run(main())


@pytest.mark.parametrize("partitions", [6, 1000])
@pytest.mark.parametrize("awaited", [False, True], ids=["alone", "awaited"])
def test_a_hundred_thousand_records_whose_time_is_over_at_once(
    awaited: bool, partitions: int
) -> None:
    count = scaled(100_000)

    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            cluster.create_topic(T, partitions=partitions)
            cluster.faults.drop("Produce", times=None)
            producer, deliveries = await filled(
                cluster, count, delivery_timeout=2.0, request_timeout=1.0, linger=1.0
            )
            tasks = watchers(deliveries) if awaited else []
            last = deliveries[-1]
            if not awaited:
                deliveries.clear()
            await asyncio.sleep(0)
            with LoopProbe() as probe:
                with pytest.raises(DeliveryTimedOut):
                    await last
                with contextlib.suppress(FlushFailed):
                    await producer.flush()
            held(probe)
            assert await count_delivered(tasks) == 0
            with contextlib.suppress(FlushFailed):
                await producer.close(timeout=0.0)

    run(main())


@pytest.mark.parametrize("end", ["room", "time", "close"])
def test_very_many_calls_that_wait_for_room(end: str) -> None:
    """Each is a task of the user's, and they are all told at once."""
    count = scaled(50_000)

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic(T, partitions=6)
            held_back = cluster.faults.hold("Produce", times=None)
            producer: Any = kclient.Producer(
                cluster.bootstrap, buffer_memory=MIB // 4, max_block=0.1 if end == "time" else 30.0
            )
            await producer.start()

            async def one() -> bool:
                try:
                    await producer.enqueue(T, VALUE)
                except KafkaError:
                    return False
                return True

            tasks = [asyncio.create_task(one()) for _ in range(count)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            with LoopProbe() as probe:
                if end == "close":
                    with contextlib.suppress(FlushFailed):
                        await producer.close(timeout=0.0)
                elif end == "room":
                    cluster.faults.clear()
                    held_back.release()
                taken = sum([await task for task in tasks])
            held(probe)
            assert taken == count if end == "room" else taken < count
            with contextlib.suppress(FlushFailed):
                await producer.close(timeout=5.0 if end == "room" else 0.0)

    run(main())


def test_closing_a_consumer_that_holds_a_hundred_thousand_records() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic(T, partitions=4)
            data = batch(0, 500, value_bytes=100)
            for index in range(4):
                for _ in range(50):
                    cluster.append(T, index, data)
            settings: Any = {"max_partition_fetch_bytes": 4 * MIB}
            consumer: Any = kclient.Consumer(cluster.bootstrap, T, **START, **settings)
            await consumer.start()
            await consumer.poll(max_records=1, timeout=5.0)
            await cluster.requests.wait_count("Fetch", 3)
            assert consumer.health().buffered_bytes > 7 * MIB
            with LoopProbe() as probe:
                await consumer.close()
            held(probe)

    run(main())


# Many partitions


def test_a_thousand_partitions_are_assigned_sought_paused_and_dropped() -> None:
    partitions = [TopicPartition(T, index) for index in range(1000)]

    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            cluster.create_topic(T, partitions=1000)
            data = batch(0, 100, value_bytes=100)
            for index in range(1000):
                cluster.append(T, index, data)
            with LoopProbe() as probe:
                async with kclient.Consumer(cluster.bootstrap, **START) as consumer:
                    consumer.assign(partitions)
                    await by_poll(consumer, 100_000)
                    for change in (
                        consumer.seek_to_beginning,
                        lambda: consumer.pause(*partitions),
                        consumer.resume,
                        lambda: consumer.assign(partitions[::2]),
                        lambda: consumer.assign(partitions),
                        consumer.health,
                        consumer.positions,
                        lambda: consumer.assign([]),
                    ):
                        change()
                        await asyncio.sleep(0.05)
            held(probe)

    run(main())


class CannedMetadata(MetadataResponse):
    """An answer that costs the embedded broker, which shares the loop, no time."""

    data = b""

    def encode_into(self, out: bytearray, version: int) -> None:
        out += self.data


def metadata_of(topics: list[str], partitions: int, bootstrap: str) -> MetadataResponse:
    host, _, port = bootstrap.rpartition(":")
    canned = CannedMetadata()
    canned.data = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host=host, port=int(port))],
        cluster_id="big",
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                name=name,
                topic_id=number.to_bytes(16, "big"),
                partitions=[
                    MetadataResponsePartition(
                        partition_index=index, leader_id=1, replica_nodes=[1], isr_nodes=[1]
                    )
                    for index in range(partitions)
                ],
            )
            for number, name in enumerate(topics, 1)
        ],
    ).encode(MetadataResponse.MAX_VERSION)
    return canned


@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_metadata_of_a_hundred_thousand_partitions(kind: str) -> None:
    topics = [f"topic-{number:05}" for number in range(scaled(10_000))]

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            canned = metadata_of(topics, 10, cluster.bootstrap)
            make: Any = kclient.Producer if kind == "producer" else kclient.Consumer
            async with make(cluster.bootstrap, metadata_max_age=0.3) as client:
                cluster.faults.rewrite("Metadata", lambda request, answer: canned, times=None)
                with LoopProbe() as probe:
                    tasks = [asyncio.create_task(client.partitions_for(name)) for name in topics]
                    for task in tasks:
                        assert len(await task) == 10
                    await cluster.requests.wait_count(
                        "Metadata", cluster.requests.count("Metadata") + 3
                    )
                held(probe)

    run(main())

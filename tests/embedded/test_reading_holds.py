"""No way of reading holds the event loop for long, whatever there is to read.

See ``tests.support.holds`` for how. The pure build does a tenth of the work.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow  # noqa: F401 - loaded before a probe looks
import pytest

import kclient
from kclient.consumer import poller
from kclient.record import Compression
from kclient.testing import Cluster, LoopProbe
from kclient.types import TopicPartition
from tests.behaviours.reading import read
from tests.support.holds import held, run_held, scaled
from tests.support.users_work import UsersWork
from tests.unit.consumer.log_bytes import batch

T = "flights"
MIB = 1024 * 1024
START: Any = {"auto_offset_reset": "earliest", "fetch_max_wait": 0.1}


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

    run_held(main)


@pytest.mark.parametrize("way", READ)
def test_large_compressed_values_both_ways(way: str) -> None:
    """They are compressed and inflated in a thread."""
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

    run_held(main)


def test_a_loop_over_records_lets_others_run_every_few_milliseconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others wait for at most 5 ms and one record, however long the application takes for it."""
    work = UsersWork()
    monkeypatch.setattr("kclient.consumer.poller.monotonic", work.clock)

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
            assert work.longest() < poller.TURN + 2 * work.RECORD

    run_held(main)


@pytest.mark.parametrize("way", READ)
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_the_loop_is_never_held_for_long(way: str, codec: Compression) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic(T, partitions=4)
            data = batch(0, 5000, codec=codec, value_bytes=100)
            for index in range(4):
                for _ in range(10):
                    cluster.append(T, index, data)
            async with kclient.Consumer(cluster.bootstrap, T, **START) as consumer:
                with LoopProbe() as probe:
                    await READ[way](consumer, 200_000)
                held(probe)

    run_held(main)


def test_a_large_response_of_many_tiny_batches_does_not_hold_the_loop() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic(T, partitions=4)
            data = b"".join(batch(offset, 1) for offset in range(6000))
            for index in range(4):
                cluster.append(T, index, data)
            async with kclient.Consumer(cluster.bootstrap, T, **START) as consumer:
                with LoopProbe() as probe:
                    assert len(await read(consumer, 24_000)) == 24_000
                held(probe)

    run_held(main)


def test_large_gzip_batches_do_not_hold_the_loop() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic(T)
            for first in range(0, 2000, 500):
                cluster.append(T, 0, batch(first, 500, codec=Compression.GZIP, value_bytes=40_000))
            async with kclient.Consumer(cluster.bootstrap, T, **START) as consumer:
                with LoopProbe() as probe:
                    assert len(await read(consumer, 2000)) == 2000
                held(probe)

    run_held(main)


def test_a_batch_of_very_many_records_does_not_hold_the_loop() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic(T)
            cluster.append(T, 0, batch(0, 400_000, codec=Compression.LZ4))
            for way in READ:
                async with kclient.Consumer(cluster.bootstrap, T, **START) as consumer:
                    with LoopProbe() as probe:
                        await READ[way](consumer, 400_000)
                    held(probe)

    run_held(main)


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

    run_held(main)


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

    run_held(main)

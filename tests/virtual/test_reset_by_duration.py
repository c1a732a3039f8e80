"""Consumers that begin where records are younger than a duration (KIP-1106), on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import kclient
from kclient.error_codes import ErrorCode
from kclient.testing import Cluster
from tests.virtual.consumer_scene import QUICK, T, read


@asynccontextmanager
async def beginning(cluster: Cluster, setting: str) -> AsyncIterator[Any]:
    """A consumer of the topic that begins by ``setting``."""
    settings = {**QUICK, "auto_offset_reset": setting}
    async with kclient.Consumer(cluster.bootstrap, T, **settings) as consumer:
        yield consumer


async def write(cluster: Cluster, first: int, count: int) -> None:
    async with kclient.Producer(cluster.bootstrap) as producer:
        for number in range(first, first + count):
            await producer.send(T, str(number).encode(), partition=0)


def values(records: list[Any]) -> list[int]:
    return [int(record.value) for record in records]


async def test_it_begins_with_the_first_record_that_is_young_enough() -> None:
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic(T, partitions=1, replication_factor=3)
        await write(cluster, 0, 3)
        await asyncio.sleep(3600.0)
        await write(cluster, 3, 3)
        await asyncio.sleep(600.0)
        for setting, first in (("PT30M", 3), ("PT2H", 0), ("P9999D", 0)):
            async with beginning(cluster, f"by_duration:{setting}") as consumer:
                assert values(await read(consumer, 6 - first)) == list(range(first, 6))


async def test_the_duration_is_counted_back_from_the_lookup_and_not_from_the_start() -> None:
    """The second lookup is one after records were deleted under the position."""
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic(T, partitions=1)
        async with beginning(cluster, "by_duration:PT30M") as consumer:
            await write(cluster, 0, 3)
            assert values(await read(consumer, 3)) == [0, 1, 2]
            consumer.pause()
            await asyncio.sleep(3600.0)
            await write(cluster, 3, 2)
            await asyncio.sleep(3600.0)
            await write(cluster, 5, 2)
            cluster.delete_records(T, 0, 4)
            consumer.resume()
            assert values(await read(consumer, 2)) == [5, 6]


async def test_where_no_record_is_young_enough_it_begins_at_the_end() -> None:
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic(T, partitions=1, replication_factor=3)
        await write(cluster, 0, 3)
        await asyncio.sleep(3600.0)
        async with beginning(cluster, "by_duration:PT30M") as consumer:
            assert await consumer.poll(timeout=5.0) == []
            await write(cluster, 3, 3)
            assert values(await read(consumer, 3)) == [3, 4, 5]


async def test_a_record_that_is_written_between_the_lookups_is_read() -> None:
    """The response that no record is young enough precedes it, and that for the end follows it."""
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic(T, partitions=1)
        await write(cluster, 0, 3)
        await asyncio.sleep(3600.0)
        first = cluster.faults.hold("ListOffsets", after=True)
        async with beginning(cluster, "by_duration:PT30M") as consumer:
            polling = asyncio.create_task(consumer.poll(timeout=30.0))
            await cluster.requests.wait_for("ListOffsets")
            await asyncio.sleep(0.1)
            await write(cluster, 3, 1)
            first.release()
            assert values(await polling) == [3]
            await write(cluster, 4, 1)
            assert values(await read(consumer, 1)) == [4]


async def test_a_lookup_that_fails_is_made_again() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic(T, partitions=1)
        await write(cluster, 0, 3)
        await asyncio.sleep(3600.0)
        cluster.faults.error("ListOffsets", ErrorCode.KAFKA_STORAGE_ERROR, times=3)
        async with beginning(cluster, "by_duration:PT30M") as consumer:
            assert await consumer.poll(timeout=5.0) == []
            await write(cluster, 3, 2)
            assert values(await read(consumer, 2)) == [3, 4]

"""``seek`` to a point in time, on virtual time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import kclient
from kclient.error_codes import ErrorCode
from kclient.testing import Cluster
from tests.virtual.consumer_scene import QUICK, P, T, read


async def write(cluster: Cluster, first: int, count: int) -> None:
    async with kclient.Producer(cluster.bootstrap) as producer:
        for number in range(first, first + count):
            await producer.send(T, str(number).encode(), partition=0)


def values(records: list[Any]) -> list[int]:
    return [int(record.value) for record in records]


async def two_hours(cluster: Cluster) -> datetime:
    """Records 0 to 2, and an hour later 3 to 5; returns the time between them."""
    cluster.create_topic(T, partitions=1)
    await write(cluster, 0, 3)
    written = cluster.records(T)[-1].datetime
    await asyncio.sleep(3600.0)
    await write(cluster, 3, 3)
    return written + timedelta(minutes=30)


async def test_it_goes_on_with_the_first_record_that_is_not_before_the_time() -> None:
    async with Cluster(brokers=1) as cluster:
        between = await two_hours(cluster)
        async with kclient.Consumer(cluster.bootstrap, T, **QUICK) as consumer:
            assert values(await read(consumer, 6)) == [0, 1, 2, 3, 4, 5]
            consumer.seek(P, between)
            assert await consumer.position(P) == 3
            assert values(await read(consumer, 3)) == [3, 4, 5]
            consumer.seek(P, datetime(1970, 1, 1, tzinfo=UTC))
            assert values(await read(consumer, 6)) == [0, 1, 2, 3, 4, 5]
            [exact] = [record.datetime for record in cluster.records(T) if record.offset == 4]
            consumer.seek(P, exact)
            assert await consumer.position(P) == 4


async def test_where_all_records_are_older_it_goes_to_the_end() -> None:
    async with Cluster(brokers=1) as cluster:
        between = await two_hours(cluster)
        async with kclient.Consumer(cluster.bootstrap, T, **QUICK) as consumer:
            consumer.seek(P, between + timedelta(days=1))
            assert await consumer.position(P) == 6
            assert await consumer.poll(timeout=5.0) == []
            await write(cluster, 6, 1)
            assert values(await read(consumer, 1)) == [6]


async def test_what_a_lookup_by_time_found_can_be_sought() -> None:
    async with Cluster(brokers=1) as cluster:
        between = await two_hours(cluster)
        async with (
            kclient.Admin(cluster.bootstrap) as admin,
            kclient.Consumer(cluster.bootstrap, T, **QUICK) as consumer,
        ):
            for found in (
                await consumer.offsets_for_times({P: between}),
                await admin.list_offsets({P: between}),
            ):
                consumer.seek(P, found[P])
                assert values(await read(consumer, 3)) == [3, 4, 5]


async def test_a_lookup_that_fails_is_made_again_for_the_same_time() -> None:
    async with Cluster(brokers=1) as cluster:
        between = await two_hours(cluster)
        async with kclient.Consumer(cluster.bootstrap, T, **QUICK) as consumer:
            assert await consumer.position(P) == 0
            cluster.faults.error("ListOffsets", ErrorCode.KAFKA_STORAGE_ERROR, times=3)
            consumer.seek(P, between)
            assert values(await read(consumer, 3)) == [3, 4, 5]


async def test_a_record_that_is_written_between_the_lookups_is_read() -> None:
    async with Cluster(brokers=1) as cluster:
        between = await two_hours(cluster)
        async with kclient.Consumer(cluster.bootstrap, T, **QUICK) as consumer:
            assert await consumer.position(P) == 0
            held = cluster.faults.hold("ListOffsets", after=True)  # the one for the end
            consumer.seek(P, between + timedelta(minutes=30, seconds=5))
            polling = asyncio.create_task(consumer.poll(timeout=30.0))
            await asyncio.sleep(10.0)
            await write(cluster, 6, 1)
            held.release()
            assert values(await polling) == [6]


async def test_a_later_seek_counts_and_not_the_time_that_is_still_looked_up() -> None:
    async with Cluster(brokers=1) as cluster:
        between = await two_hours(cluster)
        async with kclient.Consumer(cluster.bootstrap, T, **QUICK) as consumer:
            assert await consumer.position(P) == 0
            held = cluster.faults.hold("ListOffsets", after=True)
            consumer.seek(P, between)
            await asyncio.sleep(0.1)
            consumer.seek(P, 1)
            held.release()
            assert values(await read(consumer, 2))[:2] == [1, 2]

"""The consumer with corrupt bytes and truncated logs: errors name the place, reading goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

import kclient
from kclient.broker_errors import OffsetOutOfRange, TopicAuthorizationFailed
from kclient.error_codes import ErrorCode
from kclient.errors import CorruptRecord, LogTruncated
from kclient.record import Compression
from tests.behaviours.reading import offsets, read
from tests.embedded.flights import P, T, fill, reading
from tests.unit.consumer.log_bytes import batch, corrupted


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[kclient.testing.Cluster]:
    async with kclient.testing.Cluster(brokers=3) as running:
        yield running


# Bad data


async def test_corruption_is_seen_by_loops_and_columns_as_well(cluster: Any) -> None:
    cluster.create_topic(T)
    cluster.append(T, 0, batch(0, 2) + corrupted(batch(2, 2)) + batch(4, 1))
    async with reading(cluster) as consumer:
        seen = []
        with pytest.raises(CorruptRecord):
            async for record in consumer:
                seen.append(record.offset)  # noqa: PERF401 - it ends by an error
        assert seen == [0, 1]
        assert await consumer.position(P) == 2
        with pytest.raises(CorruptRecord):
            await consumer.poll_arrow(timeout=5.0)
        consumer.seek(P, 4)
        async for record in consumer:
            assert record.offset == 4
            break


async def test_large_compressed_batches_are_inflated_in_a_thread_in_order(cluster: Any) -> None:
    cluster.create_topic(T)
    for first in range(0, 300, 100):
        data = batch(first, 100, codec=Compression.GZIP, value_bytes=30_000)
        cluster.append(T, 0, data)
    async with reading(cluster) as consumer:
        assert offsets(await read(consumer, 300)) == {0: list(range(300))}
    async with reading(cluster) as consumer:
        await consumer.poll(timeout=0.01)  # a thread may still be at work when it closes


# The log moves


async def test_deleted_records_that_are_buffered_are_still_given(cluster: Any) -> None:
    fill(cluster, 50)
    async with reading(cluster, auto_offset_reset="none") as consumer:
        consumer.seek(P, 0)
        seen = await read(consumer, 10)
        cluster.delete_records(T, 0, 50)
        seen += await read(consumer, 40)
        assert offsets(seen) == {0: list(range(50))}


async def test_a_log_cut_below_the_position_is_raised_with_the_offset(cluster: Any) -> None:
    fill(cluster, 30)
    async with reading(cluster, auto_offset_reset="none", metadata_max_age=0.3) as consumer:
        consumer.seek(P, 0)
        await read(consumer, 30)
        cut(cluster, 10)
        with pytest.raises(LogTruncated, match="cut at offset 10") as failed:
            await poll_until_error(consumer)
        assert failed.value.offset == 10
        assert await consumer.position(P) == 30
        consumer.seek(P, 10)
        assert [r.value for r in await read(consumer, 3)] == [b"10", b"11", b"12"]


async def test_a_log_cut_below_the_position_is_resumed_where_it_parts(cluster: Any) -> None:
    fill(cluster, 30)
    async with reading(cluster, metadata_max_age=0.3) as consumer:
        await read(consumer, 30)
        cut(cluster, 10)
        assert offsets(await read(consumer, 30)) == {0: list(range(10, 40))}
        assert consumer.metrics()["consumer.truncations"] == 1


def cut(cluster: Any, offset: int) -> None:
    """An unclean election: the new leader has nothing from ``offset`` on, and its log diverges."""
    cluster.log(T, 0, broker=2).truncate(offset)
    cluster.move_leader(T, 0, 2)
    cluster.append(T, 0, batch(offset, 30))


async def poll_until_error(consumer: Any) -> None:
    async with asyncio.timeout(10.0):
        while True:
            await consumer.poll(timeout=0.2)


async def test_a_validation_that_is_refused_does_not_reset_the_position(cluster: Any) -> None:
    fill(cluster, 30)
    async with reading(cluster) as consumer:
        await read(consumer, 30)
        cluster.faults.error("OffsetForLeaderEpoch", ErrorCode.FENCED_LEADER_EPOCH, times=2)
        cluster.move_leader(T, 0, 3)
        cluster.append(T, 0, batch(30, 5))
        assert offsets(await read(consumer, 5)) == {0: list(range(30, 35))}


async def test_a_permanent_lookup_error_of_an_offset_reset_is_raised(cluster: Any) -> None:
    fill(cluster, 10)
    cluster.faults.error("ListOffsets", ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=1)
    async with reading(cluster) as consumer:
        with pytest.raises(TopicAuthorizationFailed, match="flights-0"):
            await consumer.poll(timeout=5.0)
        assert offsets(await read(consumer, 10)) == {0: list(range(10))}


async def test_an_offset_out_of_range_is_raised_again_and_again_but_not_in_a_rush(
    cluster: Any,
) -> None:
    fill(cluster, 10)
    async with reading(cluster, auto_offset_reset="none", retry_backoff=0.1) as consumer:
        consumer.seek(P, 99)
        for _ in range(3):
            with pytest.raises(OffsetOutOfRange):
                await consumer.poll(timeout=5.0)
        assert cluster.requests.count("Fetch") <= 5

"""What cancelled calls of a producer write, and what they report.

``tests/virtual/test_cancellation.py`` cancels every await at every suspension.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

import kclient
from kclient.broker_errors import UnknownTopicOrPartition
from kclient.error_codes import ErrorCode
from kclient.errors import FlushFailed
from kclient.testing import Cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(brokers=1) as running:
        running.create_topic("t", partitions=2)
        yield running


def all_values(cluster: Cluster) -> list[bytes]:
    return [r.value for p in range(2) for r in cluster.records("t", p)]


async def test_cancelled_enqueues_are_not_written_and_those_that_returned_are(
    cluster: Cluster,
) -> None:
    rng = random.Random(5)
    settings = {"buffer_memory": 5000, "batch_size": 1000, "linger": 0.001}
    returned: set[bytes] = set()
    cancelled: set[bytes] = set()

    async def one(value: bytes) -> None:
        try:
            await asyncio.wait_for(
                out.enqueue("t", value + b"." * 95), rng.choice([0.0005, 0.002, 5])
            )
            returned.add(value)
        except TimeoutError:
            cancelled.add(value)

    async with kclient.Producer(cluster.bootstrap, **settings) as out:
        await out.partitions_for("t")
        await asyncio.gather(*(one(b"%05d" % i) for i in range(1500)))
        await out.flush()
    written = [value[:5] for value in all_values(cluster)]
    assert len(set(written)) == len(written)
    assert returned <= set(written)
    assert cancelled and not cancelled & set(written)


async def test_what_failed_before_a_bulk_was_cancelled_is_raised_by_the_next_flush(
    cluster: Cluster,
) -> None:
    going_on = asyncio.Event()

    async def records() -> AsyncIterator[bytes]:
        yield b"refused"
        await going_on.wait()

    async with kclient.Producer(cluster.bootstrap, linger=0.0) as producer:
        cluster.faults.error("Produce", ErrorCode.INVALID_RECORD)
        bulk = asyncio.create_task(producer.send_many("t", records()))
        while "producer.batches_failed" not in producer.metrics():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        bulk.cancel()
        await asyncio.wait([bulk])
        with pytest.raises(FlushFailed) as failed:
            await producer.flush()
        assert failed.value.count == 1
        await producer.flush()  # raised once


async def test_what_a_bulk_raised_itself_is_not_raised_again_by_the_next_flush(
    cluster: Cluster,
) -> None:
    async with kclient.Producer(cluster.bootstrap, max_block=0.1) as producer:
        with pytest.raises(UnknownTopicOrPartition):
            await producer.send_many("nowhere", [b"v"])
        await producer.flush()


async def test_a_cancelled_block_closes_the_producer(cluster: Cluster) -> None:
    async def work() -> None:
        async with kclient.Producer(cluster.bootstrap, linger=4.0) as out:
            out.send("t", b"v")
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all_values(cluster) == [b"v"]

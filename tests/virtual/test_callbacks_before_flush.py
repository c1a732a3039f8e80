"""Callbacks of deliveries are called before a ``flush`` or ``close`` of them ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

import kclient
from kclient.error_codes import ErrorCode
from kclient.errors import FlushFailed
from kclient.testing import Cluster

MANY: dict[str, Any] = {"batch_size": 1_000_000}
"""Settings for batches whose callbacks take several loop iterations."""


def send(producer: Any, count: int, topic: str = "t") -> list[Any]:
    """Send records; what their callbacks were called with."""
    called: list[Any] = []
    for number in range(count):
        producer.send(topic, b"%d" % number, partition=0).add_done_callback(called.append)
    return called


@asynccontextmanager
async def opened(cluster: Cluster) -> AsyncIterator[Any]:
    """A producer that knows its topic; its last close may fail."""
    cluster.create_topic("t")
    producer = kclient.Producer(cluster.bootstrap, **MANY)
    await producer.start()
    try:
        await producer.send("t", b"", partition=0)
        yield producer
    finally:
        with suppress(FlushFailed):
            await producer.close()


@pytest.mark.parametrize("end", ["flush", "close"])
@pytest.mark.parametrize("count", [1, 4, 200, 12_000])
async def test_callbacks_of_what_was_written_come_first(end: str, count: int) -> None:
    async with Cluster(brokers=1) as cluster, opened(cluster) as producer:
        called = send(producer, count)
        await getattr(producer, end)()
        assert len(called) == count


@pytest.mark.parametrize("end", ["flush", "close"])
@pytest.mark.parametrize("count", [1, 4, 200, 12_000])
async def test_callbacks_of_what_failed_come_first(end: str, count: int) -> None:
    async with Cluster(brokers=1) as cluster, opened(cluster) as producer:
        cluster.faults.error("Produce", ErrorCode.INVALID_RECORD)
        called = send(producer, count)
        with pytest.raises(FlushFailed):
            await getattr(producer, end)()
        assert len(called) == count


@pytest.mark.parametrize("end", ["flush", "close"])
async def test_callbacks_of_waiting_records_come_first(end: str) -> None:
    async with Cluster(brokers=1) as cluster, opened(cluster) as producer:
        called = send(producer, 4, "typo")
        with pytest.raises(FlushFailed):
            await getattr(producer, end)()
        assert len(called) == 4


async def test_callbacks_of_what_close_failed_come_first() -> None:
    async with Cluster(brokers=1) as cluster, opened(cluster) as producer:
        cluster.faults.delay("Produce", 100.0)
        called = send(producer, 12_000)
        with pytest.raises(FlushFailed):
            await producer.close(timeout=1.0)
        assert len(called) == 12_000


async def test_callbacks_of_what_is_settled_already_come_first() -> None:
    """A waiter on a delivery resumes amid the callbacks of its batch."""
    async with Cluster(brokers=1) as cluster, opened(cluster) as producer:
        first = asyncio.get_running_loop().create_future()
        producer.send("t", b"", partition=0).add_done_callback(first.set_result)
        called = send(producer, 12_000)
        await first
        assert len(called) < 12_000
        await producer.flush()
        assert len(called) == 12_000

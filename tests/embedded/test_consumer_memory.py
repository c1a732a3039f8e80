"""Memory that a consumer holds beside received frames: inflated batches that are half read."""

from __future__ import annotations

import asyncio
from typing import Any

import kclient
from kclient.consumer.fetcher import HALF_READ_SHARE
from kclient.consumer.poller import INFLATING
from kclient.record import Compression
from kclient.testing import Cluster
from tests.unit.consumer.log_bytes import batch

PARTITIONS = 40
ROWS, VALUE_BYTES = 10, 200_000
INFLATED = ROWS * VALUE_BYTES
BUDGET = 2 * HALF_READ_SHARE * INFLATED
"""Two batches fill the limit."""


def held_bytes(consumer: Any) -> int:
    """Inflated bytes of all buffered batches, served or not."""
    queues = consumer._engine.fetcher.buffer._queues.values()
    return sum(data.held_bytes for queue in queues for data in queue)


async def test_batches_that_threads_inflate_are_bounded_in_memory() -> None:
    """Each is small on the wire; there is one in each partition."""
    data = batch(0, ROWS, codec=Compression.ZSTD, value_bytes=VALUE_BYTES)
    assert len(data) < INFLATED // 100
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            cluster.append("t", partition, data)
        async with kclient.Consumer(
            cluster.bootstrap, "t", auto_offset_reset="earliest", buffer_memory=BUDGET
        ) as consumer:
            most = got = polls = 0
            while got < PARTITIONS * ROWS:
                got += len(await consumer.poll(max_records=1, timeout=5.0))
                polls += 1
                if polls < 3 * PARTITIONS:
                    await asyncio.sleep(0.005)  # threads get ahead of the reader
                most = max(most, held_bytes(consumer))
            assert got == PARTITIONS * ROWS
            assert held_bytes(consumer) == 0
    # Twice the limit, and what was being inflated when that was reached.
    assert most <= 1.1 * (4 + INFLATING) * INFLATED

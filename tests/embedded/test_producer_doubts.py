"""Producers at their limits: parked records keep their deadlines, and doubt never doubles."""

from __future__ import annotations

import asyncio

import pytest

import kclient
from kclient.error_codes import ErrorCode
from kclient.errors import BufferFull, KafkaError, MetadataTimedOut
from kclient.testing import Cluster

PATIENCE = 8.0
"""Seconds after which a deadline of under a second counts as forgotten."""


async def test_enqueue_gives_up_after_max_block_though_no_broker_says_a_word() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=1)
        producer = kclient.Producer(
            cluster.bootstrap, buffer_memory=50_000, max_block=0.2, batch_size=1000
        )
        async with producer:
            await producer.send("t", b"x")
            hold = cluster.faults.hold("Produce", times=None)
            async with asyncio.timeout(PATIENCE):
                with pytest.raises(BufferFull):
                    for _ in range(1000):
                        await producer.enqueue("t", b"x" * 1000)
            hold.release()


async def test_a_record_parked_for_silent_metadata_keeps_its_delivery_timeout() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=1)
        async with kclient.Producer(cluster.bootstrap, delivery_timeout=0.3) as producer:
            await producer.send("t", b"x")
            hold = cluster.faults.hold("Metadata", times=None)
            async with asyncio.timeout(PATIENCE):
                with pytest.raises(MetadataTimedOut) as raised:
                    await producer.send("other", b"x")
            assert raised.value.maybe_written is False
            hold.release()


async def test_parts_of_a_batch_that_may_be_written_are_never_renumbered() -> None:
    """Its answer was lost, and meanwhile the topic takes smaller batches only (KIP-98)."""
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=1)
        async with kclient.Producer(cluster.bootstrap, linger=0.01, retry_backoff=0.01) as producer:
            await producer.send("t", b"first")
            lost = cluster.faults.close("Produce", after=True)
            deliveries = [producer.send("t", b"%d" % n) for n in range(2)]
            await cluster.requests.wait_count("Produce", 2)
            cluster.faults.error("Produce", ErrorCode.MESSAGE_TOO_LARGE, times=2)
            outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
            assert lost.hits == 1
        values = [record.value for record in cluster.records("t", 0)]
        assert values == [b"first", b"0", b"1"]
        failed = [outcome for outcome in outcomes if isinstance(outcome, KafkaError)]
        assert failed and all(error.maybe_written for error in failed)

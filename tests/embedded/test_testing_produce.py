"""Produce on the embedded cluster, beside what `tests/conformance` compares with Apache Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.errors import KafkaError
from kclient.protocol.messages.init_producer_id import InitProducerIdRequest
from kclient.protocol.messages.produce import ProduceRequest
from kclient.testing import Cluster
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import produce
from tests.unit.testing.raw_peer import RawPeer


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with asyncio.timeout(60), Cluster(brokers=3) as one:
        one.create_topic("t", partitions=3)
        yield one


@pytest.fixture
async def peer(cluster: Cluster) -> AsyncIterator[RawPeer]:
    """A peer of broker 1, which leads partition 0."""
    async with RawPeer.to(cluster.brokers[1].address) as one:
        yield one


async def answer(peer: RawPeer, request: ProduceRequest, version: int = 12) -> Any:
    """The response for the one partition of the request."""
    response = await peer.call(request, version)
    return response.responses[0].partition_responses[0]


async def test_sequences_are_known_to_the_next_leader(cluster: Cluster, peer: RawPeer) -> None:
    data = batch_bytes(2, producer=(5, 0, 0))
    await answer(peer, produce("t", data))
    cluster.move_leader("t", 0, 2)
    async with RawPeer.to(cluster.brokers[2].address) as other:
        assert (await answer(other, produce("t", data))).base_offset == 0
    assert cluster.end_offset("t") == 2


async def test_an_empty_transactional_id_is_refused(peer: RawPeer) -> None:
    got = await peer.call(InitProducerIdRequest(""), 4)
    assert (got.error_code, got.producer_id) == (ErrorCode.INVALID_REQUEST, -1)


async def test_broker_configs_are_the_default_of_topics() -> None:
    async with Cluster(1, broker_configs={"message.max.bytes": 100}) as cluster:
        cluster.create_topic("t")
        async with RawPeer.to(cluster.bootstrap) as peer:
            got = await answer(peer, produce("t", batch_bytes(value=b"x" * 100)))
    assert got.error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_records_can_be_put_in_past_all_rules(cluster: Cluster) -> None:
    data = bytearray(batch_bytes(2))
    data[-1] ^= 1
    assert cluster.append("t", 0, bytes(data)) == 0
    assert cluster.end_offset("t") == 2
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        cluster.append("t", 9, bytes(data))

"""Topic administration over the wire, beside what `tests/conformance` compares with Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kclient.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kclient.testing import Cluster
from tests.unit.testing.raw_peer import RawPeer


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    configs = {"message.max.bytes": 5000}
    async with asyncio.timeout(60), Cluster(brokers=3, broker_configs=configs) as one:
        one.create_topic("t", partitions=2)
        yield one


@pytest.fixture
async def peer(cluster: Cluster) -> AsyncIterator[RawPeer]:
    async with RawPeer.to(cluster.brokers[2].address) as one:
        yield one


async def create(peer: RawPeer, *topics: CreatableTopic, validate_only: bool = False) -> Any:
    response = await peer.call(CreateTopicsRequest(list(topics), 1000, validate_only), 7)
    return response.topics


async def test_any_broker_creates_topics(cluster: Cluster, peer: RawPeer) -> None:
    (got,) = await create(peer, CreatableTopic("n", 4, 2))
    assert (got.error_code, got.error_message) == (0, None)
    assert (got.num_partitions, got.replication_factor) == (4, 2)
    assert got.topic_id == cluster.topic_id("n")
    assert cluster.partition_count("n") == 4


async def test_one_request_creates_at_most_so_many_partitions(
    cluster: Cluster, peer: RawPeer
) -> None:
    """A count from damaged bytes must not take all memory."""
    many = CreateTopicsRequest([CreatableTopic("a", 5_000, 1), CreatableTopic("b", 5_001, 1)])
    for request in (many, CreateTopicsRequest([CreatableTopic("a", 2**31 - 1, 1)])):
        response = await peer.call(request, 7)
        assert {one.error_code for one in response.topics} == {ErrorCode.POLICY_VIOLATION}
    response = await peer.call(
        CreatePartitionsRequest([CreatePartitionsTopic("t", 2**31 - 1, None)]), 3
    )
    assert response.results[0].error_code == ErrorCode.POLICY_VIOLATION
    assert cluster.partition_count("t") == 2

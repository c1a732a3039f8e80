"""DeleteRecords and DescribeLogDirs, beside what `tests/conformance` compares with Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kclient.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kclient.testing import Cluster
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.raw_peer import RawPeer

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with asyncio.timeout(60), Cluster(2) as one:
        one.create_topic("t", assignments=[[1], [1], [2]])
        one.create_topic("c", assignments=[[1]], configs={"cleanup.policy": "compact"})
        one.create_topic("n", assignments=[[1]], configs={"cleanup.policy": ""})
        for topic in ("t", "c", "n"):
            one.append(topic, 0, batch_bytes(5) * 3)
        yield one


@pytest.fixture
async def peer(cluster: Cluster) -> AsyncIterator[RawPeer]:
    async with RawPeer.to(cluster.brokers[1].address) as one:
        yield one


async def delete(peer: RawPeer, *entries: tuple[str, int, int]) -> list[tuple[str, int, int, int]]:
    """(topic, partition, low watermark, code) for each."""
    topics = [
        DeleteRecordsTopic(name, [DeleteRecordsPartition(index, offset)])
        for name, index, offset in entries
    ]
    got = await peer.call(DeleteRecordsRequest(topics, 1000), 2)
    return [
        (topic.name, one.partition_index, one.low_watermark, one.error_code)
        for topic in got.topics
        for one in topic.partitions
    ]


async def directory(peer: RawPeer) -> str:
    """The response's only directory."""
    got: Any = await peer.call(DescribeLogDirsRequest(None), 5)
    (one,) = got.results
    return str(one.log_dir)


async def test_kafkas_own_topics_keep_their_records(cluster: Cluster, peer: RawPeer) -> None:
    cluster.create_topic("__consumer_offsets", assignments=[[1]])
    code = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await delete(peer, ("__consumer_offsets", 0, 0)) == [("__consumer_offsets", 0, -1, code)]


async def test_a_topic_without_a_policy_may_lose_records(peer: RawPeer) -> None:
    assert await delete(peer, ("n", 0, 1)) == [("n", 0, 1, 0)]


async def test_each_partition_is_in_the_response_once(peer: RawPeer) -> None:
    got = await delete(peer, ("t", 1, 0), ("nope", 0, 1), ("t", 0, 3), ("t", 0, 5))
    assert sorted(got) == [("nope", 0, -1, UNKNOWN), ("t", 0, 5, 0), ("t", 1, 0, 0)]


async def test_the_directory_may_have_another_name() -> None:
    async with Cluster(1, broker_configs={"log.dirs": "/data"}) as cluster:
        async with RawPeer.to(cluster.bootstrap) as peer:
            assert await directory(peer) == "/data"

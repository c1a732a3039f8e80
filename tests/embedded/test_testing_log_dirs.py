"""DeleteRecords and DescribeLogDirs over the wire, as Apache Kafka 4.3.0 answers them."""

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
from kclient.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from kclient.testing import Cluster
from kclient.testing.log_cleaner import clean
from tests.unit.testing.batches import NOW, batch_bytes
from tests.unit.testing.raw_peer import RawPeer

OUT_OF_RANGE, UNKNOWN, NOT_LEADER, POLICY = 1, 3, 6, 44
SIZE = len(batch_bytes(5))


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


async def sizes(peer: RawPeer, topics: list[tuple[str, list[int]]] | None, version: int = 5) -> Any:
    """The answer's only directory: its name, and (topic, partition, size, lag) of each log."""
    wanted = None
    if topics is not None:
        wanted = [DescribableLogDirTopic(name, indexes) for name, indexes in topics]
    got = await peer.call(DescribeLogDirsRequest(wanted), version)
    (directory,) = got.results
    assert (got.error_code, directory.error_code, directory.is_cordoned) == (0, 0, False)
    if version >= 4:
        assert 0 < directory.usable_bytes <= directory.total_bytes
    return directory.log_dir, [
        (topic.name, one.partition_index, one.partition_size, one.offset_lag)
        for topic in directory.topics
        for one in topic.partitions
    ]


async def test_records_are_deleted_up_to_an_offset(cluster: Cluster, peer: RawPeer) -> None:
    assert await delete(peer, ("t", 0, 7)) == [("t", 0, 7, 0)]
    assert cluster.start_offset("t") == 7
    assert await delete(peer, ("t", 0, 3)) == [("t", 0, 7, 0)]
    assert await delete(peer, ("t", 0, -1)) == [("t", 0, 15, 0)]
    assert cluster.records("t") == []


@pytest.mark.parametrize(
    ("topic", "partition", "offset", "code"),
    [
        ("t", 0, 16, OUT_OF_RANGE),
        ("t", 0, -2, OUT_OF_RANGE),
        ("t", 1, 1, OUT_OF_RANGE),
        ("t", 5, 1, UNKNOWN),
        ("nope", 0, 1, UNKNOWN),
        ("", 0, 1, UNKNOWN),
        ("t", 2, 0, NOT_LEADER),
        ("c", 0, 1, POLICY),
    ],
)
async def test_what_cannot_be_deleted(
    cluster: Cluster, peer: RawPeer, topic: str, partition: int, offset: int, code: int
) -> None:
    assert await delete(peer, (topic, partition, offset)) == [(topic, partition, -1, code)]
    assert cluster.start_offset("t") == 0


async def test_kafkas_own_topics_keep_their_records(cluster: Cluster, peer: RawPeer) -> None:
    cluster.create_topic("__consumer_offsets", assignments=[[1]])
    code = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await delete(peer, ("__consumer_offsets", 0, 0)) == [("__consumer_offsets", 0, -1, code)]


async def test_a_topic_without_a_policy_may_lose_records(peer: RawPeer) -> None:
    assert await delete(peer, ("n", 0, 1)) == [("n", 0, 1, 0)]


async def test_each_partition_is_answered_for_itself_and_once(peer: RawPeer) -> None:
    got = await delete(peer, ("t", 1, 0), ("nope", 0, 1), ("t", 0, 3), ("t", 0, 5))
    assert sorted(got) == [("nope", 0, -1, UNKNOWN), ("t", 0, 5, 0), ("t", 1, 0, 0)]


async def test_sizes_of_logs_are_told(peer: RawPeer) -> None:
    directory = "/tmp/kraft-combined-logs"
    assert await sizes(peer, [("t", [0, 1])]) == (
        directory,
        [("t", 0, 3 * SIZE, 0), ("t", 1, 0, 0)],
    )
    for version in range(1, 5):
        assert await sizes(peer, [("t", [0])], version) == (directory, [("t", 0, 3 * SIZE, 0)])


async def test_only_what_is_asked_for_and_here_is_told(cluster: Cluster, peer: RawPeer) -> None:
    nowhere: list[list[tuple[str, list[int]]]] = [[("t", [7]), ("nope", [0])], [("t", [])], []]
    for nothing in (*nowhere, [("t", [2])]):
        assert (await sizes(peer, nothing))[1] == []
    everything = (await sizes(peer, None))[1]
    assert [one[:2] for one in everything] == [("t", 0), ("t", 1), ("c", 0), ("n", 0)]
    async with RawPeer.to(cluster.brokers[2].address) as other:
        assert [one[:2] for one in (await sizes(other, None))[1]] == [("t", 2)]


async def test_the_directory_may_have_another_name() -> None:
    async with Cluster(1, broker_configs={"log.dirs": "/data"}) as cluster:
        async with RawPeer.to(cluster.bootstrap) as peer:
            assert (await sizes(peer, None))[0] == "/data"


async def test_faults_reach_partitions(cluster: Cluster, peer: RawPeer) -> None:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    cluster.faults.error("DeleteRecords", code)
    assert await delete(peer, ("t", 0, 7)) == [("t", 0, -1, code)]
    assert cluster.start_offset("t") == 0
    cluster.faults.error("DescribeLogDirs", code)
    got = await peer.call(DescribeLogDirsRequest(None), 5)
    assert (got.error_code, got.results) == (code, [])


async def test_logs_of_a_cluster_are_cleaned(cluster: Cluster) -> None:
    config = cluster._image.topics["t"].config
    due = clean(cluster.log("t", 0), config, NOW).next_clean_at
    assert due == NOW + 4 + 604_800_000 + 1
    assert clean(cluster.log("t", 0), config, due - 1).start_offset == 0
    assert clean(cluster.log("t", 0), config, due).start_offset == 15
    assert cluster.start_offset("t") == 15

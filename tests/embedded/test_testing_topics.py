"""Topic administration on the embedded cluster, over the wire: answers as Kafka's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kclient.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kclient.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kclient.protocol.messages.describe_cluster import DescribeClusterRequest
from kclient.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    RequestCursor,
    TopicRequest,
)
from kclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from kclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kclient.protocol.primitives import ZERO_UUID
from kclient.testing import Cluster
from tests.unit.testing.raw_peer import RawPeer

UNASKED = -(1 << 31)


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


async def test_a_created_topic_is_described_with_the_source_of_each_config(peer: RawPeer) -> None:
    given = [CreatableTopicConfig("retention.ms", "1000")]
    (got,) = await create(peer, CreatableTopic("n", 1, 1, [], given))
    shown = {one.name: (one.value, one.config_source) for one in got.configs}
    assert shown["retention.ms"] == ("1000", 1)  # the topic's own
    assert shown["max.message.bytes"] == ("5000", 4)  # the broker's configuration
    assert shown["cleanup.policy"] == ("delete", 5)  # the default
    assert list(shown) == sorted(shown)


async def test_assignments_are_kept(cluster: Cluster, peer: RawPeer) -> None:
    given = [CreatableReplicaAssignment(0, [3, 1])]
    (got,) = await create(peer, CreatableTopic("n", -1, -1, given))
    assert (got.error_code, got.num_partitions, got.replication_factor) == (0, 1, 2)
    assert cluster.leader("n") == 3


async def test_validation_only_creates_nothing(cluster: Cluster, peer: RawPeer) -> None:
    (got,) = await create(peer, CreatableTopic("n", 4, 2), validate_only=True)
    assert (got.error_code, got.num_partitions) == (0, 4)
    assert got.topic_id != ZERO_UUID  # Kafka makes one up
    assert cluster.topics == ["t"]


async def test_each_topic_fails_for_itself(cluster: Cluster, peer: RawPeer) -> None:
    got = await create(
        peer,
        CreatableTopic("n", 1, 1),
        CreatableTopic("t", 1, 1),
        CreatableTopic("twice", 1, 1),
        CreatableTopic("twice", 1, 1),
        CreatableTopic("a b", 1, 1),
    )
    assert [(one.name, ErrorCode(one.error_code).name) for one in got] == [
        ("n", "NONE"),
        ("t", "TOPIC_ALREADY_EXISTS"),
        ("a b", "INVALID_TOPIC_EXCEPTION"),
        ("twice", "INVALID_REQUEST"),
    ]
    assert [bool(one.error_message) for one in got] == [False, True, True, True]
    assert cluster.topics == ["n", "t"]


async def grow(peer: RawPeer, *topics: CreatePartitionsTopic, validate_only: bool = False) -> Any:
    response = await peer.call(CreatePartitionsRequest(list(topics), 1000, validate_only), 3)
    return [(one.name, one.error_code) for one in response.results]


async def test_one_request_creates_at_most_so_many_partitions(
    cluster: Cluster, peer: RawPeer
) -> None:
    """A count out of damaged bytes must not take all memory."""
    many = CreateTopicsRequest([CreatableTopic("a", 5_000, 1), CreatableTopic("b", 5_001, 1)])
    for request in (many, CreateTopicsRequest([CreatableTopic("a", 2**31 - 1, 1)])):
        response = await peer.call(request, 7)
        assert {one.error_code for one in response.topics} == {ErrorCode.POLICY_VIOLATION}
    response = await peer.call(
        CreatePartitionsRequest([CreatePartitionsTopic("t", 2**31 - 1, None)]), 3
    )
    assert response.results[0].error_code == ErrorCode.POLICY_VIOLATION
    assert cluster.partition_count("t") == 2


async def test_topics_grow(cluster: Cluster, peer: RawPeer) -> None:
    assert await grow(peer, CreatePartitionsTopic("t", 3, None)) == [("t", 0)]
    given = [CreatePartitionsAssignment([3, 2, 1])]
    assert await grow(peer, CreatePartitionsTopic("t", 4, given)) == [("t", 0)]
    assert [cluster.leader("t", index) for index in range(4)] == [1, 2, 3, 3]


async def test_growth_fails_topic_by_topic(cluster: Cluster, peer: RawPeer) -> None:
    got = await grow(
        peer,
        CreatePartitionsTopic("nope", 3, None),
        CreatePartitionsTopic("t", 2, None),
        CreatePartitionsTopic("twice", 2, None),
        CreatePartitionsTopic("twice", 2, None),
    )
    assert got == [
        ("twice", ErrorCode.INVALID_REQUEST),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", ErrorCode.INVALID_PARTITIONS),
    ]
    await grow(peer, CreatePartitionsTopic("t", 9, None), validate_only=True)
    assert cluster.partition_count("t") == 2


async def delete(peer: RawPeer, *topics: DeleteTopicState) -> Any:
    response = await peer.call(DeleteTopicsRequest(list(topics)), 6)
    return [(one.name, one.error_code) for one in response.responses]


async def test_topics_are_deleted_by_name_or_id(cluster: Cluster, peer: RawPeer) -> None:
    cluster.create_topic("u")
    got = await delete(peer, DeleteTopicState("u"), DeleteTopicState(None, cluster.topic_id("t")))
    assert sorted(got, key=str) == [("t", 0), ("u", 0)]
    assert cluster.topics == []


async def test_deletion_fails_topic_by_topic(cluster: Cluster, peer: RawPeer) -> None:
    unknown, topic_id = b"\1" * 16, cluster.topic_id("t")
    invalid = ErrorCode.INVALID_REQUEST
    assert await delete(peer, DeleteTopicState(None)) == [(None, invalid)]
    assert await delete(peer, DeleteTopicState("t", topic_id)) == [("t", invalid)]
    assert await delete(peer, DeleteTopicState("t"), DeleteTopicState("t")) == [("t", invalid)]
    twice = DeleteTopicState(None, topic_id)
    assert await delete(peer, twice, twice) == [(None, invalid)]
    assert await delete(peer, DeleteTopicState("t"), twice) == [("t", invalid)]
    assert await delete(peer, DeleteTopicState(None, unknown)) == [
        (None, ErrorCode.UNKNOWN_TOPIC_ID)
    ]
    assert await delete(peer, DeleteTopicState("nope")) == [
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    ]
    assert cluster.topics == ["t"]


async def topics_of(peer: RawPeer, version: int, *asked: MetadataRequestTopic) -> Any:
    response = await peer.call(MetadataRequest(list(asked)), version)
    return [(one.error_code, one.name) for one in response.topics]


async def test_metadata_knows_topics_by_id_from_v12_on(cluster: Cluster, peer: RawPeer) -> None:
    known = MetadataRequestTopic(cluster.topic_id("t"), None)
    unknown = MetadataRequestTopic(b"\1" * 16, None)
    got = await topics_of(peer, 12, known, unknown)
    assert got == [(0, "t"), (ErrorCode.UNKNOWN_TOPIC_ID, None)]
    early = MetadataRequestTopic(cluster.topic_id("t"), "")
    assert await topics_of(peer, 11, early) == [(ErrorCode.INVALID_REQUEST, "")]


async def test_metadata_of_all_topics_is_null_from_v1_on_and_empty_before(
    cluster: Cluster, peer: RawPeer
) -> None:
    for version, topics, count in ((0, [], 1), (1, None, 1), (1, [], 0), (12, None, 1)):
        response = await peer.call(MetadataRequest(topics), version)
        assert len(response.topics) == count


async def test_metadata_tells_what_is_allowed_where_asked(peer: RawPeer) -> None:
    asked = [MetadataRequestTopic(ZERO_UUID, "t")]
    silent = await peer.call(MetadataRequest(asked), 12)
    assert silent.topics[0].topic_authorized_operations == UNASKED
    told = await peer.call(MetadataRequest(asked, include_topic_authorized_operations=True), 12)
    assert told.topics[0].topic_authorized_operations == 3576


@pytest.mark.parametrize(
    ("endpoint", "code"),
    [(1, 0), (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
async def test_only_brokers_are_described(peer: RawPeer, endpoint: int, code: int) -> None:
    got = await peer.call(DescribeClusterRequest(endpoint_type=endpoint), 1)
    assert got.error_code == code
    assert bool(got.error_message) == bool(code)


async def test_partitions_are_described_in_pages(cluster: Cluster, peer: RawPeer) -> None:
    cluster.create_topic("u", partitions=3)
    seen: list[tuple[str, int]] = []
    cursor = None
    while True:
        request = DescribeTopicPartitionsRequest([], 2, cursor)
        got = await peer.call(request, 0)
        seen += [
            (topic.name, one.partition_index) for topic in got.topics for one in topic.partitions
        ]
        if got.next_cursor is None:
            break
        cursor = RequestCursor(got.next_cursor.topic_name, got.next_cursor.partition_index)
    assert seen == [("t", 0), ("t", 1), ("u", 0), ("u", 1), ("u", 2)]


async def test_topics_that_are_not_there_are_described_as_such(peer: RawPeer) -> None:
    request = DescribeTopicPartitionsRequest([TopicRequest("nope"), TopicRequest("a b")], 10)
    got = await peer.call(request, 0)
    assert [(one.name, one.error_code) for one in got.topics] == [("a b", 17), ("nope", 3)]


@pytest.mark.parametrize("version", [1, 3, 4, 6])
async def test_a_coordinator_of_transactions_is_refused_for_good_in_words(
    peer: RawPeer, version: int
) -> None:
    batched = version >= 4
    request = (
        FindCoordinatorRequest(key_type=1, coordinator_keys=["a", "b"])
        if batched
        else FindCoordinatorRequest("a", 1)
    )
    got = await peer.call(request, version)
    answers = got.coordinators if batched else [got]
    assert len(answers) == (2 if batched else 1)
    for answer in answers:
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert answer.error_message == "The embedded cluster doesn't serve transactions yet."
        assert answer.node_id == -1

"""Each served API can get an error response, be held, and be cut off, by its name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.protocol import api_versions
from kclient.protocol.message import Request
from kclient.protocol.messages import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_records,
    incremental_alter_configs,
    offset_commit,
    offset_delete,
    offset_for_leader_epoch,
)
from kclient.protocol.messages.delete_groups import DeleteGroupsRequest
from kclient.protocol.messages.delete_topics import DeleteTopicsRequest
from kclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from kclient.protocol.messages.describe_groups import DescribeGroupsRequest
from kclient.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from kclient.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from kclient.protocol.messages.heartbeat import HeartbeatRequest
from kclient.protocol.messages.join_group import JoinGroupRequest
from kclient.protocol.messages.leave_group import LeaveGroupRequest
from kclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kclient.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kclient.protocol.messages.sync_group import SyncGroupRequest
from kclient.protocol.primitives import ZERO_UUID
from kclient.testing import Cluster
from kclient.testing.api_versions import VERSIONS
from tests.unit.testing import acl_calls, transaction_calls, user_calls
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import fetch, list_offsets, produce
from tests.unit.testing.raw_peer import RawPeer

BROKEN = ErrorCode.UNKNOWN_SERVER_ERROR
TOPIC = 2
ASKED: dict[int, Request] = {
    one.API_KEY: one
    for one in (
        produce("t", batch_bytes()),
        fetch("t", 0),
        list_offsets("t", -1),
        MetadataRequest([MetadataRequestTopic(ZERO_UUID, "t")]),
        offset_commit.OffsetCommitRequest(
            "g",
            topics=[
                offset_commit.OffsetCommitRequestTopic(
                    "t", partitions=[offset_commit.OffsetCommitRequestPartition(0, 0)]
                )
            ],
        ),
        OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [0])]),
        FindCoordinatorRequest("g"),
        JoinGroupRequest("g", 10_000, protocol_type="consumer"),
        HeartbeatRequest("g"),
        LeaveGroupRequest("g"),
        SyncGroupRequest("g"),
        DescribeGroupsRequest(["g"]),
        create_topics.CreateTopicsRequest([create_topics.CreatableTopic("new", 1, 1)], 1000),
        DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000),
        delete_records.DeleteRecordsRequest(
            [delete_records.DeleteRecordsTopic("t", [delete_records.DeleteRecordsPartition(0, 0)])],
            1000,
        ),
        offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            -1,
            [
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    "t", [offset_for_leader_epoch.OffsetForLeaderPartition(0, -1, 0)]
                )
            ],
        ),
        DescribeConfigsRequest([DescribeConfigsResource(TOPIC, "t", None)]),
        alter_configs.AlterConfigsRequest([alter_configs.AlterConfigsResource(TOPIC, "t")]),
        create_partitions.CreatePartitionsRequest(
            [create_partitions.CreatePartitionsTopic("t", 2)], 1000
        ),
        DeleteGroupsRequest(["g"]),
        ElectLeadersRequest(0, [TopicPartitions("t", [0])], 1000),
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            [incremental_alter_configs.AlterConfigsResource(TOPIC, "t")]
        ),
        offset_delete.OffsetDeleteRequest(
            "g",
            [
                offset_delete.OffsetDeleteRequestTopic(
                    "t", [offset_delete.OffsetDeleteRequestPartition(0)]
                )
            ],
        ),
        DescribeTopicPartitionsRequest([TopicRequest("t")]),
        *(acl_calls.sample(key) for key in acl_calls.NEWEST),
        *(transaction_calls.sample(*one) for one in transaction_calls.NEWEST.items()),
        *user_calls.SAMPLES.values(),
    )
}
"""Requests that reach the API's own handling; for other APIs the default request does."""
BY_NAME = {0: 9, 1: 12, 2: 8, 8: 7, 9: 5, 10: 3, 14: 4, 20: 5}
"""Versions of APIs whose later ones have topic ids, or several groups or protocols."""


def asked(key: int) -> tuple[Request, int]:
    return ASKED.get(key) or api_versions.request_class(key)(), BY_NAME.get(key, VERSIONS[key][1])


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with asyncio.timeout(60), Cluster(brokers=1) as one:
        one.create_topic("t")
        one.append("t", 0, batch_bytes())
        yield one


@pytest.fixture
async def peer(cluster: Cluster) -> AsyncIterator[RawPeer]:
    async with RawPeer.to(cluster.bootstrap) as one:
        yield one


@pytest.mark.parametrize("key", VERSIONS, ids=lambda key: api_versions.API_NAMES[key])
async def test_an_api_can_get_an_error_response(cluster: Cluster, peer: RawPeer, key: int) -> None:
    fault = cluster.faults.error(key, BROKEN)
    await peer.call(*asked(key))
    (served,) = cluster.requests.of(key)
    assert (served.errors, fault.hits) == ([BROKEN], 1)


@pytest.mark.parametrize("key", VERSIONS, ids=lambda key: api_versions.API_NAMES[key])
async def test_an_api_can_be_held_back_lost_and_looked_at(
    cluster: Cluster, peer: RawPeer, key: int
) -> None:
    seen: list[Any] = []
    for at in ("before", "after_append", "after_reply"):
        cluster.faults.on(key, lambda info: seen.append((info.api, info.response is None)), at=at)
    held = cluster.faults.hold(key)
    correlation = peer.write(*asked(key))
    await held.wait_hits()
    held.release()
    if key != JoinGroupRequest.API_KEY:  # which waits for others to join
        await peer.read(api_versions.request_class(key), asked(key)[1], correlation)
    name = api_versions.API_NAMES[key]
    assert seen[0] == (name, True)
    assert {one for one, _ in seen} == {name}
    cluster.faults.lose_answers(key)
    async with RawPeer.to(cluster.bootstrap) as other:
        other.write(*asked(key))
        assert await other.read_end() == b""

"""Short builders of requests about groups, for any version."""

from __future__ import annotations

from collections.abc import Sequence

from kclient.protocol.message import Request
from kclient.protocol.messages.delete_groups import DeleteGroupsRequest
from kclient.protocol.messages.describe_groups import DescribeGroupsRequest
from kclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from kclient.protocol.messages.heartbeat import HeartbeatRequest
from kclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kclient.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kclient.protocol.messages.list_groups import ListGroupsRequest
from kclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kclient.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

NEWEST = {8: 10, 9: 10, 10: 6, 11: 9, 12: 4, 13: 5, 14: 5, 15: 6, 16: 5, 42: 2, 47: 0}
"""The newest version of each API, by API key."""


def find(group: str, version: int = NEWEST[10], *, kind: int = 0) -> FindCoordinatorRequest:
    """Find the coordinator of a group, or with the kind 1 of a transactional id."""
    if version >= 4:
        return FindCoordinatorRequest(key_type=kind, coordinator_keys=[group])
    return FindCoordinatorRequest(group, kind)


def join(
    group: str,
    member_id: str = "",
    *,
    instance: str | None = None,
    protocols: Sequence[str] = ("range",),
    metadata: bytes = b"m",
    protocol_type: str = "consumer",
    session_ms: int = 10_000,
    rebalance_ms: int = 20_000,
) -> JoinGroupRequest:
    """Join a group."""
    return JoinGroupRequest(
        group,
        session_ms,
        rebalance_ms,
        member_id,
        instance,
        protocol_type,
        [JoinGroupRequestProtocol(name, metadata) for name in protocols],
    )


def sync(
    group: str,
    generation: int,
    member_id: str,
    *,
    instance: str | None = None,
    protocol: str | None = "range",
    protocol_type: str | None = "consumer",
    **assignments: bytes,
) -> SyncGroupRequest:
    """Sync, and as the leader give assignments; use ``**{member_id: bytes}``."""
    given = [SyncGroupRequestAssignment(one, data) for one, data in assignments.items()]
    return SyncGroupRequest(group, generation, member_id, instance, protocol_type, protocol, given)


def beat(
    group: str, generation: int, member_id: str, instance: str | None = None
) -> HeartbeatRequest:
    """Send a heartbeat."""
    return HeartbeatRequest(group, generation, member_id, instance)


def leave(group: str, *members: str | MemberIdentity) -> LeaveGroupRequest:
    """Leave a group, from version 3 on."""
    return LeaveGroupRequest(
        group,
        members=[MemberIdentity(one) if isinstance(one, str) else one for one in members],
    )


def commit(
    group: str,
    topic: str | bytes,
    *offsets: tuple[int, int],
    generation: int = -1,
    member_id: str = "",
    instance: str | None = None,
    metadata: str | None = "",
    retention_ms: int = -1,
    leader_epoch: int = -1,
) -> OffsetCommitRequest:
    """Commit (partition, offset) pairs of one topic, by id from version 10 on."""
    parts = [
        OffsetCommitRequestPartition(index, offset, leader_epoch, -1, metadata)
        for index, offset in offsets
    ]
    named = (
        OffsetCommitRequestTopic(topic, partitions=parts)
        if isinstance(topic, str)
        else OffsetCommitRequestTopic(topic_id=topic, partitions=parts)
    )
    return OffsetCommitRequest(group, generation, member_id, instance, retention_ms, [named])


def fetch_offsets(
    group: str, topic: str | bytes | None = None, *partitions: int, stable: bool = False
) -> OffsetFetchRequest:
    """Fetch the offsets of one group, from version 8 on; without a topic all of them."""
    topics: list[OffsetFetchRequestTopics] | None = None
    if isinstance(topic, str):
        topics = [OffsetFetchRequestTopics(topic, partition_indexes=list(partitions))]
    elif topic is not None:
        topics = [OffsetFetchRequestTopics(topic_id=topic, partition_indexes=list(partitions))]
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group, topics=topics)], require_stable=stable
    )


def delete_offsets(group: str, topic: str, *partitions: int) -> OffsetDeleteRequest:
    """Delete offsets of one topic."""
    parts = [OffsetDeleteRequestPartition(one) for one in partitions]
    return OffsetDeleteRequest(group, [OffsetDeleteRequestTopic(topic, parts)])


def sample(api_key: int, version: int, topic_id: bytes) -> Request:
    """Return a valid request of one of the group APIs in that version."""
    fetched: Request = OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [0])])
    if version >= 8:
        fetched = fetch_offsets("g", topic_id if version >= 10 else "t", 0)
    requests: dict[int, Request] = {
        8: commit("g", topic_id if version >= 10 else "t", (0, 1)),
        9: fetched,
        10: find("g", version),
        11: join("g", instance="i" if version >= 5 else None),
        12: beat("g", 1, "m"),
        13: leave("g", "m") if version >= 3 else LeaveGroupRequest("g", "m"),
        14: sync("g", 1, "m")
        if version >= 5
        else sync("g", 1, "m", protocol=None, protocol_type=None),
        15: DescribeGroupsRequest(["g"], version >= 3),
        16: ListGroupsRequest(["Stable"] if version >= 4 else []),
        42: DeleteGroupsRequest(["g"]),
        47: delete_offsets("g", "t", 0),
    }
    return requests[api_key]

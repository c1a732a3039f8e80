"""The shape of a group coordinator's answers over sockets, as Apache Kafka 4.3.0 gives them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.delete_groups import DeleteGroupsRequest
from kclient.protocol.messages.describe_groups import DescribeGroupsRequest
from kclient.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kclient.protocol.messages.list_groups import ListGroupsRequest
from kclient.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kclient.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.embedded.group_scene import Scene, code_of, group_scene
from tests.unit.testing.group_calls import (
    commit,
    delete_offsets,
    fetch_offsets,
    join,
    leave,
    sync,
)

OFFSETS = "__consumer_offsets"
NONE = ErrorCode.NONE


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with group_scene() as one:
        yield one


@pytest.mark.parametrize("version", [0, 4, 6, 7, 9])
async def test_a_refused_join_has_nulls_where_the_version_has_them(
    scene: Scene, version: int
) -> None:
    peer = await scene.peer()
    protocol = None if version >= 7 else ""
    for request, code, member_id in (
        (join("", "m"), ErrorCode.INVALID_GROUP_ID, "m"),
        (join("g", "m", session_ms=5_999), ErrorCode.INVALID_SESSION_TIMEOUT, "m"),
        (join("g", "m", session_ms=1_800_001), ErrorCode.INVALID_SESSION_TIMEOUT, "m"),
        (join("g", "m"), ErrorCode.UNKNOWN_MEMBER_ID, "m"),
        (join("g", protocols=()), ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ""),
    ):
        got = await peer.call(request, version)
        assert (got.error_code, got.member_id) == (code, member_id)
        assert (got.generation_id, got.protocol_type, got.protocol_name) == (-1, None, protocol)
        assert (got.leader, got.members) == ("", [])


@pytest.mark.parametrize("version", [0, 3, 5])
async def test_an_assignment_names_the_protocol_where_the_version_does(
    scene: Scene, version: int
) -> None:
    peer = await scene.peer()
    member_id, generation = await scene.alone(peer)
    named = {} if version >= 5 else {"protocol": None, "protocol_type": None}
    got = await peer.call(sync("g", generation, member_id, **named), version)  # type: ignore[arg-type]
    told = ("consumer", "range") if version >= 5 else (None, None)
    assert (got.protocol_type, got.protocol_name, got.assignment) == (*told, b"all")
    bad = await peer.call(sync("g", generation + 1, member_id, **named), version)  # type: ignore[arg-type]
    assert (bad.error_code, bad.protocol_type, bad.protocol_name, bad.assignment) == (
        ErrorCode.ILLEGAL_GENERATION,
        None,
        None,
        b"",
    )


async def test_an_assignment_needs_the_protocols_name_from_version_5_on(scene: Scene) -> None:
    peer = await scene.peer()
    member_id, generation = await scene.alone(peer)
    request = sync("g", generation, member_id, protocol=None)
    assert code_of(await peer.call(request, 5)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_the_first_versions_leave_one_by_one(scene: Scene) -> None:
    peer = await scene.peer()
    member_id, _ = await scene.alone(peer)
    for version in (0, 2):
        gone = await peer.call(LeaveGroupRequest("g", "nobody"), version)
        assert (gone.error_code, gone.members) == (ErrorCode.UNKNOWN_MEMBER_ID, [])
    gone = await peer.call(LeaveGroupRequest("g", member_id), 1)
    assert (gone.error_code, gone.members) == (NONE, [])


async def test_members_leave_together_each_with_a_code(scene: Scene) -> None:
    peer = await scene.peer()
    member_id, _ = await scene.alone(peer)
    request = leave("g", "nobody", MemberIdentity("", "i"), MemberIdentity(member_id, None, "bye"))
    gone = await peer.call(request, 5)
    assert gone.error_code == NONE
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [(one.member_id, one.group_instance_id, one.error_code) for one in gone.members] == [
        ("nobody", None, unknown),
        ("", "i", unknown),
        (member_id, None, NONE),
    ]
    gone = await peer.call(leave("none", MemberIdentity("m", "i")), 5)
    assert (gone.error_code, gone.members[0].error_code) == (NONE, unknown)


async def test_groups_are_described_with_what_their_state_allows(scene: Scene) -> None:
    peer = await scene.peer()
    asked = await peer.call(join("g"), 9)
    (empty,) = (await peer.call(DescribeGroupsRequest(["g"]), 6)).groups
    assert (empty.group_state, empty.protocol_type, empty.members) == ("Empty", "", [])
    joined = await peer.call(join("g", asked.member_id), 9)
    (waiting,) = (await peer.call(DescribeGroupsRequest(["g"]), 6)).groups
    assert (waiting.group_state, waiting.protocol_data) == ("CompletingRebalance", "")
    assert waiting.members[0].member_metadata == b""
    given = {joined.member_id: b"A"}
    await peer.call(sync("g", 1, joined.member_id, **given), 5)
    (stable,) = (await peer.call(DescribeGroupsRequest(["g"], True), 6)).groups
    assert (stable.group_state, stable.protocol_type, stable.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    assert stable.authorized_operations == 3400
    (member,) = stable.members
    assert (member.client_id, member.client_host, member.group_instance_id) == (
        "raw",
        "/127.0.0.1",
        None,
    )
    assert (member.member_metadata, member.member_assignment) == (b"m", b"A")


async def test_a_group_that_is_not_there_is_dead(scene: Scene) -> None:
    peer = await scene.peer()
    (old,) = (await peer.call(DescribeGroupsRequest(["g"], True), 5)).groups
    assert (old.error_code, old.group_state, old.authorized_operations) == (NONE, "Dead", 3400)
    (new,) = (await peer.call(DescribeGroupsRequest(["g"], True), 6)).groups
    assert (new.error_code, new.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert new.authorized_operations == -(1 << 31)


@pytest.mark.parametrize(
    ("states", "types", "listed"),
    [
        ([], [], {"g", "h"}),
        (["Stable"], [], {"g"}),
        (["sTABLE ", "x"], [], {"g"}),
        (["Empty"], ["Classic"], {"h"}),
        (["Dead"], [], set()),
        ([""], [], set()),
        ([], ["consumer"], set()),
        ([], ["share", "classic"], {"g", "h"}),
        ([], ["nonsense"], set()),
    ],
)
async def test_groups_are_listed_by_state_and_type(
    scene: Scene, states: list[str], types: list[str], listed: set[str]
) -> None:
    await scene.alone(await scene.peer())
    found: dict[str, Any] = {}
    await (await scene.peer(scene.coordinator("h"))).call(commit("h", "t", (0, 1)), 9)
    for broker in scene.cluster.brokers:
        peer = await scene.peer(broker)
        answer = await peer.call(ListGroupsRequest(states, types), 5)
        found |= {one.group_id: one for one in answer.groups}
    assert set(found) == listed
    if "g" in found:
        assert (found["g"].protocol_type, found["g"].group_state) == ("consumer", "Stable")
        assert found["g"].group_type == "classic"
    if "h" in found:
        assert found["h"].protocol_type == ""


async def test_topics_are_named_by_id_from_version_10_on(scene: Scene) -> None:
    peer = await scene.peer()
    topic_id, strange = scene.cluster.topic_id("t"), b"\x01" * 16
    request = commit("g", topic_id, (0, 5), (7, 5))
    request.topics.append(
        OffsetCommitRequestTopic(topic_id=strange, partitions=[OffsetCommitRequestPartition(0, 1)])
    )
    done = await peer.call(request, 10)
    assert [
        (
            one.name,
            one.topic_id,
            [(part.partition_index, part.error_code) for part in one.partitions],
        )
        for one in done.topics
    ] == [
        ("", topic_id, [(0, NONE), (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]),
        ("", strange, [(0, ErrorCode.UNKNOWN_TOPIC_ID)]),
    ]
    wanted = fetch_offsets("g", strange, 0)
    wanted.groups[0].topics += fetch_offsets("g", topic_id, 0, 1).groups[0].topics or []
    got = (await peer.call(wanted, 10)).groups[0]
    assert [
        (one.topic_id, [(part.committed_offset, part.error_code) for part in one.partitions])
        for one in got.topics
    ] == [
        (topic_id, [(5, NONE), (-1, NONE)]),
        (strange, [(-1, ErrorCode.UNKNOWN_TOPIC_ID)]),
    ]
    everything = (await peer.call(fetch_offsets("g"), 10)).groups[0]
    assert [(one.name, one.topic_id) for one in everything.topics] == [("", topic_id)]


@pytest.mark.parametrize("version", [1, 2, 5, 7])
async def test_one_groups_offsets_are_read_in_old_versions(scene: Scene, version: int) -> None:
    peer = await scene.peer()
    await peer.call(commit("g", "t", (0, 5), metadata="note", leader_epoch=0), 9)
    request = OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [0, 1, 9])])
    got = await peer.call(request, version)
    epoch = 0 if version >= 5 else -1
    assert [
        (one.committed_offset, one.committed_leader_epoch, one.metadata, one.error_code)
        for one in got.topics[0].partitions
    ] == [(5, epoch, "note", NONE), (-1, -1, "", NONE), (-1, -1, "", NONE)]


async def test_an_error_of_a_group_is_where_the_version_has_room_for_it(scene: Scene) -> None:
    peer = await scene.peer(scene.coordinator() % 3 + 1)
    request = OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [0])])
    one = await peer.call(request, 1)
    assert one.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    two = await peer.call(request, 2)
    assert (two.error_code, two.topics) == (ErrorCode.NOT_COORDINATOR, [])
    many = await peer.call(fetch_offsets("g", "t", 0), 9)
    assert (many.groups[0].error_code, many.groups[0].topics) == (ErrorCode.NOT_COORDINATOR, [])


async def test_an_error_of_the_group_is_all_that_an_offset_delete_says(scene: Scene) -> None:
    peer = await scene.peer()
    got = await peer.call(delete_offsets("g", "t", 0, 9), 0)
    assert (got.error_code, got.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    got = await peer.call(delete_offsets("", "t", 0), 0)
    assert (got.error_code, got.topics) == (ErrorCode.INVALID_GROUP_ID, [])
    await peer.call(commit("g", "t", (0, 5)), 9)
    got = await peer.call(delete_offsets("g", "t", 0, 9), 0)
    assert [(one.partition_index, one.error_code) for one in got.topics[0].partitions] == [
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, NONE),
    ]


async def test_each_group_is_deleted_once(scene: Scene) -> None:
    peer = await scene.peer()
    await peer.call(commit("g", "t", (0, 5)), 9)
    got = await peer.call(DeleteGroupsRequest(["g", "g"]), 2)
    assert [(one.group_id, one.error_code) for one in got.results] == [("g", NONE)]
    assert (await peer.call(DeleteGroupsRequest([]), 2)).results == []


async def test_what_a_coordinator_remembers_can_be_read_as_records(scene: Scene) -> None:
    peer = await scene.peer()
    await peer.call(commit("g", "t", (0, 5)), 9)
    await peer.call(DeleteGroupsRequest(["g"]), 2)
    found = scene.cluster.records(OFFSETS, scene.partition)
    assert [(bytes(one.key or b"")[:2], one.value is None) for one in found] == [
        (b"\x00\x01", False),
        (b"\x00\x01", True),
        (b"\x00\x02", True),
    ]

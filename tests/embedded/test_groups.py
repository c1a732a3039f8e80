"""The group coordinator over sockets: who it is, how it moves, and the shape of its answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.protocol.message import Request
from kclient.protocol.messages.delete_groups import DeleteGroupsRequest
from kclient.protocol.messages.describe_groups import DescribeGroupsRequest
from kclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from kclient.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kclient.protocol.messages.list_groups import ListGroupsRequest
from kclient.protocol.messages.metadata import MetadataRequest
from kclient.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kclient.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kclient.testing import Cluster
from kclient.testing.broker import Broker
from kclient.testing.groups.java_hash import partition_of
from tests.unit.testing.group_calls import (
    NEWEST,
    beat,
    commit,
    delete_offsets,
    fetch_offsets,
    find,
    join,
    leave,
    sample,
    sync,
)
from tests.unit.testing.raw_peer import RawPeer

OFFSETS = "__consumer_offsets"
NONE = ErrorCode.NONE


class Scene:
    """A cluster of three and one connection to each broker."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._peers: list[RawPeer] = []

    async def peer(self, broker: int | None = None) -> RawPeer:
        """A new connection; to the coordinator of g by default."""
        node_id = self.coordinator() if broker is None else broker
        peer = RawPeer.to(self.cluster.brokers[node_id].address)
        self._peers.append(peer)
        return await peer.__aenter__()

    async def close(self) -> None:
        for peer in self._peers:
            await peer.__aexit__()

    def coordinator(self, group: str = "g") -> int:
        up = next(one for one in self.cluster.brokers.values() if one.running)
        found = up.groups.find(group)
        assert found is not None
        return found.node_id

    @property
    def partition(self) -> int:
        return partition_of("g", 50)

    def broker(self) -> Broker:
        """The one that coordinates g."""
        return self.cluster.brokers[self.coordinator()]

    async def members(self, count: int) -> None:
        """Wait until that many are in g."""
        group = self.broker().groups.shard("g").groups["g"]
        while len(group.members) != count:  # noqa: ASYNC110 - a group tells nobody
            await asyncio.sleep(0)

    async def alone(self, peer: RawPeer, group: str = "g", **options: Any) -> tuple[str, int]:
        """A group of one: member id and generation."""
        asked = await peer.call(join(group, **options), 9)
        joined = await peer.call(join(group, asked.member_id, **options), 9)
        given = {joined.member_id: b"all"}
        assigned = await peer.call(sync(group, joined.generation_id, joined.member_id, **given), 5)
        assert assigned.assignment == b"all"
        return joined.member_id, joined.generation_id


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with asyncio.timeout(60), Cluster(brokers=3) as cluster:
        cluster.create_topic("t", partitions=2)
        one = Scene(cluster)
        try:
            yield one
        finally:
            await one.close()


def code_of(response: Any) -> ErrorCode:
    """The first error code in an answer, wherever it is."""
    for name in ("topics", "groups", "results", "coordinators"):
        for part in getattr(response, name, None) or ():
            inner = getattr(part, "partitions", None)
            if isinstance(inner, list):
                return ErrorCode(inner[0].error_code) if inner else code_of(part)
            return ErrorCode(part.error_code)
    return ErrorCode(response.error_code)


# Who coordinates


async def test_the_internal_topic_is_made_when_a_coordinator_is_asked_for(scene: Scene) -> None:
    assert OFFSETS not in scene.cluster.topics
    peer = await scene.peer(1)
    found = (await peer.call(find("g"), 6)).coordinators[0]
    assert found.error_code == NONE
    assert found.node_id == scene.cluster.leader(OFFSETS, partition_of("g", 50))
    broker = scene.cluster.brokers[found.node_id]
    assert (found.host, found.port) == (broker.host, broker.port)
    assert scene.cluster.partition_count(OFFSETS) == 50
    told = await peer.call(MetadataRequest(None), 12)
    (topic,) = [one for one in told.topics if one.name == OFFSETS]
    assert topic.is_internal
    assert {len(one.replica_nodes) for one in topic.partitions} == {3}


async def test_the_internal_topic_is_as_the_configuration_says() -> None:
    configs = {"offsets.topic.num.partitions": 4, "offsets.topic.replication.factor": 2}
    async with asyncio.timeout(60), Cluster(3, broker_configs=configs) as cluster:
        scene = Scene(cluster)
        scene.coordinator()
        assert cluster.partition_count(OFFSETS) == 4
        async with RawPeer.to(cluster.bootstrap) as peer:
            told = await peer.call(MetadataRequest(None), 12)
            assert {len(one.replica_nodes) for one in told.topics[0].partitions} == {2}


async def test_groups_are_spread_over_brokers(scene: Scene) -> None:
    peer = await scene.peer(1)
    names = [f"group-{index}" for index in range(30)]
    request = FindCoordinatorRequest(coordinator_keys=names)
    found = (await peer.call(request, 4)).coordinators
    assert {one.node_id for one in found} == {1, 2, 3}
    assert [one.key for one in found] == names


@pytest.mark.parametrize(
    ("key", "version", "code"),
    [
        ("g:4PcXHsMNR3SZWlDvkmQx1Q:0", 6, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("a:b:4PcXHsMNR3SZWlDvkmQx1Q:0", 6, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("g:4PcXHsMNR3SZWlDvkmQx1Q:0", 5, ErrorCode.INVALID_REQUEST),
        ("g:4PcXHsMNR3SZWlDvkmQx1Q:x", 6, ErrorCode.INVALID_REQUEST),
        (":4PcXHsMNR3SZWlDvkmQx1Q:0", 6, ErrorCode.INVALID_REQUEST),
        ("g", 6, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_nobody_coordinates_share_groups(
    scene: Scene, key: str, version: int, code: ErrorCode
) -> None:
    peer = await scene.peer(1)
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
    (found,) = (await peer.call(request, version)).coordinators
    assert (found.error_code, found.node_id, found.error_message) == (code, -1, "")


@pytest.mark.parametrize("api_key", [key for key in NEWEST if key not in (10, 16)])
async def test_other_brokers_say_that_they_do_not_coordinate(scene: Scene, api_key: int) -> None:
    peer = await scene.peer(next(one for one in (1, 2, 3) if one != scene.coordinator()))
    version = NEWEST[api_key]
    request = sample(api_key, version, scene.cluster.topic_id("t"))
    answer = await peer.call(request, version)
    if isinstance(answer, DescribeGroupsRequest.RESPONSE):
        assert answer.groups[0].group_state == ""
    assert code_of(answer) is ErrorCode.NOT_COORDINATOR


async def test_without_the_internal_topic_nobody_coordinates(scene: Scene) -> None:
    peer = await scene.peer()
    scene.cluster.delete_topic(OFFSETS)
    for request in (join("g", "m"), beat("g", 1, "m")):
        answer = await peer.call(request, NEWEST[request.API_KEY])
        assert answer.error_code == ErrorCode.NOT_COORDINATOR
    assert (await peer.call(ListGroupsRequest(), 5)).groups == []


# Moves


async def test_a_group_moves_with_its_partition(scene: Scene) -> None:
    peer = await scene.peer()
    member_id, generation = await scene.alone(peer)
    done = commit("g", "t", (0, 7), generation=generation, member_id=member_id)
    assert code_of(await peer.call(done, 9)) is NONE
    old = scene.coordinator()
    scene.cluster.move_leader(OFFSETS, scene.partition, old % 3 + 1)
    assert scene.coordinator() != old
    assert code_of(await peer.call(beat("g", generation, member_id), 4)) is (
        ErrorCode.NOT_COORDINATOR
    )
    new = await scene.peer()
    assert code_of(await new.call(beat("g", generation, member_id), 4)) is NONE
    kept = await new.call(sync("g", generation, member_id), 5)
    assert kept.assignment == b"all"
    fetched = await new.call(fetch_offsets("g", "t", 0), 9)
    assert fetched.groups[0].topics[0].partitions[0].committed_offset == 7


async def test_who_waits_for_a_group_that_moves_is_told_at_once(scene: Scene) -> None:
    peer, other = await scene.peer(), await scene.peer()
    await scene.alone(peer)
    asked = await other.call(join("g"), 9)
    waiting = asyncio.create_task(other.call(join("g", asked.member_id), 9))
    await scene.members(2)
    scene.cluster.move_leader(OFFSETS, scene.partition, scene.coordinator() % 3 + 1)
    answer = await waiting
    assert (answer.error_code, answer.member_id) == (
        ErrorCode.NOT_COORDINATOR,
        asked.member_id,
    )


async def test_a_group_that_comes_back_is_as_the_other_coordinator_left_it(scene: Scene) -> None:
    peer = await scene.peer()
    member_id, generation = await scene.alone(peer)
    home = scene.coordinator()
    scene.cluster.move_leader(OFFSETS, scene.partition, home % 3 + 1)
    away = await scene.peer()
    await away.call(leave("g", member_id), 5)
    scene.cluster.move_leader(OFFSETS, scene.partition, home)
    described = await peer.call(DescribeGroupsRequest(["g"]), 6)
    assert described.groups[0].group_state == "Empty"
    assert scene.broker().groups.shard("g").groups["g"].generation == generation + 1


async def test_a_group_outlives_a_crash_of_its_coordinator(scene: Scene) -> None:
    peer = await scene.peer()
    member_id, generation = await scene.alone(peer)
    old = scene.coordinator()
    await scene.cluster.crash(old)
    assert not scene.cluster.brokers[old].groups.deadlines
    new = await scene.peer()
    assert code_of(await new.call(beat("g", generation, member_id), 4)) is NONE
    await scene.cluster.restart(old)
    assert code_of(await new.call(beat("g", generation, member_id), 4)) is NONE


async def test_a_group_outlives_a_restart_of_the_only_broker() -> None:
    async with asyncio.timeout(60), Cluster(1) as cluster:
        cluster.create_topic("t")
        scene = Scene(cluster)
        member_id, generation = await scene.alone(await scene.peer())
        await scene.close()
        await cluster.restart(1)
        again = Scene(cluster)
        peer = await again.peer()
        assert code_of(await peer.call(beat("g", generation, member_id), 4)) is NONE
        await again.close()


async def test_a_coordinator_that_takes_its_time_says_so(scene: Scene) -> None:
    peer = await scene.peer()
    member_id, generation = await scene.alone(peer)
    new = scene.coordinator() % 3 + 1
    coordinator = scene.cluster.brokers[new].groups
    coordinator.load_seconds = 3600.0
    scene.cluster.move_leader(OFFSETS, scene.partition, new)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    peer = await scene.peer(new)
    requests: list[Request] = [
        join("g", member_id),
        sync("g", generation, member_id),
        leave("g", member_id),
        commit("g", "t", (0, 1), generation=generation, member_id=member_id),
        fetch_offsets("g"),
        DescribeGroupsRequest(["g"]),
        DeleteGroupsRequest(["g"]),
        delete_offsets("g", "t", 0),
        ListGroupsRequest(),
    ]
    for request in requests:
        version = min(NEWEST[request.API_KEY], 9)
        assert code_of(await peer.call(request, version)) is loading
    # Members get the benefit of the doubt.
    assert code_of(await peer.call(beat("g", generation, member_id), 4)) is NONE
    coordinator.load_seconds = 0.0
    assert code_of(await peer.call(beat("g", generation, member_id), 4)) is NONE
    described = await peer.call(DescribeGroupsRequest(["g"]), 6)
    assert described.groups[0].members[0].member_id == member_id


async def test_a_broker_that_hears_of_its_role_takes_over_before_anybody_asks(scene: Scene) -> None:
    member_id, _ = await scene.alone(await scene.peer())
    old, new = scene.broker(), scene.cluster.brokers[scene.coordinator() % 3 + 1]
    scene.cluster.move_leader(OFFSETS, scene.partition, new.node_id)
    assert not old.groups.timer_is_set
    assert new.groups.timer_is_set  # the member's session
    assert ("session", "g", member_id) in new.groups.deadlines
    scene.cluster.move_leader(OFFSETS, scene.partition, old.node_id)
    assert not new.groups.timer_is_set
    assert ("session", "g", member_id) in old.groups.deadlines


async def test_nothing_is_left_to_do_for_idle_groups(scene: Scene) -> None:
    peer = await scene.peer()
    member_id, _ = await scene.alone(peer)
    groups = scene.broker().groups
    assert groups.timer_is_set
    await peer.call(leave("g", member_id), 5)
    await peer.call(commit("g", "t", (0, 1)), 9)
    assert not groups.timer_is_set


async def test_what_has_to_last_needs_enough_replicas() -> None:
    configs = {"min.insync.replicas": 2}
    async with asyncio.timeout(60), Cluster(2, broker_configs=configs) as cluster:
        cluster.create_topic("t")
        scene = Scene(cluster)
        peer = await scene.peer()
        member_id, generation = await scene.alone(peer)
        await cluster.stop(scene.coordinator() % 2 + 1)
        done = commit("g", "t", (0, 7), generation=generation, member_id=member_id)
        assert code_of(await peer.call(done, 9)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        left = await peer.call(leave("g", member_id), 5)
        assert (left.error_code, left.members) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])
        await scene.close()


# Connections


async def test_requests_that_are_sent_ahead_are_served_in_order(scene: Scene) -> None:
    peer = await scene.peer()
    asked = await peer.call(join("g"), 9)
    joined = await peer.call(join("g", asked.member_id), 9)
    member_id, generation = joined.member_id, joined.generation_id
    requests: list[tuple[Request, int]] = [
        (sync("g", generation, member_id, **{member_id: b"A"}), 5),
        (leave("g", member_id), 5),
        (beat("g", generation, member_id), 4),
    ]
    sent = [(type(one), version, peer.write(one, version)) for one, version in requests]
    answers = [await peer.read(*one) for one in sent]
    assert [one.error_code for one in answers] == [0, 0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert answers[0].assignment == b"A"


async def test_a_member_whose_connection_is_lost_may_ask_again(scene: Scene) -> None:
    first, second = await scene.peer(), await scene.peer()
    leader, _ = await scene.alone(first)
    asked = await second.call(join("g"), 9)
    second.write(join("g", asked.member_id), 9)
    await scene.members(2)
    await second.__aexit__()
    third = await scene.peer()
    waiting = asyncio.create_task(third.call(join("g", asked.member_id), 9))
    await asyncio.sleep(0)
    led = await first.call(join("g", leader), 9)
    assert (await waiting).generation_id == led.generation_id
    assert len(led.members) == 2


# Faults


async def test_faults_are_answered_for_groups(scene: Scene) -> None:
    peer = await scene.peer()
    member_id, generation = await scene.alone(peer)
    faults = scene.cluster.faults
    for request, api in (
        (beat("g", generation, member_id), "Heartbeat"),
        (join("g", member_id), "JoinGroup"),
        (sync("g", generation, member_id), "SyncGroup"),
        (leave("g"), "LeaveGroup"),
        (fetch_offsets("g"), "OffsetFetch"),
        (DescribeGroupsRequest(["g"]), "DescribeGroups"),
        (ListGroupsRequest(), "ListGroups"),
        (DeleteGroupsRequest(["g"]), "DeleteGroups"),
        (delete_offsets("g", "t", 0), "OffsetDelete"),
        (find("g"), "FindCoordinator"),
    ):
        faults.error(api, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        answer = await peer.call(request, min(NEWEST[request.API_KEY], 9))
        assert code_of(answer) is ErrorCode.COORDINATOR_NOT_AVAILABLE, api
    assert code_of(await peer.call(beat("g", generation, member_id), 4)) is NONE


async def test_faults_are_for_single_partitions_of_a_commit(scene: Scene) -> None:
    peer = await scene.peer()
    faults = scene.cluster.faults
    faults.error("OffsetCommit", ErrorCode.UNKNOWN_SERVER_ERROR, topic="t", partition=1)
    answer = await peer.call(commit("g", "t", (0, 5), (1, 6)), 9)
    assert [(one.partition_index, one.error_code) for one in answer.topics[0].partitions] == [
        (1, ErrorCode.UNKNOWN_SERVER_ERROR),
        (0, NONE),
    ]
    faults.error("OffsetCommit", ErrorCode.REQUEST_TIMED_OUT, topic="t", after=True)
    answer = await peer.call(commit("g", "t", (1, 7)), 9)
    assert code_of(answer) is ErrorCode.REQUEST_TIMED_OUT
    fetched = await peer.call(fetch_offsets("g"), 9)
    found = fetched.groups[0].topics[0].partitions
    assert [(one.partition_index, one.committed_offset) for one in found] == [(0, 5), (1, 7)]


async def test_faults_are_for_single_partitions_that_are_read_or_forgotten(scene: Scene) -> None:
    peer = await scene.peer()
    await peer.call(commit("g", "t", (0, 5), (1, 6)), 9)
    faults = scene.cluster.faults
    faults.error("OffsetFetch", ErrorCode.UNSTABLE_OFFSET_COMMIT, topic="t", partition=1)
    fetched = await peer.call(fetch_offsets("g", "t", 0, 1), 9)
    parts = fetched.groups[0].topics[0].partitions
    assert [(one.committed_offset, one.error_code) for one in parts] == [
        (5, NONE),
        (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT),
    ]
    faults.error("OffsetDelete", ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, topic="t", partition=1)
    deleted = await peer.call(delete_offsets("g", "t", 0, 1), 0)
    assert [(one.partition_index, one.error_code) for one in deleted.topics[0].partitions] == [
        (1, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
        (0, NONE),
    ]


async def test_an_answer_that_is_lost_was_carried_out(scene: Scene) -> None:
    peer = await scene.peer()
    member_id, generation = await scene.alone(peer)
    scene.cluster.faults.error("LeaveGroup", ErrorCode.NOT_COORDINATOR, after=True)
    answer = await peer.call(leave("g", member_id), 5)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    code = code_of(await peer.call(beat("g", generation, member_id), 4))
    assert code is ErrorCode.UNKNOWN_MEMBER_ID


# The shape of answers, as Apache Kafka 4.3.0 gives them


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
    assert new.error_message == "Group g not found."
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
        ("", topic_id, [(7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (0, NONE)]),
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

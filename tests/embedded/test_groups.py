"""The group coordinator over sockets: where it is, how it moves, and faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from kclient.error_codes import ErrorCode
from kclient.protocol.message import Request
from kclient.protocol.messages.delete_groups import DeleteGroupsRequest
from kclient.protocol.messages.describe_groups import DescribeGroupsRequest
from kclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from kclient.protocol.messages.list_groups import ListGroupsRequest
from kclient.protocol.messages.metadata import MetadataRequest
from kclient.testing import Cluster
from kclient.testing.internal_topic import partition_of
from tests.embedded.group_scene import Scene, code_of, group_scene
from tests.unit.testing.group_calls import (
    NEWEST,
    beat,
    commit,
    delete_offsets,
    fetch_offsets,
    find,
    join,
    leave,
    sync,
)
from tests.unit.testing.raw_peer import RawPeer

OFFSETS = "__consumer_offsets"
NONE = ErrorCode.NONE


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with group_scene() as one:
        yield one


# Which broker coordinates


async def test_the_internal_topic_is_made_when_a_coordinator_is_asked_for(scene: Scene) -> None:
    assert OFFSETS not in scene.cluster.topics
    peer = await scene.peer(1)
    found = (await peer.call(find("g"), 6)).coordinators[0]
    assert found.error_code == NONE
    assert found.node_id == scene.cluster.leader(OFFSETS, partition_of("g", 50))
    broker = scene.cluster.brokers[found.node_id]
    assert (found.host, found.port) == (broker.host, broker.port)
    assert scene.cluster.partition_count(OFFSETS) == 50
    reported = await peer.call(MetadataRequest(None), 12)
    (topic,) = [one for one in reported.topics if one.name == OFFSETS]
    assert topic.is_internal
    assert {len(one.replica_nodes) for one in topic.partitions} == {3}


async def test_the_internal_topic_follows_the_configuration() -> None:
    configs = {"offsets.topic.num.partitions": 4, "offsets.topic.replication.factor": 2}
    async with asyncio.timeout(60), Cluster(3, broker_configs=configs) as cluster:
        scene = Scene(cluster)
        scene.coordinator()
        assert cluster.partition_count(OFFSETS) == 4
        async with RawPeer.to(cluster.bootstrap) as peer:
            reported = await peer.call(MetadataRequest(None), 12)
            assert {len(one.replica_nodes) for one in reported.topics[0].partitions} == {2}


async def test_groups_are_spread_over_brokers(scene: Scene) -> None:
    peer = await scene.peer(1)
    names = [f"group-{index}" for index in range(30)]
    request = FindCoordinatorRequest(coordinator_keys=names)
    found = (await peer.call(request, 4)).coordinators
    assert {one.node_id for one in found} == {1, 2, 3}
    assert [one.key for one in found] == names


async def test_without_the_internal_topic_no_broker_coordinates(scene: Scene) -> None:
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


async def test_a_pending_join_fails_at_once_when_its_group_moves(scene: Scene) -> None:
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


async def test_a_slow_coordinator_responds_that_it_is_loading(scene: Scene) -> None:
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
    # Heartbeats succeed meanwhile: members are taken for alive.
    assert code_of(await peer.call(beat("g", generation, member_id), 4)) is NONE
    coordinator.load_seconds = 0.0
    assert code_of(await peer.call(beat("g", generation, member_id), 4)) is NONE
    described = await peer.call(DescribeGroupsRequest(["g"]), 6)
    assert described.groups[0].members[0].member_id == member_id


async def test_a_new_coordinator_takes_over_before_the_first_request(scene: Scene) -> None:
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


async def test_a_member_whose_connection_is_lost_may_join_again(scene: Scene) -> None:
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


async def test_faults_are_for_single_partitions_of_a_commit(scene: Scene) -> None:
    peer = await scene.peer()
    faults = scene.cluster.faults
    faults.error("OffsetCommit", ErrorCode.UNKNOWN_SERVER_ERROR, topic="t", partition=1)
    answer = await peer.call(commit("g", "t", (0, 5), (1, 6)), 9)
    assert [(one.partition_index, one.error_code) for one in answer.topics[0].partitions] == [
        (0, NONE),
        (1, ErrorCode.UNKNOWN_SERVER_ERROR),
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


async def test_a_request_whose_response_is_lost_was_carried_out(scene: Scene) -> None:
    peer = await scene.peer()
    member_id, generation = await scene.alone(peer)
    scene.cluster.faults.error("LeaveGroup", ErrorCode.NOT_COORDINATOR, after=True)
    answer = await peer.call(leave("g", member_id), 5)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    code = code_of(await peer.call(beat("g", generation, member_id), 4))
    assert code is ErrorCode.UNKNOWN_MEMBER_ID

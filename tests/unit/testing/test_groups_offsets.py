"""Offsets of groups: who may commit, what is read and when, what is forgotten."""

from __future__ import annotations

import pytest

from kclient.error_codes import ErrorCode
from tests.unit.testing.group_room import Room

NONE = ErrorCode.NONE
MINUTE_MS = 60_000
SUBSCRIBED_TO_T = b"\x00\x01\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff\x00\x00\x00\x00"


def test_anybody_commits_for_an_empty_group_but_not_as_a_member() -> None:
    room = Room()
    member_id, generation = room.alone()
    room.leave(member_id)
    assert room.commit(5, member_id="x") == [NONE]
    code = room.commit(5, member_id=member_id, generation=generation)
    assert code == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_commit_is_a_sign_of_life() -> None:
    room = Room()
    member_id, generation = room.alone(session_ms=6_000)
    room.pass_time(5)
    room.commit(5, member_id=member_id, generation=generation)
    room.pass_time(5)
    assert room.beat(generation, member_id) is NONE


# With replication


def test_readers_get_what_is_committed() -> None:
    room = Room()
    room.commit(5)
    room.slow = True
    answers = room.commit(6)
    assert answers == []
    assert room.fetch() == [{("t", 0): 5}]
    room.commit_all()
    assert answers == [NONE]
    assert room.fetch() == [{("t", 0): 6}]


def test_who_wants_stable_offsets_waits_for_what_was_appended() -> None:
    room = Room()
    assert room.fetch(stable=True) == [{}]
    room.slow = True
    room.commit(5)
    answers = room.fetch(stable=True)
    assert answers == []
    room.commit_all()
    assert answers == [{("t", 0): 5}]


def test_stable_offsets_that_never_come_are_to_be_had_elsewhere() -> None:
    room = Room()
    room.slow = True
    committed = room.commit(5)
    answers = room.fetch(stable=True)
    room.pass_time(5.1)
    assert committed == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert answers == [ErrorCode.NOT_COORDINATOR]
    room.commit_all()
    assert room.fetch() == [{("t", 0): 5}]  # late, but committed


@pytest.mark.parametrize(
    ("why", "code"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_can_not_be_appended_did_not_happen(why: ErrorCode, code: ErrorCode) -> None:
    room = Room()
    room.refuse = why
    assert room.commit(5) == [code]
    assert not room.shard.groups
    assert room.fetch() == [{}]


def test_what_is_not_committed_fails_with_the_coordinator() -> None:
    room = Room()
    room.slow = True
    answers = room.commit(5)
    fetched = room.fetch(stable=True)
    room.shard.unload(room.moment)
    assert answers == [ErrorCode.NOT_COORDINATOR]
    assert fetched == [ErrorCode.NOT_COORDINATOR]
    room.commit_all()
    assert len(answers) == 1
    assert not len(room.deadlines)


# Deletion


@pytest.mark.parametrize("metadata", [b"", b"m", b"\xff\xff", SUBSCRIBED_TO_T[:7]])
def test_consumers_with_strange_metadata_may_consume_anything(metadata: bytes) -> None:
    room = Room()
    room.alone(metadata=metadata)
    assert room.delete_offsets(("t", 0)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_a_group_is_deleted_with_its_offsets_when_it_is_empty() -> None:
    room = Room()
    member_id, generation = room.alone()
    room.commit(5, member_id=member_id, generation=generation)
    assert room.delete_group() == [ErrorCode.NON_EMPTY_GROUP]
    room.leave(member_id)
    assert room.delete_group() == [NONE]
    assert room.fetch() == [{}]
    assert room.delete_group() == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert not room.reload().shard.groups


def test_offsets_go_with_their_topic() -> None:
    room = Room()
    room.commit(5)
    room.topics["t"] = b"another topic now"[:16]
    assert room.fetch() == [{}]
    room.commit(6)
    assert room.fetch() == [{("t", 0): 6}]
    del room.topics["t"]
    assert room.fetch() == [{}]
    assert room.reload().fetch() == [{}]


# Retention (KIP-211)


def test_offsets_are_kept_for_a_while_after_the_group_is_empty() -> None:
    room = Room(retention_ms=60 * MINUTE_MS, retention_check_ms=10 * MINUTE_MS)
    member_id, generation = room.alone(session_ms=1_800_000)
    room.commit(5, member_id=member_id, generation=generation)
    for _ in range(3):
        room.pass_time(25 * 60)
        assert room.beat(generation, member_id) is NONE
        assert room.fetch() == [{("t", 0): 5}]  # for as long as somebody is there
    room.leave(member_id)
    room.pass_time(59 * 60)
    assert room.fetch() == [{("t", 0): 5}]
    room.pass_time(10 * 60)
    assert room.fetch() == [{}]
    assert not room.shard.groups
    assert not room.reload().shard.groups


def test_without_a_group_the_time_of_the_commit_counts() -> None:
    room = Room(retention_ms=60 * MINUTE_MS, retention_check_ms=MINUTE_MS)
    room.commit(5)
    room.pass_time(40 * 60)
    room.commit(6, partition=1)
    room.pass_time(30 * 60)
    assert room.fetch() == [{("t", 1): 6}]


def test_members_keep_what_they_subscribe_to() -> None:
    room = Room(retention_ms=10 * MINUTE_MS, retention_check_ms=MINUTE_MS)
    room.topics["u"] = b"u" * 16
    member_id, generation = room.alone(metadata=SUBSCRIBED_TO_T, session_ms=1_800_000)
    for topic in ("t", "u"):
        room.commit(5, topic=topic, member_id=member_id, generation=generation)
    room.pass_time(11 * 60)
    assert room.fetch() == [{("t", 0): 5}]


def test_old_clients_say_how_long_to_keep() -> None:
    room = Room(retention_ms=60 * MINUTE_MS, retention_check_ms=MINUTE_MS)
    room.commit(5, retention_ms=5 * MINUTE_MS, version=3)
    room.commit(6, partition=1, retention_ms=500 * MINUTE_MS, version=3)
    room = room.reload()
    room.pass_time(100 * 60)
    assert room.fetch() == [{("t", 1): 6}]


def test_a_retention_past_the_end_of_time_keeps_offsets_for_ever() -> None:
    room = Room(retention_ms=60 * MINUTE_MS, retention_check_ms=MINUTE_MS)
    assert room.commit(5, retention_ms=(1 << 63) - 1, version=3) == [NONE]
    room = room.reload()
    room.pass_time(1000 * 60)
    assert room.fetch() == [{("t", 0): 5}]


def test_idle_groups_leave_nothing_to_do() -> None:
    room = Room()
    room.commit(5)
    member_id, _ = room.alone(group="g")
    room.leave(member_id)
    assert not len(room.deadlines)

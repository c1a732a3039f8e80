"""Offsets of groups: which commits are accepted, what is read and when, what is deleted."""

from __future__ import annotations

import pytest

from kclient.error_codes import ErrorCode
from tests.unit.testing.group_rig import Rig

NONE = ErrorCode.NONE
MINUTE_MS = 60_000
SUBSCRIBED_TO_T = b"\x00\x01\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff\x00\x00\x00\x00"


def test_any_client_commits_for_an_empty_group_but_not_as_a_member() -> None:
    rig = Rig()
    member_id, generation = rig.alone()
    rig.leave(member_id)
    assert rig.commit(5, member_id="x") == [NONE]
    code = rig.commit(5, member_id=member_id, generation=generation)
    assert code == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_commit_is_a_sign_of_life() -> None:
    rig = Rig()
    member_id, generation = rig.alone(session_ms=6_000)
    rig.pass_time(5)
    rig.commit(5, member_id=member_id, generation=generation)
    rig.pass_time(5)
    assert rig.beat(generation, member_id) is NONE


# With replication


def test_readers_get_what_is_committed() -> None:
    rig = Rig()
    rig.commit(5)
    rig.slow = True
    answers = rig.commit(6)
    assert answers == []
    assert rig.fetch() == [{("t", 0): 5}]
    rig.commit_all()
    assert answers == [NONE]
    assert rig.fetch() == [{("t", 0): 6}]


def test_a_fetch_of_stable_offsets_waits_for_what_was_appended() -> None:
    rig = Rig()
    assert rig.fetch(stable=True) == [{}]
    rig.slow = True
    rig.commit(5)
    answers = rig.fetch(stable=True)
    assert answers == []
    rig.commit_all()
    assert answers == [{("t", 0): 5}]


def test_stable_offsets_that_never_come_are_to_be_had_elsewhere() -> None:
    rig = Rig()
    rig.slow = True
    committed = rig.commit(5)
    answers = rig.fetch(stable=True)
    rig.pass_time(5.1)
    assert committed == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert answers == [ErrorCode.NOT_COORDINATOR]
    rig.commit_all()
    assert rig.fetch() == [{("t", 0): 5}]  # late, but committed


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
    rig = Rig()
    rig.refuse = why
    assert rig.commit(5) == [code]
    assert not rig.shard.groups
    assert rig.fetch() == [{}]


def test_what_is_not_committed_fails_with_the_coordinator() -> None:
    rig = Rig()
    rig.slow = True
    answers = rig.commit(5)
    fetched = rig.fetch(stable=True)
    rig.shard.unload(rig.moment)
    assert answers == [ErrorCode.NOT_COORDINATOR]
    assert fetched == [ErrorCode.NOT_COORDINATOR]
    rig.commit_all()
    assert len(answers) == 1
    assert not len(rig.deadlines)


# Deletion


@pytest.mark.parametrize("metadata", [b"", b"m", b"\xff\xff", SUBSCRIBED_TO_T[:7]])
def test_consumers_with_strange_metadata_may_consume_anything(metadata: bytes) -> None:
    rig = Rig()
    rig.alone(metadata=metadata)
    assert rig.delete_offsets(("t", 0)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_a_group_is_deleted_with_its_offsets_when_it_is_empty() -> None:
    rig = Rig()
    member_id, generation = rig.alone()
    rig.commit(5, member_id=member_id, generation=generation)
    assert rig.delete_group() == [ErrorCode.NON_EMPTY_GROUP]
    rig.leave(member_id)
    assert rig.delete_group() == [NONE]
    assert rig.fetch() == [{}]
    assert rig.delete_group() == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert not rig.reload().shard.groups


def test_offsets_go_with_their_topic() -> None:
    rig = Rig()
    rig.commit(5)
    rig.topics["t"] = b"another topic now"[:16]
    assert rig.fetch() == [{}]
    rig.commit(6)
    assert rig.fetch() == [{("t", 0): 6}]
    del rig.topics["t"]
    assert rig.fetch() == [{}]
    assert rig.reload().fetch() == [{}]


# Retention (KIP-211)


def test_offsets_are_kept_for_a_while_after_the_group_is_empty() -> None:
    rig = Rig(retention_ms=60 * MINUTE_MS, retention_check_ms=10 * MINUTE_MS)
    member_id, generation = rig.alone(session_ms=1_800_000)
    rig.commit(5, member_id=member_id, generation=generation)
    for _ in range(3):
        rig.pass_time(25 * 60)
        assert rig.beat(generation, member_id) is NONE
        assert rig.fetch() == [{("t", 0): 5}]  # as long as the group has a member
    rig.leave(member_id)
    rig.pass_time(59 * 60)
    assert rig.fetch() == [{("t", 0): 5}]
    rig.pass_time(10 * 60)
    assert rig.fetch() == [{}]
    assert not rig.shard.groups
    assert not rig.reload().shard.groups


def test_without_a_group_the_time_of_the_commit_counts() -> None:
    rig = Rig(retention_ms=60 * MINUTE_MS, retention_check_ms=MINUTE_MS)
    rig.commit(5)
    rig.pass_time(40 * 60)
    rig.commit(6, partition=1)
    rig.pass_time(30 * 60)
    assert rig.fetch() == [{("t", 1): 6}]


def test_members_keep_what_they_subscribe_to() -> None:
    rig = Rig(retention_ms=10 * MINUTE_MS, retention_check_ms=MINUTE_MS)
    rig.topics["u"] = b"u" * 16
    member_id, generation = rig.alone(metadata=SUBSCRIBED_TO_T, session_ms=1_800_000)
    for topic in ("t", "u"):
        rig.commit(5, topic=topic, member_id=member_id, generation=generation)
    rig.pass_time(11 * 60)
    assert rig.fetch() == [{("t", 0): 5}]


def test_old_clients_set_the_retention_of_a_commit() -> None:
    rig = Rig(retention_ms=60 * MINUTE_MS, retention_check_ms=MINUTE_MS)
    rig.commit(5, retention_ms=5 * MINUTE_MS, version=3)
    rig.commit(6, partition=1, retention_ms=500 * MINUTE_MS, version=3)
    rig = rig.reload()
    rig.pass_time(100 * 60)
    assert rig.fetch() == [{("t", 1): 6}]


def test_a_retention_past_the_end_of_time_keeps_offsets_for_ever() -> None:
    rig = Rig(retention_ms=60 * MINUTE_MS, retention_check_ms=MINUTE_MS)
    assert rig.commit(5, retention_ms=(1 << 63) - 1, version=3) == [NONE]
    rig = rig.reload()
    rig.pass_time(1000 * 60)
    assert rig.fetch() == [{("t", 0): 5}]


def test_idle_groups_leave_nothing_to_do() -> None:
    rig = Rig()
    rig.commit(5)
    member_id, _ = rig.alone(group="g")
    rig.leave(member_id)
    assert not len(rig.deadlines)

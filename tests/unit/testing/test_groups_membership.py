"""Heartbeats and leaving, static members, and the records that are written of a group."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.testing.groups.classic_group import State
from tests.unit.testing.group_rig import Rig, codes, entered

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


# Heartbeats


def test_a_silent_member_is_removed_after_its_session() -> None:
    rig = Rig()
    leader, other, generation = rig.pair(session_ms=6_000)
    for _ in range(4):
        rig.pass_time(2)
        code = rig.beat(generation, leader)
    assert code is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(rig.group().members) == [leader]
    assert rig.beat(generation, other) is UNKNOWN


def test_a_session_is_kept_up_by_heartbeats_only() -> None:
    rig = Rig()
    member_id, generation = rig.alone(session_ms=6_000)
    for _ in range(5):
        rig.pass_time(5.9)
        assert rig.beat(generation, member_id) is NONE
    rig.pass_time(6.1)
    assert rig.state is State.EMPTY
    assert not len(rig.deadlines)


def test_a_member_that_waits_for_the_others_needs_no_heartbeats() -> None:
    rig = Rig()
    leader, other, _ = rig.pair(session_ms=6_000, rebalance_ms=60_000)
    answers = rig.join(leader, session_ms=6_000, rebalance_ms=60_000)
    rig.pass_time(5)
    rig.join(other, session_ms=6_000, rebalance_ms=60_000)
    waiting = rig.sync(answers[0].generation_id, other)
    rig.pass_time(5)
    rig.beat(answers[0].generation_id, leader)
    rig.pass_time(5)
    rig.sync(answers[0].generation_id, leader)
    assert codes(waiting) == [NONE]
    rig.pass_time(5)  # the session began again with the response
    assert len(rig.group().members) == 2


# Leaving


def test_a_group_is_empty_when_all_have_left() -> None:
    rig = Rig()
    leader, other, generation = rig.pair()
    assert rig.leave(leader, other, "nobody") == [NONE, NONE, UNKNOWN]
    group = rig.group()
    assert (group.state, group.generation, group.leader) == (State.EMPTY, generation + 1, None)
    assert group.protocol_type == "consumer"
    assert not len(rig.deadlines)


def test_a_member_that_leaves_while_joining_gets_a_response() -> None:
    rig = Rig()
    leader, _, _ = rig.pair()
    joining = rig.join(leader)
    assert rig.leave(leader) == [NONE]
    assert codes(joining) == [UNKNOWN]
    assert joining[0].member_id == ""


def test_leaving_gets_its_response_when_it_is_written() -> None:
    rig = Rig()
    member_id, _ = rig.alone()
    rig.slow = True
    assert rig.leave(member_id) == []
    rig = Rig()
    member_id, _ = rig.alone()
    rig.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    assert rig.leave(member_id) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


# Static members (KIP-345)


def test_a_static_member_with_another_protocol_brings_a_rebalance() -> None:
    rig = Rig()
    (joined,) = entered(rig, instance="i", protocols=("a", "b"))
    rig.sync(1, joined.member_id, instance="i", protocol="a")
    (back,) = rig.join(instance="i", protocols=("b", "a"))
    assert (back.generation_id, back.protocol_name) == (2, "b")


def test_a_second_static_member_of_that_name_fences_the_first() -> None:
    rig = Rig()
    rig.alone()
    first = rig.join(instance="i")
    rig.join(instance="i")
    (answer,) = first
    assert answer.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert (answer.protocol_name, answer.leader, answer.generation_id) == (None, "", -1)


def test_a_static_member_that_awaits_its_assignment_is_fenced_and_all_rebalance() -> None:
    rig = Rig()
    leader, _ = rig.alone()
    other = rig.join(instance="i")
    rig.join(leader)
    waiting = rig.sync(other[0].generation_id, other[0].member_id, instance="i")
    rig.join(instance="i")
    assert codes(waiting) == [ErrorCode.FENCED_INSTANCE_ID]
    assert rig.state is State.PREPARING_REBALANCE


def test_a_static_member_may_miss_a_rebalance_but_not_its_session() -> None:
    rig = Rig()
    first = rig.join(instance="i", rebalance_ms=5_000, session_ms=20_000)
    rig.pass_time(0)
    member_id = first[0].member_id
    rig.sync(1, member_id, instance="i")
    joining = rig.enter(rebalance_ms=5_000)
    rig.pass_time(6)
    assert codes(joining) == [NONE]
    assert member_id in rig.group().members
    rig.pass_time(15)
    assert member_id not in rig.group().members


def test_a_new_id_is_taken_back_where_it_can_not_be_written_down() -> None:
    rig = Rig()
    (joined,) = entered(rig, instance="i")
    rig.sync(1, joined.member_id, instance="i")
    rig.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    (refused,) = rig.join(instance="i", metadata=b"news")
    assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (refused.member_id, refused.generation_id) == ("", 1)
    assert rig.beat(1, joined.member_id, "i") is NONE
    assert rig.group().leader == joined.member_id
    assert rig.group().members[joined.member_id].metadata("range") == b"m"


def test_an_id_that_was_given_to_a_dynamic_member_is_no_static_one() -> None:
    rig = Rig()
    (asked,) = rig.join()
    (refused,) = rig.join(asked.member_id, instance="i")
    assert (refused.error_code, refused.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")


# Written records


def test_a_new_group_that_can_not_be_written_down_is_none() -> None:
    rig = Rig()
    rig.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    answers = rig.join(version=3)
    assert codes(answers) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert not rig.shard.groups
    rig.pass_time(400)
    assert len(answers) == 1


def test_an_assignment_that_can_not_be_written_starts_another_rebalance() -> None:
    rig = Rig()
    (joined,) = entered(rig)
    rig.refuse = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert codes(rig.sync(1, joined.member_id)) == [ErrorCode.NOT_COORDINATOR]
    assert rig.state is State.PREPARING_REBALANCE


def test_assignments_count_once_they_are_committed() -> None:
    rig = Rig()
    (joined,) = entered(rig)
    rig.slow = True
    answers = rig.sync(1, joined.member_id, **{joined.member_id: b"A"})
    assert not answers
    assert rig.state is State.COMPLETING_REBALANCE
    rig.commit_all()
    assert answers[0].assignment == b"A"
    assert rig.state is State.STABLE


def test_an_assignment_that_is_overtaken_by_a_join_is_void() -> None:
    rig = Rig()
    (joined,) = entered(rig)
    rig.slow = True
    answers = rig.sync(1, joined.member_id, **{joined.member_id: b"A"})
    rig.enter()
    assert codes(answers) == [ErrorCode.REBALANCE_IN_PROGRESS]
    rig.commit_all()
    assert rig.state is State.PREPARING_REBALANCE


def test_a_write_that_takes_too_long_fails() -> None:
    rig = Rig()
    (joined,) = entered(rig)
    rig.slow = True
    answers = rig.sync(1, joined.member_id)
    rig.pass_time(5.1)
    assert codes(answers) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_a_group_outlives_its_coordinator() -> None:
    rig = Rig()
    leader, other, generation = rig.pair()
    new = rig.reload()
    assert new.beat(generation, leader) is new.beat(generation, other) is NONE
    (kept,) = new.sync(generation, other)
    assert kept.assignment == b"second"
    group = new.group()
    assert (group.state, group.leader, group.protocol_name) == (State.STABLE, leader, "range")
    new.pass_time(10.1)
    assert new.state is State.EMPTY


def test_static_members_outlive_their_coordinator() -> None:
    rig = Rig()
    (joined,) = entered(rig, instance="i")
    rig.sync(1, joined.member_id, instance="i")
    (back,) = rig.join(instance="i")
    new = rig.reload()
    assert new.beat(1, joined.member_id, "i") is ErrorCode.FENCED_INSTANCE_ID
    assert new.beat(1, back.member_id, "i") is NONE


def test_a_leader_outlives_its_coordinator_in_any_place() -> None:
    rig = Rig()
    (joined,) = entered(rig, instance="i")
    rig.sync(1, joined.member_id, instance="i")
    other = rig.enter()
    (led,) = rig.join(joined.member_id, instance="i")
    rig.sync(led.generation_id, led.member_id, instance="i")
    (back,) = rig.join(instance="i")
    assert list(rig.group().members) == [other[0].member_id, back.member_id]
    assert rig.reload().group().leader == back.member_id == back.leader

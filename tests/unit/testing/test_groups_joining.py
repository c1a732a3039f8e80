"""Joining, joining again and syncing: what members of a group are told, and when."""

from __future__ import annotations

import pytest

from kclient.error_codes import ErrorCode
from kclient.testing.groups.classic_group import State
from tests.unit.testing.group_room import Room, codes, entered

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


# Joining


def test_an_id_that_was_not_used_is_forgotten_with_its_session() -> None:
    room = Room()
    (first,) = room.join(session_ms=7_000)
    room.pass_time(6.9)
    assert room.group().pending_members == {first.member_id}
    room.pass_time(0.2)
    assert not room.group().pending_members
    assert codes(room.join(first.member_id)) == [UNKNOWN]


def test_an_id_that_was_given_out_holds_a_rebalance_up() -> None:
    room = Room()
    leader, _ = room.alone()
    joining = room.enter()
    (asked,) = room.join()
    room.join(leader)
    assert not joining
    room.leave(asked.member_id)
    assert codes(joining) == [NONE]


def test_the_first_rebalance_waits_for_more_members_but_not_for_ever() -> None:
    room = Room(initial_rebalance_delay_ms=3_000)
    first = room.enter(rebalance_ms=7_000)
    room.pass_time(2)
    second = room.enter(rebalance_ms=7_000)
    room.pass_time(2)
    third = room.enter(rebalance_ms=7_000)
    room.pass_time(2.5)
    assert not first  # 6.5 of 7 seconds
    room.enter(rebalance_ms=7_000)
    room.pass_time(0.5)
    assert codes(first) == codes(second) == codes(third) == [NONE]
    assert {one.member_id for one in first[0].members} == set(room.group().members)


def test_the_first_rebalance_ends_after_one_delay_without_news() -> None:
    room = Room(initial_rebalance_delay_ms=3_000)
    first = room.enter()
    room.pass_time(2.9)
    assert not first
    room.pass_time(0.1)
    assert codes(first) == [NONE]


def test_a_full_group_lets_nobody_in() -> None:
    room = Room(max_size=2)
    leader, other, generation = room.pair()
    (refused,) = room.join()
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert room.beat(generation, other) is NONE
    room.join(leader)
    assert room.beat(generation, other) is ErrorCode.REBALANCE_IN_PROGRESS
    room.join(other)
    assert len(room.group().members) == 2


def test_the_last_to_rejoin_a_group_that_is_too_large_is_left_out() -> None:
    room = Room()
    leader, other, _ = room.pair()
    smaller = room.reload()
    smaller.settings = type(room.settings)(max_size=1)
    smaller = smaller.reload()
    assert smaller.state is State.PREPARING_REBALANCE
    answers = smaller.join(leader)
    assert codes(smaller.join(other)) == [ErrorCode.GROUP_MAX_SIZE_REACHED]
    smaller.pass_time(20)  # the rebalance timeout, as in Kafka
    assert codes(answers) == [NONE]
    assert list(smaller.group().members) == [leader]


@pytest.mark.parametrize(
    ("preferences", "chosen"),
    [
        ((("a", "b"), ("b", "a"), ("b", "a")), "b"),
        ((("a", "b"), ("a", "b"), ("b", "a")), "a"),
        ((("a", "c"), ("b", "c")), "c"),
        ((("range", "roundrobin"), ("roundrobin", "range")), "range"),
        ((("roundrobin", "range"), ("range", "roundrobin")), "roundrobin"),
    ],
)
def test_members_vote_for_the_protocol(
    preferences: tuple[tuple[str, ...], ...], chosen: str
) -> None:
    room = Room(initial_rebalance_delay_ms=10)
    answers = [room.join(version=3, protocols=one) for one in preferences]
    room.pass_time(1)
    assert {one[0].protocol_name for one in answers} == {chosen}


# Joining again


def test_a_lost_answer_is_given_again_while_assignments_are_awaited() -> None:
    room = Room()
    (joined,) = entered(room)
    (again,) = room.join(joined.member_id)
    assert again == joined
    room.join(joined.member_id, metadata=b"news")
    assert room.group().generation == 2


def test_who_does_not_rejoin_in_time_is_out() -> None:
    room = Room()
    leader, other, generation = room.pair(rebalance_ms=5_000, session_ms=30_000)
    answers = room.join(leader, rebalance_ms=5_000, session_ms=30_000)
    room.pass_time(4.9)
    assert not answers
    assert room.beat(generation, other) is ErrorCode.REBALANCE_IN_PROGRESS
    room.pass_time(0.2)
    assert codes(answers) == [NONE]
    assert list(room.group().members) == [leader]
    assert room.beat(generation, other) is UNKNOWN


def test_the_longest_rebalance_timeout_counts() -> None:
    room = Room()
    first, _ = room.alone(rebalance_ms=5_000, session_ms=60_000)
    room.enter(rebalance_ms=9_000, session_ms=60_000)
    room.pass_time(8.9)
    assert first in room.group().members
    room.pass_time(0.2)
    assert first not in room.group().members


def test_another_leads_when_the_leader_does_not_rejoin() -> None:
    room = Room()
    leader, other, _ = room.pair(rebalance_ms=5_000, session_ms=30_000)
    answers = room.join(other, metadata=b"news", rebalance_ms=5_000)
    room.pass_time(6)
    assert answers[0].leader == other != leader
    assert [one.member_id for one in answers[0].members] == [other]


def test_a_parked_newcomer_is_given_up_after_five_minutes() -> None:
    room = Room()
    room.alone(rebalance_ms=1_000_000, session_ms=1_000_000)
    answers = room.enter(rebalance_ms=1_000_000, session_ms=10_000)
    room.pass_time(299)
    assert not answers
    room.pass_time(2)
    (answer,) = answers
    assert (answer.error_code, answer.member_id) == (UNKNOWN, "")


# Assignments


def test_parked_syncs_end_when_somebody_joins() -> None:
    room = Room()
    leader, other, _ = room.pair()
    room.join(other, metadata=b"news")
    (led,) = room.join(leader)
    waiting = room.sync(led.generation_id, other)
    room.enter()
    assert codes(waiting) == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_who_never_syncs_is_removed() -> None:
    room = Room()
    leader, other, _ = room.pair(rebalance_ms=8_000, session_ms=30_000)
    room.join(other, metadata=b"news", rebalance_ms=8_000, session_ms=30_000)
    (led,) = room.join(leader, rebalance_ms=8_000, session_ms=30_000)
    room.sync(led.generation_id, leader)
    assert room.state is State.STABLE
    room.pass_time(7.9)
    assert room.beat(led.generation_id, leader) is NONE
    room.pass_time(0.2)
    assert room.beat(led.generation_id, leader) is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(room.group().members) == [leader]

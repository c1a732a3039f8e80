"""Joining, rejoining and syncing: the responses that members of a group get, and when."""

from __future__ import annotations

import pytest

from kclient.error_codes import ErrorCode
from kclient.testing.groups.classic_group import State
from tests.unit.testing.group_rig import Rig, codes, entered

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


# Joining


def test_an_id_that_was_not_used_is_forgotten_with_its_session() -> None:
    rig = Rig()
    (first,) = rig.join(session_ms=7_000)
    rig.pass_time(6.9)
    assert rig.group().pending_members == {first.member_id}
    rig.pass_time(0.2)
    assert not rig.group().pending_members
    assert codes(rig.join(first.member_id)) == [UNKNOWN]


def test_an_id_that_was_given_out_holds_a_rebalance_up() -> None:
    rig = Rig()
    leader, _ = rig.alone()
    joining = rig.enter()
    (asked,) = rig.join()
    rig.join(leader)
    assert not joining
    rig.leave(asked.member_id)
    assert codes(joining) == [NONE]


def test_the_first_rebalance_waits_for_more_members_but_not_for_ever() -> None:
    rig = Rig(initial_rebalance_delay_ms=3_000)
    first = rig.enter(rebalance_ms=7_000)
    rig.pass_time(2)
    second = rig.enter(rebalance_ms=7_000)
    rig.pass_time(2)
    third = rig.enter(rebalance_ms=7_000)
    rig.pass_time(2.5)
    assert not first  # 6.5 of 7 seconds
    rig.enter(rebalance_ms=7_000)
    rig.pass_time(0.5)
    assert codes(first) == codes(second) == codes(third) == [NONE]
    assert {one.member_id for one in first[0].members} == set(rig.group().members)


def test_the_first_rebalance_ends_after_one_delay_without_news() -> None:
    rig = Rig(initial_rebalance_delay_ms=3_000)
    first = rig.enter()
    rig.pass_time(2.9)
    assert not first
    rig.pass_time(0.1)
    assert codes(first) == [NONE]


def test_a_full_group_accepts_no_new_member() -> None:
    rig = Rig(max_size=2)
    leader, other, generation = rig.pair()
    (refused,) = rig.join()
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert rig.beat(generation, other) is NONE
    rig.join(leader)
    assert rig.beat(generation, other) is ErrorCode.REBALANCE_IN_PROGRESS
    rig.join(other)
    assert len(rig.group().members) == 2


def test_the_last_to_rejoin_a_group_that_is_too_large_is_left_out() -> None:
    rig = Rig()
    leader, other, _ = rig.pair()
    smaller = rig.reload()
    smaller.settings = type(rig.settings)(max_size=1)
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
    rig = Rig(initial_rebalance_delay_ms=10)
    answers = [rig.join(version=3, protocols=one) for one in preferences]
    rig.pass_time(1)
    assert {one[0].protocol_name for one in answers} == {chosen}


# Rejoining


def test_a_lost_response_is_repeated_while_assignments_are_awaited() -> None:
    rig = Rig()
    (joined,) = entered(rig)
    (again,) = rig.join(joined.member_id)
    assert again == joined
    rig.join(joined.member_id, metadata=b"news")
    assert rig.group().generation == 2


def test_a_member_that_does_not_rejoin_in_time_is_out() -> None:
    rig = Rig()
    leader, other, generation = rig.pair(rebalance_ms=5_000, session_ms=30_000)
    answers = rig.join(leader, rebalance_ms=5_000, session_ms=30_000)
    rig.pass_time(4.9)
    assert not answers
    assert rig.beat(generation, other) is ErrorCode.REBALANCE_IN_PROGRESS
    rig.pass_time(0.2)
    assert codes(answers) == [NONE]
    assert list(rig.group().members) == [leader]
    assert rig.beat(generation, other) is UNKNOWN


def test_the_longest_rebalance_timeout_counts() -> None:
    rig = Rig()
    first, _ = rig.alone(rebalance_ms=5_000, session_ms=60_000)
    rig.enter(rebalance_ms=9_000, session_ms=60_000)
    rig.pass_time(8.9)
    assert first in rig.group().members
    rig.pass_time(0.2)
    assert first not in rig.group().members


def test_another_leads_when_the_leader_does_not_rejoin() -> None:
    rig = Rig()
    leader, other, _ = rig.pair(rebalance_ms=5_000, session_ms=30_000)
    answers = rig.join(other, metadata=b"news", rebalance_ms=5_000)
    rig.pass_time(6)
    assert answers[0].leader == other != leader
    assert [one.member_id for one in answers[0].members] == [other]


def test_a_waiting_newcomer_is_removed_after_five_minutes() -> None:
    rig = Rig()
    rig.alone(rebalance_ms=1_000_000, session_ms=1_000_000)
    answers = rig.enter(rebalance_ms=1_000_000, session_ms=10_000)
    rig.pass_time(299)
    assert not answers
    rig.pass_time(2)
    (answer,) = answers
    assert (answer.error_code, answer.member_id) == (UNKNOWN, "")


# Assignments


def test_waiting_syncs_end_when_a_member_joins() -> None:
    rig = Rig()
    leader, other, _ = rig.pair()
    rig.join(other, metadata=b"news")
    (led,) = rig.join(leader)
    waiting = rig.sync(led.generation_id, other)
    rig.enter()
    assert codes(waiting) == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_a_member_that_never_syncs_is_removed() -> None:
    rig = Rig()
    leader, other, _ = rig.pair(rebalance_ms=8_000, session_ms=30_000)
    rig.join(other, metadata=b"news", rebalance_ms=8_000, session_ms=30_000)
    (led,) = rig.join(leader, rebalance_ms=8_000, session_ms=30_000)
    rig.sync(led.generation_id, leader)
    assert rig.state is State.STABLE
    rig.pass_time(7.9)
    assert rig.beat(led.generation_id, leader) is NONE
    rig.pass_time(0.2)
    assert rig.beat(led.generation_id, leader) is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(rig.group().members) == [leader]

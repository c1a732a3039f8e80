"""The state of a member and its next step, whatever comes in whatever order. No loop."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kclient.errors import KafkaError
from kclient.group.member import Generation, Member
from kclient.group.member import MemberState as S
from kclient.transitions import IllegalTransition

TROUBLE = KafkaError("trouble")


def joined(number: int = 1, member_id: str = "m") -> Generation:
    return Generation(number, member_id)


def stable() -> Member:
    member = Member()
    member.request_rejoin("first")
    assert member.begin()
    member.prepared()
    member.asks()
    member.joined(joined())
    member.synced()
    return member


def test_it_joins_when_that_is_requested() -> None:
    member = Member()
    assert not member.begin()
    member.request_rejoin("because")
    assert member.begin()
    member.prepared()
    assert member.asks() == "because"
    member.joined(joined())
    assert (member.state, member.sends_heartbeats, member.has_assignment) == (
        S.SYNCING,
        True,
        False,
    )
    member.synced()
    assert (member.state, member.sends_heartbeats, member.has_assignment) == (S.STABLE, True, True)
    assert member.rebalances == 1
    assert not member.begin()


def test_a_request_before_the_join_is_met_by_it_and_a_later_one_begins_the_next_rebalance() -> None:
    member = stable()
    member.request_rejoin("one")
    assert member.begin()
    member.request_rejoin("two")
    member.prepared()
    assert member.asks() == "one"
    member.request_rejoin("three")
    member.joined(joined(2))
    member.synced()
    assert member.begin()
    member.prepared()
    assert member.asks() == "three"


def test_a_member_with_an_assignment_reports_the_loss_before_it_joins_again() -> None:
    for advance in ("", "begin", "prepared", "joined"):
        member = stable()
        member.request_rejoin("again")
        if advance:
            member.begin()
        if advance in ("prepared", "joined"):
            member.prepared()
        if advance == "joined":
            member.joined(joined(2))
        assert member.over(TROUBLE)
        assert (member.state, member.generation, member.error) == (S.LOST, None, TROUBLE)
        assert not member.over(TROUBLE)
        member.loss_reported()
        assert (member.state, member.has_assignment) == (S.PREPARING, False)


def test_a_member_without_an_assignment_just_joins_again() -> None:
    member = Member()
    member.request_rejoin("first")
    member.begin()
    member.prepared()
    member.joined(joined())
    assert not member.over(TROUBLE)
    assert (member.state, member.generation, member.member_id) == (S.JOINING, None, "m")


def test_the_id_is_kept_or_forgotten_as_requested() -> None:
    member = stable()
    member.over(TROUBLE)
    assert member.member_id == "m"
    member = stable()
    member.over(TROUBLE, forget_id=True)
    assert member.member_id == ""


def test_a_member_id_is_taken_once() -> None:
    member = Member()
    assert member.take_id("m")
    assert not member.take_id("m")
    assert not member.take_id("")


def test_leaving_gives_the_id_and_forgets_all() -> None:
    member = stable()
    member.request_rejoin("soon")
    assert member.leave() == "m"
    assert (member.state, member.has_assignment, member.generation, member.rejoin_reason) == (
        S.OUTSIDE,
        False,
        None,
        None,
    )
    assert member.leave() == ""
    assert not member.begin()


def test_a_failure_and_the_close_are_ends() -> None:
    member = stable()
    member.fail(TROUBLE)
    assert (member.state, member.error, member.has_assignment) == (S.FAILED, TROUBLE, True)
    member.request_rejoin("again")
    assert member.rejoin_reason is None
    assert member.leave() == ""
    assert member.close() == "m"  # for LeaveGroup
    member.fail(TROUBLE)
    assert member.state is S.CLOSED
    assert member.close() == ""


def test_a_fenced_member_has_no_id_to_leave_with() -> None:
    member = stable()
    member.fail(TROUBLE, forget_id=True)
    assert member.close() == ""


def test_a_refusal_holds_until_there_is_an_assignment_or_it_leaves() -> None:
    for end in ("synced", "leave"):
        member = stable()
        member.request_rejoin("again")
        member.begin()
        member.prepared()
        member.refuse(TROUBLE)
        assert (member.refused, member.last_error, member.has_assignment) == (True, TROUBLE, True)
        member.asks()
        member.joined(joined(2))
        assert member.refused
        if end == "synced":
            member.synced()
        else:
            member.leave()
        assert not member.refused


def test_an_illegal_step_is_refused() -> None:
    with pytest.raises(IllegalTransition, match="SYNCED in state OUTSIDE"):
        Member().synced()


class AnyOrder(RuleBasedStateMachine):
    """The membership's task in its order, and all that may come in between at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.member = Member()
        self.number = 0
        self.granted = False

    @rule(reason=st.sampled_from(["a", "b"]))
    def request_rejoin(self, reason: str) -> None:
        self.member.request_rejoin(reason)

    @rule(refused=st.booleans())
    def next_step(self, refused: bool) -> None:
        member = self.member
        match member.state:
            case S.OUTSIDE | S.STABLE:
                wished = member.rejoin_reason is not None
                assert member.begin() == wished
            case S.PREPARING:
                member.prepared()
            case S.JOINING if not refused:
                member.asks()
                self.number += 1
                member.joined(joined(self.number))
            case S.SYNCING if refused:
                member.again(TROUBLE)
            case S.SYNCING:
                member.synced()
                self.granted = True
            case S.LOST:
                member.loss_reported()
                self.granted = False

    @rule(forget=st.booleans())
    def over(self, forget: bool) -> None:
        reported = self.member.over(TROUBLE, forget_id=forget)
        assert not reported or self.granted

    @rule()
    def leave(self) -> None:
        if not self.member.ended:
            self.granted = False
        self.member.leave()

    @precondition(lambda self: self.number > 5)
    @rule()
    def fail(self) -> None:
        self.member.fail(TROUBLE)

    @precondition(lambda self: self.number > 5)
    @rule()
    def close(self) -> None:
        self.member.close()
        self.granted = False

    @invariant()
    def what_was_granted_is_held_until_it_is_lost_or_left(self) -> None:
        assert self.member.has_assignment == self.granted

    @invariant()
    def heartbeats_have_a_generation(self) -> None:
        member = self.member
        assert not member.sends_heartbeats or member.generation is not None
        if member.state in (S.SYNCING, S.STABLE):
            assert member.sends_heartbeats
        if member.state in (S.OUTSIDE, S.LOST, S.FAILED, S.CLOSED):
            assert member.generation is None
            assert not member.at_risk

    @invariant()
    def nobody_is_silent_for_ever(self) -> None:
        """A loss always leads to another join, unless it left or can't be a member."""
        if self.member.state is S.LOST:
            assert self.member.error is not None


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)

"""The state of partitions: phases, positions, errors and the changes that are reported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kclient.broker_errors import TopicAuthorizationFailed
from kclient.consumer.partition_state import TRANSITIONS, PartitionState, Phase, PhaseEvent
from kclient.errors import InvalidArgument
from kclient.transitions import IllegalTransition
from kclient.types import OffsetSpec, TopicPartition
from tests.unit.consumer.subscribing import new_subscription

A, B, C = (TopicPartition("flights", index) for index in range(3))
EARLIEST, LATEST = OffsetSpec.EARLIEST, OffsetSpec.LATEST


class Rig:
    """A subscription and the changes that it reported."""

    def __init__(self, reset: OffsetSpec | None = None, **others: Any) -> None:
        self.changed: list[TopicPartition] = []
        self.tellings = 0
        self.subscription = new_subscription(reset, self._note, **others)

    def _note(self, states: Sequence[PartitionState]) -> None:
        self.changed += [state.topic_partition for state in states]
        self.tellings += 1

    def state(self, partition: TopicPartition = A) -> PartitionState:
        return self.subscription.require(partition)


def assigned(reset: OffsetSpec | None = None) -> Rig:
    rig = Rig(reset)
    rig.subscription.assign([A, B])
    rig.changed.clear()
    return rig


def test_every_phase_is_explained_and_every_target_exists() -> None:
    assert set(TRANSITIONS) == set(Phase)
    for row in TRANSITIONS.values():
        assert set(row) <= set(PhaseEvent)
        assert set(row.values()) <= set(Phase)
    assert all(len(member.value) > 20 for member in (*Phase, *PhaseEvent))


def test_every_phase_can_reach_fetching() -> None:
    for phase in Phase:
        assert Phase.FETCHING in TRANSITIONS[phase].values()


def test_an_illegal_step_raises() -> None:
    rig = assigned()
    with pytest.raises(IllegalTransition, match="VALIDATED in state NO_POSITION"):
        rig.subscription._apply(rig.state(), PhaseEvent.VALIDATED)


def test_partitions_that_change_together_are_reported_together() -> None:
    rig = assigned(LATEST)
    rig.tellings = 0
    rig.subscription.assign([B, C, TopicPartition("c", 1)])
    assert (rig.changed, rig.tellings) == ([A, C, TopicPartition("c", 1)], 1)
    states = list(rig.subscription)
    placed = rig.subscription.finish_resets(
        (state, state.position_version, 7, 1) for state in states
    )
    assert placed == states
    assert rig.tellings == 2
    assert rig.subscription.settled
    rig.subscription.finish_resets((state, state.position_version, 8, 1) for state in states)
    assert rig.tellings == 2
    assert {state.position for state in states} == {7}


def test_a_new_partition_begins_with_what_is_known_of_it_and_is_reported_once() -> None:
    rig = Rig(LATEST, facts_of=lambda partition: (b"1" * 16, partition.partition + 5))
    rig.subscription.assign([A, B])
    assert rig.changed == [A, B]
    assert [state.topic_id for state in rig.subscription] == [b"1" * 16] * 2
    assert [state.leader_epoch for state in rig.subscription] == [
        partition.partition + 5 for partition in (A, B)
    ]


def test_a_view_with_two_changes_changes_a_partition_once() -> None:
    rig = assigned()
    rig.subscription.seek(rig.state(), 0)
    rig.changed.clear()
    assert not rig.subscription.update_metadata(rig.state(), b"1" * 16, 3)
    assert rig.changed == [A]
    assert not rig.subscription.update_metadata(rig.state(), b"1" * 16, 3)
    assert not rig.subscription.update_metadata(rig.state(), None, -1)
    assert rig.changed == [A]


def test_a_view_of_a_partition_without_a_position_changes_no_request() -> None:
    rig = assigned(LATEST)
    assert not rig.subscription.update_metadata(rig.state(), b"1" * 16, 3)
    assert rig.changed == []
    assert (rig.state().topic_id, rig.state().leader_epoch) == (b"1" * 16, 3)


def test_partitions_are_found_by_topic() -> None:
    rig = Rig()
    other = TopicPartition("another", 0)
    rig.subscription.assign([A, other, B])
    found = rig.subscription.of_topic
    assert rig.subscription.assigned_topics() == [A.topic, "another"]
    assert [state.topic_partition for state in found(A.topic)] == [A, B]
    rig.subscription.assign([B])
    assert rig.subscription.assigned_topics() == [A.topic]
    assert [state.topic_partition for state in found(A.topic)] == [B]
    assert len(found("another")) == len(found("never")) == 0


def test_without_a_policy_a_new_partition_has_no_position() -> None:
    rig = assigned()
    assert rig.subscription.without_position() == [rig.state(A), rig.state(B)]
    assert not rig.subscription.settled


def test_with_a_policy_a_new_partition_awaits_its_reset() -> None:
    rig = assigned(LATEST)
    assert rig.subscription.without_position() == []
    waiting = rig.subscription.pending(Phase.AWAITING_RESET)
    assert [state.reset_to for state in waiting] == [LATEST, LATEST]


def test_assigning_again_keeps_what_stays_and_ends_what_goes() -> None:
    rig = assigned()
    rig.subscription.seek(rig.state(A), 5)
    kept, gone = rig.state(A), rig.state(B)
    rig.subscription.assign([A, C])
    assert rig.state(A) is kept
    assert kept.position == 5
    assert not gone.assigned
    assert B not in rig.subscription
    assert [tp for tp in rig.changed if tp != A] == [B, C]


def test_a_partition_revoked_and_assigned_again_starts_over() -> None:
    rig = assigned()
    rig.subscription.seek(rig.state(A), 5)
    before = rig.state(A)
    rig.subscription.assign([B])
    rig.subscription.assign([A, B])
    assert rig.state(A) is not before
    assert rig.state(A).position is None


def test_a_partition_that_came_into_being_is_read_from_its_beginning() -> None:
    rig = assigned(LATEST)
    rig.subscription.add_new(C)
    assert rig.state(C).reset_to is EARLIEST
    rig.subscription.add_new(C)
    assert len(rig.subscription) == 3


def test_seek_settles_a_partition_and_forgets_its_trouble() -> None:
    rig = assigned()
    state = rig.state()
    rig.subscription.fail(state, TopicAuthorizationFailed())
    rig.subscription.back_off(state, 99.0)
    rig.subscription.seek(state, 7, 3)
    assert (state.phase, state.position, state.fetch_offset) == (Phase.FETCHING, 7, 7)
    assert (state.position_epoch, state.retry_at, state.failures) == (3, 0.0, 0)
    assert rig.subscription.take_error() is None


def test_a_lookup_sets_the_position_that_was_requested() -> None:
    rig = assigned(LATEST)
    state = rig.state()
    first = state.position_version
    rig.subscription.ask_reset(state, EARLIEST)
    assert not rig.subscription.finish_resets([(state, first, 100, -1)])
    assert rig.subscription.finish_resets([(state, state.position_version, 0, 2)])
    assert (state.position, state.position_epoch) == (0, 2)


def test_a_lookup_that_was_asked_before_the_same_was_asked_again_is_ignored() -> None:
    # Between the two the log may have grown, or have been recreated.
    rig = assigned(LATEST)
    state = rig.state()
    first = state.position_version
    rig.subscription.ask_reset(state, LATEST)
    assert not rig.subscription.finish_resets([(state, first, 100, -1)])
    assert state.position is None


def test_a_lookup_that_comes_after_a_seek_is_ignored() -> None:
    rig = assigned(LATEST)
    state = rig.state()
    asked = state.position_version
    rig.subscription.seek(state, 5)
    assert not rig.subscription.finish_resets([(state, asked, 100, -1)])
    assert state.position == 5


def test_a_lookup_that_comes_after_unassigning_is_ignored() -> None:
    rig = assigned(LATEST)
    state = rig.state()
    rig.subscription.assign([])
    assert not rig.subscription.finish_resets([(state, state.position_version, 100, -1)])


def test_a_lost_position_is_reset_by_policy_or_stays_lost() -> None:
    rig = assigned(EARLIEST)
    rig.subscription.seek(rig.state(), 5)
    rig.subscription.lose_position(rig.state())
    assert (rig.state().phase, rig.state().reset_to) == (Phase.AWAITING_RESET, EARLIEST)
    rig = assigned()
    rig.subscription.seek(rig.state(), 5)
    rig.subscription.lose_position(rig.state())
    assert (rig.state().phase, rig.state().position) == (Phase.NO_POSITION, None)


def test_a_newer_leader_epoch_sends_a_read_position_to_validation() -> None:
    rig = assigned()
    state = rig.state()
    rig.subscription.update_metadata(state, None, 1)
    rig.subscription.seek(state, 0)
    rig.subscription.update_metadata(state, None, 2)
    assert state.phase is Phase.FETCHING  # nothing was read yet: no log to compare
    rig.subscription.advance(state, 5, 2)
    rig.subscription.update_metadata(state, None, 2)
    rig.subscription.update_metadata(state, None, -1)  # the view lost the topic for a moment
    assert state.leader_epoch == 2
    rig.subscription.update_metadata(state, None, 4)
    assert state.phase is Phase.VALIDATING


def test_an_epoch_that_the_view_takes_back_is_not_named_any_more() -> None:
    rig = assigned()
    state = rig.state()
    rig.subscription.seek(state, 0)
    rig.subscription.advance(state, 5, 2)
    rig.subscription.update_metadata(state, None, 2**31 - 1)
    assert state.phase is Phase.VALIDATING
    rig.subscription.update_metadata(state, None, 3)
    rig.subscription.finish_validation(state, 2**31 - 1)
    assert state.phase is Phase.VALIDATING
    rig.subscription.finish_validation(state, 3)
    assert (state.phase, state.position, state.leader_epoch) == (Phase.FETCHING, 5, 3)


def test_validation_ends_with_the_response_of_the_newest_leader() -> None:
    rig = assigned()
    state = rig.state()
    rig.subscription.seek(state, 0)
    rig.subscription.advance(state, 5, 1)
    rig.subscription.update_metadata(state, None, 2)
    rig.subscription.update_metadata(state, None, 3)
    rig.subscription.finish_validation(state, 2)
    assert state.phase is Phase.VALIDATING
    rig.subscription.finish_validation(state, 3)
    assert (state.phase, state.position) == (Phase.FETCHING, 5)


def test_a_recreated_topic_loses_positions_and_epochs() -> None:
    rig = assigned(EARLIEST)
    state = rig.state()
    rig.subscription.seek(state, 5)
    assert not rig.subscription.update_metadata(state, b"1" * 16, -1)
    assert not rig.subscription.update_metadata(state, b"1" * 16, -1)
    rig.subscription.update_metadata(state, None, 9)
    assert rig.subscription.update_metadata(state, b"2" * 16, -1)
    assert (state.phase, state.leader_epoch) == (Phase.AWAITING_RESET, -1)


def test_whatever_moves_a_position_has_what_was_taken_given_back_first() -> None:
    rig = assigned(EARLIEST)
    state, subscription = rig.state(), rig.subscription
    subscription.seek(state, 5)
    recalled: list[int | None] = []
    subscription.recall = lambda: recalled.append(state.position)
    subscription.seek(state, 7)
    subscription.ask_reset(state, EARLIEST)
    subscription.finish_resets([(state, state.position_version, 9, -1)])
    subscription.lose_position(state)
    subscription.assign([A])
    subscription.remove(state)
    assert recalled == [5, 7, 9, None, None]
    assert not state.assigned
    assert A not in subscription


def test_errors_are_raised_once_oldest_first_and_wait_while_paused() -> None:
    rig = assigned()
    first, second = TopicAuthorizationFailed("1"), TopicAuthorizationFailed("2")
    rig.subscription.fail(rig.state(A), first)
    rig.subscription.fail(rig.state(B), second)
    rig.subscription.pause(rig.state(A))
    assert rig.subscription.has_error
    assert rig.subscription.take_error() is second
    assert not rig.subscription.has_error
    assert rig.subscription.take_error() is None
    rig.subscription.resume(rig.state(A))
    assert rig.subscription.take_error() is first
    assert rig.subscription.take_error() is None


def test_errors_of_a_partition_that_was_taken_away_are_dropped() -> None:
    rig = assigned()
    state = rig.state(A)
    rig.subscription.fail(state, TopicAuthorizationFailed())
    rig.subscription.assign([B])
    rig.subscription.fail(state, TopicAuthorizationFailed())
    assert rig.subscription.take_error() is None


def test_one_partition_can_be_asked_for_its_error() -> None:
    rig = assigned()
    error = TopicAuthorizationFailed()
    rig.subscription.fail(rig.state(A), error)
    assert rig.subscription.take_error_of(rig.state(B)) is None
    assert rig.subscription.take_error_of(rig.state(A)) is error
    assert rig.subscription.take_error() is None


def test_pausing_and_resuming_twice_is_reported_once() -> None:
    rig = assigned()
    rig.subscription.resume(rig.state())  # wasn't paused
    rig.subscription.pause(rig.state())
    rig.subscription.pause(rig.state())
    rig.subscription.resume(rig.state())
    rig.subscription.resume(rig.state())
    assert rig.changed == [A, A]


def test_paused_partitions_need_no_position() -> None:
    rig = assigned()
    rig.subscription.pause(rig.state(A))
    assert rig.subscription.without_position() == [rig.state(B)]


def test_lag_counts_to_the_end_that_the_reader_can_see() -> None:
    state = assigned().state()
    assert state.lag(read_committed=False) is None
    state.position, state.high_watermark, state.last_stable_offset = 5, 20, 12
    assert state.lag(read_committed=False) == 15
    assert state.lag(read_committed=True) == 7
    state.position = 25  # the log was cut
    assert state.lag(read_committed=False) == 0


def test_requiring_what_is_not_assigned_is_an_error() -> None:
    with pytest.raises(InvalidArgument, match="flights-2 is not assigned"):
        assigned().state(C)


def test_repr_shows_where_it_stands() -> None:
    rig = assigned()
    rig.subscription.seek(rig.state(), 4)
    rig.subscription.pause(rig.state())
    assert repr(rig.state()) == "<flights-0 FETCHING at 4, paused>"

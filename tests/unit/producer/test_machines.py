"""The transition tables: complete, reachable, and strict."""

from __future__ import annotations

import enum

import pytest

from kclient.producer._compiled import PartitionSequences
from kclient.producer.batch_states import TRANSITIONS, BatchEvent, BatchState
from kclient.producer.idempotence import (
    IDENTITY_TRANSITIONS,
    MAX_EPOCH,
    SEQUENCE_TRANSITIONS,
    IdentityEvent,
    IdentityState,
    ProducerIdAndEpoch,
    ProducerIdentity,
    SequenceEvent,
    SequenceState,
)
from kclient.producer.transactions import TRANSITIONS as TRANSACTION_TRANSITIONS
from kclient.producer.transactions import TransactionEvent, TransactionState
from kclient.transitions import IllegalTransition, step

TABLES = [
    (TRANSITIONS, BatchState, BatchEvent, BatchState.OPEN),
    (IDENTITY_TRANSITIONS, IdentityState, IdentityEvent, IdentityState.ABSENT),
    (SEQUENCE_TRANSITIONS, SequenceState, SequenceEvent, SequenceState.STEADY),
    (
        TRANSACTION_TRANSITIONS,
        TransactionState,
        TransactionEvent,
        TransactionState.UNINITIALIZED,
    ),
]


@pytest.mark.parametrize(("table", "states", "events", "start"), TABLES)
def test_every_state_is_in_the_table_and_can_be_reached(
    table: dict, states: type[enum.Enum], events: type[enum.Enum], start: enum.Enum
) -> None:
    assert set(table) == set(states)
    reached, todo = {start}, [start]
    while todo:
        for target in table[todo.pop()].values():
            if target not in reached:
                reached.add(target)
                todo.append(target)
    assert reached == set(states)


@pytest.mark.parametrize(("table", "states", "events", "start"), TABLES)
def test_every_event_is_used_and_every_state_explained(
    table: dict, states: type[enum.Enum], events: type[enum.Enum], start: enum.Enum
) -> None:
    assert {event for row in table.values() for event in row} == set(events)
    assert all(len(member.value.split()) > 1 for member in [*states, *events])


@pytest.mark.parametrize(("table", "states", "events", "start"), TABLES)
def test_illegal_steps_raise_and_name_both(
    table: dict, states: type[enum.Enum], events: type[enum.Enum], start: enum.Enum
) -> None:
    for state in states:
        for event in events:
            if event not in table[state]:
                with pytest.raises(IllegalTransition, match=f"{event.name} in state {state.name}"):
                    step(table, state, event)


def test_every_batch_can_end() -> None:
    ends = {state for state, row in TRANSITIONS.items() if not row}
    assert ends == {BatchState.DONE, BatchState.FAILED, BatchState.SPLIT}
    for state in BatchState:
        seen, todo = {state}, [state]
        while todo:
            todo.extend(new := set(TRANSITIONS[todo.pop()].values()) - seen)
            seen |= new
        assert seen & ends


def ready(epoch: int = 0) -> ProducerIdentity:
    identity = ProducerIdentity()
    identity.requested()
    identity.granted(7, epoch)
    return identity


def test_a_worn_identity_gets_the_next_epoch() -> None:
    identity = ready()
    assert identity.newer_than(ProducerIdAndEpoch(7, 0)) == ProducerIdAndEpoch(7, 1)
    assert identity.current == ProducerIdAndEpoch(7, 1)


def test_an_epoch_that_another_partition_moved_to_is_taken_as_it_is() -> None:
    identity = ready()
    identity.newer_than(ProducerIdAndEpoch(7, 0))
    assert identity.newer_than(ProducerIdAndEpoch(7, 0)) == ProducerIdAndEpoch(7, 1)


def test_the_last_epoch_asks_for_a_new_producer_id() -> None:
    identity = ready(MAX_EPOCH)
    assert identity.newer_than(ProducerIdAndEpoch(7, MAX_EPOCH)) is None
    assert identity.state is IdentityState.ABSENT
    identity.requested()
    identity.granted(8, 0)
    assert identity.newer_than(ProducerIdAndEpoch(7, MAX_EPOCH)) == ProducerIdAndEpoch(8, 0)


def test_without_an_identity_there_is_nothing_newer() -> None:
    assert ProducerIdentity().newer_than(ProducerIdAndEpoch(7, 0)) is None


def test_a_disowned_id_is_dropped_once() -> None:
    identity = ready()
    identity.fenced(ProducerIdAndEpoch(7, 0))
    assert identity.state is IdentityState.ABSENT
    identity.requested()
    identity.granted(8, 0)
    identity.fenced(ProducerIdAndEpoch(7, 0))  # another partition detects it later
    assert identity.state is IdentityState.READY


def test_numbers_are_given_in_a_row() -> None:
    sequences = PartitionSequences()
    sequences.start(ProducerIdAndEpoch(7, 0))
    assert [sequences.take(3), sequences.take(2), sequences.take(1)] == [0, 3, 5]


def test_a_partition_starts_only_once() -> None:
    sequences = PartitionSequences()
    sequences.start(ProducerIdAndEpoch(7, 0))
    with pytest.raises(RuntimeError):
        sequences.start(ProducerIdAndEpoch(7, 1))


def test_a_gap_is_resolved_by_a_success_behind_it() -> None:
    sequences = PartitionSequences()
    sequences.take(5)
    sequences.given_up(3)
    assert sequences.state is SequenceState.UNRESOLVED
    sequences.acknowledged(2)
    assert sequences.state is SequenceState.UNRESOLVED
    sequences.acknowledged(5)
    assert sequences.state is SequenceState.STEADY


def test_giving_up_what_is_known_to_be_written_leaves_no_gap() -> None:
    sequences = PartitionSequences()
    sequences.take(5)
    sequences.acknowledged(5)
    sequences.given_up(3)
    assert sequences.state is SequenceState.STEADY


def test_renewal_starts_at_zero() -> None:
    sequences = PartitionSequences()
    sequences.start(ProducerIdAndEpoch(7, 0))
    sequences.take(5)
    sequences.given_up(5)
    sequences.broken()
    sequences.renew(ProducerIdAndEpoch(7, 1))
    assert sequences.state is SequenceState.STEADY
    assert (sequences.next, sequences.acked_end, sequences.identity) == (
        0,
        0,
        ProducerIdAndEpoch(7, 1),
    )


def test_acknowledgements_never_go_back() -> None:
    sequences = PartitionSequences()
    sequences.take(9)
    sequences.acknowledged(9)
    sequences.acknowledged(3)
    assert sequences.acked_end == 9


def test_steady_numbers_cannot_be_renewed() -> None:
    with pytest.raises(IllegalTransition):
        PartitionSequences().renew(ProducerIdAndEpoch(7, 1))

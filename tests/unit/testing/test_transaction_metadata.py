"""The rules of transactional ids, against the tables of Kafka's transaction coordinator."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, product

import pytest

from kclient.error_codes import ErrorCode
from kclient.testing.responses import ApiError
from kclient.testing.transactions import metadata as rules
from kclient.testing.transactions.metadata import (
    LAST_EPOCH,
    PREVIOUS,
    EndRequest,
    ProducerIdentity,
    TransactionEntry,
    TransactionMetadata,
    TransactionState,
)
from kclient.transitions import IllegalTransition

State = TransactionState
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
UNMAPPED = ErrorCode.INVALID_PRODUCER_ID_MAPPING
INVALID = ErrorCode.INVALID_TXN_STATE
NONE = ErrorCode.NONE

ID, EPOCH = 7, 4
NOW = 5_000
TIMEOUT = 60_000
PARTITIONS = frozenset({("t", 0), ("t", 1)})
LASTING = (
    State.EMPTY,
    State.ONGOING,
    State.PREPARE_COMMIT,
    State.PREPARE_ABORT,
    State.COMPLETE_COMMIT,
    State.COMPLETE_ABORT,
)
"""States that may be in the log of a known id."""
IDLE = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
WITH_PARTITIONS = (State.ONGOING, *PREPARED)


def entry_in(
    state: TransactionState = State.EMPTY,
    *,
    epoch: int = EPOCH,
    last_epoch: int = -1,
    previous: int = ID,
    next_id: int = -1,
    version: int = 2,
) -> TransactionEntry:
    """An id in that state, as read from a log."""
    return TransactionEntry(
        TransactionMetadata(
            "x",
            ID,
            TIMEOUT,
            updated_ms=1_000,
            previous_producer_id=previous,
            next_producer_id=next_id,
            epoch=epoch,
            last_epoch=last_epoch,
            state=state,
            partitions=PARTITIONS if state in WITH_PARTITIONS else frozenset(),
            started_ms=-1 if state is State.EMPTY else 500,
            client_version=version,
        )
    )


def new_ids() -> Callable[[], int]:
    """Ids from 100 on."""
    return count(100).__next__


def code_of(call: Callable[[], object]) -> ErrorCode:
    try:
        call()
    except ApiError as refused:
        return refused.code
    return NONE


# States


@pytest.mark.parametrize(("state", "following"), list(product(State, State)))
def test_a_state_follows_only_those_of_the_table(
    state: TransactionState, following: TransactionState
) -> None:
    entry, target = entry_in(state), entry_in(following).metadata
    if state in PREVIOUS[following]:
        assert entry.prepare(target).state is following
        assert entry.pending is following
    else:
        with pytest.raises(IllegalTransition, match=f"from {state.name} to {following.name}"):
            entry.prepare(target)
        assert entry.pending is None


def test_each_state_but_the_last_leads_on_and_is_reached() -> None:
    assert set(PREVIOUS) == set(State)
    leads_on = frozenset().union(*PREVIOUS.values())
    assert set(State) - leads_on == {State.DEAD, State.PREPARE_EPOCH_FENCE}


def test_nothing_is_prepared_while_a_state_is_pending() -> None:
    entry = entry_in(State.ONGOING)
    entry.prepare(entry_in(State.PREPARE_COMMIT).metadata)
    with pytest.raises(IllegalTransition, match="while PREPARE_COMMIT is pending"):
        entry.prepare(entry_in(State.PREPARE_COMMIT).metadata)
    entry.reject()
    entry.prepare(entry_in(State.PREPARE_COMMIT).metadata)


def test_names_of_states_are_those_of_kafka() -> None:
    assert [one.shown for one in State] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


# InitProducerId


def init(
    entry: TransactionEntry, expected: tuple[int, int] | None = None
) -> tuple[int, int, int, TransactionState]:
    """(producer id, epoch, last epoch, state) that InitProducerId prepares."""
    known = None if expected is None else ProducerIdentity(*expected)
    found = rules.init_producer_id(entry, 30_000, known, new_ids(), NOW)
    return found.producer_id, found.epoch, found.last_epoch, found.state


@pytest.mark.parametrize("expected", [None, (3, 9)])
def test_a_new_id_begins_with_epoch_0(expected: tuple[int, int] | None) -> None:
    assert init(entry_in(epoch=-1), expected) == (ID, 0, -1, State.EMPTY)


@pytest.mark.parametrize("state", IDLE)
def test_each_producer_gets_the_next_epoch_and_its_own_timeout(state: TransactionState) -> None:
    entry = entry_in(state, last_epoch=3)
    found = rules.init_producer_id(entry, 30_000, None, new_ids(), NOW)
    assert (found.producer_id, found.epoch, found.last_epoch) == (ID, EPOCH + 1, -1)
    assert (found.timeout_ms, found.started_ms, found.updated_ms) == (30_000, -1, NOW)
    assert found.partitions == frozenset()


@pytest.mark.parametrize(
    ("expected", "result"),
    [
        ((ID, EPOCH), (ID, EPOCH + 1, EPOCH, State.EMPTY)),
        ((ID, EPOCH - 1), (ID, EPOCH, EPOCH - 1, State.EMPTY)),  # its response was lost
        ((ID, EPOCH - 2), FENCED),
        ((ID, EPOCH + 1), FENCED),
        ((3, EPOCH), FENCED),
        ((3, LAST_EPOCH - 1), FENCED),
    ],
)
def test_a_producer_that_goes_on_must_have_the_current_epoch_or_the_one_before(
    expected: tuple[int, int], result: object
) -> None:
    entry = entry_in(last_epoch=EPOCH - 1)
    if result is FENCED:
        assert code_of(lambda: init(entry, expected)) is FENCED
    else:
        assert init(entry, expected) == result


def test_the_epoch_before_is_fenced_once_a_new_producer_began() -> None:
    entry = entry_in(last_epoch=EPOCH - 1)
    entry.complete(rules.init_producer_id(entry, TIMEOUT, None, new_ids(), NOW))
    assert code_of(lambda: init(entry, (ID, EPOCH))) is FENCED
    assert init(entry, (ID, EPOCH + 1)) == (ID, EPOCH + 2, EPOCH + 1, State.EMPTY)


@pytest.mark.parametrize("epoch", [LAST_EPOCH - 1, LAST_EPOCH])
def test_a_producer_without_further_epochs_gets_a_new_id(epoch: int) -> None:
    assert init(entry_in(State.COMPLETE_ABORT, epoch=epoch)) == (100, 0, -1, State.EMPTY)
    known = init(entry_in(State.COMPLETE_ABORT, epoch=epoch), (ID, epoch))
    assert known == (100, 0, epoch, State.EMPTY)


def test_the_last_but_one_epoch_is_the_last_that_is_given() -> None:
    assert init(entry_in(epoch=LAST_EPOCH - 2)) == (ID, LAST_EPOCH - 1, -1, State.EMPTY)


def test_a_repeated_request_for_a_new_id_gets_it_again() -> None:
    entry = entry_in(epoch=LAST_EPOCH - 1)
    expected = ProducerIdentity(ID, LAST_EPOCH - 1)
    entry.complete(rules.init_producer_id(entry, TIMEOUT, expected, new_ids(), NOW))
    assert (entry.metadata.identity, entry.metadata.previous_producer_id) == ((100, 0), ID)
    assert init(entry, expected) == (100, 0, LAST_EPOCH - 1, State.EMPTY)


@pytest.mark.parametrize("state", PREPARED)
def test_a_producer_waits_until_the_markers_are_written(state: TransactionState) -> None:
    assert code_of(lambda: init(entry_in(state))) is CONCURRENT
    assert code_of(lambda: init(entry_in(state), (3, 0))) is FENCED  # whatever is going on


def test_a_producer_waits_while_a_change_is_written() -> None:
    entry = entry_in()
    entry.pending = State.ONGOING
    assert code_of(lambda: init(entry)) is CONCURRENT
    assert code_of(lambda: init(entry, (3, 0))) is CONCURRENT


@pytest.mark.parametrize("expected", [None, (ID, EPOCH), (ID, EPOCH - 1)])
def test_an_open_transaction_is_fenced_with_the_next_epoch(
    expected: tuple[int, int] | None,
) -> None:
    found = init(entry_in(State.ONGOING), expected)
    assert found == (ID, EPOCH + 1, -1, State.PREPARE_EPOCH_FENCE)


# Partitions


def add(
    entry: TransactionEntry,
    producer: tuple[int, int] = (ID, EPOCH),
    *partitions: tuple[str, int],
) -> TransactionMetadata | None:
    added = partitions or (("t", 5),)
    return rules.add_partitions(entry, ProducerIdentity(*producer), added, 2, NOW)


@pytest.mark.parametrize("state", IDLE)
def test_the_first_partition_begins_a_transaction(state: TransactionState) -> None:
    found = add(entry_in(state))
    assert found is not None
    assert (found.state, found.started_ms, found.updated_ms) == (State.ONGOING, NOW, NOW)
    assert found.partitions == {("t", 5)}
    assert found.client_version == 2


def test_more_partitions_do_not_begin_it_again() -> None:
    found = add(entry_in(State.ONGOING))
    assert found is not None
    assert (found.started_ms, found.updated_ms) == (500, NOW)
    assert found.partitions == PARTITIONS | {("t", 5)}


def test_partitions_that_it_has_change_nothing() -> None:
    entry = entry_in(State.ONGOING)
    assert add(entry, (ID, EPOCH), ("t", 1), ("t", 0)) is None
    assert entry.pending is None


REFUSED = [
    ((3, EPOCH), UNMAPPED),
    ((ID, EPOCH - 1), FENCED),
    ((ID, EPOCH + 1), FENCED),
    ((3, EPOCH - 1), UNMAPPED),
]


@pytest.mark.parametrize(("producer", "code"), REFUSED)
@pytest.mark.parametrize("state", LASTING)
def test_only_the_current_producer_adds_or_verifies(
    state: TransactionState, producer: tuple[int, int], code: ErrorCode
) -> None:
    assert code_of(lambda: add(entry_in(state), producer)) is code
    identity = ProducerIdentity(*producer)
    verified = code_of(lambda: rules.verify_partitions(entry_in(state), identity, PARTITIONS))
    assert verified is code


@pytest.mark.parametrize("state", PREPARED)
def test_nothing_is_added_to_a_transaction_that_ended(state: TransactionState) -> None:
    assert code_of(lambda: add(entry_in(state))) is CONCURRENT
    identity = ProducerIdentity(ID, EPOCH)
    verified = code_of(lambda: rules.verify_partitions(entry_in(state), identity, PARTITIONS))
    assert verified is CONCURRENT


def test_a_pending_change_comes_before_all_other_checks_of_added_partitions() -> None:
    entry = entry_in()
    entry.pending = State.COMPLETE_COMMIT
    assert code_of(lambda: add(entry, (100, 0))) is CONCURRENT


def test_partitions_that_were_not_added_are_not_verified_even_while_a_change_is_pending() -> None:
    entry = entry_in(State.ONGOING)
    entry.pending = State.ONGOING
    asked = [("t", 0), ("t", 5), ("u", 0)]
    assert rules.verify_partitions(entry, ProducerIdentity(ID, EPOCH), asked) == {
        ("t", 0): NONE,
        ("t", 5): ErrorCode.TRANSACTION_ABORTABLE,
        ("u", 0): ErrorCode.TRANSACTION_ABORTABLE,
    }


# Time


def test_only_open_transactions_time_out() -> None:
    due = {state: rules.times_out_ms(entry_in(state).metadata) for state in LASTING}
    assert due.pop(State.ONGOING) == 500 + TIMEOUT
    assert set(due.values()) == {None}


@pytest.mark.parametrize("state", LASTING)
def test_ids_that_were_not_used_expire_unless_a_transaction_is_open(
    state: TransactionState,
) -> None:
    entry = entry_in(state)
    assert not rules.has_expired(entry, 100, 1_099)
    assert rules.has_expired(entry, 100, 1_100) is (state in IDLE)
    entry.pending = State.ONGOING
    assert not rules.has_expired(entry, 100, 1_100)


# The coordinator's own abort


@pytest.mark.parametrize("version", [0, 2])
def test_a_fence_raises_the_epoch_before_the_end_does(version: int) -> None:
    entry = entry_in(State.ONGOING)
    fenced = rules.fence(entry)
    request = EndRequest(fenced.identity, False, version, from_client=False)
    found = rules.end(entry, request, new_ids(), NOW)
    assert found is not None
    assert (found.state, found.epoch) == (State.PREPARE_ABORT, EPOCH + 1)
    assert found.partitions == PARTITIONS
    entry.complete(found)
    assert code_of(lambda: add(entry, (ID, EPOCH))) is FENCED


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("tries", [1, 3])
def test_a_fence_that_was_not_written_is_repeated_with_the_same_epoch(
    version: int, tries: int
) -> None:
    entry = entry_in(State.ONGOING)
    for attempt in range(tries + 1):
        fenced = rules.fence(entry)
        request = EndRequest(fenced.identity, False, version, from_client=False)
        found = rules.end(entry, request, new_ids(), NOW)
        assert found is not None
        assert found.epoch == EPOCH + 1
        if attempt < tries:
            entry.reject()
            entry.has_failed_fence = version < 2  # as the coordinator notes it
    entry.complete(found)
    assert entry.metadata.identity == (ID, EPOCH + 1)
    assert not entry.has_failed_fence


def test_in_version_1_a_fence_that_was_not_written_fences_all_the_same() -> None:
    entry = entry_in(State.ONGOING)
    request = EndRequest(rules.fence(entry).identity, False, 0, from_client=False)
    rules.end(entry, request, new_ids(), NOW)
    entry.reject()
    entry.has_failed_fence = True
    committed = EndRequest(ProducerIdentity(ID, EPOCH), True, 0)
    assert code_of(lambda: rules.end(entry, committed, new_ids(), NOW)) is FENCED


def test_a_fence_never_goes_past_the_last_epoch() -> None:
    assert rules.fence(entry_in(State.ONGOING, epoch=LAST_EPOCH)).epoch == LAST_EPOCH
    assert rules.fence(entry_in(State.ONGOING, epoch=LAST_EPOCH - 1)).epoch == LAST_EPOCH

"""The end of a transaction, against Kafka's tables: by state, epoch, result and protocol."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, product

import pytest
from hypothesis import settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kclient.error_codes import ErrorCode
from kclient.testing.responses import ApiError
from kclient.testing.transactions import metadata as rules
from kclient.testing.transactions.metadata import (
    LAST_EPOCH,
    EndRequest,
    ProducerIdentity,
    TransactionEntry,
    TransactionMetadata,
    TransactionState,
)
from tests.unit.testing.test_transaction_metadata import (
    CONCURRENT,
    EPOCH,
    FENCED,
    ID,
    IDLE,
    INVALID,
    LASTING,
    NONE,
    NOW,
    PARTITIONS,
    PREPARED,
    TIMEOUT,
    UNMAPPED,
    State,
    entry_in,
    new_ids,
)

V1, V2 = 0, 2
"""What coordinators note of a producer's protocol; 0 for version 1."""
COMMIT, ABORT = True, False
BUMP, ENDS = "the epoch is raised", "the transaction ends"
Outcome = ErrorCode | str


def outcome(
    entry: TransactionEntry,
    committed: bool,
    version: int,
    producer: tuple[int, int] = (ID, EPOCH),
) -> Outcome:
    """What an EndTxn of a client leads to."""
    before = entry.metadata
    request = EndRequest(ProducerIdentity(*producer), committed, version)
    try:
        found = rules.end(entry, request, new_ids(), NOW)
    except ApiError as refused:
        assert (entry.metadata, entry.pending) == (before, entry.pending)
        return refused.code
    if found is None:
        assert entry.metadata is before
        return NONE
    assert found.state is (State.PREPARE_COMMIT if committed else State.PREPARE_ABORT)
    assert found.partitions == before.partitions
    assert found.updated_ms == NOW
    return BUMP if found.epoch == before.epoch + 1 else ENDS


# Version 1

V1_TABLE: dict[tuple[TransactionState, bool], Outcome] = {
    (State.EMPTY, COMMIT): INVALID,
    (State.EMPTY, ABORT): INVALID,
    (State.ONGOING, COMMIT): ENDS,
    (State.ONGOING, ABORT): ENDS,
    (State.PREPARE_COMMIT, COMMIT): CONCURRENT,
    (State.PREPARE_COMMIT, ABORT): INVALID,
    (State.PREPARE_ABORT, COMMIT): INVALID,
    (State.PREPARE_ABORT, ABORT): CONCURRENT,
    (State.COMPLETE_COMMIT, COMMIT): NONE,
    (State.COMPLETE_COMMIT, ABORT): INVALID,
    (State.COMPLETE_ABORT, COMMIT): INVALID,
    (State.COMPLETE_ABORT, ABORT): NONE,
}


@pytest.mark.parametrize(("state", "committed"), list(V1_TABLE))
def test_in_version_1_the_state_decides(state: TransactionState, committed: bool) -> None:
    assert outcome(entry_in(state), committed, V1) == V1_TABLE[state, committed]


@pytest.mark.parametrize(("state", "committed"), list(product(LASTING, (COMMIT, ABORT))))
def test_in_version_1_only_the_current_epoch_is_accepted(
    state: TransactionState, committed: bool
) -> None:
    for epoch in (EPOCH - 1, EPOCH + 1):
        assert outcome(entry_in(state), committed, V1, (ID, epoch)) is FENCED
    assert outcome(entry_in(state), committed, V1, (3, EPOCH)) is UNMAPPED


def test_version_1_keeps_the_epochs() -> None:
    entry = entry_in(State.ONGOING, last_epoch=2)
    request = EndRequest(ProducerIdentity(ID, EPOCH), COMMIT, V1)
    found = rules.end(entry, request, new_ids(), NOW)
    assert found is not None
    assert (found.epoch, found.last_epoch, found.next_producer_id) == (EPOCH, 2, -1)
    assert (found.started_ms, found.client_version) == (500, 0)


def test_in_version_1_an_exhausted_epoch_ends_without_a_new_id() -> None:
    entry = entry_in(State.ONGOING, epoch=LAST_EPOCH - 1)
    producer = ProducerIdentity(ID, LAST_EPOCH - 1)
    entry.complete(done(rules.end(entry, EndRequest(producer, COMMIT, V1), new_ids(), NOW)))
    entry.complete(rules.complete(entry, NOW))
    assert entry.metadata.identity == (ID, LAST_EPOCH - 1)


# Version 2: "retry" is the epoch before the current one, as the producer has it that didn't get
# the response of its last end.

V2_TABLE: dict[tuple[TransactionState, bool, str], Outcome] = {
    (State.EMPTY, ABORT, "retry"): FENCED,
    (State.EMPTY, ABORT, "current"): BUMP,
    (State.EMPTY, COMMIT, "retry"): FENCED,
    (State.EMPTY, COMMIT, "current"): INVALID,
    (State.ONGOING, ABORT, "retry"): FENCED,
    (State.ONGOING, ABORT, "current"): BUMP,
    (State.ONGOING, COMMIT, "retry"): FENCED,
    (State.ONGOING, COMMIT, "current"): BUMP,
    (State.PREPARE_COMMIT, ABORT, "retry"): INVALID,
    (State.PREPARE_COMMIT, ABORT, "current"): FENCED,
    (State.PREPARE_COMMIT, COMMIT, "retry"): CONCURRENT,
    (State.PREPARE_COMMIT, COMMIT, "current"): FENCED,
    (State.PREPARE_ABORT, ABORT, "retry"): CONCURRENT,
    (State.PREPARE_ABORT, ABORT, "current"): FENCED,
    (State.PREPARE_ABORT, COMMIT, "retry"): INVALID,
    (State.PREPARE_ABORT, COMMIT, "current"): FENCED,
    (State.COMPLETE_ABORT, ABORT, "retry"): NONE,
    (State.COMPLETE_ABORT, ABORT, "current"): BUMP,
    (State.COMPLETE_ABORT, COMMIT, "retry"): INVALID,
    (State.COMPLETE_ABORT, COMMIT, "current"): INVALID,
    (State.COMPLETE_COMMIT, ABORT, "retry"): INVALID,
    (State.COMPLETE_COMMIT, ABORT, "current"): BUMP,
    (State.COMPLETE_COMMIT, COMMIT, "retry"): NONE,
    (State.COMPLETE_COMMIT, COMMIT, "current"): INVALID,
}


@pytest.mark.parametrize(("state", "committed", "which"), list(V2_TABLE))
def test_in_version_2_state_and_epoch_decide(
    state: TransactionState, committed: bool, which: str
) -> None:
    epoch = EPOCH - 1 if which == "retry" else EPOCH
    found = outcome(entry_in(state), committed, V2, (ID, epoch))
    assert found == V2_TABLE[state, committed, which]


@pytest.mark.parametrize(("state", "committed"), list(product(LASTING, (COMMIT, ABORT))))
def test_in_version_2_other_epochs_and_ids_are_refused(
    state: TransactionState, committed: bool
) -> None:
    for epoch in (EPOCH - 2, EPOCH + 1):
        assert outcome(entry_in(state), committed, V2, (ID, epoch)) is FENCED
    assert outcome(entry_in(state), committed, V2, (3, EPOCH)) is UNMAPPED


@pytest.mark.parametrize("state", IDLE)
def test_an_abort_without_partitions_has_a_start(state: TransactionState) -> None:
    entry = entry_in(state)
    request = EndRequest(ProducerIdentity(ID, EPOCH), ABORT, V2)
    found = rules.end(entry, request, new_ids(), NOW)
    assert found is not None
    assert (found.started_ms, found.last_epoch) == (NOW, EPOCH)
    entry.complete(found)
    assert entry.unmarked == set()


# The last epochs


@pytest.mark.parametrize("committed", [COMMIT, ABORT])
def test_the_last_epoch_ends_with_the_first_of_a_new_id(committed: bool) -> None:
    last = LAST_EPOCH - 1
    entry = entry_in(State.ONGOING, epoch=last)
    request = EndRequest(ProducerIdentity(ID, last), committed, V2)
    found = rules.end(entry, request, new_ids(), NOW)
    assert found is not None
    assert (found.producer_id, found.epoch, found.next_producer_id) == (ID, LAST_EPOCH, 100)
    entry.complete(found)
    assert outcome(entry, committed, V2, (ID, last)) is CONCURRENT
    entry.complete(rules.complete(entry, NOW))
    after = entry.metadata
    assert (after.identity, after.last_epoch, after.next_producer_id) == ((100, 0), last, -1)
    assert after.previous_producer_id == ID
    # The producer repeats its request, as it didn't get the response.
    assert outcome(entry, committed, V2, (ID, last)) is NONE
    assert outcome(entry, not committed, V2, (ID, last)) is INVALID
    assert outcome(entry, committed, V2, (ID, last - 1)) is UNMAPPED


def test_a_fence_at_the_last_but_one_epoch_leads_to_a_new_id() -> None:
    entry = entry_in(State.ONGOING, epoch=LAST_EPOCH - 1)
    request = EndRequest(rules.fence(entry).identity, ABORT, V2, from_client=False)
    entry.complete(done(rules.end(entry, request, new_ids(), NOW)))
    assert entry.metadata.identity == (ID, LAST_EPOCH)
    entry.complete(rules.complete(entry, NOW))
    assert entry.metadata.identity == (100, 0)


def test_a_transaction_in_the_last_epoch_is_aborted_and_does_not_overflow() -> None:
    entry = entry_in(State.ONGOING, epoch=LAST_EPOCH)
    request = EndRequest(rules.fence(entry).identity, ABORT, V2, from_client=False)
    found = done(rules.end(entry, request, new_ids(), NOW))
    assert (found.epoch, found.last_epoch, found.next_producer_id) == (LAST_EPOCH, LAST_EPOCH, 100)


# While a change is being written


@pytest.mark.parametrize("pending", [State.ONGOING, State.PREPARE_COMMIT, State.EMPTY])
def test_an_end_waits_for_a_pending_change(pending: TransactionState) -> None:
    for version in (V1, V2):
        entry = entry_in(State.ONGOING)
        entry.pending = pending
        assert outcome(entry, COMMIT, version) is CONCURRENT


def test_in_version_2_a_pending_change_comes_before_the_check_of_the_id() -> None:
    entry = entry_in(State.PREPARE_COMMIT)
    entry.pending = State.COMPLETE_COMMIT
    assert outcome(entry, COMMIT, V2, (100, 0)) is CONCURRENT
    assert outcome(entry, COMMIT, V1, (100, 0)) is UNMAPPED


# Completion


@pytest.mark.parametrize("state", PREPARED)
def test_the_last_state_has_no_partitions_and_keeps_the_rest(state: TransactionState) -> None:
    entry = entry_in(state, last_epoch=3)
    found = rules.complete(entry, NOW)
    committed = state is State.PREPARE_COMMIT
    assert found.state is (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT)
    assert (found.identity, found.last_epoch) == ((ID, EPOCH), 3)
    assert (found.partitions, found.updated_ms, found.started_ms) == (frozenset(), NOW, 500)


def test_a_new_id_is_only_for_producers_of_version_2() -> None:
    entry = entry_in(State.PREPARE_COMMIT, next_id=100, version=V1)
    found = rules.complete(entry, NOW)
    assert (found.identity, found.next_producer_id) == ((ID, EPOCH), -1)


@pytest.mark.parametrize("state", PREPARED)
def test_markers_are_missing_from_all_partitions_once_the_end_is_decided(
    state: TransactionState,
) -> None:
    entry = entry_in(State.ONGOING)
    entry.complete(entry_in(state).metadata)
    assert entry.unmarked == PARTITIONS


def done(found: TransactionMetadata | None) -> TransactionMetadata:
    assert found is not None
    return found


# Any order of requests


class OneId(RuleBasedStateMachine):
    """Producers begin, add, end, and go silent, while writes succeed or fail."""

    def __init__(self) -> None:
        super().__init__()
        fresh = TransactionMetadata("x", 1, TIMEOUT, 0, epoch=LAST_EPOCH - 4)
        self.entry = TransactionEntry(fresh)
        self.ids = count(100)
        self.wall_ms = 0
        self.known = fresh.identity
        self.given = [fresh.identity]
        self.pending: TransactionMetadata | None = None
        self.fences = False

    def _try(self, call: Callable[[], TransactionMetadata | None]) -> None:
        self.wall_ms += 1
        try:
            self.pending = call()
        except ApiError as refused:
            assert refused.code in (CONCURRENT, FENCED, UNMAPPED, INVALID)

    def _new_id(self) -> int:
        return next(self.ids)

    @precondition(lambda self: self.pending is None)
    @rule(goes_on=some.booleans(), version=some.sampled_from((V1, V2)))
    def begin(self, goes_on: bool, version: int) -> None:
        known = self.known if goes_on else None

        def init() -> TransactionMetadata | None:
            found = rules.init_producer_id(self.entry, TIMEOUT, known, self._new_id, self.wall_ms)
            if found.state is not State.PREPARE_EPOCH_FENCE:
                return found
            self.fences = True
            request = EndRequest(found.identity, ABORT, version, from_client=False)
            return rules.end(self.entry, request, self._new_id, self.wall_ms)

        self._try(init)

    @precondition(lambda self: self.pending is None)
    @rule(index=some.integers(0, 3), version=some.sampled_from((V1, V2)))
    def add(self, index: int, version: int) -> None:
        wanted = [("t", index)]
        self._try(
            lambda: rules.add_partitions(self.entry, self.known, wanted, version, self.wall_ms)
        )

    @precondition(lambda self: self.pending is None)
    @rule(committed=some.booleans(), version=some.sampled_from((V1, V2)))
    def end(self, committed: bool, version: int) -> None:
        self.fences = False
        request = EndRequest(self.known, committed, version)
        self._try(lambda: rules.end(self.entry, request, self._new_id, self.wall_ms))

    @precondition(lambda self: self.pending is None and self.entry.metadata.state in PREPARED)
    @rule()
    def complete(self) -> None:
        self._try(lambda: rules.complete(self.entry, self.wall_ms))

    @precondition(lambda self: self.pending is not None)
    @rule(succeeds=some.booleans(), comes=some.booleans())
    def write(self, succeeds: bool, comes: bool) -> None:
        """The log has the change, or not, and the producer gets its response, or not."""
        following, self.pending = done(self.pending), None
        before = self.entry.metadata
        if not succeeds:
            self.entry.reject()
            return
        self.entry.complete(following)
        if following.state is State.EMPTY:
            self.fences = False
        assert following.updated_ms > before.updated_ms
        assert following.producer_id >= before.producer_id
        if following.producer_id == before.producer_id:
            assert following.epoch - before.epoch in (0, 1)
        else:
            assert (following.epoch, following.previous_producer_id) == (0, before.producer_id)
        if comes and following.state in IDLE and not self.fences:
            self.known = following.identity
            if self.known not in self.given:
                self.given.append(self.known)

    @invariant()
    def no_producer_has_the_last_epoch(self) -> None:
        assert self.entry.metadata.epoch <= LAST_EPOCH
        assert all(one.epoch < LAST_EPOCH for one in self.given)

    @invariant()
    def identities_only_rise(self) -> None:
        assert self.given == sorted(self.given)

    @invariant()
    def partitions_belong_to_a_transaction(self) -> None:
        one = self.entry.metadata
        assert one.state is not State.ONGOING or (one.partitions and one.started_ms > 0)
        assert one.state not in IDLE or not one.partitions


OneId.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestOneId = OneId.TestCase

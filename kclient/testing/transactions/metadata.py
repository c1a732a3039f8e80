"""The states of a transactional id, and the rules by which requests change them.

``TransactionMetadata`` is what the log has of an id, a value. A rule takes the ``TransactionEntry``
of the id and a request, and returns the next value, which takes effect once it is in the log, or
raises ``ApiError``. While it is being written, the entry has a ``pending`` state, and other
requests get CONCURRENT_TRANSACTIONS. Version 1 of the protocol leaves the epoch as it is; version 2
raises it with each end (KIP-890). Pure logic: no waiting, no clock.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from kclient.error_codes import ErrorCode
from kclient.testing.log_state import NO_EPOCH, NO_ID, ProducerIdentity
from kclient.testing.responses import ApiError
from kclient.transitions import IllegalTransition

Partition: TypeAlias = tuple[str, int]
"""Topic and index."""

LAST_EPOCH = (1 << 15) - 1
"""Never given to a producer, so that the coordinator can always fence the epoch before it."""
BUMPS_EPOCH = 2
"""The first version of the transaction protocol in which each end raises the epoch."""


class TransactionState(enum.IntEnum):
    """States of a transactional id, with Kafka's numbers."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def shown(self) -> str:
        """Kafka's name of it, as in ListTransactions."""
        return "".join(word.capitalize() for word in self.name.split("_"))


State = TransactionState
_COMPLETE = frozenset((State.COMPLETE_COMMIT, State.COMPLETE_ABORT))
_PREPARED = frozenset((State.PREPARE_COMMIT, State.PREPARE_ABORT))
_IDLE = _COMPLETE | {State.EMPTY}
PREVIOUS: dict[TransactionState, frozenset[TransactionState]] = {
    State.EMPTY: _IDLE,
    State.ONGOING: _IDLE | {State.ONGOING},
    State.PREPARE_COMMIT: frozenset((State.ONGOING,)),
    State.PREPARE_ABORT: _IDLE | {State.ONGOING},
    State.COMPLETE_COMMIT: frozenset((State.PREPARE_COMMIT,)),
    State.COMPLETE_ABORT: frozenset((State.PREPARE_ABORT,)),
    State.DEAD: _IDLE,
    State.PREPARE_EPOCH_FENCE: frozenset((State.ONGOING,)),
}
"""The states from which each is reached. PREPARE_EPOCH_FENCE is only ever pending."""


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """A transactional id as in the log.

    Attributes:
        previous_producer_id: The id before the last change.
        next_producer_id: The id that the producer gets when the transaction has ended, as the
            epochs of its id are exhausted; else -1.
        last_epoch: The epoch before the last change by InitProducerId or an end; -1 if none.
        timeout_ms: After which the coordinator aborts a transaction.
        partitions: Of the transaction.
        started_ms: When the first partition was added, in milliseconds since the epoch; -1 before.
        client_version: Version of the protocol in which the producer spoke last.
    """

    transactional_id: str
    producer_id: int
    timeout_ms: int
    updated_ms: int
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    state: TransactionState = State.EMPTY
    partitions: frozenset[Partition] = frozenset()
    started_ms: int = -1
    client_version: int = 0

    @property
    def identity(self) -> ProducerIdentity:
        """The current producer id and epoch."""
        return ProducerIdentity(self.producer_id, self.epoch)

    @property
    def has_expired_epochs(self) -> bool:
        """Whether the producer needs another id: there is no further epoch to give to it."""
        return is_exhausted(self.epoch)


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    """The indexes of partitions by their topic, in order."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return topics


def is_exhausted(epoch: int) -> bool:
    """Whether an epoch is the last that a producer may have."""
    return epoch >= LAST_EPOCH - 1


@dataclass(slots=True, eq=False)
class TransactionEntry:
    """The coordinator's entry of a transactional id.

    Attributes:
        metadata: As in the log.
        pending: The state that is being written; None if none is.
        has_failed_fence: An epoch that fences the producer was made, but perhaps not written: it
            isn't raised again.
        unmarked: Partitions whose markers are not written yet.
    """

    metadata: TransactionMetadata
    pending: TransactionState | None = None
    has_failed_fence: bool = False
    unmarked: set[Partition] = field(default_factory=set)

    def prepare(self, following: TransactionMetadata) -> TransactionMetadata:
        """Make ``following`` the pending one, and return it. Raises IllegalTransition."""
        state = self.metadata.state
        if self.pending is not None or state not in PREVIOUS[following.state]:
            busy = "" if self.pending is None else f" while {self.pending.name} is pending"
            raise IllegalTransition(f"from {state.name} to {following.state.name}{busy}")
        self.pending = following.state
        return replace(following, previous_producer_id=self.metadata.producer_id)

    def complete(self, written: TransactionMetadata) -> None:
        """``written`` is in the log."""
        self.metadata = written
        self.pending = None
        if written.state in _PREPARED:
            self.has_failed_fence = False
            self.unmarked = set(written.partitions)

    def reject(self) -> None:
        """The pending state could not be written."""
        self.pending = None


NewId: TypeAlias = Callable[[], int]
"""Returns a producer id that is not in use."""


# InitProducerId


def init_producer_id(
    entry: TransactionEntry,
    timeout_ms: int,
    expected: ProducerIdentity | None,
    new_id: NewId,
    wall_ms: int,
) -> TransactionMetadata:
    """A producer begins: it gets the next epoch, which fences the one before.

    With an open transaction the result is PREPARE_EPOCH_FENCE: that is to be aborted first.

    Args:
        entry: Of the id.
        timeout_ms: Of its transactions from now on.
        expected: The identity that the producer has, if it has one (KIP-360).
        new_id: For ids whose epochs are exhausted.
        wall_ms: The time.

    Raises:
        ApiError: CONCURRENT_TRANSACTIONS, or PRODUCER_FENCED.
    """
    metadata = entry.metadata
    if entry.pending is not None:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if expected is not None and not _is_own(metadata, expected):
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    if metadata.state in _PREPARED:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if metadata.state is State.ONGOING:
        return fence(entry)
    following = replace(
        metadata,
        state=State.EMPTY,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        started_ms=-1,
        updated_ms=wall_ms,
    )
    known = None if expected is None else expected.epoch
    if metadata.has_expired_epochs and known in (None, metadata.epoch):
        last = NO_EPOCH if expected is None else metadata.epoch
        return entry.prepare(replace(following, producer_id=new_id(), epoch=0, last_epoch=last))
    epoch, last_epoch = _next_epoch(metadata, known)
    return entry.prepare(replace(following, epoch=epoch, last_epoch=last_epoch))


def _is_own(metadata: TransactionMetadata, expected: ProducerIdentity) -> bool:
    return (
        metadata.epoch == NO_EPOCH
        or expected.producer_id == metadata.producer_id
        or (expected.producer_id == metadata.previous_producer_id and is_exhausted(expected.epoch))
    )


def _next_epoch(metadata: TransactionMetadata, known: int | None) -> tuple[int, int]:
    """The producer's epoch, and the one before: the same again for a repeated request."""
    if known is None:
        return metadata.epoch + 1, NO_EPOCH
    if metadata.epoch == NO_EPOCH or known == metadata.epoch:
        return metadata.epoch + 1, metadata.epoch
    if known == metadata.last_epoch:
        return metadata.epoch, metadata.last_epoch
    raise ApiError(ErrorCode.PRODUCER_FENCED)


def fence(entry: TransactionEntry) -> TransactionMetadata:
    """Prepare an epoch that fences the producer of an open transaction, which is to be aborted."""
    metadata = entry.metadata
    kept = entry.has_failed_fence or metadata.epoch == LAST_EPOCH
    epoch = metadata.epoch if kept else metadata.epoch + 1
    return entry.prepare(replace(metadata, state=State.PREPARE_EPOCH_FENCE, epoch=epoch))


# Partitions


def add_partitions(
    entry: TransactionEntry,
    producer: ProducerIdentity,
    partitions: Iterable[Partition],
    client_version: int,
    wall_ms: int,
) -> TransactionMetadata | None:
    """Add partitions, which begins a transaction; None if it has them all.

    Raises:
        ApiError: CONCURRENT_TRANSACTIONS, INVALID_PRODUCER_ID_MAPPING, or PRODUCER_FENCED.
    """
    metadata = entry.metadata
    if entry.pending is not None:  # first: the producer may have an id that is only pending
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    _check_producer(metadata, producer)
    added = frozenset(partitions)
    ongoing = metadata.state is State.ONGOING
    if ongoing and added <= metadata.partitions:
        return None
    return entry.prepare(
        replace(
            metadata,
            state=State.ONGOING,
            partitions=metadata.partitions | added,
            started_ms=metadata.started_ms if ongoing else wall_ms,
            updated_ms=wall_ms,
            client_version=client_version,
        )
    )


def verify_partitions(
    entry: TransactionEntry, producer: ProducerIdentity, partitions: Iterable[Partition]
) -> dict[Partition, ErrorCode]:
    """A code for each partition: NONE if it was added. Raises ApiError, as ``add_partitions``."""
    _check_producer(entry.metadata, producer)
    added = entry.metadata.partitions
    return {
        one: ErrorCode.NONE if one in added else ErrorCode.TRANSACTION_ABORTABLE
        for one in partitions
    }


def _check_producer(metadata: TransactionMetadata, producer: ProducerIdentity) -> None:
    if metadata.producer_id != producer.producer_id:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if metadata.epoch != producer.epoch:
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    if metadata.state in _PREPARED:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)


# The end


class EndRequest(NamedTuple):
    """An EndTxn, or the coordinator's own abort."""

    producer: ProducerIdentity
    committed: bool
    client_version: int
    from_client: bool = True


def end(
    entry: TransactionEntry, request: EndRequest, new_id: NewId, wall_ms: int
) -> TransactionMetadata | None:
    """End the transaction; None for a repeated request whose end is complete.

    Raises:
        ApiError: CONCURRENT_TRANSACTIONS while markers are written or a change is pending;
            INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED; INVALID_TXN_STATE: there is nothing to
            end, or it ended otherwise.
    """
    if request.client_version < BUMPS_EPOCH:
        return _end_in_version_1(entry, request, wall_ms)
    return _end_in_version_2(entry, request, new_id, wall_ms)


def _end_in_version_1(
    entry: TransactionEntry, request: EndRequest, wall_ms: int
) -> TransactionMetadata | None:
    metadata, fences = entry.metadata, entry.pending is State.PREPARE_EPOCH_FENCE
    producer_id, epoch = request.producer
    if metadata.producer_id != producer_id:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if epoch < metadata.epoch or (request.from_client and epoch != metadata.epoch):
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    if entry.pending is not None and not fences:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if metadata.state is not State.ONGOING:
        _check_repeated(metadata.state, request.committed)
        return None
    if fences and not request.committed:
        entry.pending = None
        metadata = replace(metadata, epoch=epoch, last_epoch=NO_EPOCH)
        entry.metadata = metadata  # at once, as in Kafka: it fences even if it can't be written
    return entry.prepare(
        replace(
            metadata,
            state=_prepared(request.committed),
            next_producer_id=NO_ID,
            updated_ms=wall_ms,
            client_version=0,
        )
    )


def _check_repeated(state: TransactionState, committed: bool) -> None:
    """Raise ApiError unless the transaction has ended, in that way."""
    if state is _prepared(committed):
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if state is not _completed(committed):
        raise ApiError(ErrorCode.INVALID_TXN_STATE)


def _end_in_version_2(
    entry: TransactionEntry, request: EndRequest, new_id: NewId, wall_ms: int
) -> TransactionMetadata | None:
    metadata, fences = entry.metadata, entry.pending is State.PREPARE_EPOCH_FENCE
    producer_id, epoch = request.producer
    rotated = (
        not fences
        and metadata.previous_producer_id == producer_id
        and epoch == LAST_EPOCH - 1
        and metadata.epoch == 0
    )
    bumped = not fences and metadata.epoch == epoch + 1
    if entry.pending is not None and not fences:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if metadata.producer_id != producer_id and not rotated:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if not _is_epoch_valid(metadata, request, fences=fences, bumped=bumped, rotated=rotated):
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    state = metadata.state
    repeated = bumped or rotated
    if state in _PREPARED or (repeated and state in _COMPLETE):
        _check_repeated(state, request.committed)
        return None
    if state is not State.ONGOING and request.committed:
        raise ApiError(ErrorCode.INVALID_TXN_STATE)
    if fences:
        entry.pending = None
    stuck = metadata.epoch == LAST_EPOCH and not request.committed
    return entry.prepare(
        replace(
            metadata,
            state=_prepared(request.committed),
            epoch=metadata.epoch if stuck else metadata.epoch + 1,
            last_epoch=metadata.epoch,
            next_producer_id=new_id() if metadata.has_expired_epochs else NO_ID,
            started_ms=metadata.started_ms if state is State.ONGOING else wall_ms,
            updated_ms=wall_ms,
            client_version=request.client_version,
        )
    )


def _is_epoch_valid(
    metadata: TransactionMetadata,
    request: EndRequest,
    *,
    fences: bool,
    bumped: bool,
    rotated: bool,
) -> bool:
    """Whether the epoch is the producer's current one, or in a state that it led to, the last."""
    current = request.producer.epoch == metadata.epoch
    if fences:
        higher = request.producer.epoch > metadata.epoch
        return current or (higher and not request.from_client)
    if metadata.state in _PREPARED:
        return bumped
    if metadata.state in _COMPLETE:
        return bumped or rotated or current
    return current


def _prepared(committed: bool) -> TransactionState:
    return State.PREPARE_COMMIT if committed else State.PREPARE_ABORT


def _completed(committed: bool) -> TransactionState:
    return State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT


def complete(entry: TransactionEntry, wall_ms: int) -> TransactionMetadata:
    """Prepare the last state of a transaction, to be written when all its markers are."""
    metadata = entry.metadata
    rotates = metadata.client_version >= BUMPS_EPOCH and metadata.next_producer_id != NO_ID
    return entry.prepare(
        replace(
            metadata,
            state=_completed(metadata.state is State.PREPARE_COMMIT),
            producer_id=metadata.next_producer_id if rotates else metadata.producer_id,
            epoch=0 if rotates else metadata.epoch,
            next_producer_id=NO_ID,
            partitions=frozenset(),
            updated_ms=wall_ms,
        )
    )


# Time


def times_out_ms(metadata: TransactionMetadata) -> int | None:
    """When an open transaction is aborted, in milliseconds since the epoch; None if none is."""
    if metadata.state is not State.ONGOING:
        return None
    return metadata.started_ms + metadata.timeout_ms


def has_expired(entry: TransactionEntry, retention_ms: int, wall_ms: int) -> bool:
    """Whether the id was unused for so long that it is forgotten."""
    metadata = entry.metadata
    return (
        entry.pending is None
        and metadata.state in _IDLE
        and metadata.updated_ms <= wall_ms - retention_ms
    )

"""State derived from a log's batches: epochs, producers, transactions, segments.

Used by ``log.py``, which passes each appended batch to them, and truncates them with the log. No
I/O.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from kclient.error_codes import ErrorCode
from kclient.record.builder import BatchBuilder
from kclient.record.layout import BATCH_HEADER_BYTES
from kclient.testing.responses import ApiError
from kclient.testing.stored_batch import StoredBatch

UNDEFINED = -1
"""No epoch, or no offset."""
_EPOCH, _START = itemgetter(0), itemgetter(1)
REMEMBERED_BATCHES = 5
"""Per producer, as in Kafka: this limits ``max.in.flight`` of idempotent producers."""
_MAX_SEQUENCE = (1 << 31) - 1
_CONTROL_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
_MARKER_BYTES = 1024
_BUMPS_EPOCH = 2
"""The first version of the transaction protocol in which each end raises the producer's epoch."""
_LAST_EPOCH = (1 << 15) - 1
ABORT, COMMIT = 0, 1
"""Types of the markers that end a transaction."""


# Leader epochs (KIP-101, KIP-320)


class EpochEnd(NamedTuple):
    """The largest epoch up to the requested one, and its end offset."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """Epochs in rising order, each with the offset of its first record."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, int]] = []

    @property
    def latest(self) -> int:
        """The last epoch, -1 if there is none."""
        return self._entries[-1][0] if self._entries else UNDEFINED

    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset) pairs in order."""
        return list(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Add ``epoch``, which begins at ``start_offset``; epochs without records are removed."""
        if not self._entries or epoch > self.latest:
            self.truncate_end(start_offset)
            self._entries.append((epoch, start_offset))

    def end_of(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Where ``epoch`` ended, as in Kafka's response to OffsetForLeaderEpoch."""
        if not self._entries or epoch == UNDEFINED or epoch > self.latest:
            return EpochEnd(UNDEFINED, UNDEFINED)
        if epoch == self.latest:
            return EpochEnd(epoch, log_end_offset)
        higher = bisect_right(self._entries, epoch, key=_EPOCH)
        last = self._entries[higher - 1][0] if higher else epoch
        return EpochEnd(last, self._entries[higher][1])

    def at(self, offset: int) -> int:
        """The epoch in which ``offset`` was, or will be, written; -1 if none is known."""
        index = bisect_right(self._entries, offset, key=_START)
        return self._entries[index - 1][0] if index else UNDEFINED

    def truncate_start(self, offset: int) -> None:
        """Records below ``offset`` were removed: the epoch there now begins at ``offset``."""
        index = bisect_right(self._entries, offset, key=_START)
        if index:
            epoch, start = self._entries[index - 1]
            self._entries[:index] = [(epoch, max(start, offset))]

    def truncate_end(self, offset: int) -> None:
        """Records from ``offset`` on were removed: remove the epochs that began there, too."""
        while self._entries and self._entries[-1][1] >= offset:
            self._entries.pop()


# Idempotent producers (KIP-98, KIP-360), by the rules of Kafka's ``ProducerStateManager``: a batch
# whose sequence range was seen is a duplicate, which is acknowledged with its first offset; one
# that doesn't follow is out of order; one of an older epoch is refused.


@dataclass(frozen=True, slots=True)
class AppendedBatch:
    """One batch of a producer that is in the log."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


@dataclass(slots=True, eq=False)
class ProducerState:
    """One producer id in one log."""

    epoch: int
    last_sequence: int = -1
    batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))
    last_timestamp: int = -1
    coordinator_epoch: int = -1
    """Of the transaction coordinator that wrote its last marker."""

    def begin_epoch(self, epoch: int) -> None:
        """Use a new epoch, in which sequences begin at 0; the same one changes nothing."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.last_sequence = -1
            self.batches.clear()


class ProducerIdentity(NamedTuple):
    """A producer id with an epoch."""

    producer_id: int
    epoch: int


NO_ID = NO_EPOCH = -1
NO_IDENTITY = ProducerIdentity(NO_ID, NO_EPOCH)


class BatchStart(NamedTuple):
    """Producer and first sequence of a batch."""

    producer_id: int
    epoch: int
    sequence: int


@dataclass(slots=True, eq=False)
class Verification:
    """A batch of a transaction waits for its coordinator to confirm that the partition is added.

    It is void once a marker or another batch of the producer was appended (KIP-890).
    """

    epoch: int
    lowest_sequence: int
    """Of all batches that waited: a later one must not overtake it."""
    adds: bool
    """The producer speaks version 2: its partitions are added when it writes to them."""


class ProducerStates:
    """All producers of one log, by id."""

    def __init__(self) -> None:
        self._states: dict[int, ProducerState] = {}
        self._verifications: dict[int, Verification] = {}

    def items(self) -> Iterable[tuple[int, ProducerState]]:
        """All producer ids with their states."""
        return self._states.items()

    def get(self, producer_id: int) -> ProducerState | None:
        """The state of a producer, None if it never wrote or was forgotten."""
        return self._states.get(producer_id)

    def find_duplicate(self, batch: StoredBatch) -> AppendedBatch | None:
        """The remembered batch with the same epoch and sequence range."""
        state = self._states.get(batch.producer_id)
        if state is None or state.epoch != batch.producer_epoch:
            return None
        first, last = batch.base_sequence, batch.last_sequence
        for seen in state.batches:
            if seen.first_sequence == first and seen.last_sequence == last:
                return seen
        return None

    def check(self, batch: StoredBatch) -> None:
        """Raise ApiError unless ``batch``, which is no duplicate, is the next of its producer."""
        state = self._states.get(batch.producer_id)
        first = batch.base_sequence
        self.check_epoch(batch.producer_id, batch.producer_epoch)
        waited = self._verifications.get(batch.producer_id)
        if waited is not None and (
            first > waited.lowest_sequence or (waited.adds and first and state is None)
        ):
            raise ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        if state is None:
            return  # forgotten by retention, or new: any sequence is accepted (KIP-360)
        if batch.producer_epoch > state.epoch:
            if first != 0:
                raise ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
            return
        last = state.last_sequence
        if first != last + 1 and not (first == 0 and last == _MAX_SEQUENCE):
            raise ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)

    def note(self, batch: StoredBatch) -> None:
        """Remember ``batch``, which was checked and has its offsets."""
        state = self._states.get(batch.producer_id)
        if state is None:
            state = self._states[batch.producer_id] = ProducerState(batch.producer_epoch)
        state.begin_epoch(batch.producer_epoch)
        state.last_timestamp = batch.max_timestamp
        if batch.is_transactional:
            self._end_verification(batch)
        if batch.is_control:  # a marker has no sequence
            state.coordinator_epoch = max(state.coordinator_epoch, coordinator_epoch_of(batch))
            return
        state.last_sequence = batch.last_sequence
        state.batches.append(
            AppendedBatch(
                batch.base_sequence,
                batch.last_sequence,
                batch.base_offset,
                batch.last_offset,
                batch.max_timestamp,
            )
        )

    # Transactions

    def begin_verification(self, first: BatchStart, *, adds: bool) -> Verification:
        """A batch waits for its coordinator; return what ``is_verified`` takes when it came.

        Raises:
            ApiError: INVALID_PRODUCER_EPOCH: there is a newer producer.
        """
        producer_id, epoch, sequence = first
        self.check_epoch(producer_id, epoch)
        known = self._verifications.get(producer_id)
        if known is None or epoch > known.epoch:
            known = self._verifications[producer_id] = Verification(epoch, sequence, adds)
        elif epoch == known.epoch:
            known.lowest_sequence = min(known.lowest_sequence, sequence)
        return known

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Raise ApiError, INVALID_PRODUCER_EPOCH, if there is a newer producer."""
        state = self._states.get(producer_id)
        if state is not None and epoch < state.epoch:
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH)

    def _end_verification(self, batch: StoredBatch) -> None:
        """A batch or marker was appended: what waited before it is void, or not necessary.

        In version 2 a marker raises the epoch, and with that epoch the next transaction may wait.
        """
        waited = self._verifications.get(batch.producer_id)
        if waited is not None and not (
            waited.adds and batch.is_control and batch.producer_epoch == waited.epoch
        ):
            del self._verifications[batch.producer_id]

    def is_verified(self, producer_id: int, verification: Verification) -> bool:
        """Whether no marker came between the coordinator's response and the append."""
        return self._verifications.get(producer_id) is verification

    def check_marker(self, marker: Marker, *, is_open: bool) -> None:
        """Raise ApiError if a newer producer or coordinator wrote a marker before.

        In version 2 a marker has a higher epoch than the transaction, so that a late one can't end
        the next transaction; the same epoch is accepted if no transaction is open, as a repetition.

        Args:
            marker: To be appended.
            is_open: Whether the producer has a transaction here.
        """
        state = self._states.get(marker.producer_id)
        if state is None:
            return
        late = marker.producer_epoch < state.epoch
        if marker.transaction_version >= _BUMPS_EPOCH:
            late = late or (
                marker.producer_epoch == state.epoch and is_open and state.epoch != _LAST_EPOCH
            )
        if late:
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH)
        if marker.coordinator_epoch < state.coordinator_epoch:
            raise ApiError(ErrorCode.TRANSACTION_COORDINATOR_FENCED)

    def forget(self, producer_id: int | None = None) -> None:
        """Drop the state of one producer, or of all, as expiry does."""
        if producer_id is None:
            self._states.clear()
        else:
            self._states.pop(producer_id, None)


# Transactions (KIP-98): open ones limit the last stable offset, and a read_committed consumer needs
# the aborted ones that overlap its records.


class Marker(NamedTuple):
    """What ends a transaction in a partition."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """Leader epoch of the coordinator's partition of ``__transaction_state``."""
    committed: bool
    transaction_version: int

    def encode(self, wall_ms: int) -> bytes:
        """Its control batch."""
        builder = BatchBuilder(_MARKER_BYTES, transactional=True, control=True)
        key = _CONTROL_KEY.pack(0, COMMIT if self.committed else ABORT)
        builder.append(wall_ms, key, _MARKER_VALUE.pack(0, self.coordinator_epoch), None)
        return builder.encode(self.producer_id, self.producer_epoch)


class AbortedTransaction(NamedTuple):
    """A transaction that ended with an abort marker at ``last_offset``."""

    producer_id: int
    first_offset: int
    last_offset: int


class TransactionIndex:
    """Of one log: first offsets of the open transactions, and the aborted ones."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._ended: list[tuple[int, int]] = []
        self._aborted: list[AbortedTransaction] = []

    @property
    def first_open_offset(self) -> int | None:
        """Where the oldest open transaction began; None if none is open."""
        return min(self._open.values()) if self._open else None

    def open_offset(self, producer_id: int) -> int | None:
        """Where a producer's open transaction began; None if it has none."""
        return self._open.get(producer_id)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Where the oldest transaction began that is open, or whose marker isn't committed yet."""
        if self._ended:
            self._ended = [one for one in self._ended if one[1] >= high_watermark]
        starts = [*self._open.values(), *(first for first, _ in self._ended)]
        return min(starts, default=None)

    def note(self, batch: StoredBatch) -> None:
        """Update it with a transactional batch or a marker that was appended."""
        if not batch.is_transactional:
            return
        if not batch.is_control:
            self._open.setdefault(batch.producer_id, batch.base_offset)
            return
        first = self._open.pop(batch.producer_id, None)
        if first is None:
            return
        self._ended.append((first, batch.base_offset))
        if marker_type(batch) == ABORT:
            self._aborted.append(AbortedTransaction(batch.producer_id, first, batch.base_offset))

    def aborted_between(self, start: int, end: int) -> list[AbortedTransaction]:
        """Aborted transactions with records or their marker in ``start <= offset < end``."""
        return [one for one in self._aborted if one.last_offset >= start and one.first_offset < end]

    def delete_before(self, offset: int) -> None:
        """Forget transactions that lie wholly below ``offset``."""
        self._aborted = [one for one in self._aborted if one.last_offset >= offset]


def marker_type(batch: StoredBatch) -> int:
    """0 for an abort marker, 1 for a commit marker; -1 if the batch holds none.

    A marker is one uncompressed record with a key of version and type (int16 each): one byte each
    for length, attributes, two deltas and the key's length come before the key.
    """
    position = BATCH_HEADER_BYTES + 5
    if batch.codec or len(batch.data) < position + _CONTROL_KEY.size:
        return -1
    _, kind = _CONTROL_KEY.unpack_from(batch.data, position)
    return int(kind)


def coordinator_epoch_of(batch: StoredBatch) -> int:
    """The coordinator epoch of a marker, -1 if it has none: one byte is the value's length."""
    position = BATCH_HEADER_BYTES + 5 + _CONTROL_KEY.size + 1
    if marker_type(batch) < 0 or len(batch.data) < position + _MARKER_VALUE.size:
        return UNDEFINED
    _, epoch = _MARKER_VALUE.unpack_from(batch.data, position)
    return int(epoch)


# Segments: Kafka keeps a log in files, and a new one begins where the last would grow over
# ``segment.bytes`` or its first batch is ``segment.ms`` older than the next one. Here the batches
# are one list, and the cleaner (``log_cleaner.py``) works in the segments that those files would
# be. The last one is the active one.


class Segments:
    """The segments of one log.

    Attributes:
        bases: The offset that each segment begins with; the last one is the active segment's.
        first_dirty: Records below this offset have been compacted.
    """

    def __init__(self, start_offset: int = 0) -> None:
        self.bases = [start_offset]
        self.first_dirty = start_offset
        self._counted = start_offset
        self._size = 0
        self._first_time = -1

    @property
    def active_base(self) -> int:
        """Where the active segment begins."""
        return self.bases[-1]

    @property
    def counted_to(self) -> int:
        """Batches from this offset on have not been looked at yet."""
        return self._counted

    def note(self, batches: Iterable[StoredBatch], segment_bytes: int, segment_ms: int) -> None:
        """Add the batches from ``counted_to`` on, and begin segments where Kafka would.

        Args:
            batches: In order.
            segment_bytes: Maximum size of a segment of more than one batch.
            segment_ms: Maximum milliseconds between the times of the first batch and another.
        """
        for batch in batches:
            if self._size and (
                self._size + batch.size_bytes > segment_bytes
                or (self._first_time >= 0 and batch.max_timestamp - self._first_time > segment_ms)
            ):
                self.roll(batch.base_offset)
            if not self._size:
                self._first_time = batch.max_timestamp
            self._size += batch.size_bytes
            self._counted = batch.next_offset

    def roll(self, offset: int) -> None:
        """Begin a segment at ``offset``, the log's end, unless the active one is empty."""
        if offset > self.bases[-1]:
            self.bases.append(offset)
        self._counted = max(self._counted, offset)
        self._size = 0
        self._first_time = -1

    def truncate_start(self, offset: int) -> None:
        """The log begins at ``offset``: remove segments that lie wholly below it."""
        first = bisect_right(self.bases, offset) - 1
        if first > 0:
            del self.bases[:first]
        self.first_dirty = max(self.first_dirty, offset)

    def truncate_end(self, offset: int) -> None:
        """The log ends at ``offset``: the segment that holds it is the active one again."""
        keep = max(bisect_left(self.bases, offset), 1)
        del self.bases[keep:]
        self.bases[0] = min(self.bases[0], offset)
        self.first_dirty = min(self.first_dirty, offset)
        self._counted = self.bases[-1]
        self._size = 0
        self._first_time = -1

"""The log of a partition: its batches in memory, and what Kafka derives from them.

Offsets, epochs, producers and open transactions of one log; an append gives a batch its offset,
a read returns whole batches. Used by the handlers of Produce, Fetch and ListOffsets, and by
``Cluster`` for tests. Pure logic: no waiting, no clock; ``log_validator.py`` checked the batches
before. Each replica of a partition has one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kclient.error_codes import ErrorCode
from kclient.record.message_set import read_batches
from kclient.testing.log_state import (
    LeaderEpochs,
    Marker,
    ProducerStates,
    Segments,
    TransactionIndex,
)
from kclient.testing.responses import ApiError
from kclient.testing.stored_batch import StoredBatch

INFLATE_CAP_BYTES = 256 << 20
"""Maximum size to which one batch may inflate when its records are read."""

ENDLESS_BYTES = 1 << 62
"""Size that is passed to listeners to end their wait, whatever number of bytes they wait for."""


class Appended(NamedTuple):
    """The position of a batch; for a duplicate, that of its first copy."""

    base_offset: int
    timestamp: int
    """Milliseconds: the batch's greatest timestamp if the broker set it, or for a duplicate; else
    -1."""


class ReadResult(NamedTuple):
    """Whole batches, in order, and their bytes in all."""

    batches: list[StoredBatch]
    size_bytes: int


class FoundOffset(NamedTuple):
    """The result of a lookup by time."""

    offset: int
    timestamp: int
    leader_epoch: int


@dataclass(slots=True, eq=False, repr=False)
class PartitionLog:
    """Batches in the order of their offsets.

    Attributes:
        start_offset: First offset that may be read; rises when records are deleted.
        end_offset: The next offset to be written.
        high_watermark: Consumers get records below it.
        epochs: Leader epochs and their start offsets.
        producers: Sequences of idempotent producers.
        transactions: Open and aborted transactions.
        segments: Where Kafka's files would begin, up to the last call of ``note_segments``.
    """

    start_offset: int = 0
    end_offset: int = 0
    high_watermark: int = 0
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    producers: ProducerStates = field(default_factory=ProducerStates)
    transactions: TransactionIndex = field(default_factory=TransactionIndex)
    segments: Segments = field(default_factory=Segments)
    _batches: list[StoredBatch] = field(default_factory=list)
    _bases: list[int] = field(default_factory=list)
    _listeners: dict[Callable[[int], None], None] = field(default_factory=dict)
    _tail_listeners: dict[Callable[[int], None], None] = field(default_factory=dict)

    @property
    def batches(self) -> tuple[StoredBatch, ...]:
        """All batches, oldest first."""
        return tuple(self._batches)

    def batches_between(self, start: int, end: int) -> Sequence[StoredBatch]:
        """The batches with ``start <= base offset < end``."""
        return self._batches[bisect_left(self._bases, start) : bisect_left(self._bases, end)]

    @property
    def size_bytes(self) -> int:
        """Size of all batches."""
        return sum(len(batch.data) for batch in self._batches)

    @property
    def last_stable_offset(self) -> int:
        """The offset at which a read_committed consumer has to stop."""
        unstable = self.transactions.first_unstable_offset(self.high_watermark)
        if unstable is None:
            return self.high_watermark
        return max(min(unstable, self.high_watermark), self.start_offset)  # it may be deleted

    def append(
        self, batch: StoredBatch, leader_epoch: int, log_append_time: int | None
    ) -> Appended:
        """Append a producer's batch, unless it is a duplicate.

        Args:
            batch: Its offsets begin at 0; it now belongs to the log.
            leader_epoch: The epoch of the leader.
            log_append_time: Milliseconds for topics with LogAppendTime; None for CreateTime.

        Raises:
            ApiError: The producer's epoch is old, its sequence doesn't follow, or it has a
                transaction that the batch isn't part of.
        """
        if batch.producer_id >= 0:
            seen = self.producers.find_duplicate(batch)
            if seen is not None:
                return Appended(seen.base_offset, seen.timestamp)
            self.producers.check(batch)
            is_open = self.transactions.open_offset(batch.producer_id) is not None
            if is_open and not batch.is_transactional:
                raise ApiError(ErrorCode.INVALID_TXN_STATE)
        batch.place(self.end_offset, leader_epoch)
        if log_append_time is not None:
            batch.set_times(log_append_time, log_append_time=True)
        self.append_placed(batch)
        return Appended(batch.base_offset, -1 if log_append_time is None else log_append_time)

    def has_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer's transaction in that epoch has records here."""
        state = self.producers.get(producer_id)
        return (
            state is not None
            and state.epoch == epoch
            and self.transactions.open_offset(producer_id) is not None
        )

    def check_marker(self, marker: Marker) -> None:
        """Raise ApiError if a marker is late: INVALID_PRODUCER_EPOCH or ..._COORDINATOR_FENCED."""
        is_open = self.transactions.open_offset(marker.producer_id) is not None
        self.producers.check_marker(marker, is_open=is_open)

    def append_placed(self, batch: StoredBatch) -> None:
        """Append a batch that has its offsets already: markers, gaps, and batches of a leader.

        Raises:
            ValueError: The batch begins below the log's end.
        """
        if batch.base_offset < self.end_offset:
            raise ValueError(f"offset {batch.base_offset} is below the end, {self.end_offset}")
        self.epochs.assign(batch.leader_epoch, batch.base_offset)
        self._batches.append(batch)
        self._bases.append(batch.base_offset)
        self.end_offset = batch.next_offset
        if batch.producer_id >= 0:
            self.producers.note(batch)
            self.transactions.note(batch)
        for listener in tuple(self._tail_listeners):
            listener(len(batch.data))

    def advance(self, high_watermark: int) -> None:
        """Raise the high watermark, below which consumers may read; it never decreases."""
        if high_watermark <= self.high_watermark:
            return
        first = self._index_of(self.high_watermark)
        self.high_watermark = high_watermark
        size = 0
        for index in range(first, len(self._batches)):
            if self._bases[index] >= high_watermark:
                break
            size += len(self._batches[index].data)
        for listener in tuple(self._listeners):
            listener(size)

    def read(self, offset: int, max_bytes: int, end: int, *, at_least_one: bool) -> ReadResult:
        """Return whole batches from the one that holds ``offset`` on, all of them below ``end``.

        Args:
            offset: From the log's start to its end.
            max_bytes: Limit for all batches together.
            end: High watermark or last stable offset.
            at_least_one: Return the first batch even if it alone is over ``max_bytes``.

        Raises:
            ApiError: OFFSET_OUT_OF_RANGE.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        found: list[StoredBatch] = []
        size = 0
        for index in range(self._index_of(offset), len(self._batches)):
            batch = self._batches[index]
            if batch.last_offset >= end:
                break
            longer = size + len(batch.data)
            if longer > max_bytes and (found or not at_least_one):
                break
            found.append(batch)
            size = longer
        return ReadResult(found, size)

    def offset_for_time(self, timestamp: int, end: int) -> FoundOffset | None:
        """The first record below ``end`` with at least ``timestamp``; None if there is none."""
        for index in range(self._index_of(self.start_offset), len(self._batches)):
            batch = self._batches[index]
            if batch.base_offset >= end:
                return None
            if batch.max_timestamp < timestamp:
                continue
            for offset, at in record_times(batch):
                if at >= timestamp and self.start_offset <= offset < end:
                    return FoundOffset(offset, at, batch.leader_epoch)
        return None

    def offset_of_max_time(self) -> FoundOffset | None:
        """The first record with the greatest timestamp; None in an empty log (KIP-734)."""
        batches = [batch for batch in self._batches if batch.record_count]
        best = max(batches, key=lambda batch: batch.max_timestamp, default=None)
        if best is None:
            return None
        for offset, at in record_times(best):
            if at == best.max_timestamp:
                return FoundOffset(offset, at, best.leader_epoch)
        return None

    def delete_before(self, offset: int) -> None:
        """Move the start of the log up to ``offset``, as DeleteRecords and retention do.

        Raises:
            ApiError: OFFSET_OUT_OF_RANGE, past the high watermark.
        """
        if offset > self.high_watermark:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset > self.start_offset:
            self.raise_start(offset)

    def raise_start(self, offset: int) -> None:
        """Make the log begin at ``offset``, which is above its start, as its leader's log does."""
        if offset > self.end_offset:
            self.restart(offset)
            return
        self.start_offset = offset
        self.high_watermark = max(self.high_watermark, offset)
        gone = self._index_of(offset)
        del self._batches[:gone]
        del self._bases[:gone]
        self.epochs.truncate_start(offset)
        self.transactions.delete_before(offset)

    def truncate(self, offset: int) -> None:
        """Remove all batches that reach ``offset`` or beyond, as a deposed leader has to do."""
        keep = bisect_left([batch.next_offset for batch in self._batches], offset + 1)
        del self._batches[keep:]
        del self._bases[keep:]
        self.end_offset = self._batches[-1].next_offset if self._batches else self.start_offset
        self.high_watermark = min(self.high_watermark, self.end_offset)
        self.epochs.truncate_end(self.end_offset)
        self.segments.truncate_end(self.end_offset)
        self._rebuild()

    def restart(self, offset: int) -> None:
        """Remove all batches and begin again at ``offset``."""
        self._batches.clear()
        self._bases.clear()
        self.start_offset = self.end_offset = self.high_watermark = offset
        self.epochs = LeaderEpochs()
        self.segments = Segments()
        self._rebuild()

    def note_segments(self, segment_bytes: int, segment_ms: int) -> None:
        """Update ``segments`` to the log's start and end, with the limits that are valid now."""
        first = bisect_left(self._bases, self.segments.counted_to)
        self.segments.note(self._batches[first:], segment_bytes, segment_ms)
        self.segments.truncate_start(self.start_offset)

    def replace_below(self, end: int, batches: Sequence[StoredBatch]) -> None:
        """Replace all batches below ``end`` with those that remain after compaction."""
        count = bisect_left(self._bases, end)
        self._batches[:count] = batches
        self._bases[:count] = [batch.base_offset for batch in batches]

    def listen(self, listener: Callable[[int], None], *, tail: bool = False) -> None:
        """Call ``listener(size_bytes)`` when there is more to read, until ``unlisten``.

        Args:
            listener: Called with the number of new bytes.
            tail: Call it also when batches are appended, before they are committed.
        """
        self._listeners[listener] = None
        if tail:
            self._tail_listeners[listener] = None

    def unlisten(self, listener: Callable[[int], None]) -> None:
        """Stop calling ``listener``."""
        self._listeners.pop(listener, None)
        self._tail_listeners.pop(listener, None)

    def disturb(self) -> None:
        """Wake all listeners that wait for data: leadership changed, or the topic was deleted."""
        for listener in tuple(self._listeners):
            listener(ENDLESS_BYTES)

    @property
    def listener_count(self) -> int:
        """Number of listeners for data."""
        return len(self._listeners)

    def _index_of(self, offset: int) -> int:
        """Index of the batch that holds ``offset``, or of the next one after a gap."""
        index = bisect_right(self._bases, offset) - 1
        if index < 0:
            return 0
        return index if self._batches[index].last_offset >= offset else index + 1

    def _rebuild(self) -> None:
        self.producers = ProducerStates()
        self.transactions = TransactionIndex()
        for batch in self._batches:
            if batch.producer_id >= 0:
                self.producers.note(batch)
                self.transactions.note(batch)


def record_times(batch: StoredBatch) -> Iterable[tuple[int, int]]:
    """(offset, timestamp) of each record of a batch."""
    for found in read_batches(memoryview(batch.data)):
        found.inflate(INFLATE_CAP_BYTES)
        for record in found.records("", 0):
            yield record.offset, record.timestamp

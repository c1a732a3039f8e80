"""One partition's part of one fetch response, decoded piece by piece, sans-IO.

Made by ``fetch_response``, kept and emptied by ``fetch_buffer``. It knows the order of its batches,
its offset in them, and what the reader may not see (control batches, aborted transactions, records
before the offset asked for). It moves no position: the buffer does, in the same step.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kclient.errors import CodecUnavailable, CorruptRecord, DecompressionFailed, fresh
from kclient.record.compression import DEFAULT_CAP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kclient.consumer.partition_state import PartitionState
    from kclient.record import Batch, Record

ABORT_MARKER = 0


class FrameLease:
    """A response frame that several partitions' data point into; released with the last of them.

    ``size_bytes`` counts against the consumer's memory as long as there is a holder.
    """

    __slots__ = ("_holders", "_release", "size_bytes")

    def __init__(self, size_bytes: int, release: Callable[[FrameLease], None]) -> None:
        """Held once by the maker. ``release`` is called when the last holder has dropped it."""
        self.size_bytes = size_bytes
        self._release = release
        self._holders = 1

    def hold(self) -> None:
        """Add a holder."""
        self._holders += 1

    def drop(self) -> None:
        """Remove a holder; the last one releases the frame."""
        self._holders -= 1
        if self._holders == 0:
            self._release(self)


class AbortedTransactions:
    """Which batches of one partition's part a read_committed reader may not see (KIP-98).

    The broker sends, with the records of a partition, the list of aborted transactions that overlap
    them, in any order; it is walked along with the batches, by offset. A producer's transaction
    ends at its marker, so its next one is another entry.
    """

    __slots__ = ("_open", "_to_come")

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        """``aborted``: (producer id, first offset) pairs in any order."""
        self._to_come = deque(sorted((first, producer) for producer, first in aborted))
        self._open: set[int] = set()

    def hides(self, batch: Batch) -> bool:
        """Whether the data batch ``batch``, the next in order, is of an aborted transaction."""
        self._reach(batch.last_offset)
        return batch.is_transactional and batch.producer_id in self._open

    def pass_control(self, batch: Batch) -> None:
        """Process a control batch: an abort marker in it ends its producer's transaction."""
        self._reach(batch.last_offset)
        if ABORT_MARKER in batch.control_types():
            self._open.discard(batch.producer_id)

    def _reach(self, offset: int) -> None:
        to_come = self._to_come
        while to_come and to_come[0][0] <= offset:
            self._open.add(to_come.popleft()[1])


class CompletedFetch:
    """Batches of one partition, from ``offset`` on.

    Attributes:
        state: The partition that it was fetched for.
        position_version: The partition's position version at that time.
        offset: Next offset to return from here; past the last batch when ``done``.
        leader_epoch: Of the batch that ``offset`` lies in or behind, -1 unknown.
        end_offset: Where the next fetch continues after all of it.
        size_bytes: Bytes of the batches as they came.
        done: Nothing is left.
        blocked: The current batch is to be inflated in a thread first.
    """

    __slots__ = (
        "_aborted",
        "_batch",
        "_batches",
        "_cap",
        "_check_crcs",
        "_clean",
        "_lease",
        "_ready",
        "_refused",
        "blocked",
        "done",
        "end_offset",
        "leader_epoch",
        "offset",
        "position_version",
        "size_bytes",
        "state",
    )

    def __init__(
        self,
        state: PartitionState,
        offset: int,
        batches: Iterator[Batch],
        end_offset: int,
        *,
        clean: bool = True,
        size_bytes: int = 0,
        lease: FrameLease | None = None,
        aborted: Iterable[tuple[int, int]] | None = None,
        check_crcs: bool = True,
        decompression_cap: int = DEFAULT_CAP,
    ) -> None:
        """
        Args:
            state: The partition.
            offset: The offset that was requested.
            batches: From ``read_batches``; only one is kept at a time.
            end_offset: Behind the last of them.
            clean: False where ``batches`` will raise at its end.
            size_bytes: Bytes of all batches.
            lease: The frame that they lie in.
            aborted: (producer id, first offset) of aborted transactions; None: the reader sees all.
            check_crcs: Check each batch.
            decompression_cap: Bytes that one batch may inflate to.
        """
        self.state = state
        self.position_version = state.position_version
        self.offset = offset
        self.leader_epoch = -1
        self.end_offset = max(end_offset, offset)
        self.size_bytes = size_bytes
        self.done = False
        self.blocked: Batch | None = None
        self._batches = batches
        self._clean = clean
        self._batch: Batch | None = None
        self._ready: list[Record] = []
        self._refused: CorruptRecord | CodecUnavailable | None = None
        self._aborted = None if aborted is None else AbortedTransactions(aborted)
        self._check_crcs = check_crcs
        self._cap = decompression_cap
        self._lease = lease
        if lease is not None:
            lease.hold()

    @classmethod
    def given_back(
        cls, state: PartitionState, records: list[Record], end_offset: int
    ) -> CompletedFetch:
        """Records that were taken and then not returned; ``end_offset`` follows the last one."""
        data = cls(state, records[0].offset, iter(()), end_offset)
        data._ready = records
        return data

    def take(self, limit: int) -> list[Record]:
        """Take at most ``limit`` records of the current batch; [] where none is left in it.

        One call works on one batch. Raises CorruptRecord or CodecUnavailable for it, the offset
        unmoved.
        """
        if self._ready:
            return self._take_ready(limit)
        batch = self._batch or self._open_next()
        if batch is None:
            return []
        if batch.needs_thread(self._cap):
            self.blocked = batch
            return []
        self.blocked = None
        partition = self.state.topic_partition
        try:
            records = batch.records(
                partition.topic, partition.partition, start_offset=self.offset, limit=limit
            )
        except CorruptRecord as error:
            raise self.explained(error) from error
        self.leader_epoch = batch.partition_leader_epoch
        if batch.exhausted:
            self._pass(batch)
        elif records:
            self.offset = records[-1].offset + 1
        return records

    def take_batch(self) -> Batch | None:
        """The current batch, for columns; None where there is none to read.

        The reader's part of it starts at ``offset``; ``pass_to`` sets how far it was read.
        """
        batch = self._batch or self._open_next()
        self.blocked = batch if batch is not None and batch.needs_thread(self._cap) else None
        return batch if self.blocked is None else None

    def pass_to(self, offset: int) -> None:
        """Record that the current batch was read up to ``offset``, or as a whole."""
        batch = self._batch
        if batch is not None:
            self.leader_epoch = batch.partition_leader_epoch
            if batch.exhausted or offset >= batch.next_offset:
                self._pass(batch)
            else:
                self.offset = offset

    @property
    def held_bytes(self) -> int:
        """Bytes that the current batch holds beside the frame: inflated, not read to its end."""
        return 0 if self._batch is None else self._batch.held_bytes

    @property
    def has_ready_records(self) -> bool:
        """Whether it begins with records that are already decoded."""
        return bool(self._ready)

    def refuse(self, batch: Batch, error: CorruptRecord | CodecUnavailable) -> None:
        """Inflating ``batch``, the current one, failed: the next take raises that error."""
        if self._batch is batch:
            if isinstance(error, CodecUnavailable):
                self._refused = self._not_installed(error)
            else:
                self._refused = self.explained(error)
            self._batch = self.blocked = None

    def hold_frame(self) -> FrameLease | None:
        """Keep the bytes alive while a thread reads them; the caller drops the lease."""
        if self._lease is not None:
            self._lease.hold()
        return self._lease

    def close(self) -> None:
        """Release all data, and the lease of the frame."""
        self.done = True
        self._ready = []
        self._batches = iter(())
        self._batch = self.blocked = None
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.drop()

    def explained(
        self, error: CorruptRecord | CodecUnavailable
    ) -> CorruptRecord | CodecUnavailable:
        """``error`` of the current batch, with the partition, the offset and a remedy."""
        batch = self._batch
        if batch is None or isinstance(error, CodecUnavailable):
            return error
        kind = DecompressionFailed if isinstance(error, DecompressionFailed) else CorruptRecord
        return kind(
            error.message,
            offset=batch.base_offset,
            topic_partition=self.state.topic_partition,
            node_id=self.state.node_id,
            hint=f"the position stays at {self.offset}; seek to {batch.next_offset} to go past it",
        )

    def _take_ready(self, limit: int) -> list[Record]:
        ready = self._ready
        if limit >= len(ready):
            self._ready = []
            self.offset = self.end_offset
            self.done = True
            return ready
        self._ready = ready[limit:]
        self.offset = self._ready[0].offset
        return ready[:limit]

    def _open_next(self) -> Batch | None:
        """Move to the next visible batch; a hidden one is passed, one per call."""
        if self._refused is not None:
            raise fresh(self._refused)
        try:
            batch = next(self._batches, None)
        except CorruptRecord as error:
            refused = self._unreadable(error)
            refused.__cause__ = error
            self._refused = refused
            raise fresh(refused) from error
        if batch is None:
            self.offset = self.end_offset
            self.done = True
            return None
        if batch.last_offset < self.offset:
            return None  # lies wholly before the requested offset
        self._batch = batch
        if self._check_crcs:
            try:
                batch.check_crc()
            except CorruptRecord as error:
                raise self.explained(error) from error
        if self._hidden(batch):
            self.leader_epoch = batch.partition_leader_epoch
            self._pass(batch)
            return None
        return batch

    def _hidden(self, batch: Batch) -> bool:
        aborted = self._aborted
        if batch.is_control:
            if aborted is not None:
                try:
                    aborted.pass_control(batch)
                except CorruptRecord as error:
                    raise self.explained(error) from error
            return True
        return aborted is not None and aborted.hides(batch)

    def _pass(self, batch: Batch) -> None:
        self.offset = max(self.offset, batch.next_offset)
        self._batch = self.blocked = None
        self.done = self._clean and self.offset >= self.end_offset

    def _not_installed(self, error: CodecUnavailable) -> CodecUnavailable:
        """``error``, naming the partition. The data is good: no hint must advise to skip it."""
        partition = self.state.topic_partition
        named = CodecUnavailable(
            f"{partition} can't be read at offset {self.offset}: {error.message}",
            topic_partition=partition,
            hint=error.hint,
        )
        named.__cause__ = error
        return named

    def _unreadable(self, error: CorruptRecord) -> CorruptRecord:
        return CorruptRecord(
            error.message,
            offset=self.offset if error.offset is None else error.offset,
            topic_partition=self.state.topic_partition,
            node_id=self.state.node_id,
            hint=f"the position stays at {self.offset}; seek to go past it",
        )

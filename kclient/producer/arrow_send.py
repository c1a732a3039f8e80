"""``send_arrow``: rows of Arrow data, checked first, then put into batches without an object each.

One ``ArrowSend`` per call, created by the producer. ``arrow_source`` provides slices of rows,
``append_rows`` (compiled) adds them to open batches, and ``admission`` takes the rows that need a
decision: the first one of a batch, or one that must wait for memory or metadata.
``arrow_sent_rows`` records which row went to which batch until it is acknowledged, so that a
failure can name its rows.
"""

from __future__ import annotations

from array import array
from time import monotonic
from typing import TYPE_CHECKING, Any

from kclient.clock import work_clock
from kclient.cluster.wakeups import run_sliced
from kclient.errors import (
    InvalidArgument,
    KafkaError,
    MetadataTimedOut,
    RowsRejected,
    SerializationFailed,
)
from kclient.producer._compiled import append_rows
from kclient.producer.admission import PARTITION_PATIENCE, unknown_partition
from kclient.producer.arrow_sent_rows import SentRows
from kclient.producer.arrow_source import ArrowSource
from kclient.producer.send_many import YIELD_INTERVAL, BulkSend, watch
from kclient.record.arrow_rows import (
    BAD_HEADER,
    BAD_NAME,
    BAD_PARTITION,
    MOST_PARTITIONS,
    TOO_LARGE,
)
from kclient.record.implementation import codec
from kclient.record.layout import NO_HEADERS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow

    from kclient.cluster.core import ClientCore
    from kclient.errors import RowsNotDelivered
    from kclient.producer.accumulator import Accumulator, TopicQueues
    from kclient.producer.admission import Admission
    from kclient.record.arrow_rows import ArrowRows

_REPORTED = 100
"""Most rows that an error lists."""
_SHOWN = 3
"""Most rows in the text of an error."""
_NAME_SHOWN = 50
"""Most bytes of a header's name in the text of an error."""
_FOREVER = 1e9
"""Seconds that stand for no limit, if ``max_block`` is None."""


class ArrowSend(BulkSend):
    """One call of ``send_arrow``; its records are rows."""

    def __init__(
        self,
        topic: str,
        data: Any,
        admission: Admission,
        accumulator: Accumulator,
        core: ClientCore,
        new_waiter: Callable[[], asyncio.Future[None]],
        check: Callable[[], None],
        ahead: int,
    ) -> None:
        super().__init__(topic, data, admission, accumulator, core, new_waiter, check, ahead)
        self._source = ArrowSource(data)
        self._metadata = self._core.metadata
        self._clock = self._core.clock
        self._effort = work_clock(monotonic)
        self._sent = SentRows()

    async def _run(self) -> None:
        """Check and take all rows; stops early when one of the batches has failed."""
        if not self._source.lazy:
            await self._examine(self._source.batches)
        for batch in self._source.batches:
            if self._source.lazy:
                await self._examine((batch,))
            await self._take_batch(batch)
            if self.wait.tally.count:
                return

    async def _failure(self) -> RowsNotDelivered | None:
        if not self.wait.tally.count:
            return None
        return await run_sliced(self._sent.failure(self.taken, self.wait.tally))

    # Before anything is sent.

    async def _examine(self, batches: Iterable[pyarrow.RecordBatch]) -> None:
        """Raise RowsRejected if any of the rows can't be sent."""
        highest = await self._look_at(batches)
        if highest >= 0:
            count = await self._partitions(highest)
            if highest >= count:
                await self._look_at(batches, count)

    async def _look_at(
        self, batches: Iterable[pyarrow.RecordBatch], partitions: int = MOST_PARTITIONS
    ) -> int:
        """Check all rows and return the highest partition in them, -1 for none.

        Raises:
            RowsRejected: Some of the rows can't be sent.
        """
        highest, largest = -1, self._admission.max_record
        listed: list[tuple[int, KafkaError]] = []
        count, base = 0, self.taken
        for batch in batches:
            for first, rows in self._source.slices(batch):
                last = 0
                while last < rows.count:
                    start, last = last, rows.piece(last)
                    wrong, reported, high = rows.check(start, last, largest, _REPORTED, partitions)
                    highest = max(highest, high)
                    count += wrong
                    for row, fault in reported[: _REPORTED - len(listed)]:
                        error = self._fault(batch, rows, first, row, fault, partitions)
                        listed.append((base + first + row, error))
                    if self._turn.due():
                        await self._let_others_run()
            base += batch.num_rows
        if count:
            raise self._rejected(count, base - self.taken, listed)
        return highest

    async def _partitions(self, highest: int) -> int:
        """Return the topic's partition count; wait a limited time for it to exceed ``highest``.

        Raises:
            UnknownTopicOrPartition, MetadataTimedOut: No metadata of the topic within
                ``max_block``.
        """
        metadata, topic, limit = self._metadata, self._topic, self._admission.max_block
        until = self._clock.now() + (_FOREVER if limit is None else limit)
        patient = False
        while True:
            version, left = metadata.view.version, until - self._clock.now()
            found = await metadata.wait_for_topic(topic, left, grace=left)
            known = self._accumulator.topics.get(topic)
            count = max(len(found.partitions), 0 if known is None else known.count)
            self._check()
            if highest < count:
                return count
            if not patient:
                patient, until = True, min(until, self._clock.now() + PARTITION_PATIENCE)
            metadata.request_update(topic)
            try:
                await metadata.wait_newer(version, until - self._clock.now())
            except MetadataTimedOut:
                return count

    def _fault(
        self,
        batch: pyarrow.RecordBatch,
        rows: ArrowRows,
        first: int,
        row: int,
        fault: int,
        partitions: int,
    ) -> KafkaError:
        if fault == TOO_LARGE:
            return self._admission.too_large(self._topic, rows.stage(row))
        if fault == BAD_HEADER:
            return SerializationFailed(
                "a header is null, or has no name: names must be texts, only values may be null",
                maybe_written=False,
            )
        if fault == BAD_NAME:
            return SerializationFailed(
                f"the name {(rows.bad_name(row) or b'')[:_NAME_SHOWN]!r} of a header is not UTF-8",
                maybe_written=False,
            )
        name = "partition" if fault == BAD_PARTITION else "timestamp"
        given = self._source.given(batch, name, first + row)
        if fault == BAD_PARTITION and partitions < MOST_PARTITIONS:
            limit = self._admission.max_block
            waited = PARTITION_PATIENCE if limit is None else min(limit, PARTITION_PATIENCE)
            return unknown_partition(self._topic, given, partitions, f"{waited:g} s")
        allowed = (
            "the first partition is 0"
            if name == "partition"
            else "it must not be before 1970, nor later than 2**63 - 2 milliseconds"
        )
        return InvalidArgument(f"{name}={given} is out of range: {allowed}", maybe_written=False)

    def _rejected(
        self, count: int, total: int, listed: Sequence[tuple[int, KafkaError]]
    ) -> RowsRejected:
        shown = "; ".join(f"row {row}: {error}" for row, error in listed[:_SHOWN])
        more = f"; and {count - _SHOWN:,} more" if count > _SHOWN else ""
        none = "none of them" if not self.taken else f"nothing after row {self.taken - 1}"
        return RowsRejected(
            f"{count:,} of {total:,} rows for topic {self._topic} can't be sent, so {none} was: "
            f"{shown}{more}",
            count=count,
            rows=listed,
            taken=self.taken,
        )

    # Sending.

    async def _take_batch(self, batch: pyarrow.RecordBatch) -> None:
        for _, rows in self._source.slices(batch):
            await self._take(rows)
            if self.wait.tally.count:
                return

    async def _take(self, rows: ArrowRows) -> None:
        """Take a slice of rows."""
        admission, budget, timer, sent = (
            self._admission,
            self._accumulator.budget,
            self._turn,
            self._sent,
        )
        targets = sent.begin(self.taken, rows.count)
        base, row, routed, partitions = self.taken, 0, 0, 0
        refusal: KafkaError | None = None
        while row < rows.count:
            known = self._accumulator.topics.get(self._topic)
            if known is None or not known.count:
                routed, refusal = row + 1, None  # admission takes it, to wait for the topic
                targets[row] = rows.partition(row)
            else:
                if row == routed and refusal is not None:
                    try:
                        raise self._at_this_row(refusal)
                    finally:
                        refusal = None  # it refers to this frame
                if row >= routed or partitions != known.count:
                    partitions = known.count
                    routed, refusal = self._route(rows, row, known, targets)
                if admission.none_waiting(self._topic):
                    topic_state, nexts, now = known.topic_state, sent.nexts, self._clock.wall_ms()
                    row = append_rows(
                        rows, row, routed, topic_state, budget, targets, nexts, self.wait, now
                    )
                    self.taken = base + row
            if row < routed:
                await self._put(rows, row, targets[row], targets)
                row += 1
                self.taken = base + row
            if timer.due():
                await self._let_others_run()
            if self.wait.tally.count:
                return

    def _route(
        self, rows: ArrowRows, row: int, known: TopicQueues, targets: array[int]
    ) -> tuple[int, KafkaError | None]:
        """Choose partitions for rows from ``row`` on; return the end, and any error."""
        self._sent.widen(known.count)
        last = rows.piece(row)
        if not self._admission.partitioned:
            return rows.route(targets, row, last, known.count), None
        until = self._effort() + YIELD_INTERVAL
        for each in range(row, last):
            target = rows.partition(each)
            if target < 0:
                try:
                    target = self._admission.choose(known, rows.key(each))
                except KafkaError as error:
                    return each, error
            targets[each] = target
            if self._effort() >= until:
                return each + 1, None
        return last, None

    async def _put(self, rows: ArrowRows, row: int, target: int, targets: array[int]) -> None:
        """Take one row by way of admission, which makes all decisions about it."""
        timestamp, key, value, headers, size = rows.record(row, self._clock.wall_ms())
        encoded_headers = codec.encode_headers(headers) if headers else NO_HEADERS
        content = timestamp, key, value, encoded_headers, size
        try:
            delivery = self._admission.put_plain(
                self._topic, target if target >= 0 else None, content, self._new_waiter
            )
            await watch(delivery, self.wait, self._accumulator)
        except KafkaError as error:
            self._at_this_row(error)
            raise
        outcome = delivery._outcome
        targets[row] = outcome.partition
        self._sent.note(self.taken, outcome, delivery._index)

    def _at_this_row(self, error: KafkaError) -> KafkaError:
        error.add_note(f"at row {self.taken} of send_arrow; the rows before it were taken")
        return error

    async def _let_others_run(self) -> None:
        await self._pace.yield_to_loop()
        self._check()

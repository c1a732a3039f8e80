"""Poller: waits for data and returns it, for ``poll``, ``async for`` and ``poll_arrow``.

Records are returned in one synchronous step (``fetch_buffer.take``, then maybe the deserializers),
so cancelling a poll loses nothing: as long as it waits it has taken nothing. Nothing here costs a
task, a timer or a yield to the loop per record; but it yields to the loop every ``TURN`` seconds
even where data never runs out.

``async for`` iterates over the records in ``processed_offsets.iterator_buffer``, so that ``poll``,
``seek`` and the others can take back what was not returned yet. How long the loop was held is read
from ``time.monotonic``, once per record: that is a matter of real time, and costs half as much as
the client's clock.

``consumer.columns`` has those of ``poll_arrow``.
"""

from __future__ import annotations

import asyncio
import contextlib
from time import monotonic
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

from kclient.clock import work_clock
from kclient.consumer.columns import Columns
from kclient.consumer.offset_reset import NoPositionCheck
from kclient.consumer.processed_offsets import RecordIterator
from kclient.consumer.stall_detection import StallDetector
from kclient.errors import (
    CodecUnavailable,
    CorruptRecord,
    DeserializationFailed,
    InvalidArgument,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow

    from kclient.cluster.core import ClientCore
    from kclient.config import ConsumerConfig
    from kclient.consumer.completed_fetch import CompletedFetch
    from kclient.consumer.deserialization_errors import DeserializationErrorHandler
    from kclient.consumer.fetcher import Fetcher
    from kclient.consumer.group_consumer import GroupConsumer
    from kclient.consumer.partition_state import PartitionState
    from kclient.consumer.processed_offsets import IteratorBuffer, PolledRecords
    from kclient.consumer.records import Convert
    from kclient.consumer.subscription import Subscription

TURN = 0.005
"""Seconds after which it yields to the loop."""
BLOCKED, TURNS_AFTER = 0.05, 6
"""Seconds without a yield after which it yields so many times."""
SMALLEST_SLICE, LARGEST_SLICE = 8, 1024
"""Records that are decoded between two checks of the clock."""
INFLATING = 4
"""Batches that are inflated in threads at the same time."""


class Poller:
    """The reading side of one consumer. Has no tasks; threads inflate large batches.

    Args:
        core: The client's core.
        config: Of the consumer.
        subscription: Has the positions.
        fetcher: Has the fetched data, and notifies of something to take or to raise.
        polled_records: Records each call, and what it returns.
        convert: Converts a record for the application; None returns records as they are.
        bad_records: Handles records that can't be converted.
        group: Is notified of each call, and raises what else is pending for the application.

    Attributes:
        convert: The same.
        iterator_buffer: That of ``processed_offsets``.
        stall_detector: Raises where a partition has had no response for long.
    """

    def __init__(
        self,
        core: ClientCore,
        config: ConsumerConfig,
        subscription: Subscription,
        fetcher: Fetcher,
        polled_records: PolledRecords,
        convert: Convert | None,
        bad_records: DeserializationErrorHandler,
        group: GroupConsumer | None,
    ) -> None:
        self._core = core
        self._cap = config.decompression_cap
        self._iteration_limit = config.max_poll_records
        self._subscription = subscription
        self._buffer = fetcher.buffer
        self._plan = fetcher.plan
        self._news = fetcher.news
        self._polled_records = polled_records
        self._bad_records = bad_records
        self._group = group
        self._no_position_check = NoPositionCheck(subscription, config.api_timeout)
        self._turn_at = 0.0
        self._slice = SMALLEST_SLICE
        self._expected = (0, 0, 0)  # of the next record batch, by those before
        self._reserved = False
        self._inflating: dict[CompletedFetch, asyncio.Future[None]] = {}
        self.convert: Convert | None = convert
        self.iterator_buffer: IteratorBuffer = polled_records.iterator_buffer
        self.stall_detector = StallDetector(config.fetch_max_wait + config.request_timeout)

    async def poll(self, limit: int, timeout: float, *, raw: bool = False) -> list[Any]:
        """Return at most ``limit`` records as soon as there is one; [] after ``timeout`` seconds.

        ``raw``: as they are stored.
        """
        started = self._core.clock.now()
        if started >= self._turn_at:
            # Also where the application never suspends but here, all other tasks must get on.
            await self._take_turns()
        try:
            self._begin(started)
            while True:
                records = self._take(limit, None if raw else self.convert)
                if records:
                    self._polled_records.give()
                    return records
                in_time = True
                if self._bad_records.waiting is not None:
                    await self._bad_records.settle()
                else:
                    in_time = await self._wait(started + timeout)
                self._polled_records.go_on()
                self._check()
                if not in_time:
                    return []
        finally:
            self._polled_records.end()

    async def next_record(self) -> Any:
        """Return the next record as soon as there is one.

        ``iterator_buffer`` then has those that follow it.
        """
        self.check_free()
        try:
            self._begin(self._core.clock.now())
            while True:
                records = self._take_slice(self._iteration_limit)
                if records:
                    self._core.counters.add("consumer.records", len(records))
                    self._polled_records.take(records)
                    if self._group is not None:
                        self._group.taken()
                    for record in self.iterator_buffer.left:
                        found = self.converted(record)
                        if found is not None:
                            self._polled_records.give()
                            return found
                if self._bad_records.waiting is not None:
                    await self._bad_records.settle()
                elif records:
                    await asyncio.sleep(0)  # all were skipped: other tasks must get on, too
                else:
                    await self._wait(float("inf"))
                self._polled_records.go_on()
                self._check()
        finally:
            self._polled_records.end()

    def check_free(self) -> None:
        """Refuse to take records away from the handlers of ``run``."""
        if self._reserved:
            raise InvalidArgument(
                "records can't be polled while run() is under way, whose handlers get them",
                hint="end the run first, by cancelling its task",
            )

    @contextlib.contextmanager
    def reserve(self) -> Iterator[None]:
        """While it is open, records are for the handlers of ``run`` only."""
        if self._polled_records.active_polls:
            raise InvalidArgument(
                "run() can't begin while another task polls",
                hint="cancel that task first, and await its end",
            )
        self._reserved = True
        try:
            yield
        finally:
            self._reserved = False

    async def others(self) -> None:
        """Yield to the loop, in the midst of an ``async for``."""
        if self._polled_records.poll_wanted:
            # The following records are taken again, by ``next_record``.
            self._polled_records.settle()
        if self._group is not None:
            self._group.rebalancer.check_session()
        await self._take_turns()

    def _begin(self, now: float) -> None:
        """Begin a call of the application: all records returned before are finished."""
        self._polled_records.begin(now)
        if self._group is not None:
            self._group.on_poll()
        if now >= self.stall_detector.next_look:
            self._look(now)
        self._check()

    def _look(self, now: float) -> None:
        """Raise where a partition has had no response for long."""
        buffer = self._buffer
        # Over the memory limit nothing is fetched, as long as there is something to take.
        full = not buffer.has_space and (buffer.has_turns or bool(buffer.blocked))
        throttled = self._core.network.throttled()
        queues = self._plan.queues
        self.stall_detector.check(self._subscription, queues, now, full=full, throttled=throttled)

    def converted(self, record: Any) -> Any:
        """Convert ``record`` of ``iterator_buffer``; where that fails it is given back.

        None where it is skipped, or has to be sent to a topic first.
        """
        if self.convert is None:
            return record
        try:
            return self.convert(record)
        except DeserializationFailed as error:
            if self._bad_records.passes(record, error, self._core):
                return None
            self._polled_records.give_back([record, *self.iterator_buffer.left])
            if self._bad_records.waiting is None:
                raise
            return None

    async def poll_arrow(
        self, timeout: float, names: tuple[str, ...], ends: dict[PartitionState, int] | None
    ) -> pyarrow.RecordBatch:
        """Return whole batches as columns; an empty one after ``timeout`` seconds.

        Also where all partitions have reached their ``ends``, if each has one.
        """
        columns = Columns(self._expected, names, ends)
        limited = ends is not None and all(state in ends for state in self._subscription)
        self._expected = (0, 0, 0)  # without memory for so much, the next poll shall succeed
        started = self._core.clock.now()
        if started >= self._turn_at:
            await self._take_turns()
        try:
            self._begin(started)
            while True:
                try:
                    self._fill(columns)
                except MemoryError:
                    if not columns.builder.num_rows:
                        raise  # else positions have moved
                if ends is not None and self._end(ends) and limited:
                    break
                if self._buffer.blocked:
                    self._inflate_blocked()
                if columns.builder.num_rows:
                    break
                in_time = await self._wait(started + timeout)
                self._polled_records.go_on()
                self._check()
                if not in_time:
                    break
        finally:
            self._polled_records.end()
        rows = columns.builder.num_rows
        if rows:
            self._polled_records.give()
        else:
            self._polled_records.go_on()
        try:
            made = columns.to_record_batch()
        except MemoryError:
            self._buffer.return_to(columns.begun)
            raise
        self._core.counters.add("consumer.records", rows)
        self._expected = columns.builder.expected
        return made

    def _end(self, ends: dict[PartitionState, int]) -> bool:
        """Pause the partitions that have reached their ends, and return whether all have.

        What was fetched behind an end is fetched again where reading goes on.
        """
        for state, end in list(ends.items()):
            if state.position is not None and state.position >= end and state.assigned:
                self._buffer.return_to({state: state.position})
                self._subscription.pause(state)
            elif state.assigned:
                continue
            del ends[state]
        return not ends

    def _fill(self, columns: Columns) -> None:
        """Add what is there, for about ``TURN`` seconds."""
        stop = self._core.clock.now() + TURN
        while self._buffer.take_batch(columns.add) and not columns.is_full:
            if self._core.clock.now() >= stop:
                break

    @property
    def closed(self) -> bool:
        """The consumer is closed, or about to be."""
        return self._core.closed

    async def close(self) -> None:
        """Wait for the threads, which read memory that is about to be released.

        Cancellation: they go on, and release the memory when they are done.
        """
        self._polled_records.drop()
        if self._inflating:
            await asyncio.wait(self._inflating.values())

    # Taking

    def _take(self, limit: int, convert: Convert | None) -> list[Any]:
        """Take what is there, up to ``limit`` and to about ``TURN`` seconds of work."""
        stop = self._core.clock.now() + TURN
        records = self._take_slice(limit)
        while records and len(records) < limit and self._buffer.has_turns:
            if self._core.clock.now() >= stop:
                break
            more = self._take_slice(limit - len(records))
            if not more:
                break
            records += more
        if records:
            self._core.counters.add("consumer.records", len(records))
            if convert is not None:
                return self._deserialize(records, convert)
        return records

    def _take_slice(self, limit: int) -> list[Any]:
        """Take one step of decoding, of as many records as take a fraction of ``TURN``.

        Their number depends on their size, so it is adapted by trying.
        """
        now = self._core.clock.now
        started, count = now(), min(limit, self._slice)
        records = self._buffer.take(count)
        took = now() - started
        if took > TURN / 2:
            self._slice = max(self._slice // 4, SMALLEST_SLICE)
        elif took < TURN / 10 and count == self._slice:
            self._slice = min(self._slice * 2, LARGEST_SLICE)
        if self._buffer.blocked:
            self._inflate_blocked()
        return records

    def _deserialize(self, records: Sequence[Any], convert: Convert) -> list[Any]:
        """Convert ``records``; the rest goes back, for want of time or after an error."""
        now = self._core.clock.now
        stop = now() + TURN
        converted: list[Any] = []
        error: DeserializationFailed | None = None
        done = 0
        for record in records:
            try:
                converted.append(convert(record))
            except DeserializationFailed as failed:
                if not self._bad_records.passes(record, failed, self._core):
                    error = failed
                    break
            done += 1
            if now() >= stop:
                break
        if done < len(records):
            self._polled_records.give_back(records[done:])
        if error is not None and not converted and self._bad_records.waiting is None:
            raise error
        return converted

    # Waiting

    def _check(self) -> None:
        """Raise what is pending for the application."""
        self._core.check_usable()
        if self._group is not None:
            self._group.check()
        error = self._subscription.take_error()
        if error is not None:
            raise error
        check = self._no_position_check
        if check.reported or not self._subscription.settled or not len(self._subscription):
            check.check(self._core.clock.now())

    async def _take_turns(self) -> None:
        """Yield to the loop. A cancelled yield still counts, and the next one is later.

        Several times where it may not have run for long: a heartbeat takes some iterations, from
        its timer to the response, and an application that blocks the loop again and again must not
        starve it.
        """
        blocked = self._core.clock.now() - self._turn_at > BLOCKED
        try:
            for _ in range(TURNS_AFTER if blocked else 1):
                await asyncio.sleep(0)
        finally:
            self._turn_at = self._core.clock.now() + TURN

    async def _wait(self, deadline: float) -> bool:
        """Wait until there may be something to take; False once ``deadline`` has passed.

        Either way what was passed over before is finished, and an error may have come: the caller
        calls ``go_on`` and ``_check``.
        """
        buffer, clock = self._buffer, self._core.clock
        now = clock.now()
        if now >= self.stall_detector.next_look:
            self._look(now)
        if self._subscription.has_error:
            return True
        try:
            if buffer.has_turns or now >= deadline:
                await asyncio.sleep(0)
            else:
                await self._news.wait(deadline - now)
        finally:
            woken = clock.now()
            self._polled_records.last_poll_at = woken
        self._turn_at = woken + TURN
        return buffer.has_turns or woken < deadline

    # Inflating

    def _inflate_blocked(self) -> None:
        """Have blocked batches inflated at once, so that their partitions don't fall behind."""
        for data in self._buffer.blocked:
            if len(self._inflating) >= INFLATING or not self._buffer.may_inflate:
                break
            if data not in self._inflating:
                self._inflate(data)

    def _inflate(self, data: CompletedFetch) -> None:
        """Decompress the current batch in a thread; notifies ``news`` when done."""
        batch = data.blocked
        if batch is None:
            return
        lease = data.hold_frame()
        loop = asyncio.get_running_loop()
        job = loop.run_in_executor(None, batch.inflate, self._cap)
        self._inflating[data] = job

        def inflated(job: asyncio.Future[None]) -> None:
            self._inflating.pop(data, None)
            if lease is not None:
                lease.drop()
            error = None if job.cancelled() else job.exception()
            if isinstance(error, (CorruptRecord, CodecUnavailable)):
                data.refuse(batch, error)
            elif error is not None:
                data.refuse(batch, CorruptRecord(f"inflating failed: {error!r}"))
            self._buffer.unblock(data)
            self._news.notify()

        job.add_done_callback(inflated)


def records_of(poller: Poller, *, converts: bool) -> RecordIterator:
    """A new iterator; ``converts``: the consumer has deserializers."""
    clock = work_clock(monotonic)
    real = isinstance(clock, BuiltinFunctionType)  # no other clock was put in its place
    return RecordIterator(poller, converts=converts, clock=clock, real=real, turn=TURN)

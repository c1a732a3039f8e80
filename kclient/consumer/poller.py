"""Poller: waits for data and hands it over, for ``poll``, ``async for`` and ``poll_arrow``.

The hand-over itself is one synchronous step (``fetch_buffer.take``, then maybe the deserializers),
so cancelling a poll loses nothing: as long as it waits it has taken nothing. Nothing here costs a
task, a timer or a trip through the loop per record; but the loop gets a turn every ``TURN`` seconds
even where data never runs out.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kclient.consumer.iteration import Handout
from kclient.errors import CorruptRecord, DeserializationFailed, NoPosition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow

    from kclient.cluster.core import ClientCore
    from kclient.config import ConsumerConfig
    from kclient.consumer.arrow import Columns
    from kclient.consumer.fetch_buffer import FetchBuffer
    from kclient.consumer.fetched_data import FetchedData, FrameLease
    from kclient.consumer.records import Convert
    from kclient.consumer.subscription import Subscription
    from kclient.consumer.wakeups import Bell
    from kclient.record import Batch

TURN = 0.005
"""Seconds after which the loop gets a turn."""
SMALLEST_SLICE, LARGEST_SLICE = 8, 1024
"""Records that are decoded between two looks at the clock."""
INFLATING = 4
"""Batches that are inflated in threads at the same time."""
SHOWN = 3
"""Partitions that an error names; the others are counted."""


class Poller:
    """The reading side of one consumer. Has no tasks; threads inflate large batches.

    Args:
        news: Rings when there may be something to take or to raise.
        convert: Makes of a record what the user gets; None gives records as they are.

    Attributes:
        handout: Records that an ``async for`` has taken and not handed over yet.
    """

    def __init__(
        self,
        core: ClientCore,
        config: ConsumerConfig,
        subscription: Subscription,
        buffer: FetchBuffer,
        news: Bell,
        convert: Convert | None,
    ) -> None:
        self._core = core
        self._cap = config.decompression_cap
        self._iteration_limit = config.max_poll_records
        self._subscription = subscription
        self._buffer = buffer
        self._news = news
        self._convert = convert
        self._turn_at = 0.0
        self._slice = SMALLEST_SLICE
        self._expected = (0, 0, 0)  # of the next record batch, by those before
        self.handout = Handout()
        self._inflating: dict[FetchedData, asyncio.Future[None]] = {}

    async def poll(self, limit: int, timeout: float) -> list[Any]:
        """At most ``limit`` records as soon as there is one; [] after ``timeout`` seconds."""
        now = self._core.clock.now
        started = now()
        if started >= self._turn_at:
            # Also where the user's loop never suspends but here, all others must get on.
            await self._take_turns()
        while True:
            self._check()
            self.settle()
            records = self._take(limit)
            if records:
                return records
            if not await self._wait(started + timeout):
                return []

    async def next_record(self) -> Any:
        """The next record as soon as there is one; ``handout`` then has those that follow it."""
        while True:
            self._check()
            self.settle()
            records = self._take_slice(self._iteration_limit)
            if records:
                self._core.counters.add("consumer.records", len(records))
                self.handout.left = left = iter(records)
                return self.converted(next(left))
            await self._wait(float("inf"))

    async def others(self) -> None:
        """Give the loop a turn."""
        await asyncio.sleep(0)

    def converted(self, record: Any) -> Any:
        """``record`` of ``handout`` as the user gets it; where that fails it is given back."""
        if self._convert is None:
            return record
        try:
            return self._convert(record)
        except DeserializationFailed:
            self._return([record, *self.handout.left])
            raise

    async def poll_arrow(self, timeout: float) -> pyarrow.RecordBatch:
        """Whole batches as columns; an empty one after ``timeout`` seconds."""
        from kclient.consumer.arrow import Columns

        columns = Columns(self._expected)
        self._expected = (0, 0, 0)  # if there is no memory for it, the next poll shall go on
        now = self._core.clock.now
        started = now()
        if started >= self._turn_at:
            await self._take_turns()
        while True:
            self._check()
            self.settle()
            try:
                self._fill(columns)
            except MemoryError:
                if not columns.row_count:
                    raise  # else positions have moved
            if self._buffer.blocked:
                self._inflate_blocked()
            if columns.row_count or not await self._wait(started + timeout):
                break
        rows = columns.row_count
        try:
            made = columns.to_record_batch()
        except MemoryError:
            self._buffer.return_to(columns.begun)
            raise
        self._core.counters.add("consumer.records", rows)
        self._expected = columns.expected
        return made

    def _fill(self, columns: Columns) -> None:
        """Add what can be had at once, for about ``TURN`` seconds."""
        stop = self._core.clock.now() + TURN
        while self._buffer.take_batch(columns.add) and not columns.is_full:
            if self._core.clock.now() >= stop:
                break

    def settle(self) -> None:
        """Give back what an ``async for`` has taken and not handed over yet."""
        left = list(self.handout.left)
        if left:
            self._buffer.give_back(left)
            self._core.counters.add("consumer.records", -len(left))

    async def close(self) -> None:
        """Wait for the threads, which read memory that is about to be released.

        Cancellation: they go on, and let go of the memory when they are done.
        """
        self.handout.left = iter(())
        if self._inflating:
            await asyncio.wait(self._inflating.values())

    # Taking

    def _take(self, limit: int) -> list[Any]:
        """What can be had at once, up to ``limit`` and to about ``TURN`` seconds of work."""
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
            if self._convert is not None:
                return self._deserialize(records, self._convert)
        return records

    def _take_slice(self, limit: int) -> list[Any]:
        """One step of decoding, of as many records as take a fraction of ``TURN``.

        How many those are depends on their size, so it is found out by trying.
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
        """Convert ``records``; what isn't converted, for want of time or by an error, goes back."""
        now = self._core.clock.now
        stop = now() + TURN
        converted: list[Any] = []
        error: DeserializationFailed | None = None
        for record in records:
            try:
                converted.append(convert(record))
            except DeserializationFailed as failed:
                error = failed
                break
            if now() >= stop:
                break
        self._return(records[len(converted) :])
        if error is not None and not converted:
            raise error
        return converted

    def _return(self, records: Sequence[Any]) -> None:
        if records:
            self._buffer.give_back(records)
            self._core.counters.add("consumer.records", -len(records))

    # Waiting

    def _check(self) -> None:
        """Raise what the user has to know."""
        self._core.check_usable()
        subscription = self._subscription
        error = subscription.take_error()
        if error is not None:
            raise error
        if not subscription.settled:
            missing = subscription.without_position()
            if missing:
                raise _no_position(missing)
        elif not len(subscription) and not subscription.topics:
            raise NoPosition(
                "there is nothing to read: no partition is assigned",
                hint="call assign(), or name topics when making the consumer",
            )

    async def _take_turns(self) -> None:
        """Give the loop its turn. Where that is cancelled it had it, and the next one is later."""
        try:
            await self.others()
        finally:
            self._turn_at = self._core.clock.now() + TURN

    async def _wait(self, deadline: float) -> bool:
        """Wait until another look is worth it; False where ``deadline`` is here."""
        buffer, clock = self._buffer, self._core.clock
        now = clock.now()
        if self._subscription.has_error:
            return True
        if buffer.has_turns or now >= deadline:
            await asyncio.sleep(0)
        else:
            await self._news.wait(deadline - now)
        self._turn_at = clock.now() + TURN
        return buffer.has_turns or now < deadline

    # Inflating

    def _inflate_blocked(self) -> None:
        """Have what is blocked inflated at once, so that it gets its turn beside the others."""
        for data in self._buffer.blocked:
            if len(self._inflating) >= INFLATING or not self._buffer.may_inflate:
                break
            if data not in self._inflating:
                self._inflate(data)

    def _inflate(self, data: FetchedData) -> None:
        """Decompress the batch at hand in a thread; rings ``news`` when done."""
        batch = data.blocked
        if batch is None:
            return
        lease = data.hold_frame()
        loop = asyncio.get_running_loop()
        job = loop.run_in_executor(None, batch.inflate, self._cap)
        self._inflating[data] = job
        job.add_done_callback(self._when_inflated(data, batch, lease))

    def _when_inflated(
        self, data: FetchedData, batch: Batch, lease: FrameLease | None
    ) -> Callable[[asyncio.Future[None]], None]:
        def inflated(job: asyncio.Future[None]) -> None:
            self._inflating.pop(data, None)
            if lease is not None:
                lease.drop()
            error = None if job.cancelled() else job.exception()
            if isinstance(error, CorruptRecord):
                data.refuse(batch, error)
            elif error is not None:
                data.refuse(batch, CorruptRecord(f"inflating failed: {error!r}"))
            self._buffer.unblock(data)
            self._news.ring()

        return inflated


def _no_position(missing: Sequence[Any]) -> NoPosition:
    named = ", ".join(map(str, missing[:SHOWN]))
    more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    return NoPosition(
        f"nobody said where to start reading {named}{more}",
        topic_partition=missing[0],
        hint="call seek(), seek_to_beginning() or seek_to_end(), or set auto_offset_reset",
    )

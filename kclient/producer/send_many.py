"""``send_many``: many records with one await per few batches, and when a writing loop yields.

One ``SendMany`` per call, created by the producer like the other ``BulkSend``, ``ArrowSend``.
Records are appended without a suspension as long as they fit: by the fast path in runs, by
admission where they aren't plain. Every batch that takes one of them is watched, and at the end the
acknowledgements of all are awaited.

The call yields to the event loop whenever a few batches were sealed, so that the sender can send
them, and after a few milliseconds if records fill no batch for that long; so does a loop of
``enqueue``. A call that waits for all its records in the end need not be far ahead of the sender
either: ``Backpressure`` limits that. All of it must cost next to nothing per record.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Iterable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from kclient.clock import work_clock
from kclient.errors import InvalidArgument, KafkaError, SerializationFailed, a_or_an, fresh
from kclient.producer._compiled import DUE, END, YieldTimer
from kclient.producer.flush import FlushWait
from kclient.producer.outgoing import Outgoing
from kclient.producer.waiting_records import WaitingRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient.cluster.core import ClientCore
    from kclient.errors import FlushFailed
    from kclient.producer._compiled import Delivery, MemoryBudget
    from kclient.producer.accumulator import Accumulator
    from kclient.producer.admission import Admission
    from kclient.producer.flush import Flusher
    from kclient.producer.record_source import RecordSource

_TEXTS = (str, bytes, bytearray, memoryview)
YIELD_INTERVAL = 0.005
"""Seconds after which a call yields to the loop, the caller's work between two records included."""
BACKPRESSURE_TIMEOUT = 0.05
"""Seconds that a call waits for the sender before its limit of unsent bytes is doubled."""


class BulkSend:
    """One call that sends many records and waits for all of them.

    Args:
        topic: Topic to write to.
        data: The records.
        admission: Admits records.
        accumulator: Has their batches.
        core: The producer's core.
        new_waiter: Creates a future for a record that waits for memory.
        check: Raises if the producer can't be used.
        ahead: Bytes that it may have unsent before it waits for the sender.

    Attributes:
        taken: Records taken so far.
        wait: The wait for their batches, with the outcomes.
    """

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
        self.taken = 0
        self.wait = FlushWait(urgent=False)
        self._topic = topic
        self._data = data
        self._admission = admission
        self._accumulator = accumulator
        self._core = core
        self._new_waiter = new_waiter
        self._check = check
        self._turn = new_yield_timer(accumulator.budget)
        self._pace = Backpressure(self._turn, self.wait, ahead)

    async def deliver(self, ending: Flusher) -> int:
        """Take all records, wait until they are settled, and return how many were written."""
        try:
            await self._run()
            await ending.until_settled(self.wait)
            failure = await self._failure()
        except BaseException:
            ending.abandon(self.wait)
            raise
        if failure is not None:
            raise failure
        return self.taken

    async def _run(self) -> None:
        """Take all records; stops early when one of the batches has failed."""
        raise NotImplementedError

    async def _failure(self) -> FlushFailed | None:
        """Return the error to raise once all taken records are settled; None without a failure."""
        return self.wait.tally.failure()


class SendMany(BulkSend):
    """One call of ``send_many``."""

    async def _run(self) -> None:
        records: Iterable[Any] | AsyncIterable[Any] = self._data
        _refuse_one_record(records)
        if isinstance(records, AsyncIterable):
            feed = self._admission.appender.feed(iter(()))
            async for item in records:
                feed.hold(item)
                await self._take_all(feed)
                if self.wait.tally.count:
                    return
        elif isinstance(records, Iterable):
            await self._take_all(self._admission.appender.feed(iter(records)))
        else:
            raise InvalidArgument(
                f"records must be an iterable or async iterable, not "
                f"{a_or_an(type(records).__name__)}"
            )

    async def _take_all(self, feed: RecordSource) -> None:
        """Take all records of ``feed``; stops early when one of the batches has failed."""
        try:
            await self._drain(feed)
        except BaseException as error:
            self._report_rest(error, feed)
            raise

    async def _drain(self, feed: RecordSource) -> None:
        take, topic, timer, wait = (
            self._admission.appender.take_many,
            self._topic,
            self._turn,
            self.wait,
        )
        while True:
            taken, item = take(topic, feed, timer, wait)
            self.taken += taken
            if item is END:
                return
            if item is not DUE:
                try:
                    await watch(self._put(item), wait, self._accumulator)
                except KafkaError as error:
                    self._explain(error, item, feed)
                    raise
                self.taken += 1
            if feed.at < feed.count:
                self._check()  # pulled records are taken even if a batch has failed meanwhile
            elif feed.error is None and (item is DUE or timer.due()):
                # Acknowledgements and linger need the loop as well.
                await self._pace.yield_to_loop()
                self._check()
                if wait.tally.count:
                    return

    def _put(self, item: Any) -> Delivery:
        put, topic = self._admission.put, self._topic
        kind = item.__class__
        if kind is Outgoing:
            return put(
                topic,
                item.value,
                item.key,
                item.headers,
                item.partition,
                item.timestamp,
                self._new_waiter,
            )
        if kind is tuple:
            if len(item) != 2:
                raise InvalidArgument(
                    f"a tuple in records must be (key, value), this one has {len(item)} items: "
                    "use kclient.Outgoing for more"
                )
            return put(topic, item[1], item[0], None, None, None, self._new_waiter)
        return put(topic, item, None, None, None, None, self._new_waiter)

    def _explain(self, error: KafkaError, item: object, feed: RecordSource) -> None:
        """Add to ``error`` which record caused it, and how many of ``feed`` are lost with it."""
        kind = type(item)
        if isinstance(error, SerializationFailed) and isinstance(item, tuple):
            if kind is not tuple and kind is not Outgoing:
                error.hint = (
                    f"this {kind.__name__} was taken as a value: a record with a key is a plain "
                    "tuple or a kclient.Outgoing"
                )
        behind = feed.count - feed.at
        feed.at = feed.count
        lost = f", the next {behind} were pulled and not taken" if behind else ""
        error.add_note(
            f"at record {self.taken}, counted from 0; the {self.taken:,} before it were taken{lost}"
        )

    def _report_rest(self, error: BaseException, feed: RecordSource) -> None:
        """Add to ``error``, which ends the call, what is lost or was raised behind it."""
        behind, raised = feed.count - feed.at, feed.error
        if behind:
            error.add_note(f"the next {behind} records were pulled and not taken")
        if raised is not None:
            if not isinstance(raised, Exception):
                raise raised from error  # such as SystemExit
            error.add_note(f"behind what was pulled, records raised {raised!r}")


def _refuse_one_record(records: object) -> None:
    """Reject an iterable that is meant as one record: its items would be sent as values.

    A tuple that begins with a key or value may be a (key, value) pair, whatever its length.
    """
    shown = None
    if isinstance(records, (Outgoing, Mapping, *_TEXTS)):
        shown = a_or_an(type(records).__name__)
    elif isinstance(records, tuple) and records and isinstance(records[0], (type(None), *_TEXTS)):
        first = records[0]
        kind = "None" if first is None else a_or_an(type(first).__name__)
        shown = f"a tuple that begins with {kind}"
    if shown is not None:
        raise InvalidArgument(
            f"records must be an iterable or async iterable of records, not {shown}",
            hint='put even a single record into a list: [b"value"], or [Outgoing(...)]',
        )


async def watch(delivery: Delivery, wait: FlushWait, accumulator: Accumulator) -> None:
    """Have ``wait`` notified by the record's batch, once it is in one.

    Raises:
        KafkaError: The record failed before that.

    Cancellation: as in ``until_appended``.
    """
    outcome = delivery._outcome
    if isinstance(outcome, WaitingRecord):
        outcome.watch(wait)  # moves to the batch that takes the record
        await until_appended(outcome, delivery)
        outcome = delivery._outcome
    batch = accumulator.batch_of(outcome)
    if batch is not None and batch.watcher is not wait:
        batch.watch(wait)
        batch.watcher = wait


async def until_appended(record: WaitingRecord, delivery: Delivery) -> None:
    """Wait until ``record``, whose handle is ``delivery``, is in a batch.

    Raises:
        KafkaError: The record failed before that.

    Cancellation: the record is removed, unless it got into a batch at the same instant.
    """
    waiter = record.waiter
    if waiter is not None:
        try:
            await waiter
        except asyncio.CancelledError:
            delivery.cancel()
            raise
    if record.error is not None:
        raise fresh(record.error)


def new_yield_timer(budget: MemoryBudget) -> YieldTimer:
    """Return a timer for the yields of one writing loop. Must be called on the event loop."""
    return YieldTimer(budget, work_clock(monotonic), YIELD_INTERVAL)


async def yield_to_loop(turn: YieldTimer) -> None:
    """Yield to the event loop once.

    Cancellation: leaves nothing behind.
    """
    turn.note()
    await asyncio.sleep(0)
    turn.begin()


class Backpressure:
    """The yields of one call, which waits for the sender when it is far ahead of it.

    More unsent bytes would only mean more memory that is touched for the first time, which was a
    third of the cost of a record. But the wait is short: when the sender makes no progress, since
    for example all records are for an unreachable leader, the call continues until memory is full.

    Args:
        turn: Timer of the call's yields.
        wait: Counts the call's unsent bytes.
        ahead: Bytes that it may have unsent.
    """

    def __init__(self, turn: YieldTimer, wait: FlushWait, ahead: int) -> None:
        self._turn = turn
        self._wait = wait
        self._least = self._ahead = ahead

    async def yield_to_loop(self) -> None:
        """Yield to the loop; with too much unsent, until it is half as much, or until a timeout.

        Cancellation: leaves nothing behind.
        """
        unsent = self._wait.unsent
        if unsent <= self._least // 2:
            self._ahead = self._least
        if unsent <= self._ahead:
            await yield_to_loop(self._turn)
            return
        self._turn.note()
        if not await self._few_unsent(self._ahead // 2):
            self._ahead *= 2
        self._turn.begin()

    async def _few_unsent(self, few: int) -> bool:
        """Wait until at most ``few`` bytes are unsent; return False after a timeout."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[bool] = loop.create_future()

        def end(in_time: bool) -> None:
            if not over.done():
                over.set_result(in_time)

        self._wait.when_few_unsent(few, lambda: end(True))
        timer = loop.call_later(BACKPRESSURE_TIMEOUT, end, False)
        try:
            return await over
        finally:
            timer.cancel()

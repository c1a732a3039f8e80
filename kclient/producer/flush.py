"""``flush`` and ``close``: wait until sent records are settled, or fail them.

``Flusher`` does both. It registers one ``FlushWait`` with every batch and waiting record that
exists at the call; each of them reports when it is settled. A flush raises for failures among
those, and for earlier ones that were never awaited, which ``UnseenFailures`` counts. No rules about
batches here, and no task.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Generator
from typing import TYPE_CHECKING

from kclient.cluster.wakeups import run_sliced
from kclient.errors import ClientClosed, FlushFailed
from kclient.producer._compiled import SettledHost, callback_iterations

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient.clock import Clock
    from kclient.cluster.supervision import Closing
    from kclient.errors import FlushFailed, KafkaError
    from kclient.hooks import ClientLog, Counters
    from kclient.producer._compiled import BatchOutcome
    from kclient.producer.accumulator import Accumulator
    from kclient.producer.admission import Admission
    from kclient.producer.produce_response import ProduceResponseHandler

ERRORS_KEPT = 10
logger = logging.getLogger("kclient.producer")
LOG_EVERY = 10.0
"""Seconds between two log lines about one topic: an outage fails thousands of batches at once."""


class FailureTally:
    """A count of failed records with the first few errors."""

    def __init__(self) -> None:
        self.count = 0
        self.errors: list[KafkaError] = []

    def add(self, count: int, error: KafkaError) -> None:
        """Count ``count`` more records that failed with ``error``."""
        self.count += count
        if len(self.errors) < ERRORS_KEPT:
            self.errors.append(error)

    def merge(self, other: FailureTally) -> None:
        """Add the failures of ``other``."""
        self.count += other.count
        self.errors.extend(other.errors[: ERRORS_KEPT - len(self.errors)])

    def failure(self) -> FlushFailed | None:
        """Return an error with all of them; None if nothing failed."""
        if not self.count:
            return None
        records = "1 record was" if self.count == 1 else f"{self.count:,} records were"
        first = f"; first: {self.errors[0]}" if self.errors else ""
        failure = FlushFailed(
            f"{records} not delivered{first}", count=self.count, errors=self.errors
        )
        failure.__cause__ = self.errors[0] if self.errors else None
        return failure


class FlushWait:
    """Waits for a number of batches and waiting records.

    Attributes:
        pending: How many are not settled yet.
        unsent: Bytes of those that are sealed and were in no request yet.
        delivered: Records that were acknowledged.
        tally: What failed.
        listening: A caller will get the failures; False once the wait was cancelled.
        urgent: Batches that it waits for must not linger.
        notify: Called whenever one of them is settled.
    """

    def __init__(self, *, urgent: bool) -> None:
        self.urgent = urgent
        self.pending = 0
        self.unsent = 0
        self.delivered = 0
        self.tally = FailureTally()
        self.listening = True
        self.notify: Callable[[], None] | None = None
        self._few = 0
        self._when_few: Callable[[], None] | None = None

    def when_few_unsent(self, few: int, notify: Callable[[], None]) -> None:
        """Call ``notify`` once, when ``unsent`` has fallen to ``few`` or less."""
        self._few = few
        self._when_few = notify

    def left(self, size: int) -> None:
        """Note that a batch of ``size`` bytes is in its first request, or will never be in one."""
        self.unsent -= size
        if self._when_few is not None and self.unsent <= self._few:
            notify, self._when_few = self._when_few, None
            notify()

    def settled(self, delivered: int) -> None:
        """Note that one batch or record is settled, with ``delivered`` records written."""
        self.pending -= 1
        self.delivered += delivered
        if self.notify is not None:
            self.notify()

    def failed(self, count: int, error: KafkaError, delivered: int = 0) -> None:
        """Note that one batch or record has failed, with ``count`` records."""
        self.tally.add(count, error)
        self.settled(delivered)


class UnseenFailures:
    """Failures that were never awaited: counted, logged at intervals, raised by the next flush.

    The host of all deliveries of one producer: a failed batch reports here when the last handle to
    it is freed without having been awaited.

    Args:
        counters: Of the client.
        transactional: Failures are only counted: the commit of their transaction raises them.

    Attributes:
        loop: The producer's loop, set by ``begin``.
        of_written: The host of batches that were written.
        log: Logger for them; the producer replaces it by its own.
        tally: Unseen failures since the last ``take``.
    """

    def __init__(self, counters: Counters, *, transactional: bool = False) -> None:
        self._transactional = transactional
        self.loop: asyncio.AbstractEventLoop
        self.of_written: SettledHost
        self.tally = FailureTally()
        self.log: logging.Logger | ClientLog = logger
        self._counters = counters
        self._logged_at: dict[str, float] = {}
        self._not_logged: dict[str, int] = {}

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the producer's loop."""
        self.loop = loop
        self.of_written = SettledHost(loop)

    def unseen_failure(self, outcome: BatchOutcome, count: int, /) -> None:
        """Count and log ``count`` records of a failed batch whose deliveries were never awaited."""
        if outcome.error is None:
            return
        self._counters.add("producer.unseen_failures", count)
        if self._transactional:
            return
        self.tally.add(count, outcome.error)
        topic, now = outcome.topic, self.loop.time()
        if now - self._logged_at.get(topic, -LOG_EVERY) < LOG_EVERY:
            self._not_logged[topic] = self._not_logged.get(topic, 0) + count
            return
        self._logged_at[topic] = now
        self.log.error(
            "records were not delivered, and nobody looked: topic=%s partition=%d records=%d "
            "since_last_line=%d maybe_written=%s error=%s",
            topic,
            outcome.partition,
            count,
            self._not_logged.pop(topic, 0) + count,
            outcome.error.maybe_written,
            outcome.error,
        )

    def take(self) -> FailureTally:
        """Return the tally so far, and start a new one."""
        tally, self.tally = self.tally, FailureTally()
        return tally


class Flusher:
    """Flushes and closes one producer."""

    def __init__(
        self,
        accumulator: Accumulator,
        admission: Admission,
        response_handler: ProduceResponseHandler,
        failures: UnseenFailures,
        clock: Clock,
    ) -> None:
        self._accumulator = accumulator
        self._admission = admission
        self._response_handler = response_handler
        self._failures = failures
        self._clock = clock
        self._close_began: float | None = None
        self._not_flushed = FailureTally()

    async def flush(self) -> FlushFailed | None:
        """Send without linger, wait until all is settled and callbacks ran; return what failed.

        Cancellation: stops only the wait; the next flush reports what failed.
        """
        earlier, wait = self._begin()
        try:
            await self.until_settled(wait)
            for _ in range(callback_iterations(self._response_handler.largest)):
                await asyncio.sleep(0)
        except BaseException:
            self.abandon(wait, earlier)
            raise
        earlier.merge(wait.tally)
        return earlier.failure()

    async def settle(self) -> None:
        """Send without linger, and return once everything that is pending now is settled.

        Failures are those of its transaction, which notes them itself.

        Cancellation: stops only the wait.
        """
        _, wait = self._begin()
        await self.until_settled(wait)

    async def until_settled(self, wait: FlushWait) -> None:
        """Return once nothing of ``wait`` is pending.

        Cancellation: leaves nothing behind.
        """
        if not wait.pending:
            return
        settled = asyncio.get_running_loop().create_future()

        def notify() -> None:
            if not wait.pending and not settled.done():
                settled.set_result(None)

        wait.notify = notify
        await settled

    def abandon(self, wait: FlushWait, earlier: FailureTally | None = None) -> None:
        """Abandon ``wait``: the next flush will report what failed."""
        wait.listening = False
        if earlier is not None:
            self._failures.tally.merge(earlier)
        self._failures.tally.merge(wait.tally)

    async def close(self, closing: Closing[FlushFailed | None]) -> None:
        """Flush until the deadline of ``closing``, then fail what is left; accept nothing more.

        If it is interrupted it can be called again and continues; ``failure`` has what failed.
        """
        if self._close_began is None:
            self._close_began = self._clock.now()
        ending = ClientClosed("the producer was closed", hint="make a new one", maybe_written=False)
        await run_sliced(self._admission.fail_waiting(ending, enqueued_only=True))
        earlier, wait = self._begin()
        try:
            with contextlib.suppress(TimeoutError):
                async with closing.limit():
                    await self.until_settled(wait)
            await run_sliced(self._giving_up(self._too_late(self._close_began)))
        except BaseException:
            self.abandon(wait, earlier)
            raise
        self._not_flushed.merge(earlier)
        self._not_flushed.merge(wait.tally)

    @property
    def failure(self) -> FlushFailed | None:
        """The error for what ``close`` could not deliver; None without failures."""
        return self._not_flushed.failure()

    def give_up(self, error: KafkaError) -> None:
        """Fail everything that isn't settled, at once: for fatal errors."""
        for _ in self._giving_up(error):
            pass

    def _giving_up(self, error: KafkaError) -> Generator[None, None, None]:
        """Like ``give_up``, one waiting record or batch per step; responses may arrive between."""
        yield from self._admission.fail_waiting(error)
        while unsettled := [(b, b.outcome) for b in self._accumulator.seal_all()]:
            for batch, outcome in unsettled:
                if batch.outcome is outcome and not outcome.done:
                    self._response_handler.give_up(batch, error)
                    yield
        self._accumulator.drop_spares()

    def _too_late(self, began: float) -> ClientClosed:
        return ClientClosed(
            f"the producer was closed, and {self._clock.now() - began:.3g} s were not enough to "
            "deliver",
            hint="give close() more time, or look at health() for what is wrong",
            maybe_written=False,
        )

    def _begin(self) -> tuple[FailureTally, FlushWait]:
        """Return earlier unseen failures, and a wait for all records that are pending now."""
        wait = FlushWait(urgent=True)
        for batch in self._accumulator.seal_all():
            batch.watch(wait)
        for record in self._admission.waiting_records.all_waiting():
            if record.waiter is None:
                record.watch(wait)
        return self._failures.take(), wait

"""Runner: one ``Consumer.run``: takes records, has them handled, reports what is finished.

``Consumer.run`` makes one per call, and an ``EngineHost``, the consumer's engine as a run sees it.
The feeder takes records as long as ``Bounds`` allows, so the group sees polls however slow handlers
are; ``workers`` handle them as ``Schedule`` allows; ``Tracker`` knows what is finished, which the
consumer commits, as this is its ``ProcessedOffsets`` meanwhile. When the run ends while the
consumer goes on, unfinished records are given back: the positions go back to them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from typing import TYPE_CHECKING, Any

from kclient.backoff import Backoff
from kclient.cluster.wakeups import Broadcast, Wakeup
from kclient.consumer.dead_letters import wait_of
from kclient.consumer.handlers.failures import Failures
from kclient.consumer.handlers.tracker import Bounds, Schedule, Tracker
from kclient.consumer.handlers.workers import Workers
from kclient.consumer.processed_offsets import committable, offset_and_epoch
from kclient.errors import ClientClosed, InvalidArgument, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from kclient.consumer.dead_letters import Sender
    from kclient.consumer.engine import Engine
    from kclient.consumer.handlers.run_options import RunOptions
    from kclient.consumer.handlers.tracker import Job, Track
    from kclient.consumer.health import RunHealth
    from kclient.consumer.processed_offsets import ProcessedOffsets
    from kclient.consumer.records import Convert
    from kclient.record import Record
    from kclient.types import OffsetAndMetadata, TopicPartition

TICK = 1.0
"""Seconds that a poll waits at most, so that slow handlers are noticed."""
GRACE = 1.0
"""Seconds that cancelled handlers have to end."""
logger = logging.getLogger("kclient.consumer")


class Runner:
    """One run. Implements ``ProcessedOffsets`` for the consumer; workers report each call to it.

    Tasks: ``run-feeder``, from ``run`` to its end, and those of ``Workers``.

    Args:
        host: The consumer.
        handler: The application's; called with one record.
        plan: The other arguments of ``run``.
        producer: Sends records on; only used where the plan has a topic for it.
    """

    def __init__(
        self,
        host: EngineHost,
        handler: Callable[[Any], Any],
        plan: RunOptions,
        producer: Sender | None,
    ) -> None:
        self._host = host
        self._core = host.core
        self._drain_timeout = plan.drain_timeout
        self._bounds = Bounds(plan.max_in_flight, plan.concurrency)
        self._schedule = Schedule(plan.ordering)
        self._tracker = Tracker(plan.policy.delays)
        self._workers = Workers(host, self._schedule, self, handler, plan.concurrency)
        self._failures = Failures(host, plan.policy, producer, self)
        self._tick = min(TICK, host.max_poll_interval / 3)
        self._look_at = 0.0
        self._space = Wakeup()
        self._full = False
        self._rested = Broadcast()
        self._cancel_at = self._drained_by = math.inf
        self._end: asyncio.Future[BaseException | None] | None = None
        self._handled = 0
        self._counted = 0

    # Life

    async def run(self) -> None:
        """Handle records until the consumer is closed, or something ends it before.

        Cancellation: handlers are cancelled, what isn't finished is given back.
        """
        core = self._core
        core.check_usable()
        self._failures.check()
        self._end = asyncio.get_running_loop().create_future()
        self._host.use_processed(self)
        feeder = core.spawn(self._feed(), "run-feeder")
        feeder.add_done_callback(lambda _: self.stop_for(None))
        try:
            error = await self._end
            await core.stop(feeder)
            if isinstance(error, Exception):
                await self._come_to_rest()
        finally:
            await self._leave(feeder)
        if error is None:
            with contextlib.suppress(ClientClosed):
                core.check_usable()
        else:
            raise error

    def check_outside(self, call: str) -> None:
        """Refuse a call that would wait for the handler that awaits it."""
        if self._workers.includes(asyncio.current_task()):
            raise InvalidArgument(
                f"{call}() can't be awaited in a handler of run(), as it waits for that one",
                hint="cancel the task of run(), or set an event for whoever shall call it",
            )

    def stop_for(self, error: BaseException | None) -> None:
        """End the run; ``run`` raises ``error``, if any, once running handlers have ended."""
        self._schedule.stopped = True
        if self._end is not None and not self._end.done():
            self._end.set_result(error)

    async def _come_to_rest(self) -> None:
        """Wait for running handlers, and commit what is finished."""
        tracks = list(self._tracker)
        for track in tracks:
            track.halted = True
        until = self._core.clock.now() + self._drain_timeout
        await self._wait_for(tracks, lambda: until)
        try:
            await self._host.commit()
        except KafkaError as error:
            self._host.log.warning("what handlers have finished was not committed: %s", error)

    async def _leave(self, feeder: asyncio.Task[Any]) -> None:
        """Stop all that is left of this run, and move positions back to unfinished records."""
        self._workers.stop()
        try:
            await self._core.stop(feeder)
            for worker in await self._workers.wait_ended(self._drain_timeout):
                job = worker.job
                if job is not None:
                    where, offset = job.track.partition, job.record.offset
                    text = "handler doesn't end, though cancelled partition=%s offset=%d"
                    self._host.log.warning(text, where, offset)
        finally:
            self._count()
            try:
                self._core.check_usable()
            except KafkaError:
                pass  # closed or failed: what is finished is still needed
            else:
                self._host.commit_nowait()
                for track in self._tracker:
                    self._give_back(track)
                self._host.use_processed(None)

    # Feeding

    async def _feed(self) -> None:
        """The feeder's task: it ends when the consumer does, or when reading fails for good."""
        core, backoff, failures = self._core, Backoff(0.1, 1.0), 0
        try:
            await self._failures.find_topics()
        except Exception as error:
            self.stop_for(error)
            return
        while True:
            try:
                records = await self._take()
            except KafkaError as error:
                if not error.retriable:
                    closed = isinstance(error, ClientClosed) and core.closed
                    self.stop_for(None if closed else error)
                    return
                level = logging.DEBUG if failures else logging.WARNING  # once per outage
                self._host.log.log(level, "polling failed, and goes on: %s", error)
                await asyncio.sleep(backoff.delay(failures, core.rng))
                failures += 1
                continue
            except Exception as error:  # of the application's rebalance listener
                self.stop_for(error)
                return
            failures = 0
            if records:
                self._admit(records)
                await asyncio.sleep(0)  # let the handlers run
            self._count()
            if core.clock.now() >= self._look_at:
                self._look_for_slow_ones()

    async def _take(self) -> Sequence[Record]:
        """Take as many records as the bounds allow; none after a while."""
        host, bounds, tracker = self._host, self._bounds, self._tracker
        bounds.resize(host.partition_count)
        limit = bounds.limit(tracker.in_flight)
        if limit:
            return await host.poll(limit, self._tick)
        self._core.check_usable()
        host.touch()
        self._full = True
        await self._space.sleep(self._tick)
        self._full = False
        return ()

    def _admit(self, records: Iterable[Record]) -> None:
        """Add ``records``, which were just polled, to their tracks and to the schedule."""
        tracker, schedule = self._tracker, self._schedule
        track: Track | None = None
        partition, topic = -1, ""
        for record in records:
            if track is None or record.partition != partition or record.topic != topic:
                if track is not None:
                    self._check_share(track)
                partition, topic = record.partition, record.topic
                track = tracker.track_of(record)
            job = tracker.add(track, record)
            if track.delay:
                self._put_off(job, track)
            schedule.add(job)
        if track is not None:
            self._check_share(track)
        self._workers.wake()

    def _put_off(self, job: Job, track: Track) -> None:
        """Keep a record of a retry topic from being started before its time."""
        clock = self._core.clock
        wait = wait_of(job.record, track.delay, clock.wall_ms())
        if wait > 0:
            job.due = clock.now() + wait
            track.rest_until = max(track.rest_until, job.due)

    def _check_share(self, track: Track) -> None:
        """Pause a partition with enough records in flight, or whose records have to wait."""
        if track.paused or track.halted:
            return
        many = len(track.jobs) >= self._bounds.share(self._tracker.in_flight)
        if many or track.rest_until > self._core.clock.now():
            track.paused = True
            self._host.pause(track.partition)

    def _look_for_slow_ones(self) -> None:
        """Log each handler once that runs for longer than ``max_poll_interval``."""
        now, limit = self._core.clock.now(), self._host.max_poll_interval
        self._look_at = now + self._tick
        for worker in self._workers.busy:
            job, seconds = worker.job, now - worker.since
            if job is None or seconds < limit:
                break
            if not worker.reported:
                worker.reported = True
                text = (
                    "handler is slow partition=%s offset=%d seconds=%.1f max_poll_interval=%g: "
                    "the consumer goes on, and its partition waits"
                )
                where, offset = job.track.partition, job.record.offset
                self._host.log.warning(text, where, offset, seconds, limit)

    def _count(self) -> None:
        if self._handled > self._counted:
            self._core.counters.add("consumer.handled", self._handled - self._counted)
            self._counted = self._handled

    # Outcomes

    def done(self, job: Job) -> None:
        """Record that the handler has finished."""
        self._handled += 1
        self.finish(job)

    def finish(self, job: Job) -> None:
        """Finish ``job``: nothing more is to be done for it."""
        track, tracker = job.track, self._tracker
        if track.void:
            return
        self._schedule.leave(job)
        tracker.finish(job)
        if track.paused and not track.halted:
            share = self._bounds.share(tracker.in_flight)
            if 2 * len(track.jobs) <= share and self._core.clock.now() >= track.rest_until:
                track.paused = False
                self._host.resume(track.partition)
        if self._full and 2 * tracker.in_flight <= self._bounds.total:
            self._space.notify()

    async def failed(self, job: Job, error: BaseException, waits: Callable[[], object]) -> None:
        """Process ``error`` of the handler, raised now or, where the job was to be sent on, before.

        ``waits()`` is called before anything is awaited.

        Cancellation: the record isn't finished.
        """
        await self._failures.take(job, error, waits)

    def put_back(self, job: Job, wait: float) -> None:
        """Have ``job`` started again after ``wait`` seconds."""
        if not job.track.halted:
            self._schedule.delay(job, self._core.clock.now() + wait)
            self._workers.arm()

    def rested(self, track: Track) -> None:
        """Notify ``drain`` that a handler on a partition being revoked has ended."""
        if not track.running:
            self._rested.notify()

    # ProcessedOffsets

    def finished(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """By partition, the offset up to which all records are finished."""
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for partition in self._host.assigned():
            done = self.finished_of(partition)
            if done is not None:
                found[partition] = done
        return found

    def finished_of(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """The same of one partition; None where nothing is to be committed."""
        track = self._tracker.get(partition)
        done = None if track is None else track.done
        if track is not None and track.jobs:
            return done or self._host.passed(partition, track.first_unfinished())
        # Then the position may be further on, behind records that the reader can't see.
        position = self._host.passed(partition)
        if position is None or (done is not None and position.offset <= done.offset):
            return done
        return position

    def on_explicit_commit(self, partition: TopicPartition) -> None:
        """Keep an offset that the application committed, until handlers have finished more."""
        track = self._tracker.get(partition)
        if track is not None:
            track.done = None
        self._host.on_explicit_commit(partition)

    async def drain(self, partitions: Collection[TopicPartition], deadline: float) -> None:
        """Wait until no handler works on ``partitions``; records that wait for one are given back.

        Handlers are cancelled after the run's ``drain_timeout``, or shortly before ``deadline``.

        Cancellation: safe; they are cancelled then.
        """
        tracks = self._tracker.those_of(partitions)
        for track in tracks:
            track.halted = True
        self._schedule.forget_void()
        now = self._core.clock.now()
        self._cancel_at = _shortly_before(min(deadline, now + self._drain_timeout), now)
        self._drained_by = deadline
        try:
            await self._wait_for(tracks, lambda: self._cancel_at)
            late = self._workers.retire(tracks)
            if late:
                self._host.log.warning(
                    "handlers are cancelled, as their partitions are given up count=%d", len(late)
                )
                grace = self._core.clock.now() + GRACE
                await self._wait_for(tracks, lambda: min(self._drained_by, grace))
        finally:
            self._workers.retire(tracks)
            for track in tracks:
                self._give_back(track)

    def shorten_deadline(self, deadline: float) -> None:
        """Shorten the deadline of a pending ``drain``."""
        self._cancel_at = min(self._cancel_at, _shortly_before(deadline, self._core.clock.now()))
        self._drained_by = min(self._drained_by, deadline)
        self._rested.notify()

    def dropped(self, partitions: Collection[TopicPartition]) -> None:
        """Cancel the handlers of ``partitions``, which were lost."""
        tracks = self._tracker.those_of(partitions)
        self._workers.retire(tracks)
        for track in tracks:
            if track.paused:  # it may be assigned still, of a topic that was recreated
                self._host.resume(track.partition)
            self._tracker.drop(track)
        self._schedule.forget_void()
        self._rested.notify()
        self._space.notify()

    def _give_back(self, track: Track) -> None:
        """Give its unfinished records back, so that they are read again."""
        if track.void:
            return
        start = track.first_unfinished()
        if start is not None and track.jobs:
            self._host.rewind(track.partition, start)  # it calls ``finished_of``, as it is now
        self._tracker.restart(track)
        self._space.notify()
        if track.paused:
            self._host.resume(track.partition)

    async def _wait_for(self, tracks: Iterable[Track], until: Callable[[], float]) -> None:
        """Wait until no handler works on them, or until ``until()``, which may be shortened."""
        clock = self._core.clock
        while any(track.running and not track.void for track in tracks):
            left = until() - clock.now()
            if left <= 0:
                return
            await self._rested.wait(left)

    # Health

    def health(self) -> RunHealth:
        """A snapshot of the run."""
        from kclient.consumer.health import RunHealth, SlowHandler

        now, busy = self._core.clock.now(), self._workers.busy
        slow = [
            SlowHandler(worker.job.track.partition, worker.job.record.offset, now - worker.since)
            for worker in busy
            if worker.job is not None and now - worker.since >= self._host.max_poll_interval
        ]
        return RunHealth(
            running=len(busy),
            in_flight=self._tracker.in_flight,
            delayed=self._schedule.delayed,
            paused=sum(track.paused for track in self._tracker),
            handled=self._handled,
            failures=self._failures.count,
            sent_on=self._failures.sent_on,
            slow=tuple(slow),
        )


def _shortly_before(deadline: float, now: float) -> float:
    """When to cancel handlers that may take until ``deadline``: they need a moment to end."""
    return deadline - min(GRACE, max(0.0, deadline - now) / 10)


class EngineHost:
    """The consumer of one run. Has no tasks.

    Args:
        engine: The consumer's.

    Attributes:
        core: The client's core.
        bad_records: Handles records that can't be deserialized.
        log: The logger of the run.
        convert: Converts a record for the handler; None where it gets the record itself.
        max_poll_interval: Seconds after which a handler counts as slow.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.core = engine.core
        self.bad_records = engine.bad_records
        self._subscription = engine.subscription
        self._progress: ProcessedOffsets | None = None
        self.log = engine.core.hooks.log(logger)
        self.convert: Convert | None = engine.poller.convert
        self.max_poll_interval: float = engine.config.max_poll_interval

    @property
    def partition_count(self) -> int:
        """How many partitions are assigned."""
        return len(self._subscription)

    def assigned(self) -> Collection[TopicPartition]:
        """The partitions that are assigned."""
        return [state.topic_partition for state in self._subscription]

    def reads(self, topic: str) -> bool:
        """Whether records of ``topic`` are, or will be, among those to handle."""
        group, subscription = self._engine.group, self._subscription
        if group is not None and group.topic_subscription.topic_filter.means(
            topic, self.core.metadata.view
        ):
            return True
        return topic in subscription.topics or any(subscription.of_topic(topic))

    def passed(
        self, partition: TopicPartition, first: OffsetAndMetadata | None = None
    ) -> OffsetAndMetadata | None:
        """The offset to commit where all before ``first`` is finished; None for no commit.

        ``first`` is by default the offset of the next record, behind those that the reader can't
        see. What was finished before counts where nothing was taken since a seek, and nothing does
        where nothing was taken since an explicit commit.
        """
        state = self._subscription.get(partition)
        if state is None:
            return None
        at = self._subscription.passed(state, None if first is None else offset_and_epoch(first))
        return None if at is None else committable(at)

    def on_explicit_commit(self, partition: TopicPartition) -> None:
        """The application committed an offset of ``partition``."""
        self._engine.polled_records.settle()
        self._subscription.on_explicit_commit(partition)

    async def poll(self, limit: int, timeout: float) -> Sequence[Record]:
        """Poll records as they are stored; none after ``timeout`` seconds.

        Between the step in which positions move and the caller's next step nothing may happen.

        Cancellation: safe, nothing was taken.
        """
        records: list[Record] = await self._engine.poller.poll(limit, timeout, raw=True)
        return records

    def may_start(self) -> bool:
        """Whether handlers may start: not after the session's end, as others own all by then.

        Cheap: it is called for each record.
        """
        group = self._engine.group
        return group is None or group.rebalancer.holds()

    def touch(self) -> None:
        """Count as a poll, while there is no space for more records."""
        self._engine.polled_records.last_poll_at = self.core.clock.now()

    def pause(self, partition: TopicPartition) -> None:
        """Return no more records of it. Pauses by the application are kept apart from this."""
        state = self._subscription.get(partition)
        if state is not None:
            self._subscription.crowd(state, crowded=True)

    def resume(self, partition: TopicPartition) -> None:
        """Undo ``pause``. Does nothing for a partition that isn't assigned."""
        state = self._subscription.get(partition)
        if state is not None:
            self._subscription.crowd(state, crowded=False)

    def rewind(self, partition: TopicPartition, to: OffsetAndMetadata) -> None:
        """Read records from there on again. Does nothing for a partition that isn't assigned."""
        state = self._subscription.get(partition)
        if state is not None:
            finished = self._engine.finished_of(state)
            self._subscription.seek(state, *offset_and_epoch(to), finished=finished)

    def use_processed(self, processed: ProcessedOffsets | None) -> None:
        """Set what knows the finished offsets from now on; None: the calls of poll."""
        self._progress = processed
        if processed is None:
            self._engine.polled_records.all_finished()  # unfinished records were given back
        if self._engine.group is not None:
            self._engine.group.rebalancer.use_processed(processed)

    async def commit(self) -> None:
        """Commit what is finished, if commits are automatic; raises the error of a failed commit.

        Cancellation: the commit goes on.
        """
        outcome = self.commit_nowait()
        if outcome is not None:
            await asyncio.shield(outcome)

    def commit_nowait(self) -> asyncio.Future[None] | None:
        """Have what is finished committed soon, if commits are automatic."""
        group, automatic = self._engine.group, self._engine.config.enable_auto_commit
        if group is None or self._progress is None or not automatic:
            return None
        return group.rebalancer.commit_finished()

"""Commits: sends a consumer's offsets to its group, one request after the other.

``rebalance`` makes one. ``commit_queue`` decides what is sent next, and the outcome of each call;
here are the task that sends, the timer of the earliest deadline, and the futures of the callers. A
refused generation is reported to the membership. It never decides which offsets are committed.
``AutoCommit`` is the timer of automatic commits.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Any

from kclient.cluster.wakeups import LONGEST_SLEEP, Broadcast, Wakeup
from kclient.consumer.commit_queue import Commit, CommitQueue
from kclient.errors import ClientClosed, KafkaError, fresh
from kclient.group.commit_errors import CommitErrorAction, commit_error_action, patience
from kclient.group.member import OUTSIDE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kclient.cluster.core import ClientCore
    from kclient.consumer.processed_offsets import PolledRecords
    from kclient.consumer.rebalance import Rebalancer
    from kclient.group.member import Generation
    from kclient.group.offsets import GroupOffsets
    from kclient.types import OffsetAndMetadata, TopicPartition

logger = logging.getLogger("kclient.consumer")

CROWD = 1000
"""Calls without an outcome from which on later ones may be joined to earlier ones: while no
coordinator responds, a commit for each record must not fill the memory."""
LEAST_COMMIT_INTERVAL = 0.001
"""Seconds between two automatic commits at least, even where the interval is 0."""
OUTSIDE_GROUP = "the consumer is no member of its group at the moment"


class CommitFuture(asyncio.Future[None]):
    """The outcome of one commit for one caller; cancelling it affects no other caller.

    Attributes:
        awaited: Something waits for it, or did.
    """

    awaited = False

    def add_done_callback(self, *args: Any, **kwargs: Any) -> None:
        """As with any future; tasks that await it call this, too."""
        self.awaited = True
        super().add_done_callback(*args, **kwargs)

    def settle(self, error: KafkaError | None) -> None:
        """Set the result, or ``error``; one that was cancelled stays so."""
        if self.done():
            return
        if error is None:
            self.set_result(None)
        else:
            self.set_exception(error)
            self.exception()  # so that asyncio doesn't log it as never retrieved


class Commits:
    """The commits of one consumer.

    Tasks: ``commits``, while something is to be sent; it ends by itself or with ``close``.
    Timers: one, at the earliest deadline of a call.

    Args:
        core: The client's core.
        offsets: Sends the commits to the group.
        current: The present generation; None while there is none.
        is_ours: Whether a partition is assigned to this consumer.
        refused: Called when the coordinator refused a generation, with the error.
        topic_id_of: The id of the topic that an offset was read from, empty where brokers have no
            ids; None where its partition isn't read here.

    Attributes:
        queue: What waits, what is in flight, and what is known to be committed.
        last_commit: When, on the client's clock, a commit last succeeded; None before that.
        last_error: Why the latest attempt failed; None after one that didn't.
    """

    def __init__(
        self,
        core: ClientCore,
        offsets: GroupOffsets,
        current: Callable[[], Generation | None],
        is_ours: Callable[[TopicPartition], bool],
        refused: Callable[[KafkaError, Generation], object],
        topic_id_of: Callable[[TopicPartition, int], bytes | None] = lambda *offset: None,
    ) -> None:
        self._core = core
        self._log = core.hooks.log(logger)
        self._offsets = offsets
        self._current = current
        self._is_ours = is_ours
        self._refused = refused
        self.queue: CommitQueue[list[CommitFuture]] = CommitQueue(
            offsets.group_id, core.backoff, core.rng, self._patience, topic_id_of
        )
        self._wakeup = Wakeup()
        self._broadcast = Broadcast()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._attempts = 0
        self._under_way = False
        self._ended: KafkaError | None = None
        self.last_commit: float | None = None
        self.last_error: KafkaError | None = None
        core.add_end_listener(self._end)

    # Queries

    def _patience(self, partition: TopicPartition, topic_id: bytes | None) -> float:
        view, by_name = self._core.metadata.view, partition in self._offsets.by_name
        return patience(partition, view, topic_id, by_name=by_name)

    def repeats(self, *, at_once: bool = False) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Offsets that are committed and should be committed once more; see ``CommitQueue``.

        ``at_once``: without the minimum delay, before a rebalance or a close.
        """
        return self.queue.repeats(math.inf if at_once else self._core.clock.now())

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop partitions that are no longer assigned: what waits fails, nothing is sent again."""
        self.queue.forget(partitions)
        self._notify()
        self._wakeup.notify()

    def wake(self) -> None:
        """Retry now: there is another generation, or another reason not to wait any longer."""
        self.queue.retry_now()
        self._wakeup.notify()

    # Commits

    def submit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout: float | None = None,
        *,
        at_least: bool = False,
    ) -> asyncio.Future[None]:
        """Commit ``offsets`` after all that was submitted before; returns at once.

        If an earlier commit of a partition was not sent yet, only the latest one is sent.

        Args:
            offsets: What to commit.
            timeout: Seconds; ``api_timeout`` by default.
            at_least: Leave a higher offset that is committed or pending.

        Returns:
            Its outcome: None, or an error. CommitFailed where partitions belong, or may belong, to
            another member by now; it names them, the others are committed. OffsetMetadataTooLarge
            and the like where the commit was refused; UnknownTopicOrPartition where the coordinator
            has reported that for some seconds; RequestTimedOut, whose ``__cause__`` is the last of
            the failures: what was in flight may still be committed; ClientClosed or
            BackgroundTaskDied. A failure that nothing waits for when it comes is logged. Cancelling
            the future doesn't stop the commit.
        """
        now, queue, loop = self._core.clock.now(), self.queue, asyncio.get_running_loop()
        deadline = now + (self._core.config.api_timeout if timeout is None else timeout)
        outcome = CommitFuture(loop=loop)
        if queue.open >= CROWD:
            shared = queue.join(now, deadline, offsets, at_least=at_least)
            if shared is not None:
                shared.token.append(outcome)
                return outcome
        call = Commit([outcome], now, deadline)
        queue.add(call, offsets, self._is_ours, at_least=at_least)
        if self._ended is not None:
            queue.end(self._ended)
        if call.error is None:
            self._notify()
            self._start()
        else:  # the caller has begun to wait by then
            loop.call_soon(self._notify)
        return outcome

    async def flush(self, deadline: float, go_on: Callable[[], bool] = lambda: True) -> bool:
        """Wait for all that was submitted so far, and for the request in flight.

        Args:
            deadline: On the client's clock, when the waiting ends.
            go_on: Called for whether to wait on, also after each ``recheck``.

        Returns:
            Whether all of it has an outcome.

        Cancellation: abandons the wait only.
        """
        calls, attempts = self.queue.calls, self._attempts
        while self.queue.open_before(calls) or (self._under_way and self._attempts <= attempts):
            left = deadline - self._core.clock.now()
            if left <= 0 or not go_on():
                return False
            await self._broadcast.wait(left)
        return True

    def recheck(self) -> None:
        """Make pending ``flush`` calls check whether to wait on."""
        self._broadcast.notify()

    async def close(self, deadline: float) -> None:
        """Wait until ``deadline`` for what is in flight or queued; then nothing more is sent.

        What has no outcome by then fails with ClientClosed. Closing twice is fine.

        Args:
            deadline: On the client's clock.

        Cancellation: it is closed all the same.
        """
        try:
            if self._ended is None:
                await self.flush(deadline)
        finally:
            self._end(ClientClosed("the consumer was closed before its commit was acknowledged"))
            if self._task is not None:
                await self._core.stop(self._task)

    # The task

    def _start(self) -> None:
        if self.queue.idle or self._ended is not None:
            return
        if self._task is None:
            self._task = self._core.spawn(self._run(), "commits")
        self._wakeup.notify()

    async def _run(self) -> None:
        try:
            while not self.queue.idle:
                await self._step()
        finally:
            self._task = None

    async def _step(self) -> None:
        """Send what can be sent and process the response, or wait until something can be sent."""
        now, generation = self._core.clock.now(), self._current()
        if generation is None and now >= self.queue.due:
            self.queue.put_off(now)
        obstacle = OUTSIDE_GROUP if generation is None else ""
        batch = self.queue.take(now, self._is_ours, obstacle)
        self._notify()
        if not batch or generation is None:
            if not self.queue.idle:
                await self._wakeup.sleep(self.queue.due - now)
            return
        self._attempts += 1
        self._under_way = True
        try:
            limit, topic_ids = self.queue.limit, self.queue.topic_ids
            outcomes = await self._offsets.attempt(
                batch, generation, limit, topic_ids, self.queue.wants
            )
        finally:
            self._under_way = False
        self._answered(outcomes, generation)

    def _answered(
        self, answers: Mapping[TopicPartition, KafkaError | None], generation: Generation
    ) -> None:
        now = self._core.clock.now()
        errors = [error for error in answers.values() if error is not None]
        self.last_error = errors[0] if errors else None
        if len(errors) < len(answers):
            self.last_commit = now
        outdated = self._current() != generation
        self.queue.answered(answers, now, outdated=outdated)
        if errors:
            self._log.debug("commit failed partitions=%d: %s", len(errors), errors[0])
        for error in errors:
            if commit_error_action(error) in (
                CommitErrorAction.FENCED,
                CommitErrorAction.REBALANCING,
            ):
                if generation != OUTSIDE and not outdated:
                    self._refused(error, generation)
                break
        self._notify()
        self._broadcast.notify()

    # The callers

    def _notify(self) -> None:
        """Set the outcomes of finished calls, and reset the timer to the next deadline."""
        ignored: list[Commit[list[CommitFuture]]] = []
        finished = self.queue.finished()
        for call in finished:
            name = "consumer.commits" if call.error is None else "consumer.commit_failures"
            self._core.counters.add(name)
            if call.error is not None and not any(
                outcome.awaited and not outcome.cancelled() for outcome in call.token
            ):
                ignored.append(call)
            for outcome in call.token:
                outcome.settle(call.error and fresh(call.error))
        if ignored:
            self._log_ignored(ignored)
        if finished:
            self._broadcast.notify()
        self._set_timer()

    def _log_ignored(self, calls: list[Commit[list[CommitFuture]]]) -> None:
        group, error = self._offsets.group_id, calls[0].error
        self._log.warning("offsets not committed commits=%d group=%s: %s", len(calls), group, error)

    def _set_timer(self) -> None:
        deadline = self.queue.deadline
        if self._timer is not None:
            if self._timer_at <= deadline < math.inf:
                return  # it comes early enough, and is set again then
            self._timer.cancel()
            self._timer = None
        if deadline < math.inf:
            wait = min(max(0.0, deadline - self._core.clock.now()), LONGEST_SLEEP)
            self._timer = asyncio.get_running_loop().call_later(wait, self._expire)
            self._timer_at = deadline

    def _expire(self) -> None:
        self._timer = None
        self.queue.expire(self._core.clock.now())
        self._notify()
        self._wakeup.notify()

    def _end(self, error: KafkaError) -> None:
        """Stop sending; pending calls fail with ``error``."""
        if self._ended is None:
            self._ended = error
            self.queue.end(error)
            self._notify()
            self._wakeup.notify()


class AutoCommit:
    """Commits what is finished every ``auto_commit_interval``; one timer, from start to stop.

    While the application polls, what is finished is only known at its calls, unless one waits right
    now: a commit that is due then waits for the next call.

    Args:
        interval: Seconds between two commits.
        rebalancer: Knows what is finished, and commits it.
        polled_records: Has an ``async for`` make such a call soon.
    """

    def __init__(
        self, interval: float, rebalancer: Rebalancer, polled_records: PolledRecords
    ) -> None:
        self._interval = max(interval, LEAST_COMMIT_INTERVAL)
        self._rebalancer = rebalancer
        self._polled_records = polled_records
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = False

    def start(self) -> None:
        """Start the timer, unless it runs already."""
        if self._timer is None:
            self._arm()

    def stop(self) -> None:
        """Stop the timer, and drop a commit that is due."""
        self._is_due = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_poll(self) -> None:
        """Commit if that is due: the application made a call."""
        if self._is_due:
            self._is_due = False
            self._rebalancer.commit_finished()

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._interval, self._ring)

    def _ring(self) -> None:
        self._arm()
        self._is_due = True
        if self._rebalancer.may_commit():
            self.on_poll()
        else:
            self._polled_records.poll_wanted = True

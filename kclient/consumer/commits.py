"""Commits: the one way by which a consumer's offsets reach its group, one request after the other.

``rebalance`` makes one. What is to be sent next, and what became of each call, ``commit_queue``
knows; here are the task that sends, the timer of the earliest deadline, and the futures of the
callers. A refused generation is told to the membership. It never decides what is to be committed.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Any

from kclient.cluster.wakeups import LONGEST_SLEEP, Broadcast, Wakeup
from kclient.consumer.commit_queue import Commit, CommitQueue
from kclient.errors import ClientClosed, KafkaError, fresh
from kclient.group.member import OUTSIDE
from kclient.group.offset_requests import CommitErrorAction, commit_error_action, patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kclient.cluster.core import ClientCore
    from kclient.group.member import Generation
    from kclient.group.offsets import GroupOffsets
    from kclient.types import OffsetAndMetadata, TopicPartition

logger = logging.getLogger("kclient.consumer")

CROWD = 1000
"""Calls without an outcome, from which on later ones may become part of earlier ones: while no
coordinator answers, a commit for each record must not fill the memory."""
OUTSIDE_GROUP = "the consumer is no member of its group at the moment"


class CommitFuture(asyncio.Future[None]):
    """The outcome of one commit, for its caller, who cancels no one else's with it.

    Attributes:
        awaited: Something waits for it, or did.
    """

    awaited = False

    def add_done_callback(self, *args: Any, **kwargs: Any) -> None:
        """As with any future; tasks that wait for it call this, too."""
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
            self.exception()  # so that asyncio doesn't complain where nothing reads it


class Commits:
    """The commits of one consumer.

    Tasks: ``commits``, while something is to be sent; it ends by itself or with ``close``.
    Timers: one, at the earliest deadline of a call.

    Args:
        core: The client's inside.
        offsets: Where they go.
        current: The present generation; None while there is none.
        is_ours: Whether a partition is assigned to this consumer.
        refused: Is told that the coordinator refused a generation, and with which error.
        topic_id_of: The id of the topic that an offset was read from, empty where brokers have no
            ids; None where its partition isn't read here.

    Attributes:
        queue: What waits, what is under way, and what is known to be committed.
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

    # What is known

    def _patience(self, partition: TopicPartition, topic_id: bytes | None) -> float:
        view, by_name = self._core.metadata.view, partition in self._offsets.by_name
        return patience(partition, view, topic_id, by_name=by_name)

    def repeats(self, *, at_once: bool = False) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """What is committed and should be once more; see ``CommitQueue``.

        ``at_once``: without the minimum delay, before a rebalance or a close.
        """
        return self.queue.repeats(math.inf if at_once else self._core.clock.now())

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """These are not ours any more: what waits fails, what is under way isn't sent again."""
        self.queue.forget(partitions)
        self._tell()
        self._wakeup.notify()

    def wake(self) -> None:
        """There is another generation, or another reason not to wait any longer."""
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

        Where an earlier commit of a partition was not sent yet, only the latest is.

        Args:
            offsets: What to commit.
            timeout: Seconds; ``api_timeout`` by default.
            at_least: Where more is committed, or about to be, leave it so.

        Returns:
            Its outcome: None, or an error: CommitFailed where partitions are, or may be, another's
            by now, which it names, as the others are committed; OffsetMetadataTooLarge and the like
            where it was refused; UnknownTopicOrPartition where the coordinator has said so for some
            seconds; RequestTimedOut, whose ``__cause__`` is the last of the failures, where what
            was under way may be committed all the same; ClientClosed or BackgroundTaskDied. A
            failure for which nobody waits when it comes is logged. Cancelling it doesn't stop the
            commit.
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
            self._tell()
            self._start()
        else:  # whoever waits for it does so by then
            loop.call_soon(self._tell)
        return outcome

    async def flush(self, deadline: float, go_on: Callable[[], bool] = lambda: True) -> bool:
        """Wait for all that was submitted so far, and for the request that is under way.

        Args:
            deadline: On the client's clock, when the waiting ends.
            go_on: Asked whether to wait on, after each ``look`` too.

        Returns:
            Whether all of it has an outcome.

        Cancellation: abandons the waiting only.
        """
        calls, attempts = self.queue.calls, self._attempts
        while self.queue.open_before(calls) or (self._under_way and self._attempts <= attempts):
            left = deadline - self._core.clock.now()
            if left <= 0 or not go_on():
                return False
            await self._broadcast.wait(left)
        return True

    def recheck(self) -> None:
        """Whoever waits in ``flush`` shall look whether to wait on."""
        self._broadcast.notify()

    async def close(self, deadline: float) -> None:
        """Wait for what is under way and what waits, until ``deadline``; then nothing goes on.

        What has no outcome by then fails with ClientClosed. Twice is fine.

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
        """Send what can be sent and take the answer, or wait until something can be."""
        now, generation = self._core.clock.now(), self._current()
        if generation is None and now >= self.queue.due:
            self.queue.put_off(now)
        obstacle = OUTSIDE_GROUP if generation is None else ""
        batch = self.queue.take(now, self._is_ours, obstacle)
        self._tell()
        if not batch or generation is None:
            if not self.queue.idle:
                await self._wakeup.sleep(self.queue.due - now)
            return
        self._attempts += 1
        self._under_way = True
        try:
            limit, topic_ids = self.queue.limit, self.queue.topic_ids
            answers = await self._offsets.attempt(
                batch, generation, limit, topic_ids, self.queue.wants
            )
        finally:
            self._under_way = False
        self._answered(answers, generation)

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
        self._tell()
        self._broadcast.notify()

    # The callers

    def _tell(self) -> None:
        """Give outcomes to those who wait, and see to the next deadline."""
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
                return  # it comes early enough, and is set anew then
            self._timer.cancel()
            self._timer = None
        if deadline < math.inf:
            wait = min(max(0.0, deadline - self._core.clock.now()), LONGEST_SLEEP)
            self._timer = asyncio.get_running_loop().call_later(wait, self._expire)
            self._timer_at = deadline

    def _expire(self) -> None:
        self._timer = None
        self.queue.expire(self._core.clock.now())
        self._tell()
        self._wakeup.notify()

    def _end(self, error: KafkaError) -> None:
        """Nothing is sent any more; whoever waits gets ``error``."""
        if self._ended is None:
            self._ended = error
            self.queue.end(error)
            self._tell()
            self._wakeup.notify()

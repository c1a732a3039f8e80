"""Handover: gives partitions of a group up and takes them, step by step, in the one right order.

Giving up: no more records are handed over; the user comes to rest with those that were; what is
finished is committed; ``on_revoked``; only then the partition is let go. Taking: the offsets
committed are fetched; ``on_assigned``, which may seek; then records are handed over. What, and
when, is decided by the group side, which has one. It must neither join nor leave the group.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from contextvars import ContextVar
from typing import TYPE_CHECKING

from kclient.consumer.commits import Commits
from kclient.consumer.committed import CommittedOffsets
from kclient.consumer.handover_stage import TRANSITIONS, Event, Stage
from kclient.errors import CommitFailed
from kclient.group.generation import OUTSIDE, Generation
from kclient.transitions import step

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence

    from kclient.cluster.core import ClientCore
    from kclient.config import ConsumerConfig
    from kclient.consumer.callbacks import Callbacks
    from kclient.consumer.handed_over import HandedOver
    from kclient.consumer.partition_state import PartitionState
    from kclient.consumer.progress import Progress
    from kclient.consumer.subscription import Subscription
    from kclient.consumer.wanted import Wanted
    from kclient.group.membership import Membership
    from kclient.group.offsets import GroupOffsets
    from kclient.types import OffsetAndMetadata, TopicPartition

logger = logging.getLogger("kclient.consumer")

_MOVE: ContextVar[object] = ContextVar("kclient move", default=None)
"""What the callbacks are called for, to tell those that a callback calls."""


class Handover:
    """Which partitions are ours, and what becomes of the work on them when they move.

    Tasks: those of ``Commits`` and ``CommittedOffsets``.

    Args:
        core: The client's.
        config: Of the consumer.
        subscription: What is given and taken back.
        handed_over: What whoever polls has finished.
        wake: Wakes those who wait for records, to look for errors.
        membership: Is only asked whether there is a generation.
        offsets: Of the group.
        wanted: Knows what is subscribed to, and which topics are gone.
        callbacks: The user's.

    Attributes:
        stage: How far the present move has come.
        by_hand: Partitions come from ``assign``, not from the group.
        commits: What is committed, one after the other.
        committed: Where partitions begin.
        progress: Who says what is finished.
    """

    def __init__(
        self,
        core: ClientCore,
        config: ConsumerConfig,
        subscription: Subscription,
        handed_over: HandedOver,
        wake: Callable[[], object],
        membership: Membership,
        offsets: GroupOffsets,
        wanted: Wanted,
        callbacks: Callbacks,
    ) -> None:
        self._core = core
        self._log = core.hooks.log(logger)
        self._config = config
        self._subscription = subscription
        self._handed_over = handed_over
        self._wake = wake
        self._membership = membership
        self._group_id = offsets.group_id
        self._wanted = wanted
        self._callbacks = callbacks
        self._one = asyncio.Lock()
        self._move: object | None = None
        self._lost: Sequence[TopicPartition] = ()
        self.stage = Stage.SETTLED
        self.by_hand = False
        self._hurried = self._late = False
        self._timer: asyncio.TimerHandle | None = None
        self.commits = Commits(
            core, offsets, self._current, self.owns, membership.refused, self._topic_id_of
        )
        self.committed = CommittedOffsets(core, config, subscription, offsets, self.commits.learned)
        self.progress: Progress = handed_over

    # Life

    def hurry(self, deadline: float) -> None:
        """The consumer is being closed: what a move waits for has no longer than ``deadline``.

        Calls of the user, and where to begin, are not waited for at all.
        """
        self._hurried = True
        self.progress.hurry(deadline)
        self._callbacks.hurry(deadline)
        self.committed.look()
        self._stop_timer()
        left = max(0.0, deadline - self._core.clock.now())
        self._timer = asyncio.get_running_loop().call_later(left, self._be_late)

    def _be_late(self) -> None:
        self._late = True
        self.commits.look()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def close(self, deadline: float) -> None:
        """The group was left: commit what is left to commit, and stop.

        Cancellation: may be called again.
        """
        self._stop_timer()
        if self.by_hand:
            await self.commit_before(deadline, None)
        await self.commits.close(deadline)
        await self.committed.close()

    # Whose they are

    def _is_member(self) -> bool:
        return self._membership.generation is not None

    def _begins(self) -> bool:
        """Whether what the group gives will be read."""
        return self._is_member() and bool(self._wanted.interest) and not self._hurried

    def _current(self) -> Generation | None:
        return OUTSIDE if self.by_hand else self._membership.generation

    def owns(self, partition: TopicPartition) -> bool:
        """Whether offsets of ``partition`` may be committed by us."""
        ours = partition in self._subscription and self.stage is not Stage.LOSING
        return self.by_hand or ours

    def _topic_id_of(self, partition: TopicPartition, offset: int) -> bytes | None:
        """The id of the topic that ``offset`` was read from, empty if that has none.

        None if the partition isn't assigned.
        """
        state = self._subscription.get(partition)
        if state is None:
            return None
        if state.former_id is not None and (state.position is None or offset > state.position):
            return state.former_id  # nothing was read as far in the topic that replaced it
        return state.topic_id or b""

    def look(self) -> None:
        """Hand nothing over where we are no member: others may own all of it by now."""
        if not self._is_member() and not self.by_hand:
            self._subscription.hold(self._subscription)

    def lose_interest(self) -> None:
        """The user wants none of it any more: no call is waited for, nor where to begin."""
        self._handed_over.hurry(-math.inf)
        self.committed.look()

    def interrupt(self) -> None:
        """The generation is over: who gives up or takes waits in vain, but for the callbacks."""
        self.look()
        self.progress.hurry(-math.inf)
        self.committed.look()
        self.commits.look()

    # Who moves them

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """One at a time moves partitions: the membership, or whoever leaves for the user."""
        async with self._one:
            self._move = object()
            token = _MOVE.set(self._move)
            self._step(Event.BEGUN)
            try:
                yield
            finally:
                self._step(Event.ENDED)
                self._move = None
                _MOVE.reset(token)

    def _step(self, event: Event) -> None:
        self.stage = step(TRANSITIONS, self.stage, event)

    @property
    def moving(self) -> bool:
        """Whether partitions are being given up or taken."""
        return self.stage is not Stage.SETTLED

    @property
    def in_move(self) -> bool:
        """Whether a callback of the present move makes this call, or a task that it made, such as
        that of ``asyncio.wait_for``."""
        return self._move is not None and _MOVE.get() is self._move

    # Moving

    async def give_up(
        self, states: Sequence[PartitionState], deadline: float, *, polls: bool = True
    ) -> None:
        """Give these up, unless the membership ends meanwhile. To be called ``alone``.

        Args:
            states: Which ones.
            deadline: On the client's clock: until then the user and the brokers are waited for.
            polls: Whoever polls may come again, and is waited for. Handlers always are.
        """
        if not states:
            return
        partitions = [state.topic_partition for state in states]
        self._subscription.hold(states)
        waits = not self.by_poll or (polls and bool(self._wanted.interest))
        if waits and self._is_member():
            await self.progress.drain(partitions, deadline)
        await self.commit_before(deadline, partitions)
        if not self._is_member():
            return  # lost meanwhile, which will be told
        await self._callbacks.revoked(partitions)
        self._log.info("partitions given up count=%d", len(partitions))
        self.forget(partitions)
        self._subscription.take_back(partitions)
        self._wanted.pin("assigned", self._subscription.assigned_topics())

    async def take(self, partitions: Iterable[TopicPartition]) -> None:
        """Take what the group gives, as far as it isn't ours yet. To be called ``alone``."""
        self._step(Event.GIVEN)
        added = self._subscription.give(partitions)
        # A topic may be given before the view knows it.
        self._wanted.pin("assigned", self._subscription.assigned_topics())
        self._log.info("partitions given count=%d", len(added))
        patience = self._core.clock.now() + self._config.request_timeout
        await self.committed.wait_for(added, patience, self._begins)
        if not self._begins():
            # The listener has not heard of these, so it needn't hear that they are gone.
            self._subscription.take_back([state.topic_partition for state in added])
            return
        await self._callbacks.assigned([state.topic_partition for state in added])
        self._wake()  # it may have raised
        if self._is_member():
            self._subscription.release(added)

    async def lose(self) -> None:
        """What is left, as the membership ended before it was given up, is lost. To be called
        ``alone``."""
        self._step(Event.LOST)
        partitions = [state.topic_partition for state in self._subscription]
        self._core.counters.add("consumer.partitions_lost", len(partitions))
        self._subscription.hold(self._subscription)
        self.forget(partitions)
        self._lost = partitions if self._handed_over.outstanding else ()
        try:
            await self._callbacks.lost(partitions)
        finally:  # a close may cut the callback off, which is not called twice
            self._subscription.take_back(partitions)
            self._wanted.pin("assigned", ())

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """What was finished and committed of these says nothing any more."""
        self.progress.dropped(partitions)
        self.commits.forget(partitions)

    # What is finished

    @property
    def by_poll(self) -> bool:
        """Whether it is whoever polls that finishes records, not handlers."""
        return self.progress is self._handed_over

    def use_progress(self, progress: Progress | None) -> None:
        """Who says what is finished; None for whoever polls."""
        self.progress = self._handed_over if progress is None else progress

    def came(self) -> None:
        """The user called."""
        self._lost = ()

    def check_loss(self) -> None:
        """Raise CommitFailed if what was handed over last was lost, and no call came since."""
        if self._lost:
            lost = tuple(self._lost)
            raise CommitFailed(
                f"{len(lost)} partitions, {lost[0]} among them, were lost with the membership in "
                f"group {self._group_id!r}: nothing was committed",
                partitions=lost,
                topic_partition=lost[0],
                hint="whoever owns them now reads on from the last commit before",
            )

    def _finished(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """What is finished, but for topics that were deleted: nobody can commit those."""
        finished, gone = self.progress.finished(), self._wanted.is_gone
        dead = {topic for topic in {key.topic for key in finished} if gone(topic)}
        return {key: at for key, at in finished.items() if key.topic not in dead}

    def commit_finished(self) -> asyncio.Future[None] | None:
        """Have what is finished and not committed yet committed; None where there is nothing."""
        offsets = {**self.commits.repeats(), **self.commits.changes(self._finished())}
        if not offsets or self._current() is None:
            return None
        return self.commits.submit(offsets)

    async def commit_before(
        self, deadline: float, partitions: Collection[TopicPartition] | None
    ) -> None:
        """Commit what is finished of ``partitions``, or of all, if that is wanted.

        What was submitted before is waited for as well: a JoinGroup would make it void.
        """
        if self._current() is not None:
            offsets = dict(self.commits.repeats(at_once=True))
            if self._config.enable_auto_commit:
                offsets.update(self.commits.unconfirmed(self._finished()))
            if partitions is not None:
                offsets = {key: offset for key, offset in offsets.items() if key in partitions}
            left = deadline - self._core.clock.now()
            if offsets and left > 0:
                self.commits.submit(offsets, timeout=left)  # a failure is logged
        deadline = min(deadline, self._core.clock.now() + self._config.request_timeout)
        late = self._late  # a move that a close came upon leaves time for the callbacks
        await self.commits.flush(
            deadline, lambda: self._current() is not None and self._late is late
        )

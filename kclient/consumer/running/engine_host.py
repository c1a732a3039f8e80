"""EngineHost: a consumer's engine as a run of handlers sees it; implements ``host.RunHost``.

``door`` makes one per run. Nothing is decided here.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from kclient.consumer.handed_over import committable, offset_and_epoch

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Coroutine, Sequence

    from kclient.clock import Clock
    from kclient.consumer.bad_records import DeadLetters
    from kclient.consumer.engine import Engine
    from kclient.consumer.handed_over import Progress
    from kclient.consumer.records import Convert
    from kclient.errors import DeserializationFailed
    from kclient.record import Record
    from kclient.types import OffsetAndMetadata, TopicPartition

logger = logging.getLogger("kclient.consumer")


class EngineHost:
    """The consumer of one run. Has no tasks.

    Args:
        engine: The consumer's.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._core = engine.core
        self._subscription = engine.subscription
        self._progress: Progress | None = None
        self.clock: Clock = engine.core.clock
        self.rng: random.Random = engine.core.rng
        self.log = engine.core.hooks.log(logger)
        self.convert: Convert | None = engine.poller.convert
        self.max_poll_interval = engine.config.max_poll_interval

    @property
    def partition_count(self) -> int:
        """How many partitions are assigned."""
        return len(self._subscription)

    @property
    def closed(self) -> bool:
        """The client is closed, or about to be."""
        return self._core.closed

    def check(self) -> None:
        """Raise what ended the client."""
        self._core.check_usable()

    def assigned(self) -> Collection[TopicPartition]:
        """The partitions that are assigned."""
        return [state.topic_partition for state in self._subscription]

    def reads(self, topic: str) -> bool:
        """Whether records of ``topic`` are, or will be, among those to handle."""
        group, subscription = self._engine.group, self._subscription
        if group is not None and group.wanted.interest.means(topic, self._core.metadata.view):
            return True
        return topic in subscription.topics or any(subscription.of_topic(topic))

    @property
    def letters(self) -> DeadLetters | None:
        """Where the consumer has records sent that can't be deserialized."""
        return self._engine.bad_records.letters

    def skips(self, record: Record, error: DeserializationFailed) -> bool:
        """Whether the consumer passes over such a record."""
        return self._engine.bad_records.skips(record, error, self._core)

    def passed(
        self, partition: TopicPartition, first: OffsetAndMetadata | None = None
    ) -> OffsetAndMetadata | None:
        """What to commit where all before ``first``, by default the position, is finished."""
        state = self._subscription.get(partition)
        if state is None:
            return None
        at = self._subscription.passed(state, None if first is None else offset_and_epoch(first))
        return None if at is None else committable(at)

    def stand(self, partition: TopicPartition) -> None:
        """The application committed an offset of it."""
        self._engine.handed_over.settle()
        self._subscription.stand(partition)

    async def poll(self, limit: int, timeout: float) -> Sequence[Record]:
        """Records as they are stored.

        Cancellation: safe, nothing was taken.
        """
        records: list[Record] = await self._engine.poller.poll(limit, timeout, raw=True)
        return records

    def may_start(self) -> bool:
        """Whether handlers may start: not where the session is over, as others own all by then."""
        group = self._engine.group
        return group is None or group.handover.holds()

    def touch(self) -> None:
        """Counts as a poll."""
        self._engine.handed_over.touch(self.clock.now())

    def pause(self, partition: TopicPartition) -> None:
        """Hand out no more of it."""
        state = self._subscription.get(partition)
        if state is not None:
            self._subscription.crowd(state, crowded=True)

    def resume(self, partition: TopicPartition) -> None:
        """Undo ``pause``."""
        state = self._subscription.get(partition)
        if state is not None:
            self._subscription.crowd(state, crowded=False)

    def rewind(self, partition: TopicPartition, to: OffsetAndMetadata) -> None:
        """Hand out records from there on again."""
        state = self._subscription.get(partition)
        if state is not None:
            finished = self._engine.finished_of(state)
            self._subscription.seek(state, *offset_and_epoch(to), finished=finished)

    def use_progress(self, progress: Progress | None) -> None:
        """Who says from now on what is finished."""
        self._progress = progress
        if progress is None:
            self._engine.handed_over.all_finished()  # what isn't was given back
        if self._engine.group is not None:
            self._engine.group.handover.use_progress(progress)

    def commit_nowait(self) -> None:
        """Have what is finished committed soon, if commits are automatic."""
        self._commit_finished()

    async def commit(self) -> None:
        """Commit what is finished, if commits are automatic.

        Cancellation: the commit goes on.
        """
        outcome = self._commit_finished()
        if outcome is not None:
            await asyncio.shield(outcome)

    def _commit_finished(self) -> asyncio.Future[None] | None:
        group, automatic = self._engine.group, self._engine.config.enable_auto_commit
        if group is None or self._progress is None or not automatic:
            return None
        return group.handover.commit_finished()

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a task that belongs to the client."""
        return self._core.spawn(coroutine, name)

    async def stop(self, *tasks: asyncio.Task[Any]) -> None:
        """Cancel tasks of ``spawn`` and wait for their end.

        Cancellation: they are cancelled all the same.
        """
        await self._core.stop(*tasks)

    def count(self, name: str, amount: int) -> None:
        """Add to a counter of the client."""
        self._core.counters.add(name, amount)

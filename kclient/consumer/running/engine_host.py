"""EngineHost: a consumer's engine as a run of handlers sees it.

``door`` makes one per run. Nothing is decided here.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kclient.consumer.handed_over import committable, offset_and_epoch

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kclient.consumer.engine import Engine
    from kclient.consumer.handed_over import Progress
    from kclient.consumer.records import Convert
    from kclient.record import Record
    from kclient.types import OffsetAndMetadata, TopicPartition

logger = logging.getLogger("kclient.consumer")


class EngineHost:
    """The consumer of one run. Has no tasks.

    Args:
        engine: The consumer's.

    Attributes:
        core: The client's inside.
        bad_records: What becomes of records that can't be deserialized.
        log: Where to say what happens.
        convert: Makes of a record what the handler gets; None where that is the record.
        max_poll_interval: Seconds after which a handler counts as slow.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.core = engine.core
        self.bad_records = engine.bad_records
        self._subscription = engine.subscription
        self._progress: Progress | None = None
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
        if group is not None and group.wanted.interest.means(topic, self.core.metadata.view):
            return True
        return topic in subscription.topics or any(subscription.of_topic(topic))

    def passed(
        self, partition: TopicPartition, first: OffsetAndMetadata | None = None
    ) -> OffsetAndMetadata | None:
        """What to commit where all before ``first`` is finished; None for nothing.

        ``first`` is by default where the next record to hand over is, behind what nobody may see.
        What was finished before counts where nothing was taken since a seek, and nothing does
        where nothing was taken since an explicit commit.
        """
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
        """Records as they are stored, none after ``timeout`` seconds.

        Between the step in which positions move and the caller's next one nothing may happen.

        Cancellation: safe, nothing was taken.
        """
        records: list[Record] = await self._engine.poller.poll(limit, timeout, raw=True)
        return records

    def may_start(self) -> bool:
        """Whether handlers may start: not where the session is over, as others own all by then.

        Cheap: it is asked for each record.
        """
        group = self._engine.group
        return group is None or group.handover.holds()

    def touch(self) -> None:
        """Counts as a poll, where there is no room for more records."""
        self._engine.handed_over.visited_at = self.core.clock.now()

    def pause(self, partition: TopicPartition) -> None:
        """Hand out no more of it. What the user pauses is kept apart from this."""
        state = self._subscription.get(partition)
        if state is not None:
            self._subscription.crowd(state, crowded=True)

    def resume(self, partition: TopicPartition) -> None:
        """Undo ``pause``. Nothing happens to what isn't assigned."""
        state = self._subscription.get(partition)
        if state is not None:
            self._subscription.crowd(state, crowded=False)

    def rewind(self, partition: TopicPartition, to: OffsetAndMetadata) -> None:
        """Hand out records from there on again. Nothing happens to what isn't assigned."""
        state = self._subscription.get(partition)
        if state is not None:
            finished = self._engine.finished_of(state)
            self._subscription.seek(state, *offset_and_epoch(to), finished=finished)

    def use_progress(self, progress: Progress | None) -> None:
        """Who says from now on what is finished; None: whoever polls, from the positions on."""
        self._progress = progress
        if progress is None:
            self._engine.handed_over.all_finished()  # what isn't was given back
        if self._engine.group is not None:
            self._engine.group.handover.use_progress(progress)

    async def commit(self) -> None:
        """Commit what is finished, if commits are automatic; raises why that failed.

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
        return group.handover.commit_finished()

"""What a consumer does in its group: subscribe, commit, leave. Part of the public door.

``Consumer`` inherits it, as it does ``Running``. It checks arguments and says what each call
promises; the work is behind ``engine.group``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from kclient.consumer.arguments import (
    Interest,
    checked_commit,
    checked_listener,
    checked_partition,
    checked_partitions,
    checked_sources,
    checked_timeout,
    checked_topics,
    refuse_group,
)
from kclient.consumer.handed_over import committable, offset_and_epoch
from kclient.consumer.partition_state import Phase
from kclient.errors import CommitFailed, InvalidArgument, KafkaError
from kclient.types import GroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import asyncio
    import re
    from collections.abc import Iterable

    from kclient.config import ConsumerConfig
    from kclient.consumer.arguments import RebalanceCallback
    from kclient.consumer.engine import Engine
    from kclient.consumer.group_side import GroupSide
    from kclient.consumer.records import ConsumerRecord

    Committable: TypeAlias = (
        ConsumerRecord[Any, Any] | Mapping[TopicPartition, int | OffsetAndMetadata] | None
    )
    """What ``commit`` takes."""


class Grouping:
    """The calls of a consumer that has a group. Without one they raise InvalidConfig."""

    _config: ConsumerConfig
    _engine: Engine

    def subscribe(
        self,
        *topics: str,
        pattern: str | re.Pattern[str] | None = None,
        on_assigned: RebalanceCallback | None = None,
        on_revoked: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Read these topics with the group, in place of what was subscribed to before.

        Returns at once; the group is joined meanwhile, and partitions come with a rebalance.

        Args:
            topics: Names.
            pattern: A regular expression that the whole name must match, in place of names. Topics
                that come later are read, too, once the metadata tells of them.
            on_assigned: Is called after each rebalance with the partitions that came, maybe none,
                before anything of them is handed over; it may seek. Their positions are known by
                then, but where the coordinator refuses to tell them, or doesn't for
                ``request_timeout`` seconds. A plain function or a coroutine function, as the
                others; without any of them, those of before stay.
            on_revoked: Is called before partitions are revoked, and by ``close``; it may commit. In
                a rebalance it comes once the application has made its next call, for which
                ``max_poll_interval`` is waited, with automatic commits or without.
            on_lost: Is called when partitions are another's already; ``on_revoked`` if not given.

        Raises:
            InvalidConfig: The consumer has no group, or a callback can't be called.
            InvalidArgument: Neither topics nor a pattern, or both; partitions are assigned by hand.
            ClientClosed: Before ``start`` or after ``close``.
        """
        group = self._group()
        names = checked_topics(topics, "subscribe(*topics)")
        compiled = checked_sources(names, pattern)
        if not names and compiled is None:
            raise InvalidArgument(
                "subscribe() needs names of topics or a pattern",
                hint="call unsubscribe() to read nothing",
            )
        if group.handover.by_hand and len(self._engine.subscription):
            raise InvalidArgument(
                "subscribe() can't be used while partitions are assigned by hand",
                hint="call unassign() first",
            )
        listener = checked_listener(on_assigned, on_revoked, on_lost)
        internal = not self._config.exclude_internal_topics
        group.subscribe(Interest(names, compiled, internal), listener)

    async def unsubscribe(self) -> None:
        """Give all partitions up and leave the group; ``subscribe`` joins it again.

        What was handed over so far is taken as finished, and committed if commits are automatic.

        Args:
            None.

        Returns:
            Nothing; no partition is assigned.

        Raises:
            InvalidConfig: The consumer has no group.
            ClientClosed, BackgroundTaskDied: The consumer ended.

        Cancellation: it goes on all the same.

        Example::

            await consumer.unsubscribe()
        """
        group = self._group()
        group.callbacks.check_outside("unsubscribe")
        if self._engine.handlers is None:
            self._engine.handed_over.all_finished()
        else:
            self._engine.handlers.check_outside("unsubscribe")
        if group.handover.by_hand and len(self._engine.subscription):
            if self._config.enable_auto_commit:
                group.handover.commit_finished()
            self._engine.assign((), "unsubscribe")
        await group.unsubscribe()

    def rejoin(self, reason: str = "the user asked for it") -> None:
        """Have the group rebalanced soon, as an assignor may know something new.

        Raises:
            InvalidConfig: The consumer has no group.
        """
        group = self._group()
        if not isinstance(reason, str):
            raise InvalidArgument(f"reason={reason!r} can't be used: allowed is a str")
        if not group.wanted.interest:
            raise InvalidArgument("nothing is subscribed to", hint="call subscribe() first")
        group.membership.rejoin(reason)

    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group at the moment.

        Raises:
            InvalidConfig: The consumer has no group.
        """
        group = self._group()
        generation = group.membership.generation
        if generation is None:
            return GroupMetadata(group.group_id, instance_id=self._config.group_instance_id)
        return GroupMetadata(
            group.group_id,
            generation.generation_id,
            generation.member_id,
            generation.instance_id,
        )

    async def commit(
        self,
        what: ConsumerRecord[Any, Any]
        | Mapping[TopicPartition, int | OffsetAndMetadata]
        | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Store in the group how far this consumer has come.

        Commits are made one after the other, in the order of the calls, so that a later one is
        never undone by an earlier one that was slow.

        Args:
            what: None for everything that was handed over so far, and while ``run`` is under way
                for what its handlers have finished. A record, for its partition up to and with this
                record; where more was committed already, nothing happens. Or offsets by partition:
                the next one to read.
            timeout: Seconds, with retries; ``api_timeout`` by default.

        Returns:
            Nothing; it is committed.

        Raises:
            CommitFailed: Partitions are, or may be, another member's by now. Nothing of theirs is
                committed, the others are; the consumer goes on.
            InvalidConfig: The consumer has no group.
            InvalidArgument: An offset or a partition that can't be.
            RequestTimedOut: The coordinator gave no good answer in time; it may be committed.
            UnknownTopicOrPartition, UnknownTopicId: There is no such partition, as the coordinator
                has said for some seconds, or its topic was deleted, and maybe recreated, since the
                offset was read. Other commits don't wait for that.
            BrokerError: It refused, such as with GroupAuthorizationFailed.
            ClientClosed, BackgroundTaskDied: The consumer ended.

        Cancellation: the commit goes on; only its outcome is not waited for.

        Example::

            for record in await consumer.poll():
                await handle(record)
            await consumer.commit()
        """
        limit = self._seconds(timeout)
        offsets, at_least = self._finished_by(what)
        if offsets:
            commits = self._group().commits
            await commits.submit(offsets, timeout=limit, at_least=at_least)

    def commit_nowait(
        self,
        what: ConsumerRecord[Any, Any]
        | Mapping[TopicPartition, int | OffsetAndMetadata]
        | None = None,
        *,
        timeout: float | None = None,
    ) -> asyncio.Future[None]:
        """As ``commit``, without waiting.

        Args:
            what: As with ``commit``.
            timeout: Seconds, with retries; ``api_timeout`` by default.

        Returns:
            Its outcome, which can be awaited or cancelled by itself; the commit goes on. A failure
            that nobody looks at is logged. Where the coordinator is away, each call holds some 200
            bytes until it has an outcome.

        Raises:
            InvalidConfig, InvalidArgument, ClientClosed: As with ``commit``.
        """
        limit = self._seconds(timeout)
        offsets, at_least = self._finished_by(what)
        commits = self._group().commits
        return commits.submit(offsets, timeout=limit, at_least=at_least)

    async def committed(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed of ``partitions``, assigned or not.

        Args:
            partitions: Which ones.
            timeout: Seconds for all; ``api_timeout`` by default.

        Returns:
            The next offset to read by partition; None where nothing is committed.

        Raises:
            KafkaError: The error of the first partition that failed.
            InvalidConfig: The consumer has no group.

        Cancellation: safe.

        Example::

            offsets = await consumer.committed(consumer.assignment)
        """
        group = self._group()
        asked = checked_partitions(partitions)
        if not asked:
            return {}
        answers = await group.offsets.fetch(asked, self._seconds(timeout))
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        for partition in asked:
            answer = answers[partition]
            if isinstance(answer, KafkaError):
                raise answer
            found[partition] = answer
        return found

    def _group(self) -> GroupSide:
        self._engine.core.check_usable()
        if self._engine.group is None:
            raise refuse_group()
        return self._engine.group

    def _seconds(self, timeout: float | None) -> float:
        return self._config.api_timeout if timeout is None else checked_timeout(timeout)

    def _finished_by(
        self, what: Committable
    ) -> tuple[dict[TopicPartition, OffsetAndMetadata], bool]:
        """As ``_offsets_of``; automatic commits go by what the user says here from now on."""
        offsets, at_least = self._offsets_of(what)
        finish, handover = self._engine.subscription.finish, self._group().handover
        for partition, wanted in offsets.items():
            finish(partition, *offset_and_epoch(wanted), at_least=at_least)
            if isinstance(what, Mapping):
                handover.progress.stand(partition)
        return offsets, at_least

    def _offsets_of(
        self, what: Committable
    ) -> tuple[dict[TopicPartition, OffsetAndMetadata], bool]:
        """What to commit, and whether more that is committed already shall stay."""
        group = self._group()
        if what is None:
            handover, handed_over = group.handover, self._engine.handed_over
            handover.check_loss()
            found: Mapping[TopicPartition, OffsetAndMetadata]
            if self._engine.handlers is None and not handover.in_move:
                handed_over.settle()
                found = _positions(self._engine)
            elif handover.by_poll:  # not all that was handed over is finished
                found = handed_over.reached()
            else:
                found = handover.progress.finished()
            return group.commits.queue.unconfirmed(found), False
        if isinstance(what, Mapping):
            return {checked_partition(key): checked_commit(at) for key, at in what.items()}, False
        if not hasattr(what, "topic_partition") or not hasattr(what, "offset"):
            raise InvalidArgument(
                f"{type(what).__name__} can't be committed: give a record, or offsets by partition",
                hint="such as commit({TopicPartition('orders', 0): 7})",
            )
        partition = checked_partition(what.topic_partition)
        state = self._engine.subscription.get(partition)
        fresh = state is not None and state.phase is Phase.AWAITING_COMMITTED
        # Nothing of a fresh one was handed over yet.
        if fresh or not group.handover.owns(partition):
            raise CommitFailed(
                f"offset {what.offset + 1} of {partition} was not committed: the partition is not "
                "this consumer's any more",
                partitions=[partition],
                topic_partition=partition,
                hint="whoever owns it now reads the record again",
            )
        return {partition: OffsetAndMetadata(what.offset + 1, what.leader_epoch)}, True


def _positions(engine: Engine) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        state.topic_partition: committable((state.position, state.position_epoch))
        for state in engine.subscription
        if state.position is not None
    }

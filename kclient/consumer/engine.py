"""Engine: connects the parts of one consumer and notifies them of each other's changes.

``Consumer`` is its facade and calls it with checked arguments. Every change of a partition comes
through ``_changed``, every new view of the cluster through ``_view_changed``; nothing else ties the
parts together. A consumer with a group has a ``GroupConsumer`` as one more part.
"""

from __future__ import annotations

import contextlib
import logging
import math
from typing import TYPE_CHECKING

from kclient.cluster.core import LAST_MOMENT, ClientCore
from kclient.cluster.offset_lookup import list_offsets
from kclient.consumer.fetcher import Fetcher
from kclient.consumer.offset_reset import reset_of
from kclient.consumer.partition_state import PartitionState, Phase
from kclient.consumer.poller import Poller
from kclient.consumer.positions import PositionUpdater
from kclient.consumer.processed_offsets import PolledRecords, offset_and_epoch
from kclient.consumer.subscription import Subscription
from kclient.errors import KafkaError, NoPosition, RequestTimedOut
from kclient.types import IsolationLevel, OffsetAndTimestamp, OffsetSpec, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kclient.cluster.view import Cluster
    from kclient.config import ConsumerConfig
    from kclient.consumer.arguments import GroupOptions
    from kclient.consumer.deserialization_errors import DeserializationErrorHandler
    from kclient.consumer.group_consumer import GroupConsumer
    from kclient.consumer.handlers.run import Runner
    from kclient.consumer.records import Convert
    from kclient.hooks import Dialer, Observer

logger = logging.getLogger("kclient.consumer")

SHARE = 0.8
"""Part of the time of ``close`` that the group may use: connections must be closed, too."""


class Engine:
    """One consumer without its facade. No work and no loop access in the constructor.

    Tasks: those of ``fetcher`` and ``positions``; ``close-consumer`` while ``close`` runs, so that
    it goes on where the caller is cancelled.

    Attributes:
        core: Connections, metadata, supervision.
        subscription: The assigned partitions and their positions.
        polled_records: The records that were returned, finished or not.
        poller: Returns records.
        bad_records: Handles records that deserializers refuse.
        read_committed: Whether only committed records are seen.
        started: ``start`` was called.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        topics: Sequence[str],
        convert: Convert | None,
        observers: Sequence[Observer],
        dialer: Dialer | None,
        group_options: GroupOptions | None,
        bad_records: DeserializationErrorHandler,
    ) -> None:
        """``topics``: without a group, all their partitions are read from ``start`` on.

        In a group, ``group_options`` has the subscription.
        """
        self.config = config
        self.core = ClientCore(config, observers=observers, dialer=dialer)
        self._log = self.core.hooks.log(logger)
        self.read_committed = config.isolation_level == "read_committed"
        self.isolation = IsolationLevel(int(self.read_committed))
        reset = reset_of(
            config.auto_offset_reset or ("none" if group_options is None else "latest")
        )
        self.subscription = Subscription(
            reset,
            self._changed,
            recall=lambda: self.polled_records.settle(),
            facts_of=self._facts_of,
            dismisses=self._dismisses,
            grouped=group_options is not None,
        )
        self.fetcher = Fetcher(self.core, config, self.subscription)
        self.offsets = PositionUpdater(self.core, config, self.subscription, self.fetcher.plan)
        self.polled_records = PolledRecords(self.core, self.subscription, self.fetcher.buffer)
        self.bad_records = bad_records
        self.group: GroupConsumer | None = None
        if group_options is not None:
            from kclient.consumer.group_consumer import GroupConsumer

            wake = self.fetcher.news.notify
            self.group = GroupConsumer(
                self.core, config, group_options, self.subscription, self.polled_records, wake
            )
        self.poller = Poller(
            self.core,
            config,
            self.subscription,
            self.fetcher,
            self.polled_records,
            convert,
            bad_records,
            self.group,
        )
        self._view = self.core.metadata.view
        self.handlers: Runner | None = None
        """The handlers of ``run``, while one is in progress."""
        self._topics = topics
        self.started = False
        self._closing = self.core.closing("close-consumer", self._close)
        self._add_gauges()

    # Life

    async def start(self) -> None:
        """Connect, and assign all partitions of the topics, or join the group.

        Cancellation: nothing stays open.
        """
        self.bad_records.check()
        await self.core.start()
        self.started = True
        try:
            self.core.add_end_listener(lambda _: self.fetcher.news.notify())
            self.core.metadata.add_listener(self._view_changed)
            self.offsets.start()
            self._view_changed(self.core.metadata.view)
            if self.group is None:
                await self._take_topics()
            else:
                await self.group.start()
        except BaseException:
            await self.close(1.0)
            raise

    async def _take_topics(self) -> None:
        metadata = self.core.metadata
        for topic in self._topics:
            metadata.add_topic(topic)
        found = [
            await metadata.wait_for_topic(topic, self.config.api_timeout) for topic in self._topics
        ]
        partitions = [
            TopicPartition(topic.name, index)
            for topic in found
            # One that was found first may have been recreated, with fewer of them, since.
            for index in range(self._view.partition_count(topic.name) or len(topic.leaders))
        ]
        self.subscription.assign(partitions, self._topics)

    async def close(self, timeout: float) -> None:
        """Stop everything within about ``timeout`` seconds.

        Cancellation: it goes on all the same.
        """
        if not self.started or self.core.closed:
            await self.core.close(timeout)
            return
        self.core.check_context()
        if self.group is not None:
            self.group.callbacks.check_outside("close")
        if self.handlers is not None:
            self.handlers.check_outside("close")
        await self._closing.run(timeout)

    async def _close(self) -> None:
        """Stop the parts of this package, then the core. It is run again if its task is killed."""
        try:
            async with self._closing.limit():
                deadline = self.core.clock.now() + self._closing.time_left * SHARE
                user_assigned = self.group is None or self.group.rebalancer.user_assigned
                if self.handlers is not None and user_assigned:
                    self.subscription.hold(self.subscription)
                    partitions = [state.topic_partition for state in self.subscription]
                    await self.handlers.drain(partitions, deadline)
                if self.group is not None:
                    await self.group.close(deadline)
                await self.offsets.close()
                await self.fetcher.close()
                self.bad_records.log_rest(self.core)
                await self.poller.close()
        except TimeoutError:
            self._log.info("closing took too long: the connections are cut off")
        finally:
            await self.core.close(max(self._closing.time_left, LAST_MOMENT))

    @contextlib.contextmanager
    def handling(self, runner: Runner) -> Iterator[None]:
        """While it is open, records are for the handlers of a run."""
        with self.poller.reserve():
            self.handlers = runner
            try:
                yield
            finally:
                self.handlers = None

    # Changes

    def _changed(self, states: Sequence[PartitionState]) -> None:
        """Notify each part of partitions that changed in any way."""
        self.fetcher.follow(states)
        self.offsets.follow(states)
        if self.group is not None:
            self.group.committed.follow(states)
        self.fetcher.news.notify()

    def _dismisses(self, error: KafkaError) -> bool:
        return self.group is not None and self.group.topic_subscription.dismisses(error)

    def _view_changed(self, view: Cluster) -> None:
        """Follow a new view of the cluster; only topics that it changed are examined."""
        if self._closing.begun:
            return
        before, self._view = self._view, view
        subscription = self.subscription
        topics: Iterable[str] = dict.fromkeys(
            (*subscription.topics, *subscription.assigned_topics())
        )
        if view.brokers.keys() == before.brokers.keys():
            topics = [topic for topic in topics if not view.has_same_leaders(before, topic)]
        states = [state for topic in topics for state in subscription.of_topic(topic)]
        self.fetcher.follow_view(view, states)
        self._see(topics)
        self.offsets.wake()
        if self.group is not None:
            self.group.rebalancer.follow_view(view)

    def _see(self, topics: Iterable[str]) -> None:
        """Apply the view to the partitions of ``topics``, new ones included."""
        subscription, view = self.subscription, self._view
        for topic in topics:
            topic_id, count = view.topic_id(topic), view.partition_count(topic)
            whole = topic in subscription.topics
            for state in tuple(subscription.of_topic(topic)):
                partition = state.topic_partition
                another = topic_id is None or topic_id != state.topic_id
                if whole and another and partition.partition >= (count or math.inf):
                    # Topics don't shrink: it was deleted, and recreated with fewer partitions. A
                    # view with fewer of the same topic is wrong, or stale: positions outlast that.
                    self._log.warning("partition is gone partition=%s", partition)
                    subscription.remove(state)
                    self._forget(partition)
                elif subscription.update_metadata(state, topic_id, view.leader_epoch(*partition)):
                    self._log.warning("topic was made anew partition=%s", partition)
                    self._forget(partition)
            if whole and count is not None and count > len(subscription.of_topic(topic)):
                self._add_new(topic, count)

    def _forget(self, partition: TopicPartition) -> None:
        """Drop what was finished and committed of it: that log was deleted."""
        if self.group is not None:
            self.group.rebalancer.forget([partition])
        elif self.handlers is not None:
            self.handlers.dropped([partition])

    def _add_new(self, topic: str, count: int) -> None:
        for index in range(count):
            partition = TopicPartition(topic, index)
            if partition not in self.subscription:
                self._log.info("new partition partition=%s", partition)
                self.subscription.add_new(partition)

    def _facts_of(self, partition: TopicPartition) -> tuple[bytes | None, int]:
        """Topic id and leader epoch that a newly assigned partition begins with."""
        view = self._view
        return view.topic_id(partition.topic), view.leader_epoch(*partition)

    def assign(self, partitions: Iterable[TopicPartition], call: str) -> None:
        """Replace the assignment; ``call`` is the method that the application called."""
        partitions = list(partitions)
        if self.group is not None:
            self.group.assign_by_hand(call)
        subscription, metadata = self.subscription, self.core.metadata
        before = dict.fromkeys((*subscription.assigned_topics(), *subscription.topics))
        subscription.assign(partitions)
        after = dict.fromkeys(subscription.assigned_topics())
        for topic in after:
            if topic not in before:
                metadata.add_topic(topic)
        for topic in before:
            if topic not in after:
                metadata.remove_topic(topic)
        self.fetcher.news.notify()

    def finished_of(self, state: PartitionState) -> tuple[int, int] | None:
        """Offset and leader epoch that automatic commits would use for it now."""
        if self.group is None:
            return None
        at = self.group.rebalancer.processed.finished_of(state.topic_partition)
        return None if at is None else offset_and_epoch(at)

    # Lookups

    async def position(self, state: PartitionState, timeout: float) -> int:
        """Wait until the position is known, and return it."""
        partition = state.topic_partition
        deadline = self.core.clock.now() + timeout
        while True:
            self.core.check_usable()
            self.polled_records.settle()
            if state.position is not None:
                return state.position
            error = self.subscription.take_error_of(state)
            if error is not None:
                raise error
            if state.phase is Phase.NO_POSITION or not state.assigned:
                raise NoPosition(
                    f"nobody said where to start reading {partition}", topic_partition=partition
                )
            left = deadline - self.core.clock.now()
            if left <= 0:
                raise RequestTimedOut(
                    f"where to start reading {partition} was not found out within {timeout:g} s",
                    topic_partition=partition,
                )
            await self.fetcher.news.wait(left)

    async def look_up(
        self, specs: Mapping[TopicPartition, OffsetSpec | int], timeout: float
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Look up offsets of any partitions; raises the first error among them."""
        self.core.check_usable()
        results = await list_offsets(self.core, specs, isolation=self.isolation, timeout=timeout)
        found = {}
        for partition, result in results.items():
            if isinstance(result, KafkaError):
                raise result
            found[partition] = result
        return found

    @property
    def lag(self) -> int | None:
        """Sum over the partitions of which it is known; None if it is known of none."""
        lags = [state.lag(read_committed=self.read_committed) for state in self.subscription]
        known = [lag for lag in lags if lag is not None]
        return sum(known) if known else None

    def _add_gauges(self) -> None:
        gauge = self.core.counters.gauge
        gauge("consumer.partitions", lambda: float(len(self.subscription)))
        gauge("consumer.buffered_bytes", lambda: float(self.fetcher.buffer.frame_bytes))
        gauge("consumer.lag", lambda: float(self.lag or 0))

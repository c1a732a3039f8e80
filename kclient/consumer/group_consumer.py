"""GroupConsumer: the group of one consumer, for the application's calls: subscribe, poll, close.

``engine`` makes one for a consumer with a ``group``. It decides what a commit stores, and has the
timers that belong to these calls: of ``max_poll_interval`` (KIP-62), and for a group that can't be
joined, which raises an error, never silence. ``Membership`` and ``rebalance`` decide which
partitions are assigned and revoked.
"""

from __future__ import annotations

import asyncio
import logging
import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kclient.consumer.arguments import NOTHING, TopicFilter
from kclient.consumer.commits import AutoCommit
from kclient.consumer.partition_state import Phase
from kclient.consumer.processed_offsets import committable, offset_and_epoch
from kclient.consumer.rebalance import Rebalancer
from kclient.consumer.topic_subscription import LOOK
from kclient.errors import (
    ClientClosed,
    CommitFailed,
    ConsumerStalled,
    InvalidArgument,
    MaxPollExceeded,
    fresh,
)
from kclient.types import OffsetAndMetadata, checked_commit, checked_partition

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from kclient.cluster.core import ClientCore
    from kclient.config import ConsumerConfig
    from kclient.consumer.arguments import GroupOptions
    from kclient.consumer.processed_offsets import PolledRecords
    from kclient.consumer.rebalance_listener import RebalanceListener
    from kclient.consumer.records import ConsumerRecord
    from kclient.consumer.subscription import Subscription
    from kclient.group.membership import MembershipHealth
    from kclient.types import TopicPartition

    Committable: TypeAlias = (
        ConsumerRecord[Any, Any] | Mapping[TopicPartition, int | OffsetAndMetadata] | None
    )
    """What ``commit`` takes."""

logger = logging.getLogger("kclient.consumer")

FAREWELL = 1.0
"""Seconds for LeaveGroup, before the application is notified that the consumer left."""
STEP_LOOKS = 8
"""Checks per ``max_poll_interval`` while an ``async for`` has records, or one per second if those
are more: the time of its last step is known that exactly."""
LONGEST = 1.0
"""Seconds between two such checks at most."""
SOONEST = 0.001
"""Seconds to the next check at least: what is left may be too little to move a clock."""
JOIN_LOOKS = 4
"""Checks per ``api_timeout`` whether the group was joined, for calls that wait for records without
a limit."""


class GroupConsumer:
    """The group of one consumer.

    Tasks: those of ``Rebalancer``; ``unsubscribe`` and ``leave-group``, until these are done.
    Timers: that of ``AutoCommit``; while topics are subscribed to, one for the next check whether
    the application polls, and one whether the group was joined.

    Args:
        core: The client's.
        config: Of the consumer.
        group_options: The group, the initial subscription, and the callbacks.
        subscription, polled_records, wake: See ``Rebalancer``.

    Attributes:
        group_id: The group. rebalancer: Assigns and revokes partitions. membership, offsets,
        commits, committed, topic_subscription, callbacks: Those of ``rebalance``. auto_commit: When
        finished offsets are committed.
    """

    def __init__(
        self,
        core: ClientCore,
        config: ConsumerConfig,
        group_options: GroupOptions,
        subscription: Subscription,
        polled_records: PolledRecords,
        wake: Callable[[], object],
    ) -> None:
        self._core = core
        self._log = core.hooks.log(logger)
        self._config = config
        self.group_id = group_options.group
        self._at_first = group_options.topic_filter
        self._subscription = subscription
        self._polled_records = polled_records
        self._wake = wake
        self._closing = False
        self._poll_timer: asyncio.TimerHandle | None = None
        self._steps = 0
        self._stepped_at = 0.0
        self._late: MaxPollExceeded | None = None
        self._join_timer: asyncio.TimerHandle | None = None
        self._outside_since: float | None = None
        self._reported_at = 0.0
        self._trouble: object = None
        self._trouble_at = 0.0
        self.rebalancer = rebalancer = Rebalancer(
            core, config, group_options, subscription, polled_records, wake, self._stop_watches
        )
        self.membership, self.offsets = rebalancer.membership, rebalancer.offsets
        self.commits, self.committed = rebalancer.commits, rebalancer.committed
        self.topic_subscription, self.callbacks = (
            rebalancer.topic_subscription,
            rebalancer.callbacks,
        )
        self.auto_commit = AutoCommit(config.auto_commit_interval, rebalancer, polled_records)

    # Life

    async def start(self) -> None:
        """Start the membership, and subscribe to the initial topics.

        Cancellation: it is to be closed.
        """
        self.membership.start()
        if self._config.enable_auto_commit:
            self.auto_commit.start()
        for topic in self._at_first.topics:  # a name that no topic has is an error at once
            await self._core.metadata.wait_for_topic(topic, self._config.api_timeout)
        if self._at_first:
            self.subscribe(self._at_first, None)

    async def close(self, deadline: float) -> None:
        """Revoke everything, commit, leave; at ``deadline`` at the latest.

        Cancellation: may be called again.
        """
        outside = self.membership.generation is None and not self._closing
        self._closing = True
        self.auto_commit.stop()
        self._stop_watches()
        await self.membership.close("the consumer was closed", deadline)
        if outside:  # a consumer that left for want of polls may still wait to call on_lost
            await self.rebalancer.lose_rest()
        await self.rebalancer.close(deadline)

    def _stop_watches(self) -> None:
        for timer in (self._poll_timer, self._join_timer):
            if timer is not None:
                timer.cancel()
        self._poll_timer = self._join_timer = None

    # The subscription

    def subscribe(self, topic_filter: TopicFilter, listener: RebalanceListener | None) -> None:
        """Read these topics from now on; the group is joined, or rebalanced, soon."""
        if topic_filter and self._closing:
            raise ClientClosed("the consumer is being closed")
        self.topic_subscription.subscribe(topic_filter)
        if listener is not None:
            self.callbacks.use(listener)
        self._subscription.expecting = bool(topic_filter)
        if topic_filter:
            self._late = None
            self.rebalancer.user_assigned = False
            self._watch_polls()
            if self._join_timer is None:
                self._outside_since = None
                self._arm_join_look()
            self.membership.rejoin("the subscription changed")

    async def unsubscribe(self) -> None:
        """Release all partitions and leave the group.

        Cancellation: it goes on all the same.
        """
        self.subscribe(NOTHING, None)
        self._stop_watches()
        self.rebalancer.lose_interest()
        await asyncio.wait([self._core.spawn(self.rebalancer.drop_all(), "unsubscribe")])
        if self._closing:
            raise ClientClosed("the consumer was closed, which left the group")
        self._core.check_usable()

    def assign_by_hand(self, call: str) -> None:
        """Partitions come from the application's ``call`` from now on, not from the group."""
        if self.topic_subscription.topic_filter:
            raise InvalidArgument(
                f"{call}() can't be used while topics are subscribed to: the group assigns",
                hint="call unsubscribe() first",
            )
        if self.rebalancer.moving:
            raise InvalidArgument(
                f"{call}() can't be used while partitions are being given up",
                hint="await unsubscribe() to its end first",
            )
        self.rebalancer.user_assigned = True

    def health(self) -> MembershipHealth | None:
        """Health of the membership; None while nothing is subscribed to."""
        return self.membership.health() if self.topic_subscription.topic_filter else None

    @property
    def poll_age(self) -> float | None:
        """Seconds since the latest poll; 0 during a call; None where none is required."""
        return self._since_poll() if self.topic_subscription.topic_filter else None

    # Calls of the application

    def on_poll(self) -> None:
        """React to a call of the application; raises MaxPollExceeded once after a late one."""
        self.rebalancer.check_session()
        self.rebalancer.on_poll()
        self.auto_commit.on_poll()
        if self._late is not None and self.topic_subscription.topic_filter and not self._closing:
            self._core.check_usable()
            late, self._late = self._late, None
            self._watch_polls()
            self.membership.rejoin("poll was called again")
            raise late

    def check(self) -> None:
        """Raise what is pending for the application."""
        self.callbacks.raise_pending()
        if self.rebalancer.failure is not None:
            raise fresh(self.rebalancer.failure)
        self._check_joined()
        self.topic_subscription.check()

    # What a commit stores

    def offsets_to_commit(
        self, what: Committable, *, in_run: bool
    ) -> tuple[dict[TopicPartition, OffsetAndMetadata], bool]:
        """Return the offsets that ``commit(what)`` stores; automatic commits continue from them.

        Args:
            what: A record, offsets by partition, or None for all that is finished.
            in_run: Records are finished by the handlers of ``run``.

        Returns:
            The offsets, and whether higher ones that are committed already shall stay.

        Raises:
            CommitFailed: The record's partition is not assigned any more; or, for None, partitions
                with finished records were lost.
            InvalidArgument: It is none of these, or has an invalid offset or partition.
        """
        if what is None:
            offsets, at_least = self._finished(in_run), False
        elif isinstance(what, Mapping):
            offsets = {checked_partition(key): checked_commit(at) for key, at in what.items()}
            at_least = False
        else:
            offsets, at_least = self._after(what), True
        for partition, wanted in offsets.items():
            self._subscription.finish(partition, *offset_and_epoch(wanted), at_least=at_least)
            if isinstance(what, Mapping):
                self.rebalancer.processed.on_explicit_commit(partition)
        return offsets, at_least

    def offsets_for_transaction(self, *, in_run: bool) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets after the finished records, for this member alone to commit.

        Without a generation beside them, the coordinator would take them from anybody.

        Raises:
            CommitFailed: Partitions with finished records were, or may have been, lost.
        """
        offsets = self._finished(in_run)
        if offsets and not self.rebalancer.holds():
            raise CommitFailed(
                f"{len(offsets)} partitions may have another owner: this consumer is not a member "
                f"of group {self.group_id!r} at the moment",
                partitions=tuple(offsets),
                hint="abort the transaction, and poll again",
            )
        return offsets

    def _finished(self, in_run: bool) -> dict[TopicPartition, OffsetAndMetadata]:
        rebalancer = self.rebalancer
        rebalancer.check_loss()
        found: Mapping[TopicPartition, OffsetAndMetadata]
        if not in_run and not rebalancer.in_move:
            self._polled_records.settle()
            found = {
                state.topic_partition: committable((state.position, state.position_epoch))
                for state in self._subscription
                if state.position is not None
            }
        elif rebalancer.by_poll:  # not all records that were returned are finished
            found = self._polled_records.reached()
        else:
            found = rebalancer.processed.finished()
        return self.commits.queue.unconfirmed(found)

    def _after(self, record: ConsumerRecord[Any, Any]) -> dict[TopicPartition, OffsetAndMetadata]:
        if not hasattr(record, "topic_partition") or not hasattr(record, "offset"):
            raise InvalidArgument(
                f"{type(record).__name__} can't be committed: give a record, or offsets by "
                "partition",
                hint="such as commit({TopicPartition('orders', 0): 7})",
            )
        partition = checked_partition(record.topic_partition)
        state = self._subscription.get(partition)
        is_fresh = state is not None and state.phase is Phase.AWAITING_COMMITTED
        # No record of a fresh one was returned yet.
        if is_fresh or not self.rebalancer.owns(partition):
            raise CommitFailed(
                f"offset {record.offset + 1} of {partition} was not committed: the partition is "
                "not this consumer's any more",
                partitions=[partition],
                topic_partition=partition,
                hint="whoever owns it now reads the record again",
            )
        return {partition: OffsetAndMetadata(record.offset + 1, record.leader_epoch)}

    # Whether the application polls

    def _watch_polls(self) -> None:
        """Measure the time since the latest poll from now on, unless that is done already.

        A call that waits counts as a poll, and so does each step of an ``async for``: those are
        noticed by how many of its buffered records were returned.
        """
        if self._poll_timer is None:
            self._stepped_at = self._core.clock.now()
            self._steps = self._polled_records.steps
            self._arm_poll_look(self._config.max_poll_interval)

    def taken(self) -> None:
        """Check polls more often, as an ``async for`` takes records one by one from now on."""
        timer, now = self._poll_timer, self._core.clock.now()
        if timer is not None and timer.when() > now + LONGEST:
            timer.cancel()
            # The first of them is returned in this step.
            self._steps, self._stepped_at = self._polled_records.steps + 1, now
            self._arm_poll_look(min(self._config.max_poll_interval / STEP_LOOKS, LONGEST))

    def _since_poll(self) -> float:
        """Seconds since the latest poll; 0 during a call."""
        if self._polled_records.active_polls:
            return 0.0
        return self._core.clock.now() - max(self._polled_records.last_poll_at, self._stepped_at)

    def _arm_poll_look(self, seconds: float) -> None:
        self._poll_timer = asyncio.get_running_loop().call_later(seconds, self._look_at_polls)

    def _look_at_polls(self) -> None:
        self._poll_timer = None
        steps = self._polled_records.steps
        if steps != self._steps:
            self._steps = steps
            self._stepped_at = self._core.clock.now()
        seconds, interval = self._since_poll(), self._config.max_poll_interval
        if seconds >= interval:
            self._too_late(seconds)
            return
        wait = max(interval - seconds, SOONEST)
        at_hand = operator.length_hint(self._polled_records.iterator_buffer.left)
        self._arm_poll_look(min(wait, interval / STEP_LOOKS, LONGEST) if at_hand else wait)

    def _too_late(self, seconds: float) -> None:
        self._late = MaxPollExceeded(
            f"the consumer left group {self.group_id!r}, since no poll came for {seconds:.1f} s, "
            f"and max_poll_interval is {self._config.max_poll_interval:g} s",
            hint="poll again to join again; take fewer records at a time (max_poll_records), raise "
            "max_poll_interval, or use run(), which keeps polling while handlers work",
        )
        self._log.warning("%s", self._late.message)
        self._subscription.hold(self._subscription)  # others own them before we know of it
        self._core.spawn(self._step_out(self._late), "leave-group")

    async def _step_out(self, why: MaxPollExceeded) -> None:
        """Leave, as the application doesn't poll: other members shall get the partitions."""
        # The application is notified also where the coordinator doesn't respond.
        await asyncio.gather(
            self.membership.leave("no poll within max_poll_interval", timeout=FAREWELL),
            self.rebalancer.lost(why),
        )

    # Whether the group can be joined

    def _arm_join_look(self) -> None:
        wait = self._config.api_timeout / JOIN_LOOKS
        if self.topic_subscription.lacking():
            wait = min(wait, LOOK)
        self._join_timer = asyncio.get_running_loop().call_later(wait, self._look_at_joining)

    def _look_at_joining(self) -> None:
        """Wake pending calls, for trouble and for names that no topic has."""
        self._arm_join_look()
        self.topic_subscription.refresh()
        if not self.membership.joined or self.topic_subscription.unknown:
            self._wake()

    def _check_joined(self) -> None:
        """Raise ConsumerStalled where nothing but trouble came for ``api_timeout`` seconds.

        It is raised again after as long. Waiting for the other members of a rebalance is no
        trouble, however long it takes: only failed attempts are.
        """
        if self._join_timer is None:
            return
        if self.membership.joined:
            self._outside_since = None
            return
        now, error = self._core.clock.now(), self.membership.trouble
        if self._outside_since is None:
            self._outside_since = self._reported_at = now
        if error is not self._trouble:
            self._trouble, self._trouble_at = error, now
        patience = self._config.api_timeout
        if error is None or now - self._reported_at < patience:
            return
        if now - self._trouble_at > patience / 2:
            return  # there was a response since: the group waits for others
        self._reported_at = now
        stalled = ConsumerStalled(
            f"the consumer has not been in group {self.group_id!r} for "
            f"{now - self._outside_since:.1f} s; last trouble: {error}",
            hint="it goes on by itself once the coordinator answers: poll again; see health()",
        )
        stalled.__cause__ = error
        raise stalled

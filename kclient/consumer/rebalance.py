"""Rebalancer: revokes and assigns the partitions of a group, step by step, in the required order.

``group_consumer`` has one; ``Membership`` calls it, by the methods of ``MembershipHost``. One move
of partitions runs at a time, and each begins with revoking: all partitions in an eager rebalance,
those that went to other members in a cooperative one, none where nothing moves. To revoke: no more
records are returned; the application finishes those that were; what is finished is committed;
``on_revoked`` is called; only then the partition is released. To assign: the committed offsets are
fetched; ``on_assigned`` is called, which may seek; then records are returned. The leader's part is
in ``leader_assignment``. Errors are kept for the application's next call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from contextvars import ContextVar
from typing import TYPE_CHECKING

from kclient.cluster.coordinator import Coordinator
from kclient.consumer.commits import Commits
from kclient.consumer.committed_offsets import CommittedOffsets
from kclient.consumer.leader_assignment import LeaderAssignment
from kclient.consumer.rebalance_listener import RebalanceListenerInvoker
from kclient.consumer.topic_subscription import TopicSubscription
from kclient.errors import CommitFailed, InvalidArgument, KafkaError, ProtocolError
from kclient.group.assignors import chosen, is_cooperative
from kclient.group.consumer_protocol import decode_assignment, encode_subscription
from kclient.group.member import OUTSIDE, Generation, JoinedMember, MemberProtocol
from kclient.group.membership import Membership
from kclient.group.offsets import GroupOffsets
from kclient.hooks import MemberSubscription

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence

    from kclient.cluster.core import ClientCore
    from kclient.cluster.view import Cluster
    from kclient.config import ConsumerConfig
    from kclient.consumer.arguments import GroupOptions
    from kclient.consumer.partition_state import PartitionState
    from kclient.consumer.processed_offsets import PolledRecords, ProcessedOffsets
    from kclient.consumer.subscription import Subscription
    from kclient.hooks import Assignor
    from kclient.types import OffsetAndMetadata, TopicPartition

logger = logging.getLogger("kclient.consumer")

PROTOCOL_TYPE = "consumer"
_MOVE: ContextVar[object] = ContextVar("kclient move", default=None)
"""The move that callbacks are called for, to recognize calls that a callback makes."""


class Rebalancer:
    """Which partitions this member owns, and the handling of their records when they move.

    Implements ``MembershipHost``. Tasks: those of ``Membership``, ``Commits`` and
    ``CommittedOffsets``.

    Args:
        core: The client's.
        config: Of the consumer.
        group_options: The group, and the application's callbacks.
        subscription: The partitions that are assigned and revoked.
        polled_records: What the application has finished where it polls.
        wake: Wakes calls that wait for records, to check for anything else to raise.
        on_failed: Called when the group can never be joined.

    Attributes:
        user_assigned: Partitions come from ``assign``, not from the group.
        failure: Why the group can never be joined.
        membership: The consumer's membership.
        offsets: Of the group.
        topic_subscription: Knows the subscribed topics, and which of them were deleted.
        callbacks: The application's.
        commits: Sends commits, one after the other.
        committed: Fetches the offsets where partitions begin.
        processed: Knows which offsets are finished.
    """

    protocol_type = PROTOCOL_TYPE

    def __init__(
        self,
        core: ClientCore,
        config: ConsumerConfig,
        group_options: GroupOptions,
        subscription: Subscription,
        polled_records: PolledRecords,
        wake: Callable[[], object],
        on_failed: Callable[[], object],
    ) -> None:
        self._core = core
        self._log = core.hooks.log(logger)
        self._config = config
        self._group_id = group_id = group_options.group
        self._subscription = subscription
        self._polled_records = polled_records
        self._wake = wake
        self._on_failed = on_failed
        self._assignors = chosen(config.partition_assignment_strategy)
        self._cooperative = is_cooperative(self._assignors)
        self._one = asyncio.Lock()
        self._move: object | None = None
        self._losing = False  # what is left is, or may be, another's: nothing of it is committed
        self._lost: Sequence[TopicPartition] = ()
        self._hurried = self._late = False
        self._timer: asyncio.TimerHandle | None = None
        self.user_assigned = False
        self.failure: KafkaError | None = None
        coordinator = Coordinator(core, group_id)
        self.offsets = GroupOffsets(core, coordinator)
        self.membership = Membership(
            core, coordinator, config, group_id, config.max_poll_interval, self
        )
        self.topic_subscription = TopicSubscription(core)
        self.callbacks = RebalanceListenerInvoker(
            core, group_options.listener, config.max_poll_interval, self._notify_user
        )
        self._leader_assignment = LeaderAssignment(core, self.topic_subscription)
        self.commits = Commits(
            core, self.offsets, self._current, self.owns, self.membership.refused, self._topic_id_of
        )
        self.committed = CommittedOffsets(
            core, config, subscription, self.offsets, self.commits.queue.learned
        )
        self.processed: ProcessedOffsets = polled_records

    def _notify_user(self) -> None:
        """Wake pending polls, also in the midst of the records that an ``async for`` has taken."""
        self._polled_records.settle()
        self._wake()

    # Life

    def shorten_deadline(self, deadline: float) -> None:
        """Shorten all waits of a move to ``deadline``, as the consumer is being closed.

        Calls of the application, and committed offsets, are not waited for at all.
        """
        self._hurried = True
        self.processed.shorten_deadline(deadline)
        self.callbacks.shorten_deadline(deadline)
        self.committed.recheck()
        self._stop_timer()
        left = max(0.0, deadline - self._core.clock.now())
        self._timer = asyncio.get_running_loop().call_later(left, self._be_late)

    def _be_late(self) -> None:
        self._late = True
        self.commits.recheck()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def close(self, deadline: float) -> None:
        """Commit what is left to commit, after the group was left, and stop.

        Cancellation: may be called again.
        """
        self._stop_timer()
        if self.user_assigned:
            await self._commit_before(deadline, None)
        await self.commits.close(deadline)
        await self.committed.close()

    # Ownership

    def _is_member(self) -> bool:
        return self.membership.generation is not None

    def _begins(self) -> bool:
        """Whether partitions that the group assigns will be read."""
        return (
            self._is_member() and bool(self.topic_subscription.topic_filter) and not self._hurried
        )

    def _current(self) -> Generation | None:
        return OUTSIDE if self.user_assigned else self.membership.generation

    def owns(self, partition: TopicPartition) -> bool:
        """Whether offsets of ``partition`` may be committed by this consumer."""
        ours = partition in self._subscription and not self._losing
        return self.user_assigned or ours

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

    def holds(self) -> bool:
        """Whether the assignment is still ours, as far as is known without a request."""
        if self.user_assigned:
            return True
        self.membership.check_session()
        return self._is_member()

    def check_session(self) -> None:
        """Stop returning records if the loop stood still for a session: others own all by now.

        The heartbeat task may not have run yet to notice it.
        """
        self.membership.check_session()
        self._hold_what_is_lost()

    def _hold_what_is_lost(self) -> None:
        """Return no more records while this is no member: others may own all partitions by now."""
        if not self._is_member() and not self.user_assigned:
            self._subscription.hold(self._subscription)

    def lose_interest(self) -> None:
        """Wait for neither calls nor committed offsets, as the application unsubscribed."""
        self._polled_records.shorten_deadline(-math.inf)
        self.committed.recheck()

    def interrupt(self) -> None:
        """The generation is over: end all waits of a move, except for the callbacks."""
        self._hold_what_is_lost()
        self.processed.shorten_deadline(-math.inf)
        self.committed.recheck()
        self.commits.recheck()

    # Moves

    @contextlib.asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Move partitions one move at a time: for the membership, or for the application."""
        async with self._one:
            self._move = object()
            token = _MOVE.set(self._move)
            try:
                yield
            finally:
                self._move, self._losing = None, False
                _MOVE.reset(token)

    @property
    def moving(self) -> bool:
        """Whether partitions are being revoked or assigned."""
        return self._move is not None

    @property
    def in_move(self) -> bool:
        """Whether a callback of the present move makes this call.

        Or a task that it made, such as that of ``asyncio.wait_for``.
        """
        return self.moving and _MOVE.get() is self._move

    # Calls of the membership

    def protocols(self) -> Sequence[MemberProtocol]:
        """The assignors in order, with the subscribed topics and the owned partitions."""
        topics = self.topic_subscription.join()
        generation = self.membership.generation
        owned = tuple(state.topic_partition for state in self._subscription)
        return [
            MemberProtocol(
                assignor.name,
                encode_subscription(
                    MemberSubscription(
                        topics,
                        self._user_data(assignor, topics),
                        owned,
                        -1 if generation is None else generation.generation_id,
                        self._config.client_rack,
                    )
                ),
            )
            for assignor in self._assignors
        ]

    def _user_data(self, assignor: Assignor, topics: Sequence[str]) -> bytes | None:
        """An assignor's user data; one that fails adds none, and the next poll raises its error."""
        try:
            return assignor.user_data(topics)
        except Exception as error:
            self.callbacks.keep(f"user_data() of the assignor {assignor.name!r}", error)
            return None

    async def prepare(self, deadline: float) -> None:
        """Eager: revoke everything. Cooperative: what isn't subscribed to any more, or deleted."""
        async with self._alone():
            self._leader_assignment.resign()
            subscribed = self.topic_subscription
            view, means, is_gone = (
                self._core.metadata.view,
                subscribed.topic_filter.means,
                subscribed.is_gone,
            )
            topics = self._subscription.assigned_topics()
            going = {one for one in topics if not means(one, view) or is_gone(one)}
            await self._give_up(
                [
                    state
                    for state in self._subscription
                    if not self._cooperative or state.topic_partition.topic in going
                ],
                deadline,
            )

    async def assign(
        self, protocol: str, members: Sequence[JoinedMember], generation: Generation
    ) -> Mapping[str, bytes] | KafkaError:
        """Assign partitions to the members, as the group's leader."""
        for assignor in self._assignors:
            if assignor.name == protocol:
                return await self._leader_assignment.assign(assignor, members)
        return InvalidArgument(f"the group chose assignor {protocol!r}, which nobody offered")

    async def assigned(self, generation: Generation, assignment: bytes) -> KafkaError | None:
        """Move to the assignment of a finished rebalance."""
        try:
            partitions = dict.fromkeys(decode_assignment(assignment))
        except ProtocolError as error:
            self.callbacks.keep("the leader's assignment", error)
            self._wake()
            return error
        self.commits.wake()
        async with self._alone():
            await self._move_to(generation, partitions)
        self.follow_view(self._core.metadata.view)
        return None

    async def _move_to(
        self, generation: Generation, partitions: Mapping[TopicPartition, None]
    ) -> None:
        deadline = self._core.clock.now() + self._config.max_poll_interval
        going = [state for state in self._subscription if state.topic_partition not in partitions]
        if going:
            await self._give_up(going, deadline)
            if self.membership.generation != generation or self._hurried:
                return
            self.membership.rejoin("partitions were given up for others")
        for assignor in self._assignors:
            if assignor.name == generation.protocol:
                self._notify(assignor, list(partitions), generation)
        if not generation.is_leader:
            self._leader_assignment.resign()
        await self._take(partitions)
        if self._leader_assignment.lacks(partitions):
            self.membership.rejoin("partitions were added while the only member was away")

    def _notify(
        self, assignor: Assignor, partitions: Sequence[TopicPartition], generation: Generation
    ) -> None:
        try:
            assignor.assigned(partitions, generation.generation_id)
        except Exception as error:
            self.callbacks.keep(f"assigned() of the assignor {assignor.name!r}", error)

    def follow_view(self, view: Cluster) -> None:
        """Follow a new view: topics came or went, or the leader must assign again."""
        if not self.topic_subscription.topic_filter or self._hurried or not self._is_member():
            return
        if self.topic_subscription.topics_in(view) != self.topic_subscription.joined:
            self.membership.rejoin("the topics that match the pattern changed")
        elif self._leader_assignment.changed(view):
            self.membership.rejoin("the partitions of topics changed")

    async def leaving(self, deadline: float) -> None:
        """Revoke everything, as the consumer is closed."""
        async with self._alone():
            await self._drop(deadline)

    async def lost(self, error: KafkaError) -> None:
        """Lose all partitions: none of them is ours any more."""
        self.interrupt()  # a move in progress may wait for unreachable brokers
        async with self._alone():
            if len(self._subscription) and not self.user_assigned:
                self._log.warning("partitions lost count=%d: %s", len(self._subscription), error)
            await self._lose_rest()

    def on_join_refused(self, error: KafkaError) -> None:
        """Keep the error for poll, as the member can't join for now."""
        self.callbacks.keep("the group", error)
        self._wake()

    def failed(self, error: KafkaError) -> None:
        """Keep the error for every poll, as the member can never join."""
        self.failure = error
        self._on_failed()
        self._wake()

    # Calls of the application

    async def drop_all(self) -> None:
        """Revoke everything and leave; the application wants no partition any more.

        Cancellation: it stops where it was.
        """
        async with self._alone():
            deadline = self._core.clock.now() + self._config.api_timeout
            if self.user_assigned:
                await self._commit_before(deadline, None)
            await self._drop(deadline)
            if (
                not self.topic_subscription.topic_filter
            ):  # else the application has subscribed again
                await self.membership.leave("the consumer unsubscribed")

    async def lose_rest(self) -> None:
        """Lose what was not revoked before the membership ended.

        Cancellation: may be called again.
        """
        async with self._alone():
            await self._lose_rest()

    # Moving

    async def _give_up(
        self, states: Sequence[PartitionState], deadline: float, *, polls: bool = True
    ) -> None:
        """Revoke ``states``, unless the membership ends meanwhile. To be called in ``_alone``.

        Args:
            states: Which ones.
            deadline: On the client's clock: until then it waits for application and brokers.
            polls: Wait for the next call where the application polls. It always waits for handlers.
        """
        if not states:
            return
        partitions = [state.topic_partition for state in states]
        self._subscription.hold(states)
        waits = not self.by_poll or (polls and bool(self.topic_subscription.topic_filter))
        if waits and self._is_member():
            await self.processed.drain(partitions, deadline)
        await self._commit_before(deadline, partitions)
        if not self._is_member():
            return  # lost meanwhile, which ``lost`` reports
        await self.callbacks.call("on_revoked", partitions)
        self._log.info("partitions given up count=%d", len(partitions))
        self.forget(partitions)
        self._subscription.take_back(partitions)
        self.topic_subscription.pin("assigned", self._subscription.assigned_topics())

    async def _take(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign those of ``partitions`` that aren't ours yet. To be called in ``_alone``."""
        added = self._subscription.give(partitions)
        # A topic may be assigned before the view knows it.
        self.topic_subscription.pin("assigned", self._subscription.assigned_topics())
        self._log.info("partitions given count=%d", len(added))
        patience = self._core.clock.now() + self._config.request_timeout
        await self.committed.wait_for(added, patience, self._begins)
        if not self._begins():
            # ``on_assigned`` was not called for these, so ``on_lost`` needn't be.
            self._subscription.take_back([state.topic_partition for state in added])
            return
        await self.callbacks.call("on_assigned", [state.topic_partition for state in added])
        self._wake()  # it may have raised
        if self._is_member():
            self._subscription.release(added)

    async def _drop(self, deadline: float) -> None:
        """Revoke everything without waiting for polls: the application itself ends it."""
        await self._give_up(list(self._subscription), deadline, polls=False)
        await self._lose_rest()

    async def _lose_rest(self) -> None:
        """Lose what was not revoked before the membership ended. To be called in ``_alone``."""
        if self.user_assigned or not len(self._subscription):
            return
        self._leader_assignment.resign()
        self._losing = True
        partitions = [state.topic_partition for state in self._subscription]
        self._core.counters.add("consumer.partitions_lost", len(partitions))
        self._subscription.hold(self._subscription)
        self.forget(partitions)
        self._lost = partitions if self._polled_records.outstanding else ()
        try:
            await self.callbacks.call("on_lost", partitions)
        finally:  # a close may cut the callback off, which is not called twice
            self._subscription.take_back(partitions)
            self.topic_subscription.pin("assigned", ())

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forget what was finished and committed of these: it is not valid any more."""
        self.processed.dropped(partitions)
        self.commits.forget(partitions)

    # What is finished

    @property
    def by_poll(self) -> bool:
        """Whether records are finished by the calls of poll, not by handlers."""
        return self.processed is self._polled_records

    def use_processed(self, processed: ProcessedOffsets | None) -> None:
        """Set what knows the finished offsets; None for the calls of poll."""
        self.processed = self._polled_records if processed is None else processed

    def on_poll(self) -> None:
        """React to a call of the application."""
        self._lost = ()

    def check_loss(self) -> None:
        """Raise CommitFailed if the latest records were lost, and no call came since."""
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
        """Finished offsets, except for deleted topics: these can't be committed."""
        finished, is_gone = self.processed.finished(), self.topic_subscription.is_gone
        deleted = {topic for topic in {key.topic for key in finished} if is_gone(topic)}
        return {key: at for key, at in finished.items() if key.topic not in deleted}

    def may_commit(self) -> bool:
        """Whether the finished offsets are known at the moment."""
        return not (self.by_poll and self._polled_records.outstanding)

    def commit_finished(self) -> asyncio.Future[None] | None:
        """Commit what is finished and not committed yet; None where there is nothing."""
        offsets = {**self.commits.repeats(), **self.commits.queue.changes(self._finished())}
        if not offsets or self._current() is None:
            return None
        return self.commits.submit(offsets)

    async def _commit_before(
        self, deadline: float, partitions: Collection[TopicPartition] | None
    ) -> None:
        """Commit what is finished of ``partitions``, or of all, if commits are automatic.

        What was submitted before is waited for as well: a JoinGroup would make it void.
        """
        if self._current() is not None:
            offsets = dict(self.commits.repeats(at_once=True))
            if self._config.enable_auto_commit:
                offsets.update(self.commits.queue.unconfirmed(self._finished()))
            if partitions is not None:
                offsets = {key: offset for key, offset in offsets.items() if key in partitions}
            left = deadline - self._core.clock.now()
            if offsets and left > 0:
                self.commits.submit(offsets, timeout=left)  # a failure is logged
        deadline = min(deadline, self._core.clock.now() + self._config.request_timeout)
        late = self._late  # a move interrupted by a close leaves time for the callbacks
        await self.commits.flush(
            deadline, lambda: self._current() is not None and self._late is late
        )

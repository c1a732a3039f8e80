"""GroupSide: the group behind one consumer: who gives it partitions, and where their commits go.

``engine`` makes one for a consumer with a ``group``. It is what ``Membership`` serves: it says what
is subscribed to, and says which partitions are given up and which are taken; ``handover`` does it,
in the order that is fixed. Assigning is in ``leading``. What went wrong is kept for the user's next
call.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kclient.consumer.auto_commit import AutoCommit
from kclient.consumer.callbacks import Callbacks
from kclient.consumer.handover import Handover
from kclient.consumer.interest import NOTHING, Interest
from kclient.consumer.join_watch import JoinWatch
from kclient.consumer.leading import Leading
from kclient.consumer.poll_watch import PollWatch
from kclient.consumer.wanted import Wanted
from kclient.errors import (
    ClientClosed,
    InvalidArgument,
    KafkaError,
    MaxPollExceeded,
    ProtocolError,
    fresh,
)
from kclient.group.assignors import chosen, is_cooperative
from kclient.group.consumer_protocol import decode_assignment, encode_subscription
from kclient.group.coordinator import Coordinator
from kclient.group.host import JoinedMember, Offer
from kclient.group.membership import Membership
from kclient.group.offset_commit import is_unknown
from kclient.group.offsets import GroupOffsets
from kclient.hooks import MemberSubscription

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kclient.cluster.core import ClientCore
    from kclient.cluster.view import Cluster
    from kclient.config import ConsumerConfig
    from kclient.consumer.handed_over import HandedOver
    from kclient.consumer.health import CallbackHealth
    from kclient.consumer.listener import Listener
    from kclient.consumer.subscription import Subscription
    from kclient.group.generation import Generation
    from kclient.group.health import MembershipHealth
    from kclient.hooks import Assignor
    from kclient.types import TopicPartition

logger = logging.getLogger("kclient.consumer")

PROTOCOL_TYPE = "consumer"
FAREWELL = 1.0
"""Seconds for telling the coordinator that we leave, before the user hears that we did."""


class GroupSide:
    """The group of one consumer. Implements ``MembershipHost``.

    Tasks: those of ``Membership`` and ``Handover``. Timers: those of ``AutoCommit``, ``PollWatch``
    and ``JoinWatch``.

    Attributes:
        group_id: The group.
        membership: Ours.
        commits: What is committed, one after the other.
        committed: Where partitions begin.
        handover: Gives partitions up and takes them.
        poll_watch: Measures how long ago the user last came.
    """

    protocol_type = PROTOCOL_TYPE

    def __init__(
        self,
        core: ClientCore,
        config: ConsumerConfig,
        group_id: str,
        subscription: Subscription,
        handed_over: HandedOver,
        wake: Callable[[], object],
        listener: Listener,
    ) -> None:
        """``wake`` has those who wait for records ``check``."""
        self._core = core
        self._log = core.hooks.log(logger)
        self._config = config
        self.group_id = group_id
        self._subscription = subscription
        self._handed_over = handed_over
        self._wake = wake
        self._callbacks = Callbacks(core, listener, config.max_poll_interval, self._tell_user)
        self._assignors = chosen(config.partition_assignment_strategy)
        self._cooperative = is_cooperative(self._assignors)
        self._wanted = Wanted(core)
        self._failure: KafkaError | None = None
        self._late: MaxPollExceeded | None = None
        self._closing = False
        coordinator = Coordinator(core, group_id)
        self.offsets = GroupOffsets(core, coordinator)
        self.membership = Membership(
            core, coordinator, config, group_id, config.max_poll_interval, self
        )
        self.handover = Handover(
            core,
            config,
            subscription,
            handed_over,
            wake,
            self.membership,
            self.offsets,
            self._wanted,
            self._callbacks,
        )
        self.commits, self.committed = self.handover.commits, self.handover.committed
        self._leading = Leading(
            core, self._wanted, lambda topics: self._wanted.pin("leader", topics)
        )
        self._auto = AutoCommit(
            config.auto_commit_interval,
            self._may_commit,
            self.handover.commit_finished,
            handed_over.want_visit,
        )
        self.poll_watch = PollWatch(
            core.clock, handed_over, config.max_poll_interval, self._too_late
        )
        self._join_watch = JoinWatch(
            core.clock, self.membership, group_id, config.api_timeout, self._wanted, wake
        )

    # Life

    def start(self) -> None:
        """The client runs."""
        self.membership.start()
        if self._config.enable_auto_commit:
            self._auto.start()

    async def close(self, deadline: float) -> None:
        """Give everything up, commit, leave; at ``deadline`` at the latest.

        Cancellation: may be called again.
        """
        outside = self.membership.generation is None and not self._closing
        self._closing = True
        self._auto.stop()
        self.poll_watch.stop()
        self._join_watch.stop()
        await self.membership.close("the consumer was closed", deadline)
        if outside:  # who stepped out for want of polls may still wait to tell of it
            async with self.handover.alone():
                await self._lose_rest()
        await self.handover.close(deadline)

    # What is subscribed to

    @property
    def interest(self) -> Interest:
        """What is subscribed to."""
        return self._wanted.interest

    @property
    def unknown_topics(self) -> tuple[str, ...]:
        """Names that are subscribed to and that no topic has."""
        return self._wanted.unknown

    def subscribe(self, interest: Interest, listener: Listener | None) -> None:
        """Read this from now on; the group is joined, or rebalanced, soon."""
        if interest and self._closing:
            raise ClientClosed("the consumer is being closed")
        if interest.pattern is not None and self.interest.pattern is None:
            self._core.metadata.watch_all()
        elif interest.pattern is None and self.interest.pattern is not None:
            self._core.metadata.unwatch_all()
        self._wanted.interest = interest
        if listener is not None:
            self._callbacks.listener = listener
        self._subscription.expect(topics=bool(interest))
        self._wanted.pin("subscribed", interest.topics)
        self._core.metadata.request_update()
        if interest:
            self._late = None
            self.poll_watch.start()
            self._join_watch.start()
            self.membership.rejoin("the subscription changed")

    async def unsubscribe(self) -> None:
        """Give everything up and leave.

        Cancellation: it goes on all the same.
        """
        self.subscribe(NOTHING, None)
        self.poll_watch.stop()
        self._join_watch.stop()
        self.handover.lose_interest()
        await asyncio.wait([self._core.spawn(self._drop_all(), "unsubscribe")])
        if self._closing:
            raise ClientClosed("the consumer was closed, which left the group")
        self._core.check_usable()

    async def _drop_all(self) -> None:
        async with self.handover.alone():
            deadline = self._core.clock.now() + self._config.api_timeout
            if self.handover.by_hand:
                await self.handover.commit_before(deadline, None)
            await self._drop(deadline)
            if not self.interest:  # else the user has subscribed again meanwhile
                await self.membership.leave("the consumer unsubscribed")

    def follow_view(self, view: Cluster) -> None:
        """The cluster changed: topics came or went, or a leader must assign anew."""
        if not self.interest or self._closing or self.membership.generation is None:
            return
        if self._wanted.topics_in(view) != self._wanted.joined:
            self.membership.rejoin("the topics that match the pattern changed")
        elif self._leading.changed(view):
            self.membership.rejoin("the partitions of topics changed")

    def health(self) -> MembershipHealth | None:
        """How the membership is; None where there shall be none."""
        return self.membership.health() if self.interest else None

    def callback_health(self) -> CallbackHealth | None:
        """The callback of the user's that is under way."""
        return self._callbacks.health()

    @property
    def poll_age(self) -> float | None:
        """Seconds since the user last came; 0 during a call; None where nobody must."""
        return self.poll_watch.seconds if self.interest else None

    # Calls of the user

    def look(self) -> None:
        """Where the loop stood still for a session, others own all by now: nothing is handed over,
        though nobody had a turn to say so."""
        self.membership.look()
        self.handover.look()

    def dismisses(self, error: KafkaError) -> bool:
        """A deleted topic leaves a pattern subscription by a rebalance, and is no error."""
        return self.interest.pattern is not None and is_unknown(error)

    def holds(self) -> bool:
        """Whether what is assigned is still ours, as far as is known without asking."""
        if self.handover.by_hand:
            return True
        self.membership.look()
        return self.membership.generation is not None

    def came(self) -> None:
        """The user called."""
        self.look()
        self.handover.came()
        self._auto.came()
        if self._late is not None and self.interest and not self._closing:
            self._core.check_usable()
            late, self._late = self._late, None
            self.poll_watch.start()
            self.membership.rejoin("poll was called again")
            raise late

    def check(self) -> None:
        """Raise what the user has to know."""
        self._callbacks.look()
        if self._failure is not None:
            raise fresh(self._failure)
        self._join_watch.look()
        self._wanted.check()

    def _tell_user(self) -> None:
        """Whoever polls is to ``check``, also in the midst of what an ``async for`` has taken."""
        self._handed_over.settle()
        self._wake()

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
        """Leave, as the user's code doesn't come back: others shall go on with our partitions."""
        await asyncio.gather(
            self.membership.leave("no poll within max_poll_interval", timeout=FAREWELL),
            self.lost(why),  # the user hears of it also where the coordinator doesn't answer
        )

    @property
    def in_callback(self) -> bool:
        """Whether a callback of a rebalance makes this call."""
        return self._callbacks.calls

    def check_outside(self, call: str) -> None:
        """Refuse what would wait for the callback that waits for it."""
        if self.in_callback:
            raise InvalidArgument(
                f"{call}() can't be awaited in a callback of a rebalance",
                hint="set a flag there, and call it from where you poll",
            )

    def _may_commit(self) -> bool:
        return not (self.handover.by_poll and self._handed_over.outstanding)

    # What the membership asks

    def offers(self) -> Sequence[Offer]:
        """The assignors in order, with what is subscribed to and owned."""
        topics = self._wanted.joined = self._wanted.topics_in(self._core.metadata.view)
        self._wanted.pin("matched", topics if self.interest.pattern is not None else ())
        generation = self.membership.generation
        owned = tuple(state.topic_partition for state in self._subscription)
        return [
            Offer(
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
        """What an assignor adds; one that fails adds nothing, and the user hears of it."""
        try:
            return assignor.user_data(topics)
        except Exception as error:
            self._callbacks.keep(f"user_data() of the assignor {assignor.name!r}", error)
            return None

    async def prepare(self, deadline: float) -> None:
        """Eager: revoke everything. Cooperative: what isn't subscribed to any more, or deleted."""
        async with self.handover.alone():
            self._leading.resign()
            view, means, gone = self._core.metadata.view, self.interest.means, self._wanted.is_gone
            topics = self._subscription.assigned_topics()
            going = {one for one in topics if not means(one, view) or gone(one)}
            await self.handover.give_up(
                [
                    state
                    for state in self._subscription
                    if not self._cooperative or state.topic_partition.topic in going
                ],
                deadline,
            )

    def interrupt(self) -> None:
        """The generation is over."""
        self.handover.interrupt()

    async def assign(
        self, protocol: str, members: Sequence[JoinedMember], generation: Generation
    ) -> Mapping[str, bytes] | KafkaError:
        """We lead."""
        for assignor in self._assignors:
            if assignor.name == protocol:
                return await self._leading.assign(assignor, members)
        return InvalidArgument(f"the group chose assignor {protocol!r}, which nobody offered")

    async def assigned(self, generation: Generation, assignment: bytes) -> KafkaError | None:
        """The rebalance is over."""
        try:
            partitions = dict.fromkeys(decode_assignment(assignment))
        except ProtocolError as error:
            self._callbacks.keep("the leader's assignment", error)
            self._wake()
            return error
        self.commits.wake()
        async with self.handover.alone():
            await self._move_to(generation, partitions)
        self.follow_view(self._core.metadata.view)
        return None

    async def _move_to(
        self, generation: Generation, partitions: Mapping[TopicPartition, None]
    ) -> None:
        deadline = self._core.clock.now() + self._config.max_poll_interval
        going = [state for state in self._subscription if state.topic_partition not in partitions]
        if going:
            await self.handover.give_up(going, deadline)
            if self.membership.generation != generation or self._closing:
                return
            self.membership.rejoin("partitions were given up for others")
        for assignor in self._assignors:
            if assignor.name == generation.protocol:
                self._tell(assignor, list(partitions), generation)
        if not generation.is_leader:
            self._leading.resign()
        await self.handover.take(partitions)

    def _tell(
        self, assignor: Assignor, partitions: Sequence[TopicPartition], generation: Generation
    ) -> None:
        try:
            assignor.assigned(partitions, generation.generation_id)
        except Exception as error:
            self._callbacks.keep(f"assigned() of the assignor {assignor.name!r}", error)

    def hurry(self, deadline: float) -> None:
        """The consumer is being closed."""
        self.handover.hurry(deadline)

    async def leaving(self, deadline: float) -> None:
        """The consumer is closed."""
        async with self.handover.alone():
            await self._drop(deadline)

    async def lost(self, error: KafkaError) -> None:
        """Nothing of it is ours any more."""
        self.interrupt()  # whoever gives up for the user may wait for brokers that are away
        async with self.handover.alone():
            if len(self._subscription) and not self.handover.by_hand:
                self._log.warning("partitions lost count=%d: %s", len(self._subscription), error)
            await self._lose_rest()

    async def _drop(self, deadline: float) -> None:
        """Whoever polls isn't waited for: it is the user who lets all of it go."""
        await self.handover.give_up(list(self._subscription), deadline, polls=False)
        await self._lose_rest()

    async def _lose_rest(self) -> None:
        """What was not given up before the membership ended."""
        if not self.handover.by_hand and len(self._subscription):
            self._leading.resign()
            await self.handover.lose()

    def troubled(self, error: KafkaError) -> None:
        """It can't be a member for now."""
        self._callbacks.keep("the group", error)
        self._wake()

    def failed(self, error: KafkaError) -> None:
        """It can't be a member."""
        self._failure = error
        self.poll_watch.stop()
        self._join_watch.stop()
        self._wake()

"""GroupSide: the group behind one consumer, for its user's calls: subscribe, poll, close.

``engine`` makes one for a consumer with a ``group``. It has the timers that belong to these calls;
which partitions come and go is between ``Membership`` and ``handover``.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kclient.consumer.arguments import NOTHING, Interest
from kclient.consumer.auto_commit import AutoCommit
from kclient.consumer.handover import Handover
from kclient.consumer.join_watch import JoinWatch
from kclient.consumer.poll_watch import PollWatch
from kclient.errors import ClientClosed, InvalidArgument, MaxPollExceeded, fresh

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient.cluster.core import ClientCore
    from kclient.config import ConsumerConfig
    from kclient.consumer.arguments import Listener
    from kclient.consumer.handed_over import HandedOver
    from kclient.consumer.subscription import Subscription
    from kclient.group.health import MembershipHealth

logger = logging.getLogger("kclient.consumer")

FAREWELL = 1.0
"""Seconds for telling the coordinator that we leave, before the user hears that we did."""


class GroupSide:
    """The group of one consumer.

    Tasks: those of ``Handover``; ``unsubscribe`` and ``leave-group``, until these are done.
    Timers: those of ``AutoCommit``, ``PollWatch`` and ``JoinWatch``.

    Args:
        core: The client's.
        config: Of the consumer.
        group_id: The group.
        subscription, handed_over, wake, listener: See ``Handover``.

    Attributes:
        group_id: The same.
        handover: Gives partitions up and takes them.
        membership, offsets, commits, committed, wanted, callbacks: Those of ``handover``.
        poll_watch: Measures how long ago the user last came.
    """

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
        self._core = core
        self._log = core.hooks.log(logger)
        self._config = config
        self.group_id = group_id
        self._subscription = subscription
        self._late: MaxPollExceeded | None = None
        self._closing = False
        self.handover = handover = Handover(
            core, config, group_id, subscription, handed_over, wake, listener, self._stop_watches
        )
        self.membership, self.offsets = handover.membership, handover.offsets
        self.commits, self.committed = handover.commits, handover.committed
        self.wanted, self.callbacks = handover.wanted, handover.callbacks
        self._auto = AutoCommit(
            config.auto_commit_interval,
            handover.may_commit,
            handover.commit_finished,
            handed_over.want_visit,
        )
        self.poll_watch = PollWatch(
            core.clock, handed_over, config.max_poll_interval, self._too_late
        )
        self._join_watch = JoinWatch(
            core.clock, self.membership, group_id, config.api_timeout, self.wanted, wake
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
        self._stop_watches()
        await self.membership.close("the consumer was closed", deadline)
        if outside:  # who stepped out for want of polls may still wait to tell of it
            await self.handover.lose_rest()
        await self.handover.close(deadline)

    def _stop_watches(self) -> None:
        self.poll_watch.stop()
        self._join_watch.stop()

    # What is subscribed to

    def subscribe(self, interest: Interest, listener: Listener | None) -> None:
        """Read this from now on; the group is joined, or rebalanced, soon."""
        if interest and self._closing:
            raise ClientClosed("the consumer is being closed")
        self.wanted.subscribe(interest)
        if listener is not None:
            self.callbacks.use(listener)
        self._subscription.expect(topics=bool(interest))
        if interest:
            self._late = None
            self.handover.assign_by(hand=False)
            self.poll_watch.start()
            self._join_watch.start()
            self.membership.rejoin("the subscription changed")

    async def unsubscribe(self) -> None:
        """Give everything up and leave.

        Cancellation: it goes on all the same.
        """
        self.subscribe(NOTHING, None)
        self._stop_watches()
        self.handover.lose_interest()
        await asyncio.wait([self._core.spawn(self.handover.drop_all(), "unsubscribe")])
        if self._closing:
            raise ClientClosed("the consumer was closed, which left the group")
        self._core.check_usable()

    def assign_by_hand(self, call: str) -> None:
        """Partitions come from ``call`` of the user's from now on, not from the group."""
        if self.wanted.interest:
            raise InvalidArgument(
                f"{call}() can't be used while topics are subscribed to: the group assigns",
                hint="call unsubscribe() first",
            )
        if self.handover.moving:
            raise InvalidArgument(
                f"{call}() can't be used while partitions are being given up",
                hint="await unsubscribe() to its end first",
            )
        self.handover.assign_by(hand=True)

    def health(self) -> MembershipHealth | None:
        """How the membership is; None where there shall be none."""
        return self.membership.health() if self.wanted.interest else None

    @property
    def poll_age(self) -> float | None:
        """Seconds since the user last came; 0 during a call; None where nobody must."""
        return self.poll_watch.seconds if self.wanted.interest else None

    # Calls of the user

    def came(self) -> None:
        """The user called."""
        self.handover.look()
        self.handover.came()
        self._auto.came()
        if self._late is not None and self.wanted.interest and not self._closing:
            self._core.check_usable()
            late, self._late = self._late, None
            self.poll_watch.start()
            self.membership.rejoin("poll was called again")
            raise late

    def check(self) -> None:
        """Raise what the user has to know."""
        self.callbacks.look()
        if self.handover.failure is not None:
            raise fresh(self.handover.failure)
        self._join_watch.look()
        self.wanted.check()

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
        # The user hears of it also where the coordinator doesn't answer.
        await asyncio.gather(
            self.membership.leave("no poll within max_poll_interval", timeout=FAREWELL),
            self.handover.lost(why),
        )

"""Heartbeats: keep a member in its group, whatever else goes on.

``Membership`` has one. While a JoinGroup waits for the other members they go on on another
connection, though the coordinator expects none: one that froze or lost the group would never
respond, and the responses show, too, whether it waits for the others or whether the JoinGroup or
its response got lost on the way. ``error_actions`` decides what a response means; it is reported to
the membership, and nothing else is done here. It must not wait for the application's code.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

from kclient.cluster.wakeups import Wakeup
from kclient.errors import ConnectionLost, KafkaError, RequestTimedOut
from kclient.group.error_actions import Api, ErrorAction, action_for
from kclient.group.member import Generation, HeartbeatTimer, MemberState
from kclient.network import Lane

if TYPE_CHECKING:
    from kclient.cluster.coordinator import Coordinator
    from kclient.cluster.core import ClientCore
    from kclient.config import MembershipConfig
    from kclient.group.group_requests import GroupRequests
    from kclient.group.member import Member
    from kclient.group.membership import Membership
    from kclient.network import RequestFuture

logger = logging.getLogger("kclient.group")

_LOST = 2
"""Heartbeats in a row after which a JoinGroup counts as lost: one may overtake its response."""
_NO_GENERATION = -1


class Heartbeats:
    """The heartbeats of one member.

    Tasks: ``run``, one, of the membership.

    Args:
        core: The client's core.
        coordinator: Receives them.
        member: The member that sends them.
        config: ``heartbeat_interval`` and ``session_timeout``.
        requests: Makes the requests.
        membership: Is notified of error responses, and of the end of the session.

    Attributes:
        timer: When the next is due.
        join_node: The node at which a JoinGroup or SyncGroup waits on lane GROUP; None if nowhere.
    """

    def __init__(
        self,
        core: ClientCore,
        coordinator: Coordinator,
        member: Member,
        config: MembershipConfig,
        requests: GroupRequests,
        membership: Membership,
    ) -> None:
        self._core = core
        self._coordinator = coordinator
        self._member = member
        self._requests = requests
        self._wakeup = Wakeup()
        self._membership = membership
        self._log = core.hooks.log(logger)
        self._failures = 0
        self._trouble: KafkaError | None = None
        self.timer = HeartbeatTimer(config.heartbeat_interval, config.session_timeout)
        self.join_node: int | None = None
        self._known = True
        self._waits_for: RequestFuture[Any] | None = None
        self._asked = self._at_once = False
        self._misses = 0
        self._mute_until: float | None = None

    async def run(self) -> None:
        """Send heartbeats when they are due, until cancelled."""
        while True:
            now = self._core.clock.now()
            if self._member.at_risk and now >= self.timer.session_ends_at:
                self._over()
                continue
            at = self._next()
            if at > now:
                await self._wakeup.sleep(at - now)
                self._look_at_the_clock(at)
            elif self._member.sends_heartbeats:
                await self._beat()
            else:
                await self._watch()

    def check_session(self) -> None:
        """End the session if it is over by now, though ``run`` did not get to notice it."""
        if self._member.at_risk and self._core.clock.now() >= self.timer.session_ends_at:
            self._over()

    def begin(self) -> None:
        """Start the session, as the coordinator has accepted the member."""
        self._failures = 0
        self.timer.answered(self._core.clock.now())
        self._wakeup.notify()

    def prove(self) -> None:
        """Send a heartbeat at once, after an assignment.

        Coordinators respond to JoinGroup and SyncGroup of a stable group without counting that as a
        sign of life: the session that they began before may be nearly over.
        """
        self.timer.due = self._core.clock.now()
        self._wakeup.notify()

    def wake(self) -> None:
        """Check the member's state, which has changed."""
        self._wakeup.notify()

    def watch_join(self, node_id: int | None, *, known: bool = True) -> None:
        """Watch a request that will wait at ``node_id`` for other members; None: no more.

        ``known``: that broker knows our generation.
        """
        if node_id is not None and not self._member.sends_heartbeats:
            now, timer = self._core.clock.now(), self.timer
            timer.due = now + timer.interval
            if (
                self._member.has_assignment
            ):  # it has a session to lose, which began with the last response
                timer.due = max(now, timer.answered_at + timer.interval)
        self.join_node, self._known, self._waits_for = node_id, known, None
        self._asked, self._at_once, self._misses = False, False, 0
        self._mute_until = None
        self._wakeup.notify()

    def waits_for(self, sent: RequestFuture[Any]) -> None:
        """Set the request that waits at the broker."""
        self._waits_for = sent

    def asked(self, *, at_once: bool) -> None:
        """The JoinGroup is being written. ``at_once``: its response waits for no other member."""
        self._asked, self._at_once = True, at_once

    def _next(self) -> float:
        """When the next action is due."""
        end = self.timer.session_ends_at if self._member.at_risk else math.inf
        watches = self.join_node is not None and self._member.state is MemberState.JOINING
        return min(self.timer.due, end) if self._member.sends_heartbeats or watches else end

    def _look_at_the_clock(self, planned: float) -> None:
        """Log a timer that came late: user code blocked the loop, or the process was stopped."""
        if not self._member.sends_heartbeats or planned != self.timer.due:
            return
        late = self.timer.woke(self._core.clock.now())
        if late:
            self._core.counters.add("group.late_heartbeats")
            self._log.warning(
                "heartbeat of group %s is %.1f s late: the event loop was blocked for about as "
                "long, by user code that doesn't await, or the process was stopped; after "
                "session_timeout=%.1f s the group takes this member for gone",
                self._requests.group_id,
                late,
                self.timer.session,
            )

    def _over(self) -> None:
        silent = self._core.clock.now() - self.timer.answered_at
        why = f"; last trouble: {self._trouble}" if self._trouble is not None else ""
        error = RequestTimedOut(
            f"no heartbeat of group {self._requests.group_id} was answered for {silent:.1f} s, "
            f"session_timeout is {self.timer.session:.1f} s{why}",
            hint="what was assigned may be another member's by now",
        )
        error.__cause__ = self._trouble
        self._membership.over(error)

    async def _beat(self) -> None:
        """Send one heartbeat, and find the coordinator first where it isn't known."""
        generation, timer = self._member.generation, self.timer
        assert generation is not None
        session_ends_at, node_id = timer.session_ends_at, None
        sent = self._core.clock.now()
        # Behind a request that waits at the broker it would wait, too.
        lane = Lane.GROUP if self.join_node is None else Lane.GENERAL
        try:
            node_id = await self._coordinator.find(session_ends_at)
            sent = self._core.clock.now()
            request = self._requests.heartbeat(generation)
            response = await self._coordinator.send(
                node_id,
                request,
                api=type(request),
                lane=lane,
                timeout=min(timer.patience, self._core.config.request_timeout),
                caller_deadline=session_ends_at,
            )
        except KafkaError as error:
            self._core.calls.check_ended()
            self._failed(node_id, error)
            return
        code = response.error_code
        if self._member.generation is not generation:
            return  # the response is about a generation that is over
        if not code:
            self._answered(sent)
            return
        refused = self._requests.refusal(Api.HEARTBEAT, code, node_id)
        action = action_for(Api.HEARTBEAT, code)
        if action is ErrorAction.REJOIN:
            self._answered(sent)
        else:
            if action is ErrorAction.RETRY and type(refused) is not type(self._trouble):
                self._log.warning("%s; it is sent again", refused)
            self._failed(node_id, refused)
        self._membership.on_error_response(Api.HEARTBEAT, refused, code, generation)

    def _answered(self, sent: float) -> None:
        self._failures, self._trouble = 0, None
        if self._member.state is MemberState.STABLE:
            self._member.last_error = None
        self.timer.answered(sent)

    def _failed(self, node_id: int | None, error: KafkaError) -> None:
        self._trouble = self._member.last_error = error
        if node_id is not None:
            self._coordinator.judge(node_id, error)
        now = self._core.clock.now()
        self.timer.failed(now, self._core.calls.backoff.delay(self._failures, self._core.rng))
        self._failures += 1

    async def _watch(self) -> None:
        """While a JoinGroup waits, check whether the broker can still respond to it."""
        node_id, sent = self.join_node, self._core.clock.now()
        assert node_id is not None
        limit = sent + self.timer.patience
        if self._member.has_assignment:
            limit = min(limit, self.timer.session_ends_at)
        member, waits_for = self._member, self._waits_for
        generation, attempt = member.generation, member.attempt
        if self._mute_until is not None and sent < self._mute_until:
            generation = None  # else the group would wait for a JoinGroup that never arrived
        try:
            if waits_for is None or not member.member_id or not self._known:
                await self._coordinator.confirm(node_id, limit)
                self._answered(sent)
                self._count(waits_for, missing=self._at_once)
                return
            request = self._requests.heartbeat(
                generation or Generation(_NO_GENERATION, member.member_id)
            )
            response = await self._coordinator.send(
                node_id, request, api=type(request), caller_deadline=limit
            )
        except KafkaError as error:
            self._core.calls.check_ended()
            self._failed(node_id, error)
            return
        if member.attempt == attempt and self._waits_for is waits_for:
            self._learned(response.error_code, sent, node_id, waits_for, generation)

    def _learned(
        self,
        code: int,
        sent: float,
        node_id: int,
        waits_for: RequestFuture[Any],
        generation: Generation | None,
    ) -> None:
        """Process ``code`` of a heartbeat sent to a coordinator where a JoinGroup should wait."""
        action = action_for(Api.HEARTBEAT, code) if code else ErrorAction.DONE
        member = self._member
        if generation is None:  # a member is refused for its generation, others for their id
            waits = action in (ErrorAction.DONE, ErrorAction.OVER, ErrorAction.REJOIN)
            missing = (
                action in (ErrorAction.FORGET, ErrorAction.FATAL) and member.generation is None
            )
        else:  # it is the previous one for as long as joins are waited for
            waits = action is ErrorAction.REJOIN
            missing = action in (ErrorAction.DONE, ErrorAction.OVER)
        if not waits and not missing:
            refused: KafkaError = self._requests.refusal(Api.HEARTBEAT, code, node_id)
            if action is ErrorAction.ELSEWHERE:  # nor would it respond to the JoinGroup
                refused = ConnectionLost(str(refused), node_id=node_id)
            self._failed(node_id, refused)
            if member.generation is not None:
                self._membership.on_error_response(Api.HEARTBEAT, refused, code, member.generation)
            return
        if generation is not None and waits and self._mute_until is None:
            # A member still known one session later has a JoinGroup there: others are removed.
            self._mute_until = sent + self.timer.session + self.timer.interval
        if generation is not None and action is ErrorAction.OVER:
            self.timer.due = sent + self.timer.interval  # a response, but no sign of the member
        else:
            self._answered(sent)
        self._count(waits_for, missing=missing)

    def _count(self, waits_for: RequestFuture[Any] | None, *, missing: bool) -> None:
        """Count responses in a row without a JoinGroup to wait for; abandon it after two."""
        self._misses = self._misses + 1 if missing and self._asked else 0
        if self._misses >= _LOST and waits_for is not None and self._waits_for is waits_for:
            node_id = self.join_node
            why = f"broker {node_id} isn't waiting for others to join: the answer of it is lost"
            self._coordinator.abandon(waits_for, KafkaError(why, node_id=node_id))

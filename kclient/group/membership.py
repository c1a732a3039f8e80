"""Membership: takes part in a classic group for its host, and never fails silently.

``consumer.rebalance`` and ``group_member`` have one each. Its one task does the next step of
``member``: have the host revoke, join (``joining``), pass the assignment on; ``heartbeats`` has
another task. It knows nothing of what is assigned, and must not repeat a rebalance only because a
broker is unreachable: a generation outlives its coordinator.

The host may call ``rejoin``, ``refused`` and ``leave`` from anywhere, from inside of its own
methods, too. ``host.interrupt`` is called only while ``prepare``, ``assigned`` or ``leaving`` is
running.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from typing import TYPE_CHECKING, Any, TypeVar

from kclient.cluster.wakeups import LONGEST_SLEEP, Wakeup
from kclient.errors import BrokerError, KafkaError, broker_error
from kclient.frozen import Frozen, Snapshot, frozen
from kclient.group.error_actions import Api, ErrorAction, action_for
from kclient.group.group_requests import GroupRequests
from kclient.group.heartbeats import Heartbeats
from kclient.group.joining import SHY, Joining
from kclient.group.member import Member, MemberState
from kclient.network import Lane
from kclient.protocol.messages.leave_group import LeaveGroupRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kclient.cluster.coordinator import Coordinator
    from kclient.cluster.core import ClientCore
    from kclient.config import MembershipConfig
    from kclient.group.member import Generation, MembershipHost

T = TypeVar("T")

logger = logging.getLogger("kclient.group")

GRACE = 5.0
"""Seconds over the rebalance timeout for which a JoinGroup is waited for."""
FAREWELL = 0.2
"""Part of the time for ``close`` that is kept for LeaveGroup; at most a second."""
KEPT = 0.2
"""Part of what is left of it that is kept for the application's code, if the rest is late."""


@frozen
class MembershipHealth(Snapshot, Frozen):
    """A snapshot of the health of a group member.

    Attributes:
        group_id: The group.
        state: A name of ``MemberState``, such as ``STABLE``.
        joined: It is a member and has an assignment, also while the group rebalances.
        generation: Of the group; None outside.
        member_id: This member's; None outside.
        instance_id: Its ``group_instance_id``; None for a dynamic member.
        check_session: Checks at once whether the session is over, as the loop may have stood still
            until now; ``generation`` has the result. The task notifies the host, as ever.
        is_leader: Whether this member assigns.
        coordinator: The broker that coordinates the group, as text; None while it isn't known.
        last_heartbeat_age: Seconds since the latest heartbeat with a response was sent; None
            before the first and outside.
        rebalances: How many were completed.
        last_error: The latest trouble, as text; None since the last success.
        late_heartbeats: How often user code blocked the loop for longer than
            ``heartbeat_interval`` when a heartbeat was due.
        longest_block: Seconds of the longest such delay.
    """

    group_id: str
    state: str
    joined: bool
    generation: int | None
    member_id: str | None
    instance_id: str | None
    is_leader: bool
    coordinator: str | None
    last_heartbeat_age: float | None
    rebalances: int
    last_error: str | None
    late_heartbeats: int
    longest_block: float


class Membership:
    """One member of one group. No work and no loop access in the constructor.

    Tasks: ``membership`` and ``heartbeats``, from ``start`` until ``close``.

    Args:
        core: The client's core.
        coordinator: Of the group.
        config: ``session_timeout``, ``heartbeat_interval``, ``group_instance_id`` and the back-off.
        group_id: The group.
        rebalance_timeout: Seconds that members have to revoke partitions and join again, once they
            know of it.
        host: The user of the membership.
    """

    def __init__(
        self,
        core: ClientCore,
        coordinator: Coordinator,
        config: MembershipConfig,
        group_id: str,
        rebalance_timeout: float,
        host: MembershipHost,
    ) -> None:
        # We may learn of a rebalance, and begin to count, a session after the coordinator began.
        waited_for = rebalance_timeout + config.session_timeout
        self._core = core
        self._coordinator = coordinator
        self._host = host
        self._rebalance_timeout = rebalance_timeout
        self._leave_timeout = min(config.api_timeout, config.session_timeout)
        self._log = core.hooks.log(logger)
        self._member = Member()
        self._requests = GroupRequests(
            group_id,
            config.group_instance_id,
            _ms(config.session_timeout),
            _ms(waited_for),
            host.protocol_type,
        )
        self._heartbeats = Heartbeats(core, coordinator, self._member, config, self._requests, self)
        self.check_session = self._heartbeats.check_session
        self._joining = Joining(
            core,
            coordinator,
            self._member,
            self._heartbeats,
            self._requests,
            rebalance_timeout,
            waited_for + GRACE,
            host,
            self,
        )
        self._wakeup = Wakeup()
        self._tasks: list[asyncio.Task[Any]] = []
        self._host_works = False
        self._ended = False
        self._leaves = 0
        self._ending: float | None = None
        self._farewell = ""
        self._unsaid = False
        self._spoilt = 0
        self._again_at = math.inf

    # Calls of the host and of the client

    def start(self) -> None:
        """Start the tasks. Nothing is joined before ``rejoin``."""
        self._tasks = [
            self._core.spawn(self._run(), "membership"),
            self._core.spawn(self._heartbeats.run(), "heartbeats", endless=True),
        ]

    @property
    def state(self) -> MemberState:
        """The state of the member."""
        return self._member.state

    @property
    def generation(self) -> Generation | None:
        """The identity for commits; None while this is no member.

        While the group is joined again it is the old one, until the new one is known.
        """
        return self._member.generation

    @property
    def joined(self) -> bool:
        """Whether it is a member and has an assignment, also while the group rebalances.

        False while the coordinator has refused its latest join.
        """
        member = self._member
        return member.has_assignment and member.generation is not None and not member.refused

    @property
    def trouble(self) -> KafkaError | None:
        """The latest error; None since the last success."""
        return self._member.last_error

    def rejoin(self, reason: str) -> None:
        """Join the group, or join it again, as the offered protocols have changed.

        Returns at once. A request during a rebalance isn't lost: either that rebalance covers it or
        the next one follows at once. Nothing happens after a failure or ``close``.

        Args:
            reason: For the coordinator's log.
        """
        self._member.request_rejoin(reason)
        self._wakeup.notify()

    async def leave(
        self, reason: str, *, send_leave: bool | None = None, timeout: float | None = None
    ) -> None:
        """Leave the group, until the next ``rejoin``. The host is neither asked nor notified.

        It is out at once, and then waits until the coordinator knows. Where LeaveGroup can't be
        sent within ``timeout``, the other members find out when the session is over.

        Args:
            reason: For the coordinator's log.
            send_leave: Whether to send LeaveGroup. None: yes, unless it is a static member, which
                may come back within its session as if it had never left.
            timeout: Seconds; the session timeout by default, ``api_timeout`` at most.

        Cancellation: it has left all the same; the others may find out later.
        """
        join_pending = self._heartbeats.join_node is not None
        send_leave = self._sends_leave(send_leave)
        nameless = self._joining.nameless
        member_id = self._member.leave(keep_id=not send_leave)
        self._joining.forget_progress(keep_id=not send_leave)
        self._again_at = math.inf
        self._break_off()
        if not send_leave or not (member_id or nameless):
            return
        self._leaves += 1
        try:
            now = self._core.clock.now()
            until = now + (self._leave_timeout if timeout is None else timeout)
            await self.send_leave_group(member_id, reason, until, join_pending=join_pending)
        finally:
            self._leaves -= 1
            self._wakeup.notify()

    async def close(
        self,
        reason: str,
        deadline: float,
        *,
        send_leave: bool | None = None,
        catch_up: bool = False,
    ) -> None:
        """Leave for good and stop: ``host.leaving``, then LeaveGroup. Closing twice is fine.

        Args:
            reason: For the coordinator's log.
            deadline: On the client's clock; it is over by then, whatever brokers and host do. A
                part of the time is kept for LeaveGroup, which ``host.leaving`` doesn't get.
            send_leave: See ``leave``.
            catch_up: Have the host revoke what it has where the time was over before that.

        Cancellation: call it again; it goes on where it was.
        """
        join_pending, now = self._heartbeats.join_node is not None, self._core.clock.now()
        left = max(0.0, deadline - now)
        soft = deadline - min(1.0, FAREWELL * left)
        self._ending = soft if self._ending is None else min(self._ending, soft)
        self._wakeup.notify()
        self._joining.broker_wait.interrupt()
        self._host.shorten_deadline(self._host_deadline(self._ending))
        if self._tasks and not self._tasks[0].done():
            await asyncio.wait(self._tasks[:1], timeout=max(0.0, self._ending - now))
        await self._core.stop(*self._tasks)
        if catch_up and self._tasks and not self._ended:  # cut off in the midst of another step
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.0):
                    await self._end()
        if self._member.state is not MemberState.CLOSED:
            self._farewell = self._member.close()
            self._unsaid = bool(self._farewell) or self._joining.nameless
        if self._unsaid and self._sends_leave(send_leave):
            await self.send_leave_group(self._farewell, reason, deadline, join_pending=join_pending)
        self._unsaid = False

    def refused(self, error: KafkaError, generation: Generation) -> None:
        """React to a refused commit of ``generation``: it concerns the membership, too."""
        settled = self._member.state in (MemberState.STABLE, MemberState.PREPARING)
        if isinstance(error, BrokerError) and settled and self._member.generation == generation:
            self.on_error_response(Api.COMMIT, error, error.code, generation)

    def health(self) -> MembershipHealth:
        """A snapshot of the membership's health; free to call at any time."""
        member, timer = self._member, self._heartbeats.timer
        generation = member.generation
        age = self._core.clock.now() - timer.answered_at if generation is not None else None
        return MembershipHealth(
            group_id=self._requests.group_id,
            state=member.state.name,
            joined=self.joined,
            generation=None if generation is None else generation.generation_id,
            member_id=member.member_id or None,
            instance_id=self._requests.instance_id,
            is_leader=generation is not None and generation.is_leader,
            coordinator=self._coordinator.name,
            last_heartbeat_age=age,
            rebalances=member.rebalances,
            last_error=None if member.last_error is None else str(member.last_error),
            late_heartbeats=timer.blocks,
            longest_block=timer.longest_block,
        )

    # The task

    async def _run(self) -> None:
        try:
            while self._ending is None and self._member.state is not MemberState.FAILED:
                self._core.calls.check_ended()
                await self._turn()
                self._heartbeats.wake()
        except KafkaError:
            if self._core.failure is None and not self._core.closed:
                raise
            return  # pending calls have got the error already
        await self._end()

    async def _turn(self) -> None:
        """Do the next step."""
        match self._member.state:
            case MemberState.OUTSIDE | MemberState.STABLE:
                left = self._again_at - self._core.clock.now()
                if left <= 0:
                    self._member.request_rejoin("what was assigned is of no use")
                if self._leaves or not self._member.begin():
                    await self._wakeup.sleep(min(left, LONGEST_SLEEP))
                else:
                    self._again_at = math.inf
            case MemberState.PREPARING:
                await self._prepare()
            case MemberState.JOINING:
                await self._joining.broker_wait.run(self._joining.join)
            case MemberState.SYNCING:
                await self._sync()
            case MemberState.LOST:
                await self._report_loss()

    async def _end(self) -> None:
        """End for good: the host revokes or loses what it has."""
        member, self._ended = self._member, True
        if member.state is MemberState.LOST:
            await self._report_loss()
        if member.state is MemberState.FAILED:
            assert member.error is not None
            if member.has_assignment:
                member.has_assignment = False
                await self._host.lost(member.error)
            self._host.failed(member.error)
            if self._ending is None and member.member_id and self._sends_leave(None):
                await self._joining.broker_wait.run(self._part)
        elif member.has_assignment and self._ending is not None:
            await self._host_does(self._host.leaving(self._host_deadline(self._ending)))

    def _host_deadline(self, ending: float) -> float:
        """Until when the host may wait for others, where all must be over at ``ending``."""
        return ending - KEPT * max(0.0, ending - self._core.clock.now())

    async def _part(self) -> None:
        """Send LeaveGroup for a member that failed for good, so that the others don't wait for it.

        ``close`` interrupts it, and sends it in its own time.
        """
        until = self._core.clock.now() + self._leave_timeout
        await self.send_leave_group(self._member.member_id, "it can't be a member", until)
        self._member.member_id = ""

    async def _report_loss(self) -> None:
        error = self._member.error
        assert error is not None
        await self._host.lost(error)
        if self._member.state is MemberState.LOST:
            self._member.loss_reported()

    async def _sync(self) -> None:
        generation, assignment = self._member.generation, await self._joining.sync()
        if assignment is not None and generation is not None and self._ending is None:
            self._again_at = math.inf
            useless = await self._host_does(self._host.assigned(generation, assignment))
            if useless is None:
                self._spoilt = 0
            elif self._member.generation is generation:
                self._spoil(useless)

    def _spoil(self, error: KafkaError) -> None:
        """Join again later, as the assignment is of no use; at once it might be the same again."""
        wait = SHY.delay(self._spoilt, self._core.rng)
        self._spoilt += 1
        self._again_at = self._core.clock.now() + wait
        self._log.warning(
            "group %s: joined again in %.1f s: %s", self._requests.group_id, wait, error
        )

    async def _prepare(self) -> None:
        deadline = self._core.clock.now() + self._rebalance_timeout
        await self._host_does(self._host.prepare(deadline))
        if self._member.state is MemberState.PREPARING and self._ending is None:
            self._member.prepared()

    async def _host_does(self, work: Awaitable[T]) -> T:
        """Wait for work of the host that becomes void once the generation is over."""
        self._host_works = True
        try:
            return await work
        finally:
            self._host_works = False

    def _break_off(self) -> None:
        """Interrupt pending waits, which are void."""
        self._joining.broker_wait.interrupt()
        if self._host_works:
            self._host.interrupt()
        self._wakeup.notify()
        self._heartbeats.wake()

    # Error responses

    def on_error_response(
        self, api: Api, error: KafkaError, code: int, generation: Generation
    ) -> None:
        """Act on an error response to a heartbeat or a commit of the present generation."""
        action = action_for(api, code)
        match action:
            case ErrorAction.REJOIN if self._member.state is MemberState.STABLE:
                self.rejoin("the group is rebalancing")
            case ErrorAction.OVER | ErrorAction.FORGET:
                self.over(error, forget_id=action is ErrorAction.FORGET)
            case ErrorAction.FATAL:
                self.fail(error, forget_id=True)

    def over(self, error: KafkaError, *, forget_id: bool = False) -> None:
        """End the membership: this is no member any more."""
        if self._member.over(error, forget_id=forget_id):
            self._core.counters.add("group.losses")
            self._log.warning("membership in group %s is lost: %s", self._requests.group_id, error)
        self._break_off()

    def fail(self, error: KafkaError, *, forget_id: bool = False) -> None:
        """Fail for good. ``forget_id``: there is no id left to send LeaveGroup for."""
        self._log.error("can't be a member of group %s: %s", self._requests.group_id, error)
        self._member.fail(error, forget_id=forget_id)
        self._break_off()

    # Leaving

    def _sends_leave(self, send_leave: bool | None) -> bool:
        return self._requests.instance_id is None if send_leave is None else send_leave

    async def send_leave_group(
        self, member_id: str, reason: str, deadline: float, *, join_pending: bool = False
    ) -> None:
        """Send LeaveGroup, as often as needed. A failure is logged: the session ends by itself."""
        calls, coordinator, requests = self._core.calls, self._coordinator, self._requests
        doing = f"LeaveGroup to the coordinator of group {requests.group_id}"
        retry_state = calls.retry_state(doing, max(0.0, deadline - self._core.clock.now()))
        while True:
            seen, node_id = self._core.metadata.view.version, None
            try:
                node_id = await coordinator.find(retry_state.deadline)
                response = await coordinator.send(
                    node_id,
                    lambda version: requests.leave(member_id, reason, version),
                    api=LeaveGroupRequest,
                    lane=Lane.GENERAL if join_pending else Lane.GROUP,
                    timeout=retry_state.time_for_request(),
                    caller_deadline=retry_state.deadline,
                )
                code = requests.leave_error(response)
                if not code:
                    return
                error: KafkaError = broker_error(code, f"{doing} failed", node_id=node_id)
            except KafkaError as failure:
                error = failure
            if node_id is not None and self._core.clock.now() < retry_state.deadline:
                coordinator.judge(node_id, error)
            try:
                await retry_state.recover(error, calls.name_of(node_id), seen)
            except KafkaError as failure:
                text = "group %s couldn't be notified that member %s leaves: %s"
                self._log.info(text, requests.group_id, member_id, failure)
                return


def _ms(seconds: float) -> int:
    return min(max(1, round(seconds * 1000)), 2**31 - 1)

"""Joining: the attempts of a membership to join: JoinGroup, the assignment, SyncGroup.

``Membership`` has one and calls ``join`` and ``sync`` for as long as the state requires them; each
call is one attempt, with the back-off before it. Outcomes are recorded in ``member``; what ends a
membership goes through the objects that it is given. It starts no task.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from kclient.backoff import Backoff
from kclient.error_codes import ErrorCode
from kclient.errors import (
    BrokerError,
    ClientError,
    InvalidArgument,
    KafkaError,
    NoCommonVersion,
    ProtocolError,
    RequestTimedOut,
)
from kclient.group.error_actions import Api, ErrorAction, action_for
from kclient.group.member import MOST_BYTES, MemberState
from kclient.network import Lane
from kclient.protocol.messages.join_group import JoinGroupRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from kclient.cluster.coordinator import Coordinator
    from kclient.cluster.core import ClientCore
    from kclient.group.group_requests import GroupRequests
    from kclient.group.heartbeats import Heartbeats
    from kclient.group.member import Generation, JoinedMember, Member, MembershipHost
    from kclient.group.membership import Membership
    from kclient.protocol.message import Request

T = TypeVar("T")

logger = logging.getLogger("kclient.group")

SHY = Backoff(1.0, 30.0)
"""Until the next attempt of a member that was refused in a way that may pass, got an assignment
that is of no use, or led and couldn't assign: by then another one leads."""
LARGE = 1_000_000
"""Bytes of a group that ``message.max.bytes``, 1048588 by default, may refuse."""
_SHY_LEAVE = 10.0
"""Seconds that LeaveGroup may take at most."""


class InterruptibleWait:
    """Waits of one task for brokers, which may be interrupted."""

    def __init__(self) -> None:
        self._timeout: asyncio.Timeout | None = None

    async def run(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """Wait for ``work``, which raises no KafkaError, until ``interrupt``, which makes it None.

        Cancellation: is that of ``work``.
        """
        try:
            async with asyncio.timeout(None) as self._timeout:
                return await work()
        except TimeoutError as interrupted:
            if isinstance(interrupted, KafkaError):
                raise
            return None
        finally:
            self._timeout = None

    def interrupt(self) -> None:
        """End the pending wait, if there is one."""
        timeout, self._timeout = self._timeout, None
        if timeout is not None:
            timeout.reschedule(0.0)


class Joining:
    """The attempts of one member.

    Args:
        core: The client's core.
        coordinator: Receives the requests.
        member: The member that joins.
        heartbeats: Is notified when a request waits at the broker and when a generation begins.
        requests: Makes the requests.
        rebalance_timeout: Seconds that the host's ``assign`` may take.
        parking: Seconds for which a JoinGroup may wait at the coordinator. A SyncGroup, which may
            be repeated, is sent again before that.
        host: The host of the membership.
        membership: Is notified of what ends it.

    Attributes:
        broker_wait: Its waits for brokers, and for the host's ``assign``.
        nameless: A static member has joined without an id, and there was no response: the
            coordinator may know it by its instance id.
    """

    def __init__(
        self,
        core: ClientCore,
        coordinator: Coordinator,
        member: Member,
        heartbeats: Heartbeats,
        requests: GroupRequests,
        rebalance_timeout: float,
        parking: float,
        host: MembershipHost,
        membership: Membership,
    ) -> None:
        self._core = core
        self._coordinator = coordinator
        self._member = member
        self._heartbeats = heartbeats
        self._requests = requests
        self._patience = rebalance_timeout
        self._parking = parking
        session = heartbeats.timer.session
        self._sync_patience = min(parking, session, core.config.request_timeout)
        self._host = host
        self._membership = membership
        self._log = core.hooks.log(logger)
        self.broker_wait = InterruptibleWait()
        self.nameless = False
        self._offered: frozenset[str] = frozenset()
        self.forget_progress()

    def forget_progress(self, *, keep_id: bool = False) -> None:
        """Reset the state of attempts; ``keep_id``: except for which node knows our id."""
        self._failures = 0
        self._rejoins = 0
        self._resigned = 0
        self._refusals = 0
        self._not_before = 0.0
        self._members: Sequence[JoinedMember] = ()
        self._skip_assignment = False
        self._shares: Mapping[str, bytes] | None = None
        self._joined_at: int | None = None
        self.nameless = False
        if not keep_id:
            self._provisional: int | None = None

    async def _back_off(self) -> None:
        calls, waits = self._core.calls, self._failures + max(0, self._rejoins - 1)
        wait = calls.backoff.delay(waits - 1, self._core.rng) if waits else 0.0
        wait = max(wait, self._not_before - self._core.clock.now())
        if wait > 0.0:
            await calls.pause(wait)

    async def join(self) -> None:
        """Make one attempt at JoinGroup."""
        member, node_id, wanted = self._member, None, True
        attempt = member.attempt
        await self._back_off()

        def build(version: int) -> JoinGroupRequest:
            if not wanted:  # written after its wait was abandoned, it would join an orphaned member
                raise KafkaError("nobody waits for this JoinGroup any more", maybe_written=False)
            self._heartbeats.asked(at_once=self._requests.gives_id(member.member_id, version))
            protocols = self._host.protocols()
            self._offered = frozenset(offer.name for offer in protocols)
            request = self._requests.join(member.member_id, protocols, member.asks(), version)
            self.nameless = self._requests.instance_id is not None and not member.member_id
            return request

        try:
            limit = self._core.clock.now() + self._core.config.api_timeout
            node_id = await self._coordinator.find(limit)
            if member.attempt != attempt:
                return
            self._check_id(node_id)
            response = await self._send_blocking(node_id, build, JoinGroupRequest, self._parking)
        except KafkaError as error:
            if member.attempt == attempt:
                self._unreached(node_id, error)
            return
        finally:
            wanted = False
        if member.attempt != attempt:
            return  # the wake-up with the response was ahead of the interruption
        self.nameless = False
        code = response.error_code
        if not code and not self._requests.agrees(response):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if code:
            self._join_refused(code, node_id, response.member_id)
            return
        nonsense = self._requests.nonsense(response, self._offered)
        if nonsense is not None:
            why = f"JoinGroup of group {self._requests.group_id} was answered with {nonsense}"
            self._later(ProtocolError(why, node_id=node_id))
            return
        generation = self._requests.generation(response)
        if generation.member_id != member.member_id:
            self._provisional = node_id
        self._failures, self._shares, self._joined_at = 0, None, node_id
        self._members = self._requests.members(response) if generation.is_leader else ()
        self._skip_assignment = response.skip_assignment
        member.joined(generation)
        self._heartbeats.begin()
        self._log.info(
            "joined group=%s generation=%d member=%s leader=%s",
            self._requests.group_id,
            generation.generation_id,
            generation.member_id,
            generation.is_leader,
        )

    def _check_id(self, node_id: int) -> None:
        """Drop our id where this coordinator may not know it.

        The id that a static member gets in place of its old one is written to the log with the
        generation. A coordinator that took over before that knows the old one, and would treat this
        member as another one of the same name.
        """
        if self._provisional not in (None, node_id) and self._requests.instance_id is not None:
            self._member.take_id("")
            self._provisional = None

    def _join_refused(self, code: int, node_id: int, member_id: str) -> None:
        action = action_for(Api.JOIN, code)
        if action is ErrorAction.TAKE_ID and self._member.take_id(member_id):
            return
        error = self._requests.refusal(Api.JOIN, code, node_id)
        self._failures += 1
        match action:
            case ErrorAction.OVER | ErrorAction.FORGET:
                self._membership.over(error, forget_id=action is ErrorAction.FORGET)
            case ErrorAction.FATAL:
                self._membership.fail(error, forget_id=code == ErrorCode.FENCED_INSTANCE_ID)
            case ErrorAction.LATER:
                self._later(error)
            case _:
                self._coordinator.judge(node_id, error)
                self._note(Api.JOIN, error)

    async def _send_blocking(
        self,
        node_id: int,
        build: Callable[[int], Request] | Request,
        api: type[Request],
        timeout: float,
    ) -> Any:
        """Send a request that waits at the coordinator until the others have done their part."""
        # A generation that was never complete isn't in the log: another coordinator lacks it.
        self._heartbeats.watch_join(node_id, known=self._joined_at in (None, node_id))
        sent = self._coordinator.send(node_id, build, api=api, lane=Lane.GROUP, timeout=timeout)
        self._heartbeats.waits_for(sent)
        try:
            return await sent
        except BaseException:
            # It may wait there still, and everything else would wait behind it.
            self._core.network.disconnect(
                node_id, Lane.GROUP, "nobody waits for its answer any more"
            )
            raise
        finally:
            self._heartbeats.watch_join(None)

    def _unreached(self, node_id: int | None, error: KafkaError) -> None:
        """Handle a missing response: the next attempt may go to another broker."""
        self._core.calls.check_ended()
        # A response that can't be read may be readable next time; an unwritable request never is.
        unwritable = isinstance(error, ProtocolError) and error.maybe_written is False
        refused = action_for(Api.FIND, error.code) if isinstance(error, BrokerError) else None
        if unwritable or refused is ErrorAction.FATAL or isinstance(error, NoCommonVersion):
            self._membership.fail(error)
            return
        if refused is ErrorAction.LATER:
            self._later(error)
            return
        self._failures += 1
        if node_id is not None:
            self._coordinator.judge(node_id, error)
        self._note(Api.JOIN if self._member.state is MemberState.JOINING else Api.SYNC, error)

    def _later(self, error: KafkaError) -> None:
        """Handle a refusal that may pass: the application gets each of them, so they are rare."""
        wait = SHY.delay(self._refusals, self._core.rng)
        self._refusals += 1
        self._not_before = self._core.clock.now() + wait
        self._member.refuse(error)
        self._log.warning(
            "no member of group %s for now, tried again in %.1f s: %s",
            self._requests.group_id,
            wait,
            error,
        )
        self._host.on_join_refused(error)

    def _note(self, api: Api, error: KafkaError) -> None:
        self._member.last_error = error
        level = logging.INFO if self._failures <= 1 else logging.DEBUG
        self._log.log(level, "%s of group %s: %s", api.value, self._requests.group_id, error)

    # Assigning

    async def sync(self) -> bytes | None:
        """Assign partitions where this member leads, and request its own assignment.

        Makes one attempt, with the generation known; None where it brought nothing.
        """
        member, generation = self._member, self._member.generation
        assert generation is not None
        if self._shares is None:
            self._shares = await self._assign(generation) if generation.is_leader else {}
        if member.state is not MemberState.SYNCING or member.generation is not generation:
            return None
        if self._shares is None:
            return None
        return await self.broker_wait.run(lambda: self._ask_share(generation))

    async def _assign(self, generation: Generation) -> Mapping[str, bytes] | None:
        """The assignment of each member; None where it isn't to be sent any more."""
        assignments = await self._ask_host(generation)
        if assignments is None or self._member.generation is not generation:
            return None
        if not isinstance(assignments, KafkaError):
            # A static leader that came back (KIP-814): all members keep what they have.
            return {} if self._skip_assignment else assignments
        self._log.warning(
            "leader of group %s can't assign and leaves, so that another one leads: %s",
            self._requests.group_id,
            assignments,
        )
        now, member_id = self._core.clock.now(), self._member.member_id
        self._not_before = now + SHY.delay(self._resigned, self._core.rng)
        self._resigned += 1
        self._membership.over(assignments, forget_id=True)
        until = min(self._not_before, now + _SHY_LEAVE)
        await self._membership.send_leave_group(member_id, "the leader failed to assign", until)
        return None

    def _bounded(self, shares: Mapping[str, bytes]) -> Mapping[str, bytes] | KafkaError:
        size = sum(map(len, shares.values()))
        if size <= MOST_BYTES:
            return shares
        error = InvalidArgument(
            f"assign() of group {self._requests.group_id} shares out {size} bytes in all, which is "
            f"over {MOST_BYTES}: no broker takes such a request",
            hint="share out names of what is large, and keep it elsewhere",
        )
        self._host.on_join_refused(error)
        return error

    async def _ask_host(self, generation: Generation) -> Mapping[str, bytes] | KafkaError | None:
        """Call the host's ``assign``, with a time limit; None if the membership ended."""
        limit = self._patience

        async def ask() -> Mapping[str, bytes] | KafkaError:
            timeout = asyncio.timeout(limit)
            try:
                async with timeout:
                    found = await self._host.assign(generation.protocol, self._members, generation)
                    return found if isinstance(found, KafkaError) else self._bounded(found)
            except TimeoutError:
                if not timeout.expired():
                    raise
                late = ClientError(
                    f"assign() of group {self._requests.group_id} took longer than the rebalance "
                    f"timeout, {limit:g} s, and was cancelled"
                )
                self._host.on_join_refused(late)
                return late

        return await self.broker_wait.run(ask)

    async def _ask_share(self, generation: Generation) -> bytes | None:
        """Make one attempt at SyncGroup."""
        member, node_id = self._member, None
        attempt = member.attempt
        await self._back_off()
        request = self._requests.sync(generation, self._shares or {})
        try:
            node_id = await self._coordinator.find(self._heartbeats.timer.session_ends_at)
            if member.attempt != attempt:
                return None
            if node_id != self._joined_at:
                # It knows what is in the log, and this generation isn't there yet.
                raise self._requests.refusal(Api.SYNC, ErrorCode.NOT_COORDINATOR, self._joined_at)
            response = await self._send_blocking(
                node_id, request, type(request), self._sync_patience
            )
        except KafkaError as error:
            if member.attempt != attempt:
                return None
            if isinstance(error, BrokerError):
                self._rejoin_from(error)
            else:
                # Heartbeats show whether the coordinator is there: only the response is lost.
                lost = isinstance(error, RequestTimedOut)
                self._unreached(None if lost else node_id, error)
            return None
        if member.attempt != attempt:
            return None
        code = response.error_code
        if not code and not self._requests.agrees(response, generation):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if code:
            self._sync_refused(code, node_id)
            return None
        member.synced()
        self._heartbeats.prove()
        self._core.counters.add("group.rebalances")
        self.forget_progress()
        return bytes(response.assignment)

    def _sync_refused(self, code: int, node_id: int) -> None:
        error, action = self._requests.refusal(Api.SYNC, code, node_id), action_for(Api.SYNC, code)
        size = sum(map(len, (self._shares or {}).values()))
        size += sum(len(one.metadata) for one in self._members)
        if code == ErrorCode.UNKNOWN_SERVER_ERROR and size > LARGE:  # brokers report no more
            action = ErrorAction.LATER
            error.hint = (
                f"metadata and shares of the group have {size} bytes in all, and brokers keep a "
                "group in one record of at most message.max.bytes, 1048588 by default: share out "
                "less, or raise that"
            )
        match action:
            case ErrorAction.OVER | ErrorAction.FORGET:
                self._rejoins += 1  # failures are forgotten with the next JoinGroup
                self._membership.over(error, forget_id=action is ErrorAction.FORGET)
            case ErrorAction.FATAL:
                self._membership.fail(error, forget_id=code == ErrorCode.FENCED_INSTANCE_ID)
            case ErrorAction.LATER:
                self._rejoin_from(error)
                self._later(error)
            case _:
                self._coordinator.judge(node_id, error)
                self._rejoin_from(error)

    def _rejoin_from(self, error: KafkaError) -> None:
        self._rejoins += 1
        self._member.again(error)
        self._log.info("group %s rebalances again: %s", self._requests.group_id, error)

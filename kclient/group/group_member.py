"""GroupMember: the public entry point to groups whose members assign something else than topics.

For worker pools, schedulers, the leaders of a fleet: whatever Kafka's group protocol can elect and
distribute. Thin: ``Membership`` takes part, ``user_protocol`` calls the application's code. It has
no rules.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kclient.cluster.coordinator import Coordinator
from kclient.cluster.core import CLOSE_TIMEOUT, LAST_MOMENT, AsyncOnly, ClientCore, Health
from kclient.cluster.wakeups import LONGEST_SLEEP, Broadcast
from kclient.config import Bootstrap, GroupMemberConfig
from kclient.durations import call_timeout
from kclient.errors import ClientClosed, InvalidArgument, RequestTimedOut, fresh
from kclient.frozen import Frozen, Snapshot, frozen
from kclient.group.membership import Membership, MembershipHealth
from kclient.group.user_protocol import (
    GroupAssignment,
    GroupProtocol,
    ProtocolHost,
    check_protocol,
    is_sendable,
)

if TYPE_CHECKING:
    from typing import Unpack

    from kclient.errors import KafkaError
    from kclient.hooks import Dialer, Observer
    from kclient.keywords import GroupMemberSettings


@frozen
class GroupMemberHealth(Snapshot, Frozen):
    """A snapshot of the health of a ``GroupMember``.

    Attributes:
        client: Connections, metadata, internal tasks.
        group: The membership.
        running: Which function of the protocol is running, such as ``on_revoked``; None if none.
        running_for: For how many seconds.
        failure: Why it can never be a member, as text; None where that isn't so.
        stalled: The running function does so for ``rebalance_timeout`` or longer.
        ok: The client runs, it has an assignment from the group, and nothing is stalled.
    """

    client: Health
    group: MembershipHealth
    running: str | None
    running_for: float | None
    failure: str | None
    stalled: bool = False

    @property
    def ok(self) -> bool:
        """Whether the client runs, it has an assignment, and no protocol function is stalled."""
        return self.client.state == "running" and self.group.joined and not self.stalled


class GroupMember(AsyncOnly):
    """A member of a group whose members assign work by the application's own protocol.

    The group elects a leader among its members; its ``protocol.assign`` gets the metadata of all
    members and returns what each of them gets. When a member dies or leaves, or calls ``rejoin``,
    the leader assigns again. Brokers only pass bytes around.

    The constructor does no I/O: enter it with ``async with``, or call ``start`` and ``close``.
    Tasks: those of ``Membership``, from ``start`` to ``close``.

    Errors of the protocol's functions are logged, and raised by the next call of ``joined``,
    ``wait_for_rebalance`` or a step of ``assignments``; the membership goes on.

    Args:
        bootstrap: ``"host:port"``, several with commas, or a sequence of them; None for
            that of ``config``.
        group: The group's name; None for that of ``config``.
        protocol: How work is assigned; see ``GroupProtocol``.
        config: Settings, if they are kept in one value.
        observers: Receive events.
        dialer: Opens connections; sockets by default.
        **settings: Single settings, over ``config``; see ``GroupMemberConfig``.

    Raises:
        InvalidConfig: A setting that can't work, or a protocol that lacks something.
        InvalidArgument: ``group`` is no name.

    Example::

        async with kclient.GroupMember("localhost:9092", group="pool", protocol=Work()) as member:
            async for assignment in member.assignments():
                print(assignment.generation, assignment.data)
    """

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        group: str | None = None,
        protocol: GroupProtocol,
        config: GroupMemberConfig | None = None,
        observers: Sequence[Observer] = (),
        dialer: Dialer | None = None,
        **settings: Unpack[GroupMemberSettings],
    ) -> None:
        merged = GroupMemberConfig.of(config, {"bootstrap": bootstrap, **settings})
        if group is None:
            group = merged.group
        if not isinstance(group, str) or not group:
            raise InvalidArgument(f"group={group!r} can't be used: allowed is a name, not empty")
        check_protocol(protocol)
        self._core = ClientCore(merged, observers=observers, dialer=dialer)
        self._broadcast = Broadcast()
        self._host = ProtocolHost(self._core, protocol, self._broadcast, merged.rebalance_timeout)
        self._membership = Membership(
            self._core,
            Coordinator(self._core, group),
            merged,
            group,
            merged.rebalance_timeout,
            self._host,
        )
        self._closing = self._core.closing("close-member", self._close)
        self._started = False
        self._leave: bool | None = None

    def __repr__(self) -> str:
        return self._core.client_repr("GroupMember")

    # Life

    async def start(self) -> None:
        """Connect and begin to join; ``joined`` waits for the end of that. ``async with`` does it.

        Raises:
            BootstrapFailed: No bootstrap address led to a cluster within ``bootstrap_timeout``.
                This client is closed then: make a new client to try again.
            ClientClosed: It was started or closed before.

        Cancellation: nothing stays open; the client counts as closed.
        """
        await self._core.start()
        self._core.add_end_listener(lambda _: self._broadcast.notify())
        self._membership.start()
        self._membership.rejoin("the member has started")
        self._started = True

    async def close(self, timeout: float = CLOSE_TIMEOUT, *, leave: bool | None = None) -> None:
        """Revoke the assignment (``on_revoked``), leave the group, disconnect. Twice is fine.

        Pending calls raise ClientClosed; an ``async for`` over ``assignments`` ends.

        Args:
            timeout: Seconds after which it ends whatever the protocol, brokers or network do, but
                for a moment. A function of the protocol that runs on though it is cancelled is
                abandoned. Of several calls at once, the one with the least time counts.
            leave: Whether to send LeaveGroup. None: yes, unless there is a ``group_instance_id``:
                such a member may come back within ``session_timeout`` without a rebalance.

        Raises:
            InvalidArgument: An invalid timeout or ``leave``; nothing is closed.
            WrongContext: Called from another loop, thread or process than ``start``, or by one of
                the protocol's functions, which it would wait for.

        Cancellation: it closes all the same, a moment later; another ``close()`` waits for that.

        Example::

            await member.close(leave=True)
        """
        timeout = call_timeout(timeout)
        if leave is not None and not isinstance(leave, bool):
            raise InvalidArgument(
                f"leave={leave!r} can't be used: allowed are True, False and None"
            )
        self._host.check_outside("close")
        if leave is not None:
            self._leave = leave
        if not self._started or self._core.closed:
            await self._core.close(timeout)
            return
        self._core.check_context()
        await self._closing.run(timeout)

    async def _close(self) -> None:
        deadline = self._core.clock.now() + self._closing.time_left
        try:
            async with self._closing.limit():
                await self._membership.close(
                    "the member is closed", deadline, send_leave=self._leave, catch_up=True
                )
        except TimeoutError:  # no time is left, except for what must be revoked
            now = self._core.clock.now()
            await self._membership.close("", now, send_leave=False, catch_up=True)
        finally:
            await self._core.close(max(self._closing.time_left, LAST_MOMENT))

    async def __aenter__(self) -> Self:
        """``start``. Cancellation: as there."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """``close``. Cancellation: as there."""
        await self.close()

    # The assignment

    @property
    def assignment(self) -> GroupAssignment | None:
        """The assignment; None outside the group and, unless cooperative, while it rebalances."""
        return self._host.assignment

    @property
    def generation(self) -> int | None:
        """The group's generation; None while this is no member."""
        generation = self._membership.generation
        return None if generation is None else generation.generation_id

    async def joined(self, timeout: float | None = None) -> GroupAssignment:
        """Wait until the group has assigned something, and return it; at once if it has.

        Args:
            timeout: Seconds; None waits for as long as it takes.

        Returns:
            The current assignment.

        Raises:
            RequestTimedOut: It hasn't; the text has the state of the membership, and the latest
                trouble.
            FencedInstanceId, InconsistentGroupProtocol, InvalidSessionTimeout, ...: It can never
                be a member; the text has a remedy. Every later call raises it as well.
            GroupAuthorizationFailed, GroupMaxSizeReached, ...: It was refused, once for each of its
                attempts: it goes on trying, every 30 s in the end. Call again to wait on.
            ConsumerStalled: A function of the protocol has not ended within ``rebalance_timeout``;
                once for each such time. The log has a warning at half of that.
            Exception: The error that a function of the protocol raised, once.
            ClientClosed, BackgroundTaskDied, WrongContext: The client can't be used (any more).

        Cancellation: leaves nothing behind; the membership isn't touched.

        Example::

            assignment = await member.joined(timeout=30)
        """
        return await self._wait(0, timeout)

    async def wait_for_rebalance(self, timeout: float | None = None) -> GroupAssignment:
        """Wait for the next assignment after the current one.

        Args:
            timeout: Seconds; None waits for as long as it takes.

        Returns:
            The assignment then. Where the group rebalanced several times, the latest.

        Raises:
            RequestTimedOut: There was none in time.
            Exception: All that ``joined`` raises.

        Cancellation: leaves nothing behind; the membership isn't touched.

        Example::

            assignment = await member.wait_for_rebalance()
        """
        return await self._wait(self._host.serial, timeout)

    def assignments(self) -> AsyncIterator[GroupAssignment]:
        """The current assignment, if there is one, and every later one, for ``async for``.

        A late reader gets the latest one only. It ends when the member is closed: a pending step
        gets the last assignment, though it may be revoked by then. It raises what ``joined`` does,
        and can be continued after errors that pass.
        """
        return _Assignments(self)

    def rejoin(self, reason: str) -> None:
        """Request a new assignment, as the metadata of this member has changed.

        Returns at once. The group rebalances if the protocol's metadata differs from before, or if
        this member leads.

        Args:
            reason: For the coordinator's log, where brokers are 3.2 or newer.

        Raises:
            KafkaError: It can never be a member; see ``joined``.
            InvalidArgument: ``reason`` is no text that UTF-8 can encode.
            ClientClosed, BackgroundTaskDied, WrongContext: The client can't be used (any more).
        """
        self._core.check_usable()
        if self._host.failure is not None:
            raise fresh(self._host.failure)
        if not is_sendable(reason):
            raise InvalidArgument(f"reason={reason!r} can't be used: allowed is a text")
        self._membership.rejoin(reason)

    async def _wait(
        self, after: int, timeout: float | None, *, to_the_end: bool = False
    ) -> GroupAssignment:
        """``to_the_end``: an assignment just before the close counts, too."""
        core, host = self._core, self._host
        core.check_usable()
        deadline = math.inf if timeout is None else core.clock.now() + call_timeout(timeout)
        host.check_outside("wait")
        waited = False
        while True:
            closing = self._closing.begun
            if closing and waited and to_the_end and host.serial > after and host.latest:
                return host.latest  # the close was quicker than this call
            core.check_usable()
            if closing:
                raise ClientClosed("this client is being closed", hint="make a new one")
            if host.failure is not None:
                raise fresh(host.failure)
            error = host.take_error()
            if error is not None:
                raise error
            if host.assignment is not None and host.serial > after and host.settled:
                return host.assignment
            left = deadline - core.clock.now()
            if left <= 0:
                raise self._late(timeout)
            await self._broadcast.wait(min(left, LONGEST_SLEEP))
            waited = True

    def _late(self, timeout: float | None) -> KafkaError:
        health, running = self._membership.health(), self._host.calls.name
        doing = f"; {running}() of its protocol runs" if running else ""
        trouble = f"; last trouble: {health.last_error}" if health.last_error else ""
        return RequestTimedOut(
            f"group {health.group_id} has given this member nothing new in {timeout:.3g} s: it is "
            f"{health.state}{doing}{trouble}"
        )

    # Health

    def health(self) -> GroupMemberHealth:
        """A snapshot of the member's health; free to call at any time.

        Raises:
            WrongContext: Called from another loop, thread or process than ``start``.
        """
        client, host = self._core.health(), self._host
        calls = host.calls
        return GroupMemberHealth(
            client,
            self._membership.health(),
            calls.name,
            None if calls.name is None else calls.seconds,
            None if host.failure is None else str(host.failure),
            calls.stalled,
        )

    def metrics(self) -> dict[str, float]:
        """All counters and gauges by name, ``package.what``."""
        return self._core.metrics()


class _Assignments:
    """The steps of ``GroupMember.assignments``."""

    def __init__(self, member: GroupMember) -> None:
        self._member = member
        self._seen = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> GroupAssignment:
        """Return the next one. Cancellation: skips none."""
        member = self._member
        try:
            found = await member._wait(self._seen, None, to_the_end=True)
        except ClientClosed:
            if member._closing.begun or member._core.closed:
                raise StopAsyncIteration from None
            raise
        self._seen = member._host.serial
        return found

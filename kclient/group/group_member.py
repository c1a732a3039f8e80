"""GroupMember: the public door to groups that share out something else than topics.

For worker pools, schedulers, the leaders of a fleet: whatever Kafka's group protocol can elect and
tell. Thin: ``Membership`` takes part, ``user_protocol`` calls the user's code. No rules here.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kclient.cluster.core import CLOSE_TIMEOUT, LAST_MOMENT, AsyncOnly, ClientCore, Health
from kclient.cluster.wakeups import LONGEST_SLEEP, Broadcast
from kclient.config import Bootstrap, GroupMemberConfig
from kclient.durations import call_timeout
from kclient.errors import ClientClosed, InvalidArgument, RequestTimedOut, fresh
from kclient.frozen import Frozen, Snapshot, frozen
from kclient.group.coordinator import Coordinator
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
    """A snapshot of how a ``GroupMember`` is.

    Attributes:
        client: Connections, metadata, internal tasks.
        group: The membership.
        running: Which function of the protocol is under way, such as ``on_revoked``; None if none.
        running_for: For how many seconds.
        failure: Why it will never be a member, as text; None where that isn't so.
        stalled: What runs does so for ``rebalance_timeout`` or longer.
        ok: The client runs, the group has given it an assignment, and nothing is stalled.
    """

    client: Health
    group: MembershipHealth
    running: str | None
    running_for: float | None
    failure: str | None
    stalled: bool = False

    @property
    def ok(self) -> bool:
        """The client runs, the group has given it an assignment, and no function of the protocol
        is stalled."""
        return self.client.state == "running" and self.group.joined and not self.stalled


class GroupMember(AsyncOnly):
    """A member of a group whose members share out whatever the user's protocol says.

    The group elects a leader among its members, whose ``protocol.assign`` is told the metadata of
    all and says what each of them gets. A member that dies or leaves, or calls ``rejoin``, makes
    the group share out anew. Brokers only pass bytes around.

    The constructor does no I/O: enter it with ``async with``, or call ``start`` and ``close``.
    Tasks: those of ``Membership``, from ``start`` to ``close``.

    What the protocol's functions raise is logged, and raised by the next call of ``joined``,
    ``wait_for_rebalance`` or a step of ``assignments``; the membership goes on.

    Args:
        bootstrap: ``"host:port"``, several with commas, or a sequence of them; None for
            that of ``config``.
        group: The group's name; None for that of ``config``.
        protocol: How it shares out; see ``GroupProtocol``.
        config: Settings, if they are kept in one value.
        observers: Are told of events.
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
        """Give up what is ours (``on_revoked``), leave the group, disconnect. Twice is fine.

        Those who wait get ClientClosed; an ``async for`` over ``assignments`` ends.

        Args:
            timeout: Seconds after which it ends whatever the protocol, brokers or network do, but
                for a moment. A function of the protocol that runs on though it is cancelled is
                let go. Of several calls at once, the one with the least time counts.
            leave: Whether the group is told. None: yes, unless there is a ``group_instance_id``:
                such a member may come back within ``session_timeout`` and nobody notices.

        Raises:
            InvalidArgument: A timeout or ``leave`` that can't be; nothing is closed.
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
                    "the member is closed", deadline, tell=self._leave, catch_up=True
                )
        except TimeoutError:  # no time is left, but for what must be given up
            now = self._core.clock.now()
            await self._membership.close("", now, tell=False, catch_up=True)
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

    # What is ours

    @property
    def assignment(self) -> GroupAssignment | None:
        """What is ours; None outside of the group and, unless cooperative, while it rebalances."""
        return self._host.assignment

    @property
    def generation(self) -> int | None:
        """Of the group; None while we are no member."""
        generation = self._membership.generation
        return None if generation is None else generation.generation_id

    async def joined(self, timeout: float | None = None) -> GroupAssignment:
        """Wait until the group has given us something, and return it; at once if it has.

        Args:
            timeout: Seconds; None waits for as long as it takes.

        Returns:
            What is ours now.

        Raises:
            RequestTimedOut: It hasn't; the text has what the membership is at, and the latest
                trouble.
            FencedInstanceId, InconsistentGroupProtocol, InvalidSessionTimeout, ...: It will never
                be a member; the text says what to do. Every later call raises it as well.
            GroupAuthorizationFailed, GroupMaxSizeReached, ...: It was refused, once for each of its
                attempts: it goes on trying, every 30 s in the end. Call again to wait on.
            ConsumerStalled: A function of the protocol has not ended within ``rebalance_timeout``;
                once for each such time. The log tells of it at half of that.
            Exception: What a function of the protocol raised, once.
            ClientClosed, BackgroundTaskDied, WrongContext: The client can't be used (any more).

        Cancellation: leaves nothing behind; the membership isn't touched.

        Example::

            assignment = await member.joined(timeout=30)
        """
        return await self._wait(0, timeout)

    async def wait_for_rebalance(self, timeout: float | None = None) -> GroupAssignment:
        """Wait for the next assignment after the one that is ours now.

        Args:
            timeout: Seconds; None waits for as long as it takes.

        Returns:
            What is ours then. Where the group rebalanced several times, the latest.

        Raises:
            RequestTimedOut: There was none in time.
            Exception: All that ``joined`` raises.

        Cancellation: leaves nothing behind; the membership isn't touched.

        Example::

            assignment = await member.wait_for_rebalance()
        """
        return await self._wait(self._host.serial, timeout)

    def assignments(self) -> AsyncIterator[GroupAssignment]:
        """What is ours now, if anything is, and then every later assignment, for ``async for``.

        Whoever comes late gets the latest only. It ends when the member is closed: whoever waited
        when the last one came gets that, though it may be given up by then. It raises what
        ``joined`` does, and can be asked on after what goes by.
        """
        return _Assignments(self)

    def rejoin(self, reason: str) -> None:
        """Have the group share out anew, as the metadata of this member has changed.

        Returns at once. The group does so where the metadata that the protocol gives is another
        one than before, or this member leads.

        Args:
            reason: For the coordinator's log, where brokers are 3.2 or newer.

        Raises:
            KafkaError: It will never be a member; see ``joined``.
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
        """``to_the_end``: what came just before the close counts, too."""
        core, host = self._core, self._host
        core.check_usable()
        deadline = math.inf if timeout is None else core.clock.now() + call_timeout(timeout)
        host.check_outside("wait")
        waited = False
        while True:
            closing = self._closing.begun
            if closing and waited and to_the_end and host.serial > after and host.latest:
                return host.latest  # the close was quicker than we are
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

    # Looking at it

    def health(self) -> GroupMemberHealth:
        """A snapshot of how the member is; free to call at any time.

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
        """All counters and gauges by name, ``room.what``."""
        return self._core.metrics()


class _Assignments:
    """The steps of ``GroupMember.assignments``."""

    def __init__(self, member: GroupMember) -> None:
        self._member = member
        self._seen = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> GroupAssignment:
        """The next one. Cancellation: none is left out by it."""
        member = self._member
        try:
            found = await member._wait(self._seen, None, to_the_end=True)
        except ClientClosed:
            if member._closing.begun or member._core.closed:
                raise StopAsyncIteration from None
            raise
        self._seen = member._host.serial
        return found

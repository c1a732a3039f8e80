"""Opens, closes and expires the connections of one client.

Called by the node connections (open), and by ``NetworkClient`` (close, addresses). It must not
decide when to dial or what to do after an end: a channel notifies its node connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from typing import TYPE_CHECKING, Any

from kclient.errors import BrokerUnreachable, ClientClosed, KafkaError, NoCommonVersion
from kclient.hooks import DialTarget
from kclient.network.channel import Channel
from kclient.network.connection import Connection, ConnectionEvent, ConnectionState
from kclient.network.frames import FramePool
from kclient.network.nodes import ConnectionKey, Lane, Node

if TYPE_CHECKING:
    from kclient.clock import Clock
    from kclient.config import NetworkConfig
    from kclient.hooks import Dialer
    from kclient.network.client import TaskSupervisor
    from kclient.network.handshake import ClientInformation
    from kclient.network.node_connection import NodeConnection
    from kclient.network.sasl.login import Login
    from kclient.protocol.message import Request

logger = logging.getLogger("kclient.network")

GENERAL_IDLE = 30.0
"""Seconds until an unused GENERAL or bootstrap connection closes; others have longer."""
LANE_IN_FLIGHT = 100
"""Requests under way at once where order and memory don't ask for fewer."""
_LAST_ROUNDS = 1.0
"""Seconds for the end of aborted transports, which takes a few rounds of the loop."""
_RENEWAL_PAUSE = 10.0
"""Seconds until a session is renewed after all, at most, when its credentials couldn't be had."""
_OVERRUN = 0.5
"""Seconds by which a dialer may overrun its time before it is cut off."""


class Selector:
    """The channels of one client.

    Tasks: one per dial, named ``kclient:dial-...``, which authenticates, too; one per renewal of
    a session, named ``kclient:renewal-...``; both of the supervisor. ``close`` or the end of its
    channel cancels them. Timers: one, for the next idle connection.

    Args:
        config: Limits, TLS and idle time.
        clock: Reads the time.
        dialer: Opens transports.
        identity: Name and version of this client.
        supervisor: Knows the dials, and is notified where one is killed from outside.
        login: The client's credentials for SASL; None where none is configured.
    """

    def __init__(
        self,
        config: NetworkConfig,
        clock: Clock,
        dialer: Dialer,
        identity: ClientInformation,
        supervisor: TaskSupervisor,
        login: Login | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._dialer = dialer
        self._identity = identity
        self._supervisor = supervisor
        self._login = login
        self._pool = FramePool()
        self._channels: dict[Channel, None] = {}
        self._leaving: dict[Channel, None] = {}
        self._tasks: dict[Channel, asyncio.Task[None]] = {}
        """What dials, authenticates or renews."""
        self._idle_timer: asyncio.TimerHandle | None = None

    @property
    def request_timeout(self) -> float:
        """Seconds that a peer has for a request, and for reading what we write."""
        return self._config.request_timeout

    def use_dialer(self, dialer: Dialer) -> None:
        """Dial with ``dialer`` from now on."""
        self._dialer = dialer

    def in_flight_limit(self, lane: Lane) -> int:
        """Requests that a connection of that lane may have under way."""
        return self._config.max_in_flight if lane is Lane.PRODUCE else LANE_IN_FLIGHT

    def open(
        self,
        key: ConnectionKey,
        node: Node,
        setup_timeout: float,
        owner: NodeConnection,
        *,
        failures: int = 0,
        may_want_sasl: bool = False,
    ) -> Channel:
        """Begin to dial; the channel notifies ``owner`` of what becomes of it.

        Args:
            key: Node and lane.
            node: Where it is.
            setup_timeout: Seconds until it must be usable.
            owner: The node connection.
            failures: Attempts at that address since it was last usable.
            may_want_sasl: It hung up on us as a listener of SASL does: ask whether it is one.
        """
        asks = may_want_sasl and self._login is None
        connection = Connection(
            key,
            node.address,
            self._identity,
            pool=self._pool,
            frame_limit=self._config.receive_frame_limit,
            in_flight_limit=self.in_flight_limit(key.lane),
            authenticates=self._login is not None or asks,
        )
        now = self._clock.now()
        channel = Channel(connection, owner, self._clock.now, now + setup_timeout)
        context = self._config.security.ssl_context
        target = DialTarget(node.host, node.port, context, setup_timeout, failures)
        self._channels[channel] = None
        dial = self._supervisor.spawn_owned(self._dial(target, channel, asks), _name_of(key))
        self._tasks[channel] = dial
        # Not in the task itself: one that is cancelled before its first step never runs a line.
        dial.add_done_callback(lambda dial: self._dialed(channel, target, dial))
        self._schedule_idle(now + self._idle_limit(key))
        return channel

    def forget(self, channel: Channel) -> None:
        """The channel is closed: stop its dial if that is still under way."""
        self._channels.pop(channel, None)
        # One that is closed in order may still hold bytes for a peer that doesn't take them.
        self._leaving = {each: None for each in self._leaving if not each.gone}
        if not channel.gone:
            self._leaving[channel] = None
        task = self._tasks.get(channel)
        if task is not None:
            task.cancel()

    def expire_idle(self, now: float) -> float | None:
        """Close what was unused for too long, least recently used first.

        Returns:
            When to look again; None if there is no connection.
        """
        next_look: float | None = None
        for channel in sorted(self._channels, key=lambda c: c.connection.last_used):
            connection = channel.connection
            limit = self._idle_limit(connection.key)
            idle = not len(connection.in_flight) and connection.state is ConnectionState.READY
            if idle and now - connection.last_used >= limit:
                if not channel.owner.waiting:
                    channel.close(f"unused for {limit:g} s", abort=False)
                    continue
            due = connection.last_used + limit
            due = due if due > now else now + limit
            next_look = due if next_look is None else min(next_look, due)
        return next_look

    def drop(self, error: KafkaError) -> None:
        """End all channels at once for the given reason."""
        for channel in list(self._channels):
            self._leaving[channel] = None
            channel.end(error, intentional=True)

    async def close(self, timeout: float) -> None:
        """End all channels, and wait for what was written to leave, at most ``timeout`` seconds.

        Cancellation: transports are dropped at once; another call waits for their end.
        """
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        for channel in list(self._channels):
            self._leaving[channel] = None
            channel.end(ClientClosed("the client was closed"), abort=False, intentional=True)
        for task in self._tasks.values():
            task.cancel()
        try:
            async with asyncio.timeout(timeout):
                await self._until_gone()
        except TimeoutError:
            pass
        finally:
            for channel in self._leaving:
                channel.abort_transport()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_ROUNDS):
                await self._until_gone()
        await asyncio.sleep(0)  # what a cancelled dial opened is closed in the loop's next round

    async def _until_gone(self) -> None:
        for channel in list(self._leaving):
            await channel.wait_closed()
            self._leaving.pop(channel, None)
        # A dialer may take its time to end, or never do: only waited for, not awaited.
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def _dial(self, target: DialTarget, channel: Channel, asks: bool) -> None:
        async with asyncio.timeout(target.setup_timeout + _OVERRUN):
            channel.host = target.host
            await self._dialer.dial(target, lambda: channel)
            channel.dialed = True
            if self._login is not None:
                await channel.negotiated()
                await self._authenticate(channel, self._login, channel.setup_deadline)
            elif asks:
                await channel.negotiated()
                await self._check_without_sasl(channel)

    async def _check_without_sasl(self, channel: Channel) -> None:
        from kclient.network.sasl.exchange import check_without_sasl

        async def ask(message: Request) -> Any:
            return await channel.ask(message, channel.setup_deadline)

        with contextlib.suppress(NoCommonVersion):  # then it knows no SASL
            await check_without_sasl(ask, channel.connection.where)
        channel.authenticated(math.inf)

    async def _authenticate(
        self, channel: Channel, login: Login, deadline: float | None = None
    ) -> None:
        from kclient.network.sasl.exchange import authenticate

        mechanism = await login.mechanism(channel.host)
        connection = channel.connection
        if connection.state is ConnectionState.READY:
            connection.apply(ConnectionEvent.RENEWED)
        elif connection.state is not ConnectionState.AUTHENTICATING:
            return  # it is about to close
        # A renewal's responses come behind those of what is under way, such as a JoinGroup.
        latest = max(self._clock.now(), connection.in_flight.latest_deadline())
        until = latest + self.request_timeout if deadline is None else deadline

        async def ask(message: Request) -> Any:
            return await channel.ask(message, until)

        lifetime = await authenticate(mechanism, ask, connection.where)
        now = self._clock.now()
        channel.session_ends_at = now + lifetime if lifetime else math.inf
        channel.authenticated(now + login.renewal(lifetime) if lifetime else math.inf)

    def renew(self, channel: Channel) -> None:
        """Authenticate again on an open connection, before the broker ends its session."""
        assert self._login is not None
        channel.renew_at = math.inf
        name = f"renewal-{_suffix(channel.connection.key)}"
        task = self._supervisor.spawn_owned(self._authenticate(channel, self._login), name)
        self._tasks[channel] = task
        task.add_done_callback(lambda task: self._renewed(channel, task))

    def _renewed(self, channel: Channel, task: asyncio.Task[None]) -> None:
        """A session was renewed, or can't be: its connection is of no more use then."""
        self._tasks.pop(channel, None)
        failure = None if task.cancelled() else task.exception()
        connection = channel.connection
        if connection.state is ConnectionState.READY and (failure or task.cancelled()):
            # Nothing was said to the broker yet: the session may last until there are credentials.
            why = failure or "it was cancelled"
            logger.warning("%s: its session isn't renewed yet: %s", connection.where, why)
            left = channel.session_ends_at - self._clock.now()
            if left <= 0.0:
                channel.retire()
                return
            channel.renew_at = self._clock.now() + min(max(left / 4, 0.5), _RENEWAL_PAUSE)
            channel.owner.channel_renewed(channel)
        elif task.cancelled():
            channel.close("the renewal of its session was cancelled")
        elif failure is not None and connection.state is ConnectionState.REAUTHENTICATING:
            text = f"{connection.where} can't renew its session: {type(failure).__name__}"
            channel.end(_unusable(text, connection.key, failure, show_cause=False))

    def _dialed(self, channel: Channel, target: DialTarget, dial: asyncio.Task[None]) -> None:
        """The dial ended, in whatever way: a channel that isn't open then has failed."""
        self._tasks.pop(channel, None)
        failure = None if dial.cancelled() else dial.exception()
        if failure is None and not dial.cancelled():
            return
        if not channel.dialed:
            channel.dial_failed()
        connection = channel.connection
        key, where = connection.key, connection.where
        if failure is None:
            if not connection.is_closed:
                self._supervisor.task_restarted(_name_of(key), "it was cancelled from outside")
            channel.end(_unusable(f"the dial to {where} was cancelled from outside", key))
            return
        cause = failure.__cause__ if isinstance(failure, KafkaError) else failure
        connection.setup_timed_out = isinstance(cause, TimeoutError)
        # After the dial an exception that isn't ours may hold what was to be sent: a secret.
        why = type(failure).__name__ if channel.dialed else repr(failure)
        if isinstance(failure, TimeoutError):
            what = "authentication" if channel.dialed else "connection"
            why = f"no {what} within {target.setup_timeout:.3g} s"
        text = f"{where} can't be reached: {why}"
        channel.end(_unusable(text, key, failure, show_cause=not channel.dialed))

    def _idle_limit(self, key: ConnectionKey) -> float:
        longest = self._config.connections_max_idle
        return min(GENERAL_IDLE, longest) if _short_lived(key) else longest

    def _schedule_idle(self, at: float) -> None:
        timer = self._idle_timer
        if timer is not None:
            if timer.when() <= at:
                return
            timer.cancel()
        self._idle_timer = asyncio.get_running_loop().call_at(at, self._on_idle_timer)

    def _on_idle_timer(self) -> None:
        self._idle_timer = None
        self._pool.trim()
        now = self._clock.now()
        next_look = self.expire_idle(now)
        if self._pool.retained_bytes and next_look is not None:
            next_look = min(next_look, now + GENERAL_IDLE)
        if next_look is not None:
            self._schedule_idle(next_look)


def _unusable(
    text: str,
    key: ConnectionKey,
    failure: BaseException | None = None,
    *,
    show_cause: bool = True,
) -> KafkaError:
    """The failure itself if it is an error of ours, else one with this text."""
    if isinstance(failure, KafkaError):
        error = failure
    else:
        error = BrokerUnreachable(text)
        error.__cause__ = failure if show_cause else None
    error.node_id = key.node_id
    return error


def _name_of(key: ConnectionKey) -> str:
    return f"dial-{_suffix(key)}"


def _suffix(key: ConnectionKey) -> str:
    return f"{key.node_id}-{key.lane.name.lower()}"


def _short_lived(key: ConnectionKey) -> bool:
    """A connection that is cheap to make again when it is needed."""
    return key.lane is Lane.GENERAL or key.node_id < 0

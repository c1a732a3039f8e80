"""One broker of the embedded cluster: a listener on loopback, its connections and fetch sessions.

Made by ``Cluster``. It serves requests in callbacks of the loop: it has no task of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable

from kclient.clock import Clock
from kclient.errors import InvalidArgument
from kclient.testing.api_names import ApiName, api_key_of
from kclient.testing.broker_configs import BrokerConfig
from kclient.testing.connection import Channel
from kclient.testing.faults import Faults
from kclient.testing.fetch_sessions import FetchSessions
from kclient.testing.groups.coordinator import GroupCoordinator
from kclient.testing.memory_net import Listener, MemoryNet
from kclient.testing.request_log import RequestLog
from kclient.testing.served_versions import VERSIONS
from kclient.testing.state import BrokerState, ClusterState

LOOPBACK = "127.0.0.1"
"""Where brokers listen if nothing else is said."""


class Services:
    """What all brokers of a cluster share, beside its state."""

    __slots__ = ("_connections", "clock", "faults", "network", "requests", "rng", "state")

    def __init__(
        self,
        state: ClusterState,
        faults: Faults,
        requests: RequestLog,
        clock: Clock,
        rng: random.Random,
        network: MemoryNet | None = None,
    ) -> None:
        self.network = network
        self.state = state
        self.faults = faults
        self.requests = requests
        self.clock = clock
        self.rng = rng
        self._connections = 0

    def next_connection(self) -> int:
        """A number for a new connection."""
        self._connections += 1
        return self._connections


class Broker:
    """One broker.

    Attributes:
        node_id: Its id.
        sessions: Fetch sessions of its clients.
        groups: The groups that it coordinates.
        versions: What it serves, by API key.
        metadata_state: What its answers to Metadata are made from.
    """

    def __init__(self, info: BrokerState, services: Services) -> None:
        self._info = info
        self._services = services
        self._server: asyncio.Server | Listener | None = None
        self._channels: dict[Channel, None] = {}
        self._unconnected = asyncio.Event()
        self._unconnected.set()
        self.node_id = info.node_id
        self.state = services.state
        self.metadata_state = services.state
        self.versions = dict(VERSIONS)
        self.faults = services.faults
        self.requests = services.requests
        self.sessions = FetchSessions(services.rng, services.state.config.session_slots)
        self.groups = GroupCoordinator(self, services.state.config.groups, services.rng)

    @property
    def host(self) -> str:
        """Where it listens."""
        return self._info.host

    @property
    def port(self) -> int:
        """Where it listens; it keeps the port over restarts, and 0 before the first start."""
        return self._info.port

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"{self._info.host}:{self._info.port}"

    @property
    def rack(self) -> str | None:
        """Where it stands, if that was given."""
        return self._info.rack

    @property
    def running(self) -> bool:
        """It listens."""
        return self._server is not None

    @property
    def connection_count(self) -> int:
        """Connections that are open."""
        return len(self._channels)

    @property
    def config(self) -> BrokerConfig:
        """The same for all brokers."""
        return self.state.config

    def now(self) -> float:
        """Monotonic seconds."""
        return self._services.clock.now()

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._services.clock.wall_ms()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """A timer on the running loop."""
        return asyncio.get_running_loop().call_later(seconds, callback)

    def speak(self, api: ApiName, lowest: int, highest: int) -> None:
        """Serve an API in these versions only, as a broker of another release does.

        They count for what comes from now on, on open connections too; a client that keeps to the
        answer of ApiVersions sees them when it connects the next time.

        Raises:
            InvalidArgument: This broker doesn't serve some of them.
        """
        key = api_key_of(api)
        least, most = VERSIONS.get(key, (0, -1))
        if not least <= lowest <= highest <= most:
            raise InvalidArgument(f"{api}: {lowest} to {highest} must be within {least} to {most}")
        self.versions[key] = (lowest, highest)

    def freeze_metadata(self) -> None:
        """Go on telling of brokers, topics and leaders what is true now: it lags behind."""
        self.metadata_state = self.state.outline()

    def thaw_metadata(self) -> None:
        """Tell the truth again."""
        self.metadata_state = self.state

    async def listen(self, host: str | None = None, port: int | None = None) -> None:
        """Open the listener, at another address if one is given, and take part in the cluster.

        Cancellation: the broker stays down; call it again.
        """
        info, network = self._info, self._services.network
        info.host = info.host if host is None else host
        info.port = info.port if port is None else port
        if network is None:
            loop = asyncio.get_running_loop()
            server = await loop.create_server(self._new_channel, info.host, info.port)
            info.port = server.sockets[0].getsockname()[1]
            self._server = server
        else:
            if info.host == LOOPBACK:
                info.host = f"broker-{info.node_id}"
            self._server = network.listen(self._new_channel, info.host, info.port)
            info.port = self._server.port
        self.state.broker_up(self.node_id)

    def _new_channel(self) -> Channel:
        return Channel(self, self._services.next_connection())

    async def stop(self) -> None:
        """Leave the cluster, then close the listener and, in order, all connections.

        Cancellation: the broker is down, but connections may still be open; call it again.
        """
        await self._leave(Channel.close)

    async def crash(self) -> None:
        """Be gone at once: connections are reset, answers that were on their way may be lost.

        Cancellation: it is gone all the same.
        """
        await self._leave(Channel.abort)

    async def _leave(self, end: Callable[[Channel], None]) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
            for channel in tuple(self._channels):
                end(channel)
            self.state.broker_down(self.node_id)
            self.sessions.drop_all()
            self.groups.close()
        elif not self._channels:
            return
        await self._closed_within(_CLOSE_SECONDS)
        for channel in tuple(self._channels):
            channel.abort()
        await self._closed_within(_CLOSE_SECONDS)
        if server is not None:
            await server.wait_closed()

    async def wait_unconnected(self) -> None:
        """Wait until no connection is open: clients went, and their ends were noticed.

        Put a timeout around it with ``asyncio.timeout``.

        Cancellation: safe.
        """
        await self._unconnected.wait()

    async def _closed_within(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._unconnected.wait()

    # What channels call

    def channel_opened(self, channel: Channel) -> None:
        """A connection is there; none is taken any more while the broker leaves."""
        self._channels[channel] = None
        self._unconnected.clear()
        if self._server is None:
            channel.abort()

    def channel_closed(self, channel: Channel) -> None:
        """A connection is gone."""
        self._channels.pop(channel, None)
        if not self._channels:
            self._unconnected.set()


_CLOSE_SECONDS = 1.0
"""For answers on their way to clients that don't read them."""

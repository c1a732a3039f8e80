"""One broker of the embedded cluster: its listeners, connections, fetch sessions and partitions.

Created by ``Cluster``. One listener is for clients, one for other brokers. It serves requests in
callbacks of the loop: it has no task of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from kclient.errors import InvalidArgument
from kclient.testing.api_versions import VERSIONS, ApiName, api_key_of
from kclient.testing.arguments import whole
from kclient.testing.broker_configs import BrokerConfig
from kclient.testing.connection import Channel
from kclient.testing.controller import Controller
from kclient.testing.fetch_sessions import FetchSessions
from kclient.testing.groups.coordinator import GroupCoordinator
from kclient.testing.image import BrokerRegistration, MetadataImage
from kclient.testing.inter_broker import Peers
from kclient.testing.listeners import (
    INNER,
    Address,
    Server,
    accept_no_more,
    address_of,
    listen,
    shut,
)
from kclient.testing.quotas import ClientQuotas
from kclient.testing.replica_manager import ReplicaManager
from kclient.testing.replicas import LeadershipChange, Replicas
from kclient.testing.replication import ReplicaFetcherManager
from kclient.testing.sasl import SaslSession
from kclient.testing.scram_users import ScramUsers
from kclient.testing.shared_state import LOOPBACK, SharedState
from kclient.testing.transactions.coordinator import TransactionCoordinator
from kclient.testing.transactions.verification import TransactionVerifier


class Broker:
    """One broker of the cluster.

    Attributes:
        node_id: Its id.
        sessions: Fetch sessions of its clients.
        quotas: Rates of its clients.
        groups: The groups that it coordinates.
        transactions: The transactional ids that it coordinates.
        peers: For its requests to other brokers.
        verifier: Asks coordinators about transactions that are written to its logs.
        security: How clients are let in; None for everyone.
        versions: Lowest and highest version that it serves, by API key.
        authorizer: Of clients' requests; None where all may do everything.
        image: The cluster metadata that it knows.
        metadata_image: The image that its Metadata responses are made from.
    """

    def __init__(
        self, node_id: int, host: str, port: int, rack: str | None, shared: SharedState
    ) -> None:
        self._shared = shared
        self._server: Server | None = None
        self._inner_server: Server | None = None
        self._inner_port = 0
        self._channels: dict[Channel, None] = {}
        self._inner_channels: dict[Channel, None] = {}
        self._ends = 0
        self._frozen = False
        self._replication: ReplicaFetcherManager | None = None
        self.settle()
        self.node_id = node_id
        self.host = host
        self.port = port
        self.rack = rack
        self.versions = dict(VERSIONS)
        self.faults = shared.faults
        self.requests = shared.requests
        self.authorizer = shared.security.authorizer if shared.security is not None else None
        self.control_plane = shared.control_plane
        self.security = shared.security
        self.image: MetadataImage = shared.control_plane.image
        self.metadata_image = self.image
        self.replica_manager = ReplicaManager(node_id, shared.control_plane, self)
        self.rng = shared.rng
        self.sessions = FetchSessions(shared.rng, self.config.session_slots)
        self.quotas = ClientQuotas(*self.config.quota_window)
        self.groups = GroupCoordinator(self, self.config.groups, shared.rng)
        self.transactions = TransactionCoordinator(self, self.config.transactions)
        self.peers = Peers(self)
        self.verifier = TransactionVerifier(self)
        self.replicas.listeners.append(self._role_changed)
        shared.brokers[node_id] = self

    def settle(self) -> None:
        """Prepare it for a start in another loop; all of its listeners are closed."""
        self._opening = asyncio.Lock()
        self._unconnected = asyncio.Event()
        self._unconnected.set()

    def __repr__(self) -> str:
        state = "up" if self.running else "down"
        return f"<Broker {self.node_id} at {self.address}, {state}>"

    @property
    def address(self) -> str:
        """``host:port``, IPv6 in brackets; the port stays, and may be 0 before the first start."""
        return address_of(self.host, self.port)

    @property
    def replicas(self) -> Replicas:
        """Its copies of partitions."""
        return self.replica_manager.replicas

    @property
    def session(self) -> int:
        """The epoch of its session, -1 while it has none."""
        found = self.control_plane.quorum.session_of(self.node_id)
        return -1 if found is None else found

    @property
    def running(self) -> bool:
        """Whether it listens."""
        return self._server is not None

    @property
    def _is_forgotten(self) -> bool:
        return self._shared.brokers.get(self.node_id) is not self

    @property
    def connection_count(self) -> int:
        """The number of client connections that are open."""
        return len(self._channels)

    @property
    def config(self) -> BrokerConfig:
        """The broker configuration, the same for all brokers."""
        return self.image.config

    def now(self) -> float:
        """Monotonic seconds."""
        return self._shared.now()

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._shared.clock.wall_ms()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """A timer on the running loop."""
        return self._shared.running().call_later(seconds, callback)

    def speak(self, api: ApiName, lowest: int, highest: int) -> None:
        """Serve an API in these versions only, as a broker of another release does.

        They apply to requests from now on, on open connections too; a client that caches the
        ApiVersions response of a connection sees them when it connects the next time.

        Raises:
            InvalidArgument: This broker doesn't serve some of them.
        """
        key = api_key_of(api)
        whole("lowest", lowest)
        whole("highest", highest)
        least, most = VERSIONS.get(key, (0, -1))
        if not least <= lowest <= highest <= most:
            raise InvalidArgument(f"{api}: {lowest} to {highest} must be within {least} to {most}")
        self.versions[key] = (lowest, highest)

    def freeze_metadata(self) -> None:
        """Keep the brokers, topics and leaders in Metadata responses as they are now: stale."""
        self._frozen = True

    def thaw_metadata(self) -> None:
        """Return current metadata again."""
        self._frozen = False
        self.metadata_image = self.image

    async def listen(self, host: str | None = None, port: int | None = None) -> None:
        """Open the listeners, at another address if one is given, and take part in the cluster.

        If it is stopped, crashed or removed meanwhile, that wins: it is down then.

        Raises:
            ClientClosed: The cluster isn't started, or was closed meanwhile.
            OSError: That address can't be bound; the broker is down, at its old one.

        Cancellation: the broker stays down; call it again.
        """
        async with self._opening:
            self._shared.check()
            if self._server is not None:
                if host is None and port is None:
                    return
                await self._leave(Channel.close)
            ends = self._ends
            outer = self._address(host, port)
            security = self._shared.security
            context = security.server_context if security is not None else None
            server, port = await listen(outer, self._new_channel, context)
            try:
                inner, inner_port = await listen(self._inner_address(0), self._new_inner_channel)
            except BaseException:
                await shut([server])
                raise
            if self._ends != ends or not self._shared.is_open or self._is_forgotten:
                await shut([server, inner])
                self._shared.check()
                return
            self._server, self._inner_server = server, inner
            self.host, self.port, self._inner_port = outer.host, port, inner_port
            self._replication = ReplicaFetcherManager(self)
            self.control_plane.join(self)

    def _address(self, host: str | None, port: int | None) -> Address:
        network = self._shared.network
        host = self.host if host is None else host
        if network is not None and host == LOOPBACK:
            host = f"broker-{self.node_id}"
        return Address(host, self.port if port is None else port, network)

    def _inner_address(self, port: int) -> Address:
        network = self._shared.inner_network
        return Address(LOOPBACK if network is None else f"broker-{self.node_id}", port, network)

    def _new_channel(self) -> Channel:
        shared, security = self._shared, self.security
        session = None
        if security is not None and security.wants_sasl:
            session = SaslSession(
                security,
                lambda: ScramUsers(self.image, security),
                shared.now,
                lambda: shared.clock.wall_ms() / 1000,
                lambda: f"{shared.rng.getrandbits(128):032x}",
            )
        return Channel(self, shared.next_connection(), session)

    def _new_inner_channel(self) -> Channel:
        return Channel(self, INNER)

    async def stop(self) -> None:
        """Close the listener and, in order, all connections, and leave the cluster.

        Before that it waits, for at most a second, until its followers have fetched what it leads.

        Cancellation: the broker is down, but connections may still be open; call it again.
        """
        try:
            if self._server is not None:
                await self._replicated_within(_CLOSE_SECONDS)
        except BaseException:
            await self._vanish(Channel.close)
            raise
        await self._leave(Channel.close)

    async def shut(self) -> None:
        """``stop`` without a wait for followers: the cluster closes. Cancellation: as there."""
        await self._leave(Channel.close)
        async with self._opening:  # another task's ``listen``: it finds that the cluster is closed
            pass

    async def crash(self) -> None:
        """Go down at once: connections are reset, and responses that were in flight may be lost.

        Cancellation: it is down all the same.
        """
        await self._leave(Channel.abort)

    async def _replicated_within(self, seconds: float) -> None:
        end = self.now() + seconds
        while self.now() < end and self.replica_manager.has_uncommitted:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SECONDS)

    async def _leave(self, end: Callable[[Channel], None]) -> None:
        left = await self._vanish(end)
        if left is None and not self._channels:
            return
        await self._closed_within(_CLOSE_SECONDS)
        for channel in tuple(self._channels):
            channel.abort()
        await self._closed_within(_CLOSE_SECONDS)
        for server in left or ():
            await server.wait_closed()

    async def _vanish(self, end: Callable[[Channel], None]) -> list[Server] | None:
        """Go down; return the servers, None if it was down. Cancellation: it is down."""
        self._ends += 1
        servers = [one for one in (self._server, self._inner_server) if one is not None]
        replication, self._replication = self._replication, None
        if self._server is None:
            return None
        self._server = self._inner_server = None
        for server in servers:
            accept_no_more(server)
        for channel in tuple(self._channels):
            end(channel)
        for channel in tuple(self._inner_channels):
            channel.abort()
        self.control_plane.leave(self.node_id)
        self.replica_manager.close()
        dials = [] if replication is None else replication.close()
        self.sessions.drop_all()
        self.quotas = ClientQuotas(*self.config.quota_window)
        self.groups.close()
        self.transactions.close()
        dials += self.peers.close()
        await shut(servers)
        await asyncio.gather(*dials, return_exceptions=True)
        return servers

    # Called by the control plane

    def facts(self) -> BrokerRegistration:
        """Its entry in the metadata: its id, rack and current address."""
        return BrokerRegistration(self.node_id, self.host, self.rack, self.port)

    def apply(self, image: MetadataImage) -> None:
        """Use that image from now on, unless it is not newer than the current one."""
        if image.version <= self.image.version:
            self.control_plane.tally.fences += image.controller_epoch < self.image.controller_epoch
            return
        self.image = image
        if not self._frozen:
            self.metadata_image = image
        self.replica_manager.apply(image)
        self._refresh()

    def _role_changed(self, turn: LeadershipChange) -> None:
        if self.running:
            for coordinator in (self.groups, self.transactions):
                coordinator.role_changed(turn.topic, turn.partition, turn.leads, turn.leader_epoch)

    def links_changed(self) -> None:
        """The set of brokers that it reaches changed."""
        self.replica_manager.links_changed()
        self._refresh()

    def _refresh(self) -> None:
        """Refresh its followers; with ``call_soon`` if a test acts while the loop doesn't run."""
        if self._replication is not None:
            if self._shared.is_running:
                self._replication.refresh()
                self.peers.refresh()
            else:
                self._shared.running().call_soon(self._refresh)

    def controller(self) -> Controller:
        """The controller. Raises ApiError: NOT_CONTROLLER, if it can't be reached."""
        return self.control_plane.controller_for(self.node_id)

    def new_producer_id(self) -> int:
        """A producer id that is not in use."""
        return self._shared.new_producer_id()

    # Called by its followers

    def reaches(self, node_id: int) -> bool:
        """Whether another broker is up and can be reached."""
        other = self._shared.brokers.get(node_id)
        return (
            other is not None
            and other.running
            and self.control_plane.links.reachable(self.node_id, node_id)
        )

    def inner_address(self, node_id: int) -> Address:
        """Where another broker listens for brokers."""
        other = self._shared.brokers[node_id]
        return other._inner_address(other._inner_port)

    def wake(self, leader: int) -> None:
        """Ask a leader to respond to the pending fetch of this broker."""
        other = self._shared.brokers[leader]
        links = self.control_plane.links
        links.send(
            self.node_id, leader, lambda: other.replica_manager.follower_state(self.node_id).wake()
        )

    async def wait_unconnected(self) -> None:
        """Wait until no connection is open: clients closed them, and the broker noticed.

        Put a timeout around it with ``asyncio.timeout``.

        Cancellation: safe.
        """
        await self._unconnected.wait()

    async def _closed_within(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._unconnected.wait()

    # Called by channels

    def channel_opened(self, channel: Channel) -> None:
        """A connection was accepted; it is aborted if the broker is already down."""
        if channel.number == INNER:
            self._inner_channels[channel] = None
        else:
            self._channels[channel] = None
            self._unconnected.clear()
        if self._server is None:
            channel.abort()

    def channel_closed(self, channel: Channel) -> None:
        """A connection was closed or lost."""
        self._inner_channels.pop(channel, None)
        self._channels.pop(channel, None)
        if not self._channels:
            self._unconnected.set()


_CLOSE_SECONDS = 1.0
"""For responses in flight to clients that don't read them."""
_POLL_SECONDS = 0.002

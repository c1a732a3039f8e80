"""NetworkClient: the entry point of the package. Requests go in, RequestFutures come out.

Made by ``cluster.core`` for each client. It joins the address book, the back-off of nodes, the
selector and the node connections, and chooses the least loaded node. It must not retry a request,
refresh metadata or know what a request means.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any, Protocol

from kclient.backoff import Backoff
from kclient.errors import ClientClosed, InvalidArgument, KafkaError
from kclient.network.dialer import TcpDialer
from kclient.network.handshake import ClientInformation
from kclient.network.node_connection import Capacity, NodeConnection, unknown_node
from kclient.network.nodes import AddressBook, ConnectionKey, Lane, Node, NodeStates
from kclient.network.reporter import Reporter
from kclient.network.requests import PendingRequest, RequestFuture
from kclient.network.selector import Selector
from kclient.protocol.api_versions import NO_FEATURES
from kclient.protocol.message import Request

if TYPE_CHECKING:
    import asyncio
    import random
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from kclient.clock import Clock
    from kclient.config import NetworkConfig
    from kclient.hooks import Counters, Dialer, Hooks
    from kclient.network.health import ConnectionHealth, NodeHealth
    from kclient.network.requests import RequestBuilder
    from kclient.network.sasl.login import Login
    from kclient.security import Security

SOFTWARE_NAME = "kclient"
"""What we call ourselves to brokers (KIP-511)."""


class TaskSupervisor(Protocol):
    """The supervisor of one client, ``cluster.supervision``, as its network sees it."""

    def spawn_owned(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start a task whose end, of whatever kind, the network deals with."""
        ...

    def task_restarted(self, name: str, why: str) -> None:
        """A task of ``spawn_owned`` was killed from outside; another will take its place."""
        ...

    def listener_failed(self, error: Exception) -> None:
        """A listener of ours raised: a defect, to fail the client with."""
        ...


class NetworkClient:
    """The connections of one client, by node and lane.

    Tasks: one per dial, see the selector; ``close`` ends them. Timers: one per connection and one
    for idle connections.

    Args:
        config: Addresses, security, time-outs and limits.
        clock: Reads the time.
        dialer: Opens transports; TCP by default.
        hooks: The client's observers.
        counters: The client's numbers.
        rng: Source of jitter and of the start in ``least_loaded``.
        supervisor: Knows our tasks, and hears of each exception out of a listener of ours.

    Attributes:
        clock, book, states, selector, reporter: The parts, as the node connections use them.
    """

    def __init__(
        self,
        config: NetworkConfig,
        *,
        clock: Clock,
        hooks: Hooks,
        counters: Counters,
        rng: random.Random,
        supervisor: TaskSupervisor,
        dialer: Dialer | None = None,
    ) -> None:
        self.clock = clock
        self.book = AddressBook(config.bootstrap)
        self.states = NodeStates(
            Backoff(config.reconnect_backoff, config.reconnect_backoff_max),
            Backoff(config.connection_setup_timeout, config.connection_setup_timeout_max),
            rng,
        )
        self.reporter = Reporter(hooks, counters, supervisor)
        self._login = _login(config.security, clock, rng, supervisor)
        self.selector = Selector(
            config,
            clock,
            dialer if dialer is not None else _tcp(config, clock),
            ClientInformation(config.client_id, SOFTWARE_NAME, _version()),
            supervisor,
            self._login,
        )
        self._config = config
        self._rng = rng
        self._connections: dict[tuple[int, int], NodeConnection] = {}
        self._ready_listeners: list[Callable[[int, Lane], object]] = []
        self._running = False
        self._closed = False
        self._failure: KafkaError | None = None
        counters.gauge("network.connections", self._count_ready)

    # Life

    async def start(self) -> None:
        """Make the client usable. Opens nothing yet: connections open when first needed.

        Raises:
            ClientClosed: It was closed before.
        """
        if self._closed:
            raise ClientClosed("the network client was closed and can't be started again")
        self._running = True

    def use_dialer(self, dialer: Dialer) -> None:
        """Open connections with ``dialer`` from now on; for ``start``, before anything is open."""
        self.selector.use_dialer(dialer)

    def fail(self, error: KafkaError) -> None:
        """Give up all connections: every request without an outcome gets an error like ``error``.

        So does every later one; ``close`` is still due.
        """
        if self._closed:
            return
        self._running = False
        self._failure = error
        for node_connection in list(self._connections.values()):
            node_connection.close(error)
        self.selector.drop(error)

    async def close(self, timeout: float) -> None:
        """Close all connections; every request that has no outcome yet fails with ClientClosed.

        Args:
            timeout: Seconds for transports to write what they hold; dropped after that.

        Cancellation: transports are dropped at once; another call waits for their end.
        """
        self._closed = True
        self._running = False
        for node_connection in list(self._connections.values()):
            node_connection.close(ClientClosed("the client was closed"))
        if self._login is not None:
            self._login.close()
        await self.selector.close(timeout)

    # Nodes

    @property
    def bootstrap_nodes(self) -> Sequence[Node]:
        """The nodes to start from; their ids are negative."""
        return tuple(self.book.bootstrap.values())

    def update_nodes(self, nodes: Iterable[Node]) -> None:
        """Take ``nodes`` as the brokers of the cluster; bootstrap nodes are kept apart.

        Connections to a node that is gone, or has another address, finish what is under way and
        close; a node that has moved is dialed at its new address when it is needed, and what is
        under way at the old one has ``line.DRAIN_TIME`` seconds.
        """
        gone, moved = self.book.replace(nodes)
        if gone or moved:
            known = (*self.book.nodes.values(), *self.book.bootstrap.values())
            self.states.trim(self.clock.now(), {node.address for node in known})
        for node_id in gone | moved:
            for node_connection in self._connections_of(node_id):
                if node_id in gone:
                    node_connection.fail_waiting(unknown_node(node_id))
                node_connection.retire("the broker has another address now")
        for node_id in gone:
            for node_connection in self._connections_of(node_id):
                if node_connection.channel is None:
                    node_connection.close(unknown_node(node_id))
                    del self._connections[node_connection.key]
        if gone or moved:
            # What waited for the outcome of a dial may wait at another address now, or that dial
            # may have been given up: nothing else would notify it.
            now = self.clock.now()
            for node_connection in list(self._connections.values()):
                node_connection.retry_dial(now)

    # Requests

    def send(
        self,
        node_id: int,
        request: RequestBuilder,
        *,
        api: type[Request] | None = None,
        lane: Lane = Lane.GENERAL,
        timeout: float | None = None,
        caller_deadline: float = math.inf,
        max_version: int | None = None,
        raw: bool = False,
        expect_response: bool = True,
        response_bytes: int = 0,
    ) -> RequestFuture[Any]:
        """Send a request to a node, dialing it first where needed.

        Never raises what happens to the request: that arrives through the future. Requests of one
        lane to one node are written in the order of the calls.

        Args:
            node_id: Of a broker or a bootstrap node.
            request: The message, or a callable that makes it for the negotiated version.
            api: The request's class; needed where ``request`` is a callable.
            lane: Which of the node's connections.
            timeout: Seconds to wait until it can be written, and again for the answer, after which
                the connection is closed; ``request_timeout`` by default.
            caller_deadline: On the clock's scale, when the future must have an outcome, at the
                latest; the connection stays.
            max_version: Highest version that the caller can make use of.
            raw: Give a ``RawResponse``. Needed where the answer holds ``records``.
            expect_response: False where the broker sends none; done once it is written.
            response_bytes: How large an answer it asks for, over which ``receive_frame_limit``
                counts.

        Returns:
            The response message, a ``RawResponse`` if ``raw``, None if no answer is expected; or
            the error: ``NoCommonVersion``, ``BrokerUnreachable``, ``ConnectionLost``,
            ``RequestTimedOut``, ``ProtocolError`` or ``ClientClosed``. Its ``maybe_written`` says
            whether the broker may have acted on the request.

        Raises:
            InvalidArgument: ``request`` is a callable and ``api`` is missing.
        """
        if api is None:
            if not isinstance(request, Request):
                raise InvalidArgument("api is needed beside a callable request")
            api = type(request)
        if not self._running:
            return RequestFuture.failed(self._refusal(node_id))
        now = self.clock.now()
        seconds = self._config.request_timeout if timeout is None else timeout
        pending = PendingRequest(
            api,
            request,
            timeout=seconds,
            created_at=now,
            deadline=now + seconds,
            caller_deadline=caller_deadline,
            max_version=max_version,
            raw=raw,
            expect_response=expect_response,
            response_bytes=response_bytes,
        )
        node_connection = self._connections.get((node_id, lane))
        if node_connection is None:
            if self.book.get(node_id) is None:
                return RequestFuture.failed(unknown_node(node_id))
            node_connection = self._new_connection(node_id, lane)
        node_connection.send(pending, now)
        return pending.future

    def replace_connection(self, node_id: int, lane: Lane = Lane.GENERAL) -> None:
        """Distrust the present connection: it closes once what is under way on it is answered.

        Later requests go over a new one. For bytes that arrive damaged, which may be the way's
        fault: another connection may go another way.
        """
        node_connection = self._connections.get((node_id, lane))
        if node_connection is not None:
            node_connection.retire("it is made anew")

    def disconnect(self, node_id: int, lane: Lane, why: str) -> None:
        """Close the present connection at once, if it is usable: what is under way on it fails.

        For a response that is of no use any more and that everything else would wait behind.
        """
        node_connection = self._connections.get((node_id, lane))
        if node_connection is not None:
            node_connection.disconnect(why)

    def fail_waiting(self, node_id: int, lane: Lane, error: KafkaError) -> None:
        """Fail the requests that wait to be written to a node with errors like ``error``."""
        node_connection = self._connections.get((node_id, lane))
        if node_connection is not None:
            node_connection.fail_waiting(error)

    def can_send(self, node_id: int, lane: Lane = Lane.GENERAL) -> Capacity:
        """Whether a request would be written now, or once a connection that may be made is there.

        Not where the node is unknown or in back-off, and where the connection has as many requests
        under way as it may, is throttled, or doesn't take bytes. When that changes, ready listeners
        are called.
        """
        if not self._running:
            return Capacity.NONE
        node_connection = self._connections.get((node_id, lane))
        if node_connection is None:
            if self.book.get(node_id) is None:
                return Capacity.NONE
            node_connection = self._new_connection(node_id, lane)
        return node_connection.can_send(self.clock.now())

    def is_connected(self, node_id: int, lane: Lane = Lane.GENERAL) -> bool:
        """There is a usable connection."""
        node_connection = self._connections.get((node_id, lane))
        return node_connection is not None and node_connection.is_ready

    def in_flight(self, node_id: int, lane: Lane = Lane.GENERAL) -> int:
        """Requests without an outcome, written or waiting."""
        node_connection = self._connections.get((node_id, lane))
        return node_connection.in_flight if node_connection is not None else 0

    def retry_at(self, node_id: int) -> float:
        """When the node's back-off ends, on the clock's scale; 0.0 if it has none."""
        node = self.book.get(node_id)
        return self.states.of(node.address).retry_at if node is not None else 0.0

    def throttled(self) -> dict[int, float]:
        """Seconds for which a quota still forbids requests (KIP-219), by node; few have any."""
        found: dict[int, float] = {}
        for node_connection in self._connections.values():
            node_id, lane = node_connection.key
            seconds = self.throttled_for(node_id, lane)
            if seconds:
                found[node_id] = max(found.get(node_id, 0.0), seconds)
        return found

    def throttled_for(self, node_id: int, lane: Lane = Lane.GENERAL) -> float:
        """Seconds for which a quota still forbids requests on one lane; 0.0 where none does."""
        node_connection = self._connections.get((node_id, lane))
        if node_connection is None or node_connection.channel is None:
            return 0.0
        return max(0.0, node_connection.channel.connection.throttled_until - self.clock.now())

    def finalized_features(self) -> tuple[Mapping[str, int], int]:
        """The cluster's finalized features (KIP-584) and their epoch, as far as is known.

        Returns:
            Levels by name, from the connected broker with the highest epoch; none and -1 where no
            broker reports any.
        """
        found: tuple[Mapping[str, int], int] = NO_FEATURES, -1
        for node_connection in self._connections.values():
            channel = node_connection.channel
            versions = channel.connection.versions if channel is not None else None
            if versions is not None and versions.features_epoch > found[1]:
                found = versions.features, versions.features_epoch
        return found

    def connection_error(self, node_id: int) -> Exception | None:
        """The latest failure to reach the node, if it wasn't usable since; for texts."""
        node = self.book.get(node_id)
        return self.states.of(node.address).last_error if node is not None else None

    def add_ready_listener(self, listener: Callable[[int, Lane], object]) -> None:
        """Have ``listener(node_id, lane)`` called when sending may have become possible.

        That is when a connection becomes ready, has capacity after ``can_send`` said no, takes
        bytes again, or goes away.
        """
        self._ready_listeners.append(listener)

    def least_loaded(
        self, node_ids: Iterable[int] | None = None, lane: Lane = Lane.GENERAL
    ) -> int | None:
        """The node that will answer soonest, by what is under way to it; None if none can be asked.

        A connected node with nothing under way is best, then a connected one with little, then
        one that is being connected, then one that may be dialed.

        Args:
            node_ids: Which to choose from. All known brokers by default; where none of them can be
                asked, the bootstrap nodes.
            lane: On which connection it would be asked.
        """
        if node_ids is not None:
            return self._least_loaded_of(list(node_ids), lane)
        best = self._least_loaded_of(list(self.book.nodes), lane)
        if best is None:
            best = self._least_loaded_of(list(self.book.bootstrap), lane)
        return best

    # Looking at it

    def snapshot(self) -> list[ConnectionHealth]:
        """How each connection is, by node and lane."""
        from kclient.network.health import health_of

        now = self.clock.now()
        node_connections = sorted(
            self._connections.values(), key=lambda node_connection: node_connection.key
        )
        return [
            health_of(node_connection, self.book, self.states, now)
            for node_connection in node_connections
        ]

    def node_snapshot(self) -> list[NodeHealth]:
        """How each node is: the brokers, and the bootstrap nodes that were tried, by node id."""
        from kclient.network.health import node_health

        now, found = self.clock.now(), []
        for node_id in sorted({*self.book.nodes, *self.book.bootstrap}):
            node, node_connections = self.book.get(node_id), self._connections_of(node_id)
            if node is not None and (node_connections or node_id >= 0):
                found.append(node_health(node, node_connections, self.states, now))
        return found

    # What node connections report

    def dial_finished(self, node_connection: NodeConnection) -> None:
        """Its dial has an outcome, or was given up: those that left the probing to it go on."""
        now = self.clock.now()
        for other in self._connections_beside(node_connection):
            other.retry_dial(now)

    def node_unreachable(self, node_connection: NodeConnection, error: KafkaError) -> None:
        """The node is unreachable: fail what waits for that address."""
        for each in (node_connection, *self._connections_beside(node_connection)):
            if each.channel is None:
                each.fail_waiting(error)
        self.dial_finished(node_connection)  # those without requests wait for this outcome, too

    def capacity_changed(self, node_connection: NodeConnection) -> None:
        """Notify the ready listeners; forget the connection of a node that was removed."""
        node_id, lane = node_connection.key
        if node_connection.channel is None and self.book.get(node_id) is None:
            node_connection.close(unknown_node(node_id))
            self._connections.pop(node_connection.key, None)
        for listener in tuple(self._ready_listeners):
            try:
                listener(node_id, lane)
            except Exception as error:
                self.reporter.listener_failed(error, f"ready listener on {node_connection.key}")

    # Inside

    def _refusal(self, node_id: int) -> KafkaError:
        if self._failure is not None and not self._closed:
            own = copy.copy(self._failure)
            own.__cause__ = self._failure.__cause__
        else:
            own = ClientClosed(f"the client is {'closed' if self._closed else 'not started'}")
        own.node_id = node_id
        own.maybe_written = False
        return own

    def _new_connection(self, node_id: int, lane: Lane) -> NodeConnection:
        key = ConnectionKey(node_id, lane)
        node_connection = self._connections[key] = NodeConnection(key, self)
        return node_connection

    def _connections_of(self, node_id: int) -> list[NodeConnection]:
        node_connections = self._connections
        return [
            node_connections[node_id, lane] for lane in Lane if (node_id, lane) in node_connections
        ]

    def _connections_beside(self, node_connection: NodeConnection) -> list[NodeConnection]:
        """The other lanes of its node, and all of other nodes at the same address."""
        near, address = node_connection.key.node_id, node_connection.address
        return [
            other
            for other in self._connections.values()
            if other is not node_connection
            and (other.key.node_id == near or other.address == address)
        ]

    def _least_loaded_of(self, node_ids: list[int], lane: Lane) -> int | None:
        now = self.clock.now()
        best: int | None = None
        best_rank = (3, 0)
        start = self._rng.randrange(len(node_ids)) if node_ids else 0
        for node_id in node_ids[start:] + node_ids[:start]:
            rank = self._rank(node_id, lane, now)
            if rank is not None and rank < best_rank:
                best, best_rank = node_id, rank
                if rank == (0, 0):
                    break
        return best

    def _rank(self, node_id: int, lane: Lane, now: float) -> tuple[int, int] | None:
        """(0 connected, 1 connecting, 2 dialable; requests there); None if it can't be asked."""
        node_connection = self._connections.get((node_id, lane))
        if node_connection is None:
            node = self.book.get(node_id)
            free = node is not None and self.states.can_dial(node.address, now)
            return (2, 0) if free else None
        if not node_connection.can_send(now):
            return None
        if node_connection.channel is None:
            return 2, node_connection.in_flight
        return (0 if node_connection.is_ready else 1), node_connection.in_flight

    def _count_ready(self) -> float:
        return sum(node_connection.is_ready for node_connection in self._connections.values())


def _login(
    security: Security, clock: Clock, rng: random.Random, supervisor: TaskSupervisor
) -> Login | None:
    if security.sasl is None:
        return None
    from kclient.network.sasl.login import Login

    return Login(security.sasl, clock, rng, supervisor.spawn_owned)


def _tcp(config: NetworkConfig, clock: Clock) -> TcpDialer:
    return TcpDialer(clock, send_buffer=config.send_buffer, receive_buffer=config.receive_buffer)


def _version() -> str:
    from kclient import __version__

    return __version__

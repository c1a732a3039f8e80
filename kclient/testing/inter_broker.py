"""Requests of brokers to each other: ``BrokerConnection``, ``dial``, and ``Peers``.

A follower keeps a connection to each of its leaders (``replication.py``). ``Peers`` has the other
requests: of a transaction coordinator for markers, and of a leader to a coordinator. They go over
the listener for brokers, as Kafka's do, also to the broker itself, so that faults and the request
log know them.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kclient.errors import ProtocolError
from kclient.protocol.headers import decode_response_header, encode_request
from kclient.protocol.message import Request, Response
from kclient.testing.responses import ApiError
from kclient.testing.timers import Timer

if TYPE_CHECKING:
    from kclient.testing.broker import Broker
    from kclient.testing.listeners import Address

R = TypeVar("R", bound=Response)

_SIZE = struct.Struct(">i")


class BrokerConnection(asyncio.Protocol):
    """One connection to another broker; it shares nothing with clients.

    One request at a time, of any kind; responses come in callbacks, so that a broker needs no task.

    Args:
        client_id: The client id that it sends.
        lost: Called once with the reason when the connection is lost, unless ``close`` ended it.
    """

    def __init__(self, client_id: str, lost: Callable[[str], None]) -> None:
        self._client_id = client_id
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._closed = False
        self._buffer = bytearray()
        self._correlation = 0
        self._waiting: Callable[[memoryview], None] | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether a request has no response yet."""
        return self._waiting is not None

    def call(
        self, request: Request, version: int, response_class: type[R], done: Callable[[R], None]
    ) -> None:
        """Send a request; ``done`` gets the response, unless the connection is lost before."""
        self._correlation += 1

        def decode(frame: memoryview) -> None:
            correlation, start = decode_response_header(frame, response_class.API_KEY, version)
            if correlation != self._correlation:
                raise ProtocolError(f"response {correlation} to request {self._correlation}")
            done(response_class.decode(frame, version, start))

        self._waiting = decode
        if self._transport is not None:
            self._transport.write(
                encode_request(request, version, self._correlation, self._client_id)
            )

    def close(self) -> None:
        """Abort the connection; ``lost`` is not called."""
        self._closed = True
        self._waiting = None
        if self._transport is not None:
            self._transport.abort()

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) < _SIZE.size:
            return
        (size,) = _SIZE.unpack_from(self._buffer)
        if len(self._buffer) < _SIZE.size + size:
            return
        frame = bytes(memoryview(self._buffer)[_SIZE.size : _SIZE.size + size])
        del self._buffer[: _SIZE.size + size]
        decode, self._waiting = self._waiting, None
        if decode is None or self._closed:
            return
        try:
            decode(memoryview(frame))
        except (ProtocolError, ApiError) as error:  # a test may have made this response
            self.close()
            self._lost(str(error))

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if not self._closed:
            self._closed = True
            self._waiting = None
            self._lost(str(error or "the connection ended"))


def dial(
    broker: Broker,
    node_id: int,
    connection: BrokerConnection,
    done: Callable[[OSError | None], None],
) -> asyncio.Task[None] | None:
    """Connect to a broker's listener for brokers; ``done`` gets None, or the error.

    Returns:
        The task that dials a socket, which ends by itself; None in memory: ``done`` was called.
    """
    address = broker.inner_address(node_id)
    if address.network is None:
        return asyncio.get_running_loop().create_task(
            _dial(address, connection, done), name=f"broker {broker.node_id} dials {node_id}"
        )
    try:
        address.network.connect(address.host, address.port, lambda: connection)
    except OSError as error:
        done(error)
    else:
        done(None)
    return None


async def _dial(
    address: Address, connection: BrokerConnection, done: Callable[[OSError | None], None]
) -> None:
    """Connect to a socket. Cancellation: nothing stays open."""
    loop = asyncio.get_running_loop()
    try:
        await loop.create_connection(lambda: connection, address.host, address.port)
    except OSError as error:
        done(error)
    else:
        done(None)


@dataclass(slots=True, eq=False, repr=False)
class _Call:
    """A request that waits for its turn, or its response."""

    request: Request
    version: int
    response_class: type[Response]
    done: Callable[[Any], None]


class Peers:
    """The requests of one broker to the others: one at a time per broker and API."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._peers: dict[tuple[int, int], _Peer] = {}

    def call(
        self,
        node_id: int,
        request: Request,
        version: int,
        response_class: type[R],
        done: Callable[[R | None], None],
    ) -> None:
        """Send a request to a broker, which may be this one.

        Args:
            node_id: Of the broker.
            request: To be sent once those before it, of the same kind, have a response.
            version: Of its API.
            response_class: Of the response.
            done: Called once, in a later callback, with the response; with None if the broker can't
                be reached, or the connection is lost, or ``request.timeout.ms`` have passed. Never
                called once this broker is down.
        """
        key = (node_id, request.API_KEY)
        peer = self._peers.get(key)
        if peer is None:
            peer = self._peers[key] = _Peer(self._broker, node_id)
        peer.call(_Call(request, version, response_class, done))

    def refresh(self) -> None:
        """Reachability of brokers changed: give up what waits for those that are out of reach."""
        for (node_id, _), peer in tuple(self._peers.items()):
            if not self._broker.reaches(node_id):
                peer.fail()

    def close(self) -> list[asyncio.Task[None]]:
        """Close all connections; return the dials that the caller must wait for."""
        peers = list(self._peers.values())
        self._peers.clear()
        return [dialing for one in peers if (dialing := one.close()) is not None]


class _Peer:
    """The requests of one API to one broker. Its only task is a dial to a socket, which ends."""

    def __init__(self, broker: Broker, node_id: int) -> None:
        self._broker = broker
        self._node_id = node_id
        self._queue: deque[_Call] = deque()
        self._current: _Call | None = None
        self._connection: BrokerConnection | None = None
        self._dialing: asyncio.Task[None] | None = None
        self._overdue = Timer(broker.call_later, self.fail)
        self._soon: asyncio.Handle | None = None
        self._closed = False

    def call(self, call: _Call) -> None:
        """Send it when those before it have their responses."""
        self._queue.append(call)
        self._continue_soon()

    def close(self) -> asyncio.Task[None] | None:
        """Close it; return the dial that the caller must wait for, if there is one."""
        self._closed = True
        self._queue.clear()
        self._hang_up()
        if self._soon is not None:
            self._soon.cancel()
        return self._dialing

    def fail(self) -> None:
        """Drop the connection, and report that what was sent, or waits, got no response."""
        waiting = [] if self._current is None else [self._current]
        waiting += self._queue
        self._queue.clear()
        self._hang_up()
        for call in waiting:
            call.done(None)

    def _hang_up(self) -> None:
        self._overdue.cancel()
        self._current = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _continue_soon(self) -> None:
        if self._soon is None and not self._closed:
            self._soon = asyncio.get_running_loop().call_soon(self._continue)

    def _continue(self) -> None:
        """Send the next request, over a new connection if there is none."""
        self._soon = None
        if self._closed or self._current is not None or not self._queue:
            return
        if not self._broker.reaches(self._node_id):
            self.fail()
        elif self._connection is None:
            self._connect()
        else:
            self._send(self._connection)

    def _send(self, connection: BrokerConnection) -> None:
        call = self._current = self._queue.popleft()
        self._overdue.set(self._broker.config.request_timeout)
        connection.call(call.request, call.version, call.response_class, self._answered)

    def _answered(self, response: Response) -> None:
        call, self._current = self._current, None
        self._overdue.cancel()
        self._continue_soon()
        if call is not None:
            call.done(response)

    def _connect(self) -> None:
        if self._dialing is not None:
            return
        connection = BrokerConnection(
            f"broker-{self._broker.node_id}", lambda _: self._lost(connection)
        )
        done = partial(self._dialed, connection)
        self._dialing = dial(self._broker, self._node_id, connection, done)

    def _dialed(self, connection: BrokerConnection, error: OSError | None) -> None:
        self._dialing = None
        if error is not None:
            self.fail()
        elif self._closed:
            connection.close()
        else:
            self._connection = connection
            self._continue()

    def _lost(self, connection: BrokerConnection) -> None:
        if self._connection is connection:
            self.fail()

"""What ``NetworkClient`` reports about its connections and nodes, as frozen values.

Read by ``health()`` of the clients and by people; nothing decides by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kclient.frozen import Snapshot
from kclient.network.connection import ConnectionState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kclient.network.node_connection import NodeConnection
    from kclient.network.nodes import AddressBook, Node, NodeStates


@dataclass(frozen=True, slots=True)
class ConnectionHealth(Snapshot):
    """One connection, or one that is wanted.

    Attributes:
        node_id: Broker id; negative for bootstrap nodes.
        lane: ``general``, ``produce``, ``fetch`` or ``group``.
        address: ``host:port``; empty where the node isn't in the address book any more.
        state: ``idle`` (not open, not wanted), ``backing_off``, ``dialing``, ``negotiating``,
            ``authenticating``, ``ready``, ``reauthenticating`` or ``draining``.
        in_flight: Requests that wait for their answers.
        waiting: Requests that wait for the connection.
        writable: The transport takes more bytes.
        throttled_for: Seconds of silence left that the broker asked for.
        retry_in: Seconds of back-off left.
        idle_for: Seconds since a request was last written or answered; None if not connected.
        failures: Consecutive failures of the node since it was last usable.
        last_error: The latest of them.
    """

    node_id: int
    lane: str
    address: str
    state: str
    in_flight: int
    waiting: int
    writable: bool
    throttled_for: float
    retry_in: float
    idle_for: float | None
    failures: int
    last_error: str | None


def health_of(
    node_connection: NodeConnection, book: AddressBook, states: NodeStates, now: float
) -> ConnectionHealth:
    """How one is at ``now``."""
    node_id, lane = node_connection.key
    node, channel = book.get(node_id), node_connection.channel
    connection = channel.connection if channel is not None else None
    address = node.address if node is not None else ""
    known = states.of(address)
    retry_in, error = max(0.0, known.retry_at - now), known.last_error
    if connection is not None:
        state = connection.state.name.lower()
    else:
        state = "backing_off" if retry_in else "idle"
    opened = connection is not None and connection.state is not ConnectionState.DIALING
    return ConnectionHealth(
        node_id=node_id,
        lane=lane.name.lower(),
        address=address,
        state=state,
        in_flight=node_connection.in_flight - len(node_connection.waiting),
        waiting=len(node_connection.waiting),
        writable=channel is None or channel.full_since is None,
        throttled_for=max(0.0, connection.throttled_until - now) if connection else 0.0,
        retry_in=retry_in,
        idle_for=now - connection.last_used if connection is not None and opened else None,
        failures=known.failures,
        last_error=str(error) if error is not None else None,
    )


@dataclass(frozen=True, slots=True)
class NodeHealth(Snapshot):
    """One broker, over all connections to it.

    Attributes:
        node_id: Broker id; negative for bootstrap nodes.
        address: ``host:port``.
        connections: How many are ready.
        in_flight: Requests that wait for their answers.
        waiting: Requests that wait for a connection.
        last_success_age: Seconds since it last answered a request; None if it never did.
        last_error: Its latest failure, as text, also where it has answered since; None if it never
            failed at its present address.
        last_error_age: Seconds since that failure; None without one.
        failures: Consecutive failures since it was last usable.
        retry_in: Seconds of back-off left.
        ok: It was usable when it was last tried. A broker that the client needs nothing from isn't
            tried: ``last_success_age`` and ``last_error_age`` say when it was.
    """

    node_id: int
    address: str
    connections: int
    in_flight: int
    waiting: int
    last_success_age: float | None
    last_error: str | None
    last_error_age: float | None
    failures: int
    retry_in: float

    @property
    def ok(self) -> bool:
        """It was usable when it was last tried."""
        return self.failures == 0


def node_health(
    node: Node, node_connections: Sequence[NodeConnection], states: NodeStates, now: float
) -> NodeHealth:
    """How a node is at ``now``; ``node_connections`` are all ways to it."""
    answered = [
        node_connection.last_response_at
        for node_connection in node_connections
        if node_connection.last_response_at is not None
    ]
    known = states.of(node.address)
    failure = known.latest_failure
    return NodeHealth(
        node_id=node.node_id,
        address=node.address,
        connections=sum(node_connection.is_ready for node_connection in node_connections),
        in_flight=sum(
            node_connection.in_flight - len(node_connection.waiting)
            for node_connection in node_connections
        ),
        waiting=sum(len(node_connection.waiting) for node_connection in node_connections),
        last_success_age=now - max(answered) if answered else None,
        last_error=str(failure[1]) if failure is not None else None,
        last_error_age=now - failure[0] if failure is not None else None,
        failures=known.failures,
        retry_in=max(0.0, known.retry_at - now),
    )

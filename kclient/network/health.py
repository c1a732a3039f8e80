"""What ``NetworkClient.snapshot`` tells about a connection, as a frozen value.

Read by ``health()`` of the clients and by people; nothing decides by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kclient.network.connection_states import ConnectionState

if TYPE_CHECKING:
    from kclient.network.addresses import AddressBook
    from kclient.network.line import Line
    from kclient.network.node_states import NodeStates


@dataclass(frozen=True, slots=True)
class ConnectionHealth:
    """One connection, or one that is wanted.

    Attributes:
        node_id: Broker id; negative for bootstrap nodes.
        lane: ``general``, ``produce``, ``fetch`` or ``group``.
        address: ``host:port``; empty where the node isn't in the address book any more.
        state: ``idle`` (not open, not wanted), ``backing_off``, ``dialing``, ``negotiating``,
            ``authenticating``, ``ready`` or ``draining``.
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


def health_of(line: Line, book: AddressBook, states: NodeStates, now: float) -> ConnectionHealth:
    """How a line is at ``now``."""
    node_id, lane = line.key
    node, channel = book.get(node_id), line.channel
    connection = channel.connection if channel is not None else None
    retry_in = max(0.0, states.retry_at(node_id) - now)
    error = states.last_error(node_id)
    if connection is not None:
        state = connection.state.name.lower()
    else:
        state = "backing_off" if retry_in else "idle"
    opened = connection is not None and connection.state is not ConnectionState.DIALING
    return ConnectionHealth(
        node_id=node_id,
        lane=lane.name.lower(),
        address=node.address if node is not None else "",
        state=state,
        in_flight=line.in_flight - len(line.waiting),
        waiting=len(line.waiting),
        writable=channel is None or channel.writable,
        throttled_for=max(0.0, connection.throttled_until - now) if connection else 0.0,
        retry_in=retry_in,
        idle_for=now - connection.last_used if connection is not None and opened else None,
        failures=states.failures(node_id),
        last_error=str(error) if error is not None else None,
    )

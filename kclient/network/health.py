"""What ``NetworkClient.snapshot`` tells about a connection, as a frozen value."""

from __future__ import annotations

from dataclasses import dataclass


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

"""The states of a connection and what moves it from one to the next: the table, nothing else.

``connection.py`` applies it and tells the story; the tests walk it; the diagram in ARCHITECTURE.md
is drawn from it. Sans-IO.
"""

from __future__ import annotations

import enum


class ConnectionState(enum.Enum):
    """Where a connection stands."""

    DIALING = "The transport isn't open yet."
    NEGOTIATING = "ApiVersions was asked; what the broker speaks isn't known yet."
    AUTHENTICATING = "Versions are known; the peers prove to each other who they are."
    READY = "Requests may be written."
    DRAINING = "No new requests; those under way are still awaited, then it closes."
    CLOSED = "The end. Nothing comes in or goes out any more."


class ConnectionEvent(enum.Enum):
    """What moves a connection."""

    OPENED = "The transport is open, TLS included."
    FELL_BACK = "The broker asked for a lower version of ApiVersions."
    NEGOTIATED = "The broker's versions are known."
    CHALLENGED = "Authentication takes another step."
    AUTHENTICATED = "Authentication succeeded, or none is configured."
    RETIRED = "We want it to go away once it is idle."
    ENDED = "The peer, a fault, a timeout or we ended it."


_S, _E = ConnectionState, ConnectionEvent
TRANSITIONS: dict[ConnectionState, dict[ConnectionEvent, ConnectionState]] = {
    _S.DIALING: {_E.OPENED: _S.NEGOTIATING, _E.ENDED: _S.CLOSED},
    _S.NEGOTIATING: {
        _E.FELL_BACK: _S.NEGOTIATING,
        _E.NEGOTIATED: _S.AUTHENTICATING,
        _E.ENDED: _S.CLOSED,
    },
    _S.AUTHENTICATING: {
        _E.CHALLENGED: _S.AUTHENTICATING,
        _E.AUTHENTICATED: _S.READY,
        _E.ENDED: _S.CLOSED,
    },
    _S.READY: {_E.RETIRED: _S.DRAINING, _E.ENDED: _S.CLOSED},
    _S.DRAINING: {_E.ENDED: _S.CLOSED},
    _S.CLOSED: {},
}
"""An event that a state doesn't list is a defect of the driver: ``transitions.step`` raises."""

HANDSHAKE = frozenset({_S.DIALING, _S.NEGOTIATING, _S.AUTHENTICATING})
"""The states before a connection is usable."""

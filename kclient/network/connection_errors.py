"""The errors that the end of a connection gives to those who waited on it, with their texts.

Made by ``connection.py`` and ``line.py``. ``maybe_written`` is True in all that concern a request
under way: it was handed to the transport, and nobody can say how far it came. Sans-IO.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from kclient.errors import (
    BrokerUnreachable,
    ConnectionLost,
    KafkaError,
    ProtocolError,
    RequestTimedOut,
)
from kclient.network.frames import TLS_LISTENER

if TYPE_CHECKING:
    from kclient.network.requests import PendingRequest


def timed_out(request: PendingRequest, where: str, node_id: int) -> RequestTimedOut:
    """For the request whose deadline is over."""
    return RequestTimedOut(
        f"{request} to {where} got no answer within {request.timeout:g} s, so the connection was "
        "closed",
        node_id=node_id,
        maybe_written=True,
    )


def too_late(request: PendingRequest, where: str, node_id: int, now: float) -> RequestTimedOut:
    """For the request whose caller waits no longer, though the broker still may."""
    waited = request.sent_at - request.asked_at
    return RequestTimedOut(
        f"{request} to {where} got no answer in time: it waited {waited:.3g} s for a connection, "
        f"and {now - request.sent_at:.3g} s for the answer",
        node_id=node_id,
        maybe_written=True,
    )


def behind_a_timeout(where: str, node_id: int) -> ConnectionLost:
    """For those that stood behind such a request, or before it with more time."""
    return ConnectionLost(
        f"the connection to {where} was closed, since another request on it timed out",
        node_id=node_id,
    )


def doesnt_read(where: str, patience: float, node_id: int) -> ConnectionLost:
    """A peer that takes no bytes, where nothing is under way that could time out."""
    return ConnectionLost(
        f"the connection to {where} was closed, since it took no bytes for {patience:g} s",
        node_id=node_id,
    )


def no_handshake(doing: str, where: str, node_id: int) -> BrokerUnreachable:
    """A peer that accepts and then says nothing."""
    return BrokerUnreachable(
        f"{where} accepted the connection but gave no answer to {doing} in time", node_id=node_id
    )


def lost_in_handshake(
    cause: Exception | None, partial: int, where: str, node_id: int, *, said_nothing: bool
) -> BrokerUnreachable:
    """The transport went away before the connection was usable."""
    hint = "see the broker's log for the reason"
    if said_nothing:
        hint = "that listener may want TLS or SASL: see security="
    error = BrokerUnreachable(
        f"the connection to {where} {_how(cause, partial)} before it was usable",
        node_id=node_id,
        hint=hint,
    )
    error.__cause__ = cause
    return error


def lost(
    cause: Exception | None, partial: int, where: str, node_id: int, *, answered: bool
) -> ConnectionLost:
    """The transport went away under a usable connection."""
    error = ConnectionLost(
        f"the connection to {where} {_how(cause, partial)}",
        node_id=node_id,
        # A SASL listener answers ApiVersions, and hangs up on the first other request.
        hint=None if answered else "a listener that wants SASL behaves like that: see security=",
    )
    error.__cause__ = cause
    return error


def unreadable(
    cause: ProtocolError, where: str, node_id: int, *, in_handshake: bool
) -> BrokerUnreachable | ConnectionLost:
    """The peer sent what can't be read, so nothing after it can be trusted."""
    kind = BrokerUnreachable if in_handshake else ConnectionLost
    error = kind(
        f"{where} sent what can't be read: {cause.message}", node_id=node_id, hint=cause.hint
    )
    error.__cause__ = cause
    if cause.hint == TLS_LISTENER:
        error.retriable = False  # it would be the same again
    return error


def under_way(request: PendingRequest, error: KafkaError) -> KafkaError:
    """``error``, the end of a connection, as the outcome of one request on it.

    Each gets an instance of its own, since tracebacks and notes are kept in it.
    """
    own = copy.copy(error)
    own.__cause__ = error.__cause__
    own.message = f"{request} got no answer: {error.message}"
    own.maybe_written = True
    return own


def _how(cause: Exception | None, partial: int) -> str:
    how = f"broke: {cause or type(cause).__name__}" if cause else "was closed by the broker"
    return f"{how} in the middle of a response, after {partial} bytes of it" if partial else how

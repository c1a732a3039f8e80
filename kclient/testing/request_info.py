"""``RequestInfo``: what hooks and conditions of faults see of a request.

Made only while a fault asks for one. ``replica_of`` tells requests of followers from those of
clients; ``fault.py`` and ``request_log.py`` leave the former out unless they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kclient.errors import ProtocolError
from kclient.protocol.headers import decode_request_header
from kclient.protocol.registry import API_NAMES

if TYPE_CHECKING:
    from kclient.protocol.message import Response
    from kclient.testing.call import Call

CLIENT = -1
"""The replica id of requests that no follower sent."""


def _of_fetch(request: Any) -> int:
    """KIP-903 moved it."""
    return _of_other(request if request.replica_id >= 0 else request.replica_state)


def _of_other(request: Any) -> int:
    replica_id: int = request.replica_id
    return replica_id if replica_id >= 0 else CLIENT


REPLICA_ID: dict[int, Callable[[Any], int]] = {
    1: _of_fetch,  # Fetch
    2: _of_other,  # ListOffsets
    23: _of_other,  # OffsetForLeaderEpoch
}
"""How to find who asks, by API key, in those that followers send, too."""


def replica_of(api_key: int, request: Any) -> int:
    """Node id of the follower that sent a request, -1 if a client did."""
    find = REPLICA_ID.get(api_key)
    return CLIENT if find is None else find(request)


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """One request on its way through a broker; to be looked at, not to be changed.

    Attributes:
        broker: Node id of the broker that was asked.
        api: Kafka's name of the API.
        api_key: Kafka's number of it.
        version: Of the API.
        client_id: As the client calls itself.
        connection: A number for the connection, counted over the cluster's life.
        correlation_id: As sent.
        replica_id: Node id of the follower that asks, -1 for clients.
        request: The decoded message, of ``kclient.protocol.messages``. Records of a Produce are
            there before it was carried out only.
        response: The answer, or its bytes where a fault gave them; None where there is none yet.
            Once it was sent, the records of a Fetch are taken out.
    """

    broker: int
    api: str
    api_key: int
    version: int
    client_id: str | None
    connection: int
    correlation_id: int
    replica_id: int
    request: Any
    response: Any = None


def facts_of(call: Call) -> dict[str, object]:
    """The facts that ``Fault.matches`` compares, by the words of ``Where``."""
    return {
        "api": call.api_key,
        "broker": call.node_id,
        "client_id": call.client_id,
        "version": call.version,
        "connection": call.connection,
        "replica": replica_of(call.api_key, call.request),
    }


def facts_of_start(broker: int, connection: int, start: memoryview) -> dict[str, object]:
    """The same for a client's request of which only the start arrived; less without a header."""
    facts: dict[str, object] = {"broker": broker, "connection": connection, "replica": CLIENT}
    try:
        header = decode_request_header(start)
    except ProtocolError:
        return facts
    told = {"api": header.api_key, "client_id": header.client_id, "version": header.api_version}
    return facts | told


def info_of(call: Call, response: Response | bytes | None = None) -> RequestInfo:
    """What there is to see of a request now."""
    return RequestInfo(
        call.node_id,
        API_NAMES[call.api_key],
        call.api_key,
        call.version,
        call.client_id,
        call.connection,
        call.correlation_id,
        replica_of(call.api_key, call.request),
        call.request,
        response,
    )

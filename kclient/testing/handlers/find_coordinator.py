"""FindCoordinator (10): which broker coordinates a group; of transactions none does yet.

With a code that Kafka never gives here: of those that every client takes for final it is the one
with which most show the text. With others, also UNSUPPORTED_VERSION, librdkafka retries for ever.
"""

from __future__ import annotations

import enum

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kclient.testing.call import Call
from kclient.testing.groups.store import Node
from kclient.testing.refused import Refused

_FIRST_BATCHED = 4
_FIRST_WITH_TEXT = 1
_NO_TRANSACTIONS = "The embedded cluster doesn't serve transactions yet."


class KeyType(enum.IntEnum):
    """What a key names, as on the wire."""

    GROUP = 0
    TRANSACTION = 1


def handle(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Find each key's coordinator; before version 4 there is one key."""
    if call.version < _FIRST_BATCHED:
        found = _find(call, request.key_type, request.key)
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message if call.version >= _FIRST_WITH_TEXT else None,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    return FindCoordinatorResponse(
        coordinators=[_find(call, request.key_type, key) for key in request.coordinator_keys]
    )


def _find(call: Call, key_type: int, key: str) -> Coordinator:
    try:
        call.check_fault()
        node = _node_for(call, key_type, key)
    except Refused as refused:
        return Coordinator(key, -1, "", -1, refused.code, refused.message or "")
    return Coordinator(key, node.node_id, node.host, node.port)


def _node_for(call: Call, key_type: int, key: str) -> Node:
    if key_type == KeyType.GROUP:
        node = call.broker.groups.find(key)
        if node is not None:
            return node
    elif key_type == KeyType.TRANSACTION:
        raise Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, _NO_TRANSACTIONS)
    else:
        raise Refused(ErrorCode.INVALID_REQUEST)
    raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)

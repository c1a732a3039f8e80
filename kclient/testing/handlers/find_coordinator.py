"""FindCoordinator (10): there is no coordinator yet, and it says so."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kclient.testing.call import Call

_FIRST_BATCHED = 4


def handle(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """COORDINATOR_NOT_AVAILABLE for each key, as while Kafka makes the topic for them."""
    code = call.error_for()
    if code is None:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    text = "The coordinator is not available."
    if call.version >= _FIRST_BATCHED:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key, -1, "", -1, code, text) for key in request.coordinator_keys
            ]
        )
    return FindCoordinatorResponse(
        error_code=code, error_message=text, node_id=-1, host="", port=-1
    )

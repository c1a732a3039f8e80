"""Heartbeat (12): a member is alive, and hears how its group is."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kclient.testing.call import Call
from kclient.testing.refused import Refused


def handle(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    """Answer with how the group is."""
    code = call.error_for()
    if code is None:
        code = _beat(call, request)
        late = call.error_for(after=True)
        code = code if late is None else late
    return HeartbeatResponse(error_code=code)


def _beat(call: Call, request: HeartbeatRequest) -> ErrorCode:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    codes: list[ErrorCode] = []
    try:
        call.broker.groups.operate(
            request.group_id,
            lambda shard, moment: codes.append(shard.heartbeat(request, moment)),
        )
    except Refused as refused:
        if refused.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE  # Kafka gives members the benefit of the doubt
        return refused.code
    return codes[0]

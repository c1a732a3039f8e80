"""SyncGroup (14): the leader's assignment comes in, each member's goes out."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kclient.testing.call import Call
from kclient.testing.deferred import Deferred
from kclient.testing.handlers.answers import whole

_FIRST_WITH_PROTOCOL = 5


def handle(
    call: Call, request: SyncGroupRequest
) -> Deferred[SyncGroupResponse] | SyncGroupResponse:
    """Check the request's form, and let the coordinator see to the rest."""
    unnamed = request.protocol_type is None or request.protocol_name is None
    if unnamed and call.version >= _FIRST_WITH_PROTOCOL:
        return _refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not request.group_id:
        return _refuse(ErrorCode.INVALID_GROUP_ID)
    return whole(call, lambda: call.broker.groups.sync(request), _refuse)


def _refuse(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)

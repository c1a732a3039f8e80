"""JoinGroup (11): become a member of a group; answered when all members have joined."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kclient.testing.call import Call
from kclient.testing.deferred import Deferred
from kclient.testing.groups.classic_group import join_refusal
from kclient.testing.handlers.answers import whole

_FIRST_WITH_NULL_PROTOCOL = 7


def handle(
    call: Call, request: JoinGroupRequest
) -> Deferred[JoinGroupResponse] | JoinGroupResponse:
    """Check the request's form, and let the coordinator see to the rest."""

    def refuse(code: ErrorCode) -> JoinGroupResponse:
        return _fit(call, join_refusal(code, request.member_id))

    code = _check(call, request)
    if code is not ErrorCode.NONE:
        return refuse(code)
    return whole(call, lambda: _join(call, request), refuse)


def _check(call: Call, request: JoinGroupRequest) -> ErrorCode:
    settings = call.broker.groups.settings
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    timeout_ms = request.session_timeout_ms
    if not settings.min_session_timeout_ms <= timeout_ms <= settings.max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE


def _join(call: Call, request: JoinGroupRequest) -> Deferred[JoinGroupResponse]:
    joined = call.broker.groups.join(call, request)
    answer: Deferred[JoinGroupResponse] = Deferred(joined.cancel)
    joined.then(lambda response: answer.complete(_fit(call, response)))
    return answer


def _fit(call: Call, response: JoinGroupResponse) -> JoinGroupResponse:
    """Older versions have no null for the protocol."""
    if response.protocol_name is None and call.version < _FIRST_WITH_NULL_PROTOCOL:
        response.protocol_name = ""
    return response

"""LeaveGroup (13): members go, or an admin removes them."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from kclient.testing.call import Call
from kclient.testing.deferred import Deferred
from kclient.testing.handlers.answers import whole
from kclient.testing.refused import Refused

_FIRST_BATCHED = 3


def handle(
    call: Call, request: LeaveGroupRequest
) -> Deferred[LeaveGroupResponse] | LeaveGroupResponse:
    """Let each member go; before version 3 there is one, and its error is the whole's."""
    if not request.group_id:
        return _refuse(ErrorCode.INVALID_GROUP_ID)
    return whole(call, lambda: _leave(call, request), _refuse)


def _refuse(code: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)


def _leave(call: Call, request: LeaveGroupRequest) -> Deferred[LeaveGroupResponse]:
    groups = call.broker.groups
    batched = call.version >= _FIRST_BATCHED
    members = request.members if batched else [MemberIdentity(request.member_id)]
    answer: Deferred[LeaveGroupResponse] = Deferred()
    complete = groups.later(answer.complete)

    def reply(code: ErrorCode, left: list[MemberResponse]) -> None:
        if not batched:
            complete(LeaveGroupResponse(error_code=left[0].error_code if left else code))
        else:
            complete(LeaveGroupResponse(error_code=code, members=left))

    try:
        groups.operate(
            request.group_id,
            lambda shard, moment: shard.leave(request.group_id, members, reply, moment),
        )
    except Refused as refused:
        answer.complete(_refuse(refused.code))
    return answer

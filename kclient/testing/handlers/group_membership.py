"""JoinGroup (11), SyncGroup (14), Heartbeat (12) and LeaveGroup (13) of classic groups.

And FindCoordinator (10): the broker that coordinates a group or a transactional id. The heartbeats
of other kinds of groups, which are not served, are refused.
"""

from __future__ import annotations

from collections.abc import Callable

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kclient.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kclient.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from kclient.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from kclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kclient.testing.authorizer import AclOperation, ResourceType
from kclient.testing.groups.classic_group import JoinReply, SyncReply, join_refusal
from kclient.testing.groups.joins import JoinRequest
from kclient.testing.groups.shard import Shard
from kclient.testing.request_context import RequestContext
from kclient.testing.responses import ApiError, PendingResult, whole
from kclient.testing.timers import Moment

_FIRST_WITH_KEYS = 4
_FIRST_WITH_TEXT = 1
_FIRST_WITH_NULL_PROTOCOL = 7
_FIRST_WITH_PROTOCOL = 5
_FIRST_BATCHED = 3
_NOT_SERVED = "The embedded cluster doesn't serve {} groups yet, only classic ones."
_CLIENT_HOST = "/127.0.0.1"
"""Address of all clients of the embedded cluster, in Java's notation."""
_GROUP, _TRANSACTION = 0, 1
"""Types of keys of FindCoordinator."""


def find_coordinator(
    call: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Find each key's coordinator; before version 4 there is one key."""
    if call.version < _FIRST_WITH_KEYS:
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


def _find(call: RequestContext, key_type: int, key: str) -> Coordinator:
    try:
        call.check_fault()
        if key_type == _GROUP:
            call.check_allowed(AclOperation.DESCRIBE, ResourceType.GROUP, key)
            node = call.broker.groups.find(key)
        elif key_type == _TRANSACTION:
            call.check_allowed(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key)
            node = call.broker.transactions.find(key)
        else:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        if node is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    except ApiError as refused:
        return Coordinator(key, -1, "", -1, refused.code, refused.message or "")
    return Coordinator(key, node.node_id, node.host, node.port)


# Join: the response is sent when all members have joined


def join_group(
    call: RequestContext, request: JoinGroupRequest
) -> PendingResult[JoinGroupResponse] | JoinGroupResponse:
    """Check the request's form, and pass it to the coordinator."""

    def refuse(code: ErrorCode) -> JoinGroupResponse:
        return _fit(call, join_refusal(code, request.member_id))

    def refuse_here(code: ErrorCode) -> JoinGroupResponse:
        return _fit(call, join_refusal(code, ""))

    def join(shard: Shard, moment: Moment, reply: JoinReply) -> None:
        joining = JoinRequest(
            request,
            call.version,
            call.client_id or "",
            _CLIENT_HOST,
            lambda response: reply(_fit(call, response)),
        )
        shard.join(joining, moment)

    code = _check_join(call, request)
    if code is not ErrorCode.NONE:
        return refuse(code)
    groups = call.broker.groups
    return whole(call, lambda: groups.ask(request.group_id, join, refuse_here), refuse)


def _may_join(call: RequestContext, group_id: str) -> bool:
    """Whether the client may be a member of a group."""
    return call.allows(AclOperation.READ, ResourceType.GROUP, group_id)


def _check_join(call: RequestContext, request: JoinGroupRequest) -> ErrorCode:
    settings = call.broker.groups.settings
    if not _may_join(call, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    timeout_ms = request.session_timeout_ms
    if not settings.min_session_timeout_ms <= timeout_ms <= settings.max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE


def _fit(call: RequestContext, response: JoinGroupResponse) -> JoinGroupResponse:
    """Replace a null protocol, which older versions don't have."""
    if response.protocol_name is None and call.version < _FIRST_WITH_NULL_PROTOCOL:
        response.protocol_name = ""
    return response


# Sync: the leader sends the assignment, each member gets its own


def sync_group(
    call: RequestContext, request: SyncGroupRequest
) -> PendingResult[SyncGroupResponse] | SyncGroupResponse:
    """Check the request's form, and pass it to the coordinator."""
    unnamed = request.protocol_type is None or request.protocol_name is None
    if unnamed and call.version >= _FIRST_WITH_PROTOCOL:
        return _refuse_sync(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not _may_join(call, request.group_id):
        return _refuse_sync(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return _refuse_sync(ErrorCode.INVALID_GROUP_ID)

    def sync(shard: Shard, moment: Moment, reply: SyncReply) -> None:
        shard.sync(request, reply, moment)

    groups = call.broker.groups
    return whole(call, lambda: groups.ask(request.group_id, sync, _refuse_sync), _refuse_sync)


def _refuse_sync(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)


# Heartbeats


def heartbeat(call: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """Respond with the state of the group."""
    code = call.error_for()
    if code is None:
        code = _beat(call, request)
        late = call.error_for(after=True)
        code = code if late is None else late
    return HeartbeatResponse(error_code=code)


def _beat(call: RequestContext, request: HeartbeatRequest) -> ErrorCode:
    if not _may_join(call, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    codes: list[ErrorCode] = []
    try:
        call.broker.groups.operate(
            request.group_id,
            lambda shard, moment: codes.append(shard.heartbeat(request, moment)),
        )
    except ApiError as refused:
        if refused.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE  # Kafka assumes that the member is valid
        return refused.code
    return codes[0]


# Leave: members leave, or an admin removes them


def leave_group(
    call: RequestContext, request: LeaveGroupRequest
) -> PendingResult[LeaveGroupResponse] | LeaveGroupResponse:
    """Remove each member; before version 3 there is one, and its error is the response's."""
    if not _may_join(call, request.group_id):
        return _refuse_leave(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return _refuse_leave(ErrorCode.INVALID_GROUP_ID)
    batched = call.version >= _FIRST_BATCHED
    members = request.members if batched else [MemberIdentity(request.member_id)]

    def leave(shard: Shard, moment: Moment, reply: Callable[[LeaveGroupResponse], None]) -> None:
        def left(code: ErrorCode, answers: list[MemberResponse]) -> None:
            if batched:
                reply(LeaveGroupResponse(error_code=code, members=answers))
            else:
                reply(_refuse_leave(ErrorCode(answers[0].error_code) if answers else code))

        shard.leave(request.group_id, members, left, moment)

    groups = call.broker.groups
    return whole(call, lambda: groups.ask(request.group_id, leave, _refuse_leave), _refuse_leave)


def _refuse_leave(code: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)


# Groups that are not served yet


def consumer_group_heartbeat(
    call: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Refuse a member of a consumer group (KIP-848)."""
    return ConsumerGroupHeartbeatResponse(
        error_code=_not_served(call), error_message=_NOT_SERVED.format("consumer")
    )


def share_group_heartbeat(
    call: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    """Refuse a member of a share group (KIP-932)."""
    return ShareGroupHeartbeatResponse(
        error_code=_not_served(call), error_message=_NOT_SERVED.format("share")
    )


def _not_served(call: RequestContext) -> ErrorCode:
    return call.error_for() or ErrorCode.UNSUPPORTED_VERSION

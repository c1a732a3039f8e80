"""ListGroups (16), DescribeGroups (15), DeleteGroups (42) and OffsetDelete (47)."""

from __future__ import annotations

from collections.abc import Callable

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from kclient.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kclient.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kclient.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kclient.testing.authorizer import AclOperation, ResourceType
from kclient.testing.groups.classic_group import ClassicGroup, Member, State
from kclient.testing.groups.shard import Shard
from kclient.testing.request_context import RequestContext
from kclient.testing.responses import ApiError, PendingParts, PendingResult, whole
from kclient.testing.timers import Moment

_TYPE = "classic"
_FIRST_WITH_STATES = 4
_FIRST_WITH_TYPES = 5
_FIRST_WITH_NOT_FOUND = 6


# The groups that this broker coordinates


def list_groups(call: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    """List groups of the requested states and types; unknown states and types match none."""
    code = call.error_for()
    if code is not None:
        return ListGroupsResponse(error_code=code)
    states = {one.lower().strip() for one in request.states_filter}
    types = {one.lower().strip() for one in request.types_filter}
    if types and _TYPE not in types:
        return ListGroupsResponse()
    try:
        found = call.broker.groups.known()
    except ApiError as refused:
        return ListGroupsResponse(error_code=refused.code)
    if not call.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        by_id = {group.group_id: group for group in found}
        shown = call.allowed(AclOperation.DESCRIBE, ResourceType.GROUP, by_id)
        found = [by_id[group_id] for group_id in shown]
    late = call.error_for(after=True)
    return ListGroupsResponse(
        error_code=ErrorCode.NONE if late is None else late,
        groups=[
            _listed(call, group)
            for group in found
            if not states or group.state.shown.lower() in states
        ],
    )


def _listed(call: RequestContext, group: ClassicGroup) -> ListedGroup:
    listed = ListedGroup(group.group_id, group.protocol_type or "")
    if call.version >= _FIRST_WITH_STATES:
        listed.group_state = group.state.shown
    if call.version >= _FIRST_WITH_TYPES:
        listed.group_type = _TYPE
    return listed


# State and members


def describe_groups(call: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Describe each group; one that doesn't exist is dead."""
    response = DescribeGroupsResponse()
    for group_id in request.groups:
        described = _describe(call, group_id)
        if request.include_authorized_operations and described.error_code == ErrorCode.NONE:
            described.authorized_operations = call.operations_on(ResourceType.GROUP, group_id)
        response.groups.append(described)
    return response


def _describe(call: RequestContext, group_id: str) -> DescribedGroup:
    try:
        call.check_fault()
        call.check_allowed(AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
        group = call.broker.groups.shard(group_id).groups.get(group_id)
    except ApiError as refused:
        return DescribedGroup(refused.code, group_id=group_id)
    if group is None:
        described = DescribedGroup(group_id=group_id, group_state=State.DEAD.shown)
        if call.version >= _FIRST_WITH_NOT_FOUND:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = "There is no such group."
        return described
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.shown,
        protocol_type=group.protocol_type or "",
        protocol_data=_protocol_of(group) or "",
        members=[_member(one, _protocol_of(group)) for one in group.members.values()],
    )


def _protocol_of(group: ClassicGroup) -> str | None:
    """The selected protocol, which only a stable group has."""
    return group.protocol_name if group.state is State.STABLE else None


def _member(one: Member, protocol: str | None) -> DescribedGroupMember:
    return DescribedGroupMember(
        one.member_id,
        one.instance_id,
        one.client_id,
        one.client_host,
        b"" if protocol is None else one.metadata(protocol),
        one.assignment,
    )


# Groups without members, and their offsets


def delete_groups(
    call: RequestContext, request: DeleteGroupsRequest
) -> PendingResult[DeleteGroupsResponse]:
    """Delete each group once, however often it is named."""
    response = DeleteGroupsResponse()
    gathering = PendingParts(response)
    for group_id in dict.fromkeys(request.groups_names):
        result = DeletableGroupResult(group_id)
        response.results.append(result)
        _delete_group(call, result, gathering.expect())
    return gathering.close()


def _delete_group(
    call: RequestContext, result: DeletableGroupResult, done: Callable[[], None]
) -> None:
    groups = call.broker.groups
    finish = groups.later(lambda _: done())

    def reply(code: ErrorCode) -> None:
        late = call.error_for(after=True)
        result.error_code = code if late is None else late
        finish(None)

    try:
        call.check_fault()
        call.check_allowed(AclOperation.DELETE, ResourceType.GROUP, result.group_id)
        groups.operate(
            result.group_id,
            lambda shard, moment: shard.delete_group(result.group_id, reply, moment),
        )
    except ApiError as refused:
        result.error_code = refused.code
        done()


# Single offsets


def delete_offsets(
    call: RequestContext, request: OffsetDeleteRequest
) -> PendingResult[OffsetDeleteResponse] | OffsetDeleteResponse:
    """Delete each offset; an error of the whole group is returned alone."""
    denied = call.denial(AclOperation.DELETE, ResourceType.GROUP, request.group_id)
    if denied is not None:
        return _refuse_deletion(denied)
    if not request.group_id:
        return _refuse_deletion(ErrorCode.INVALID_GROUP_ID)
    return whole(call, lambda: _delete_offsets(call, request), _refuse_deletion)


def _refuse_deletion(code: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code)


def _delete_offsets(
    call: RequestContext, request: OffsetDeleteRequest
) -> PendingResult[OffsetDeleteResponse]:
    rows: dict[str, OffsetDeleteResponseTopic] = {}
    wanted: list[tuple[str, int]] = []
    for topic in request.topics:
        for part in topic.partitions:
            index = part.partition_index
            code = call.refusal_of(AclOperation.READ, topic.name, index)
            if code is None:
                wanted.append((topic.name, index))
            else:
                _row(rows, topic.name, index, code)

    def delete(shard: Shard, moment: Moment, reply: Callable[[OffsetDeleteResponse], None]) -> None:
        def deleted(codes: list[ErrorCode]) -> None:
            for (name, index), code in zip(wanted, codes, strict=True):
                _row(rows, name, index, code)
            reply(OffsetDeleteResponse(topics=list(rows.values())))

        def fail(code: ErrorCode) -> None:
            reply(_refuse_deletion(code))

        shard.delete_offsets(request.group_id, wanted, deleted, fail, moment)

    return call.broker.groups.ask(request.group_id, delete, _refuse_deletion)


def _row(
    rows: dict[str, OffsetDeleteResponseTopic], name: str, index: int, code: ErrorCode
) -> None:
    """Add a result; existing partitions follow unknown ones, as Kafka merges its results."""
    row = rows.setdefault(name, OffsetDeleteResponseTopic(name))
    row.partitions.append(OffsetDeleteResponsePartition(index, code))

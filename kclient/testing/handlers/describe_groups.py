"""DescribeGroups (15): state and members of groups."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kclient.testing.call import Call
from kclient.testing.groups.classic_group import ClassicGroup, State
from kclient.testing.groups.member import Member
from kclient.testing.refused import Refused

_FIRST_WITH_NOT_FOUND = 6
_ALL_OPERATIONS = 3400
"""Of a group, as bits: READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS."""


def handle(call: Call, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Describe each group; one that isn't there is dead."""
    response = DescribeGroupsResponse()
    for group_id in request.groups:
        described = _describe(call, group_id)
        if request.include_authorized_operations and described.error_code == ErrorCode.NONE:
            described.authorized_operations = _ALL_OPERATIONS
        response.groups.append(described)
    return response


def _describe(call: Call, group_id: str) -> DescribedGroup:
    try:
        call.check_fault()
        group = call.broker.groups.shard(group_id).groups.get(group_id)
    except Refused as refused:
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
    """Only a stable group tells what it agreed on."""
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

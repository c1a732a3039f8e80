"""ListGroups (16): the groups that this broker coordinates."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kclient.testing.call import Call
from kclient.testing.groups.classic_group import ClassicGroup
from kclient.testing.refused import Refused

_TYPE = "classic"
_FIRST_WITH_STATES = 4
_FIRST_WITH_TYPES = 5


def handle(call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    """List those of the wanted states and types; unknown ones match none."""
    code = call.error_for()
    if code is not None:
        return ListGroupsResponse(error_code=code)
    states = {one.lower().strip() for one in request.states_filter}
    types = {one.lower().strip() for one in request.types_filter}
    if types and _TYPE not in types:
        return ListGroupsResponse()
    try:
        found = call.broker.groups.known()
    except Refused as refused:
        return ListGroupsResponse(error_code=refused.code)
    late = call.error_for(after=True)
    return ListGroupsResponse(
        error_code=ErrorCode.NONE if late is None else late,
        groups=[
            _listed(call, group)
            for group in found
            if not states or group.state.shown.lower() in states
        ],
    )


def _listed(call: Call, group: ClassicGroup) -> ListedGroup:
    listed = ListedGroup(group.group_id, group.protocol_type or "")
    if call.version >= _FIRST_WITH_STATES:
        listed.group_state = group.state.shown
    if call.version >= _FIRST_WITH_TYPES:
        listed.group_type = _TYPE
    return listed

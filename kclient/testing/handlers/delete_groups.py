"""DeleteGroups (42): remove groups without members, and their offsets."""

from __future__ import annotations

from collections.abc import Callable

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from kclient.testing.call import Call
from kclient.testing.deferred import Deferred
from kclient.testing.handlers.answers import Gathering
from kclient.testing.refused import Refused


def handle(call: Call, request: DeleteGroupsRequest) -> Deferred[DeleteGroupsResponse]:
    """Delete each group once, however often it is named."""
    response = DeleteGroupsResponse()
    gathering = Gathering(response)
    for group_id in dict.fromkeys(request.groups_names):
        result = DeletableGroupResult(group_id)
        response.results.append(result)
        _delete(call, result, gathering.expect())
    return gathering.close()


def _delete(call: Call, result: DeletableGroupResult, done: Callable[[], None]) -> None:
    groups = call.broker.groups
    finish = groups.later(lambda _: done())

    def reply(code: ErrorCode) -> None:
        late = call.error_for(after=True)
        result.error_code = code if late is None else late
        finish(None)

    try:
        call.check_fault()
        groups.operate(
            result.group_id,
            lambda shard, moment: shard.delete_group(result.group_id, reply, moment),
        )
    except Refused as refused:
        result.error_code = refused.code
        done()

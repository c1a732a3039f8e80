"""OffsetDelete (47): forget offsets that a group has committed."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kclient.testing.call import Call
from kclient.testing.deferred import Deferred
from kclient.testing.handlers.answers import whole
from kclient.testing.refused import Refused


def handle(
    call: Call, request: OffsetDeleteRequest
) -> Deferred[OffsetDeleteResponse] | OffsetDeleteResponse:
    """Delete each offset; an error of the group is the only thing that is answered then."""
    if not request.group_id:
        return _refuse(ErrorCode.INVALID_GROUP_ID)
    return whole(call, lambda: _delete(call, request), _refuse)


def _refuse(code: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code)


def _delete(call: Call, request: OffsetDeleteRequest) -> Deferred[OffsetDeleteResponse]:
    groups = call.broker.groups
    answer: Deferred[OffsetDeleteResponse] = Deferred()
    complete = groups.later(answer.complete)
    rows: dict[str, OffsetDeleteResponseTopic] = {}
    wanted: list[tuple[str, int]] = []
    for topic in request.topics:
        for part in topic.partitions:
            index = part.partition_index
            code = call.error_for(topic.name, index)
            if code is None and groups.has_partition(topic.name, index):
                wanted.append((topic.name, index))
            else:
                _row(rows, topic.name, index, code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def reply(codes: list[ErrorCode]) -> None:
        for (name, index), code in zip(wanted, codes, strict=True):
            _row(rows, name, index, code)
        complete(OffsetDeleteResponse(topics=list(rows.values())))

    def fail(code: ErrorCode) -> None:
        complete(_refuse(code))

    try:
        groups.operate(
            request.group_id,
            lambda shard, moment: shard.delete_offsets(
                request.group_id, wanted, reply, fail, moment
            ),
        )
    except Refused as refused:
        answer.complete(_refuse(refused.code))
    return answer


def _row(
    rows: dict[str, OffsetDeleteResponseTopic], name: str, index: int, code: ErrorCode
) -> None:
    """What exists is listed behind what doesn't, as Kafka merges its answers."""
    row = rows.setdefault(name, OffsetDeleteResponseTopic(name))
    row.partitions.append(OffsetDeleteResponsePartition(index, code))

"""DeleteRecords (21): let logs begin at a later offset."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kclient.testing.call import Call
from kclient.testing.log_access import leading_replica
from kclient.testing.record_deletion import delete_records
from kclient.testing.refused import Refused

_UNKNOWN = -1


def handle(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Delete what is asked for, partition by partition; of one that is named twice the last."""
    offsets = {
        (topic.name, one.partition_index): one.offset
        for topic in request.topics
        for one in topic.partitions
    }
    shown: dict[str, DeleteRecordsTopicResult] = {}
    for (name, index), offset in sorted(offsets.items()):
        topic = shown.setdefault(name, DeleteRecordsTopicResult(name))
        topic.partitions.append(_delete(call, name, index, offset))
    return DeleteRecordsResponse(topics=list(shown.values()))


def _delete(call: Call, name: str, index: int, offset: int) -> DeleteRecordsPartitionResult:
    try:
        code = call.error_for(name, index)
        if code is not None:
            raise Refused(code)
        replica = leading_replica(call, name, index)
        low = delete_records(replica.log, replica.config, name, offset)
        call.broker.hosted.moved(replica)
        code = call.error_for(name, index, after=True)
        if code is not None:
            raise Refused(code)
    except Refused as refused:
        return DeleteRecordsPartitionResult(index, _UNKNOWN, refused.code)
    return DeleteRecordsPartitionResult(index, low, ErrorCode.NONE)

"""DeleteRecords (21) and DescribeLogDirs (35): where logs begin, and how large they are."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kclient.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kclient.protocol.primitives import ZERO_UUID
from kclient.testing.call import Call
from kclient.testing.deferred import Deferred
from kclient.testing.deletion_wait import (
    UNKNOWN_WATERMARK,
    Deleting,
    DeletionWait,
    all_deleted,
    low_watermark,
)
from kclient.testing.image import INTERNAL_TOPICS
from kclient.testing.refused import Refused
from kclient.testing.replica import Replica

_TO_HIGH_WATERMARK = -1
"""In place of an offset: all that is committed."""
TOTAL_BYTES = 1 << 40
"""What the disk of a broker is said to hold; it has none."""


# Deletion (KIP-107)


def delete_records(
    call: Call, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | Deferred[DeleteRecordsResponse]:
    """Delete what is asked for, partition by partition; of one that is named twice the last.

    The answer waits until the followers that are up have deleted it, too.
    """
    offsets = {
        (topic.name, one.partition_index): one.offset
        for topic in request.topics
        for one in topic.partitions
    }
    response = DeleteRecordsResponse()
    shown: dict[str, DeleteRecordsTopicResult] = {}
    begun: list[Deleting] = []
    for (name, index), offset in sorted(offsets.items()):
        if name not in shown:
            shown[name] = DeleteRecordsTopicResult(name)
            response.topics.append(shown[name])
        result = DeleteRecordsPartitionResult(index)
        shown[name].partitions.append(result)
        _delete_of(call, name, offset, result, begun)
    hosted = call.broker.hosted
    if all_deleted(begun, hosted.replicas):
        return response
    wait = DeletionWait(
        begun, hosted.replicas, request.timeout_ms / 1000, lambda: response, hosted.deletions
    )
    wait.answer.draft = response
    return wait.answer


def _delete_of(
    call: Call,
    name: str,
    offset: int,
    result: DeleteRecordsPartitionResult,
    begun: list[Deleting],
) -> None:
    """Delete records of a leader's log, and note what its followers are to do."""

    def settle(code: ErrorCode, low: int) -> None:
        result.error_code, result.low_watermark = code, low

    try:
        call.check_fault(name, result.partition_index)
        topic = call.topic(name, ZERO_UUID, False)
        replica = call.replica(topic, result.partition_index, leader_only=True)
        required = _deleted(replica, name, offset)
        call.broker.hosted.moved(replica, at_once=True)
        call.check_fault(name, result.partition_index, after=True)
    except Refused as refused:
        settle(refused.code, UNKNOWN_WATERMARK)
        return
    low = low_watermark(replica, call.image)
    settle(ErrorCode.NONE, low)
    begun.append(Deleting(replica, required, low, settle))


def _deleted(replica: Replica, topic: str, offset: int) -> int:
    """Let a leader's log begin at an offset or later; gives that offset (KIP-107)."""
    if topic in INTERNAL_TOPICS:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if replica.config.compacted and not replica.config.deletes:
        raise Refused(ErrorCode.POLICY_VIOLATION)
    if offset == _TO_HIGH_WATERMARK:
        offset = replica.log.high_watermark
    if offset < 0:
        raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE)
    replica.log.delete_before(offset)
    return offset


# Sizes


def describe_log_dirs(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Describe the logs that are asked for, or all of them; others are left out."""
    code = call.error_for()
    if code is not None:
        return DescribeLogDirsResponse(error_code=code)
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    topics: dict[str, DescribeLogDirsTopic] = {}
    used = 0
    for local in call.broker.replicas:
        call.broker.hosted.tidy(local)
        name, index = local.facts.topic, local.facts.index
        used += local.log.size_bytes
        if wanted is not None and (name, index) not in wanted:
            continue
        shown = topics.setdefault(name, DescribeLogDirsTopic(name))
        lag = max(local.log.high_watermark - local.log.end_offset, 0)
        shown.partitions.append(DescribeLogDirsPartition(index, local.log.size_bytes, lag, False))
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                ErrorCode.NONE,
                call.image.config.log_dirs[0],
                list(topics.values()),
                TOTAL_BYTES,
                TOTAL_BYTES - used,
                False,
            )
        ]
    )

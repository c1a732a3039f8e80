"""ListOffsets (2), by time and the symbolic ones, and OffsetForLeaderEpoch (23)."""

from __future__ import annotations

from collections import Counter

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kclient.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from kclient.protocol.primitives import ZERO_UUID
from kclient.testing.authorizer import AclOperation, ResourceType
from kclient.testing.log import FoundOffset
from kclient.testing.log_state import UNDEFINED as NO_EPOCH
from kclient.testing.replica import Replica
from kclient.testing.request_context import RequestContext
from kclient.testing.responses import ApiError
from kclient.types import OffsetSpec

_FIRST_WITH_EPOCHS = 4
_FIRST_WITH_UNAVAILABLE = 5
_CONSUMER = -1
_DEBUGGER = -2
_READ_COMMITTED = 1
_EARLIEST_PENDING_UPLOAD = -6
_FIRST_VERSIONS = {
    OffsetSpec.MAX_TIMESTAMP: 7,
    OffsetSpec.EARLIEST_LOCAL: 8,
    OffsetSpec.LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}
_NOWHERE = FoundOffset(-1, -1, -1)


# ListOffsets


def list_offsets(call: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Look each partition up."""
    counts = Counter(
        (topic.name, one.partition_index) for topic in request.topics for one in topic.partitions
    )
    shown: dict[str, ListOffsetsTopicResponse] = {}  # one entry of each topic that has partitions
    for topic in request.topics:
        for one in topic.partitions:
            key = topic.name, one.partition_index
            found = shown.setdefault(topic.name, ListOffsetsTopicResponse(topic.name)).partitions
            if counts[key] == 1:
                found.append(_answer(call, request, topic.name, one))
            elif counts.pop(key, 0):
                found.append(_refused(one.partition_index, ErrorCode.INVALID_REQUEST))
    return ListOffsetsResponse(topics=list(shown.values()))


def _answer(
    call: RequestContext, request: ListOffsetsRequest, name: str, wanted: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    try:
        found = _look_up(call, request, name, wanted)
    except ApiError as refused:
        return _refused(wanted.partition_index, refused.code)
    answer = ListOffsetsPartitionResponse(
        wanted.partition_index, timestamp=found.timestamp, offset=found.offset
    )
    if call.version >= _FIRST_WITH_EPOCHS:
        answer.leader_epoch = found.leader_epoch
    return answer


def _refused(index: int, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(index, code, timestamp=-1, offset=-1)


def _look_up(
    call: RequestContext, request: ListOffsetsRequest, name: str, wanted: ListOffsetsPartition
) -> FoundOffset:
    call.check_fault(name, wanted.partition_index)
    if wanted.timestamp < 0 and not _is_spoken(wanted.timestamp, call.version):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    index, epoch = wanted.partition_index, wanted.current_leader_epoch
    replica = _replica(
        call,
        AclOperation.DESCRIBE,
        name,
        index,
        epoch,
        leader_only=request.replica_id != _DEBUGGER,
    )
    log = replica.log
    call.broker.replica_manager.tidy(replica)
    end = log.end_offset
    if request.replica_id == _CONSUMER:
        committed = request.isolation_level == _READ_COMMITTED
        end = log.last_stable_offset if committed else log.high_watermark
    found = _find(replica, wanted.timestamp, end)
    if found is None or wanted.timestamp == OffsetSpec.LATEST:
        _check_available(call, replica, end)
    return found or _NOWHERE


def _replica(
    call: RequestContext,
    operation: AclOperation,
    name: str,
    index: int,
    epoch: int,
    *,
    leader_only: bool,
) -> Replica:
    """``RequestContext.replica``, but an invalid epoch counts as an older one."""
    topic = call.topic(operation, name, ZERO_UUID, False)
    call.partition(topic, index)
    if epoch < NO_EPOCH:
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
    return call.replica(topic, index, epoch, leader_only=leader_only)


def _check_available(call: RequestContext, replica: Replica, end: int) -> None:
    """Raise ApiError while a new leader may have a lower high watermark than the last (KIP-207)."""
    if (
        call.request.replica_id == _CONSUMER
        and replica.log.high_watermark < replica.leader_epoch_start_offset
    ):
        old = call.version < _FIRST_WITH_UNAVAILABLE
        raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE if old else ErrorCode.OFFSET_NOT_AVAILABLE)


def _is_spoken(timestamp: int, version: int) -> bool:
    if timestamp in (OffsetSpec.LATEST, OffsetSpec.EARLIEST):
        return True
    return version >= _FIRST_VERSIONS.get(timestamp, 1 << 15)


def _find(replica: Replica, timestamp: int, end: int) -> FoundOffset | None:
    """The offset for ``timestamp`` below ``end``, None if there is none."""
    log = replica.log
    if timestamp == OffsetSpec.LATEST:
        return FoundOffset(end, -1, replica.epoch)
    if timestamp in (OffsetSpec.EARLIEST, OffsetSpec.EARLIEST_LOCAL):
        return FoundOffset(log.start_offset, -1, log.epochs.at(log.start_offset))
    if timestamp in (OffsetSpec.LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):
        return _NOWHERE  # nothing is in remote storage
    if timestamp == OffsetSpec.MAX_TIMESTAMP:
        newest = log.offset_of_max_time()
        return newest if newest is not None and newest.offset < end else None
    return log.offset_for_time(timestamp, end)


# End offsets of epochs, for the detection of truncation (KIP-320)


def offset_for_leader_epoch(
    call: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Look each partition's epoch up; followers need CLUSTER_ACTION."""
    operation = AclOperation.CLUSTER_ACTION
    if not call.allows(operation, ResourceType.CLUSTER):
        operation = AclOperation.DESCRIBE
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic.topic,
                [_end_of(call, operation, topic.topic, one) for one in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _end_of(
    call: RequestContext, operation: AclOperation, name: str, wanted: OffsetForLeaderPartition
) -> EpochEndOffset:
    answer = EpochEndOffset(ErrorCode.NONE, wanted.partition, -1, -1)
    try:
        call.check_fault(name, wanted.partition)
        epoch = wanted.current_leader_epoch
        replica = _replica(call, operation, name, wanted.partition, epoch, leader_only=True)
    except ApiError as refused:
        answer.error_code = refused.code
        return answer
    log = replica.log
    ended = log.epochs.end_of(wanted.leader_epoch, log.end_offset)
    answer.leader_epoch, answer.end_offset = ended
    return answer

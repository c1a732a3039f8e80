"""OffsetForLeaderEpoch (23): where an epoch ended, for the detection of truncation (KIP-320)."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from kclient.protocol.primitives import ZERO_UUID
from kclient.testing.call import Call
from kclient.testing.leader_epochs import UNDEFINED as NO_EPOCH
from kclient.testing.refused import Refused


def handle(call: Call, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    """Look each partition's epoch up."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic.topic, [_end_of(call, topic.topic, one) for one in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _end_of(call: Call, name: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(ErrorCode.NONE, wanted.partition, -1, -1)
    try:
        call.check_fault(name, wanted.partition)
        topic = call.topic(name, ZERO_UUID, False)
        call.partition(topic, wanted.partition)
        if wanted.current_leader_epoch < NO_EPOCH:
            raise Refused(ErrorCode.FENCED_LEADER_EPOCH)
        replica = call.replica(
            topic, wanted.partition, wanted.current_leader_epoch, leader_only=True
        )
    except Refused as refused:
        answer.error_code = refused.code
        return answer
    log = replica.log
    ended = log.epochs.end_of(wanted.leader_epoch, log.end_offset)
    answer.leader_epoch, answer.end_offset = ended
    return answer

"""OffsetCommit (8): keep where a group is in its partitions."""

from __future__ import annotations

from collections.abc import Sequence

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kclient.testing.call import Call
from kclient.testing.deferred import Deferred
from kclient.testing.groups.offset_rules import CommitEntry, CommitRequest
from kclient.testing.refused import Refused

_FIRST_WITH_IDS = 10


def handle(
    call: Call, request: OffsetCommitRequest
) -> Deferred[OffsetCommitResponse] | OffsetCommitResponse:
    """Commit for each partition that exists."""
    response = OffsetCommitResponse()
    entries: list[CommitEntry] = []
    waiting: list[OffsetCommitResponsePartition] = []
    for topic in request.topics:
        if topic.partitions:
            row = OffsetCommitResponseTopic(topic.name, topic.topic_id)
            response.topics.append(row)
            _sort(call, topic, row, entries, waiting)
    return _commit(call, request, entries, waiting, response) if entries else response


def _sort(
    call: Call,
    topic: OffsetCommitRequestTopic,
    row: OffsetCommitResponseTopic,
    entries: list[CommitEntry],
    waiting: list[OffsetCommitResponsePartition],
) -> None:
    """Answer the partitions that can't be committed for, and note the others."""
    groups = call.broker.groups
    by_id = call.version >= _FIRST_WITH_IDS
    name = groups.topic_name(topic.topic_id) if by_id else topic.name
    topic_id = None if name is None else groups.topic_id(name)
    for part in topic.partitions:
        index = part.partition_index
        answer = OffsetCommitResponsePartition(index)
        row.partitions.append(answer)
        if name is None or topic_id is None:
            answer.error_code = (
                ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            continue
        code = call.error_for(name, index)
        if code is None and not groups.has_partition(name, index):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if code is not None:
            answer.error_code = code
            continue
        entries.append(
            CommitEntry(
                name,
                topic_id,
                index,
                part.committed_offset,
                part.committed_leader_epoch,
                part.committed_metadata,
            )
        )
        waiting.append(answer)


def _commit(
    call: Call,
    request: OffsetCommitRequest,
    entries: list[CommitEntry],
    waiting: list[OffsetCommitResponsePartition],
    response: OffsetCommitResponse,
) -> Deferred[OffsetCommitResponse]:
    header = CommitRequest(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        request.retention_time_ms,
        call.version,
    )
    groups = call.broker.groups
    answer: Deferred[OffsetCommitResponse] = Deferred()
    complete = groups.later(answer.complete)

    def fill(codes: Sequence[ErrorCode]) -> OffsetCommitResponse:
        for entry, told, code in zip(entries, waiting, codes, strict=True):
            late = call.error_for(entry.topic, entry.partition, after=True)
            told.error_code = code if late is None else late
        return response

    try:
        groups.operate(
            header.group_id,
            lambda shard, moment: shard.commit(
                header, entries, lambda codes: complete(fill(codes)), moment
            ),
        )
    except Refused as refused:
        answer.complete(fill([refused.code] * len(entries)))
    return answer

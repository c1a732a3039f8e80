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
    """Commit for each partition that exists; what is refused at once is listed first."""
    answers = _Answers(call)
    entries: list[CommitEntry] = []
    keys: list[tuple[_Key, int]] = []
    for number, topic in enumerate(request.topics):
        _sort(call, number, topic, answers, entries, keys)
    if not entries:
        return answers.response
    header = CommitRequest(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        request.retention_time_ms,
        call.version,
    )
    return _commit(call, header, answers, entries, keys)


_Key = tuple[str, bytes]
"""How a request names a topic: by name, or by id."""


class _Answers:
    """A response whose topics are filled in the order in which their partitions are decided."""

    def __init__(self, call: Call) -> None:
        self.response = OffsetCommitResponse()
        self._call = call
        self._rows: dict[tuple[_Key, int], OffsetCommitResponseTopic] = {}

    def add(self, key: _Key, number: int, index: int, code: ErrorCode) -> None:
        """Answer one partition; entries of one topic with other numbers are other ones."""
        row = self._rows.get((key, number))
        if row is None:
            row = self._rows[key, number] = OffsetCommitResponseTopic(*key)
            self.response.topics.append(row)
        row.partitions.append(OffsetCommitResponsePartition(index, code))


def _sort(
    call: Call,
    number: int,
    topic: OffsetCommitRequestTopic,
    answers: _Answers,
    entries: list[CommitEntry],
    keys: list[tuple[_Key, int]],
) -> None:
    """Answer the partitions that can't be committed for, and note the others."""
    groups = call.broker.groups
    by_id = call.version >= _FIRST_WITH_IDS
    key = ("", bytes(topic.topic_id)) if by_id else (topic.name, topic.topic_id)
    name = groups.topic_name(topic.topic_id) if by_id else topic.name
    topic_id = None if name is None else groups.topic_id(name)
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for part in topic.partitions:
        index = part.partition_index
        if name is None or topic_id is None:
            answers.add(key, 0, index, unknown)
            continue
        code = call.error_for(name, index)
        if code is None and not groups.has_partition(name, index):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if code is not None:
            answers.add(key, 0, index, code)
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
        keys.append((key, number))


def _commit(
    call: Call,
    header: CommitRequest,
    answers: _Answers,
    entries: list[CommitEntry],
    keys: list[tuple[_Key, int]],
) -> Deferred[OffsetCommitResponse]:
    groups = call.broker.groups
    answer: Deferred[OffsetCommitResponse] = Deferred()
    complete = groups.later(answer.complete)
    merged = bool(answers.response.topics)  # else Kafka gives the coordinator's answer as it is

    def fill(codes: Sequence[ErrorCode]) -> OffsetCommitResponse:
        for (key, number), entry, code in zip(keys, entries, codes, strict=True):
            late = call.error_for(entry.topic, entry.partition, after=True)
            row = 0 if merged else number
            answers.add(key, row, entry.partition, code if late is None else late)
        return answers.response

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

"""OffsetCommit (8) and OffsetFetch (9): the committed offsets of groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kclient.testing.authorizer import AclOperation, ResourceType
from kclient.testing.groups.offsets import CommitEntry, CommitRequest, CommittedOffset
from kclient.testing.groups.shard import Shard
from kclient.testing.request_context import RequestContext
from kclient.testing.responses import ApiError, PendingParts, PendingResult
from kclient.testing.timers import Moment

_FIRST_WITH_GROUP_ERRORS = 2
_FIRST_BATCHED = 8
_FIRST_WITH_IDS = 10


# OffsetCommit


def commit(
    call: RequestContext, request: OffsetCommitRequest
) -> PendingResult[OffsetCommitResponse] | OffsetCommitResponse:
    """Commit the offset of each partition that exists."""
    denied = call.denial(AclOperation.READ, ResourceType.GROUP, request.group_id)
    response = OffsetCommitResponse()
    entries: list[CommitEntry] = []
    waiting: list[OffsetCommitResponsePartition] = []
    for topic in request.topics:
        if topic.partitions:
            row = OffsetCommitResponseTopic(topic.name, topic.topic_id)
            response.topics.append(row)
            if denied is None:
                _sort(call, topic, row, entries, waiting)
            else:
                row.partitions = [
                    OffsetCommitResponsePartition(one.partition_index, denied)
                    for one in topic.partitions
                ]
    return _commit(call, request, entries, waiting, response) if entries else response


def _sort(
    call: RequestContext,
    topic: OffsetCommitRequestTopic,
    row: OffsetCommitResponseTopic,
    entries: list[CommitEntry],
    waiting: list[OffsetCommitResponsePartition],
) -> None:
    """Set errors of entries that can't be committed, and collect the others."""
    image, by_id = call.image, call.version >= _FIRST_WITH_IDS
    found = image.topic_by_id(topic.topic_id) if by_id else image.topics.get(topic.name)
    for part in topic.partitions:
        index = part.partition_index
        answer = OffsetCommitResponsePartition(index)
        row.partitions.append(answer)
        if found is None and by_id:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            continue
        code = call.refusal_of(AclOperation.READ, found.name if found else topic.name, index)
        if code is not None or found is None:
            answer.error_code = code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            continue
        entries.append(CommitEntry.of(found.name, found.topic_id, part))
        waiting.append(answer)


def _commit(
    call: RequestContext,
    request: OffsetCommitRequest,
    entries: list[CommitEntry],
    waiting: list[OffsetCommitResponsePartition],
    response: OffsetCommitResponse,
) -> PendingResult[OffsetCommitResponse]:
    header = CommitRequest(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        request.retention_time_ms,
        call.version,
    )

    def fill(codes: Sequence[ErrorCode]) -> OffsetCommitResponse:
        for entry, answer, code in zip(entries, waiting, codes, strict=True):
            late = call.error_for(entry.topic, entry.partition, after=True)
            answer.error_code = code if late is None else late
        return response

    def commit(shard: Shard, moment: Moment, reply: Callable[[OffsetCommitResponse], None]) -> None:
        shard.commit(header, entries, lambda codes: reply(fill(codes)), moment)

    return call.broker.groups.ask(header.group_id, commit, lambda code: fill([code] * len(entries)))


# OffsetFetch


def fetch(call: RequestContext, request: OffsetFetchRequest) -> PendingResult[OffsetFetchResponse]:
    """Read the offsets of each group; before version 8 there is one."""
    response = OffsetFetchResponse()
    gathering = PendingParts(response)
    if call.version >= _FIRST_BATCHED:
        for group in request.groups:
            answer = OffsetFetchResponseGroup(group.group_id)
            response.groups.append(answer)
            _read(call, request, group, answer, gathering.expect())
        return gathering.close()
    topics = request.topics
    group = OffsetFetchRequestGroup(
        request.group_id,
        topics=None
        if topics is None
        else [
            OffsetFetchRequestTopics(one.name, partition_indexes=one.partition_indexes)
            for one in topics
        ],
    )
    answer = OffsetFetchResponseGroup(request.group_id)
    done = gathering.expect()

    def unpack() -> None:
        _unpack(call, request, answer, response)
        done()

    _read(call, request, group, answer, unpack)
    return gathering.close()


def _unpack(
    call: RequestContext,
    request: OffsetFetchRequest,
    answer: OffsetFetchResponseGroup,
    response: OffsetFetchResponse,
) -> None:
    """Fill in the response of versions before 8, which have one group."""
    response.topics = [
        OffsetFetchResponseTopic(
            topic.name,
            [
                OffsetFetchResponsePartition(
                    part.partition_index,
                    part.committed_offset,
                    part.committed_leader_epoch,
                    part.metadata,
                    part.error_code,
                )
                for part in topic.partitions
            ],
        )
        for topic in answer.topics
    ]
    if call.version >= _FIRST_WITH_GROUP_ERRORS:
        response.error_code = answer.error_code
    elif answer.error_code != ErrorCode.NONE:  # version 1 has errors of partitions only
        code = ErrorCode(answer.error_code)
        response.topics = [
            OffsetFetchResponseTopic(
                topic.name,
                [
                    OffsetFetchResponsePartition(index, -1, -1, "", code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]


def _read(
    call: RequestContext,
    request: OffsetFetchRequest,
    group: OffsetFetchRequestGroup,
    answer: OffsetFetchResponseGroup,
    done: Callable[[], None],
) -> None:
    groups = call.broker.groups
    finish = groups.later(lambda _: done())

    def reply(
        code: ErrorCode,
        found: dict[str, dict[int, CommittedOffset]],
        unstable: set[tuple[str, int]],
    ) -> None:
        answer.error_code = code
        if code is ErrorCode.NONE:
            if group.topics is None:
                answer.topics = _all(call, found, unstable)
            else:
                answer.topics = _wanted(call, group.topics, found, unstable)
        finish(None)

    try:
        call.check_fault()
        call.check_allowed(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id)
        groups.operate(
            group.group_id,
            lambda shard, moment: shard.fetch(
                group.group_id, request.require_stable, reply, moment
            ),
        )
    except ApiError as refused:
        answer.error_code = refused.code
        done()


def _wanted(
    call: RequestContext,
    topics: list[OffsetFetchRequestTopics],
    found: dict[str, dict[int, CommittedOffset]],
    unstable: set[tuple[str, int]],
) -> list[OffsetFetchResponseTopics]:
    """Each requested partition; topics whose id is unknown, and forbidden ones, come last."""
    by_id = call.version >= _FIRST_WITH_IDS
    known: list[OffsetFetchResponseTopics] = []
    unknown: list[OffsetFetchResponseTopics] = []
    for topic in topics:
        name: str | None = topic.name
        code = ErrorCode.NONE
        if by_id:
            name = call.topic_name(None, topic.topic_id)
            code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else code
        if name is not None and not call.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        offsets = found.get(name or "", {}) if code is ErrorCode.NONE else {}
        row = OffsetFetchResponseTopics(
            "" if by_id else topic.name,
            topic.topic_id,
            [
                _part(call, name, index, offsets.get(index), _code(code, unstable, name, index))
                for index in topic.partition_indexes
            ],
        )
        (known if code is ErrorCode.NONE else unknown).append(row)
    return known + unknown


def _code(
    code: ErrorCode, unstable: set[tuple[str, int]], name: str | None, index: int
) -> ErrorCode:
    """The code of a partition: its offset isn't stable while a transaction may change it."""
    return ErrorCode.UNSTABLE_OFFSET_COMMIT if (name, index) in unstable else code


def _all(
    call: RequestContext,
    found: dict[str, dict[int, CommittedOffset]],
    unstable: set[tuple[str, int]],
) -> list[OffsetFetchResponseTopics]:
    """Each partition that has an offset; in versions with ids, only of topics that exist."""
    rows: list[OffsetFetchResponseTopics] = []
    for name in call.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, found):
        offsets = found[name]
        parts = [
            _part(call, name, index, one, _code(ErrorCode.NONE, unstable, name, index))
            for index, one in offsets.items()
        ]
        if call.version < _FIRST_WITH_IDS:
            rows.append(OffsetFetchResponseTopics(name, partitions=parts))
            continue
        topic = call.image.topics.get(name)
        if topic is not None:
            rows.append(OffsetFetchResponseTopics("", topic.topic_id, parts))
    return rows


def _part(
    call: RequestContext, name: str | None, index: int, one: CommittedOffset | None, code: ErrorCode
) -> OffsetFetchResponsePartitions:
    fault = call.error_for(name, index) or call.error_for(name, index, after=True)
    if fault:
        code, one = fault, None
    if one is None or code is ErrorCode.UNSTABLE_OFFSET_COMMIT:
        return OffsetFetchResponsePartitions(index, -1, -1, "", code)
    return OffsetFetchResponsePartitions(index, one.offset, one.leader_epoch, one.metadata, code)

"""TxnOffsetCommit (28) and WriteTxnMarkers (27): what transactions write besides records."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kclient.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kclient.testing.authorizer import AclOperation, ResourceType
from kclient.testing.coordinator import code_for_client
from kclient.testing.groups.offsets import CommitEntry, CommitRequest
from kclient.testing.groups.shard import Shard
from kclient.testing.image import OFFSETS_TOPIC
from kclient.testing.log import PartitionLog
from kclient.testing.log_state import BatchStart, Marker, ProducerIdentity
from kclient.testing.request_context import RequestContext
from kclient.testing.responses import ApiError, PendingParts, PendingResult
from kclient.testing.timers import Moment
from kclient.testing.transactions.metadata import Partition
from kclient.testing.transactions.verification import Caller, Verified

# TxnOffsetCommit

_FIRST_WITH_LOADING = 2
_FIRST_WITH_ABORTABLE = 4
_FIRST_THAT_ADDS = 5
"""The first version in which the group's coordinator adds its partition (KIP-890)."""


def commit_offsets(
    call: RequestContext, request: TxnOffsetCommitRequest
) -> PendingResult[TxnOffsetCommitResponse] | TxnOffsetCommitResponse:
    """Write offsets that are committed with the transaction, of each partition that exists."""
    denied = call.denial(
        AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id
    ) or call.denial(AclOperation.READ, ResourceType.GROUP, request.group_id)
    response = TxnOffsetCommitResponse()
    entries: list[CommitEntry] = []
    waiting: list[TxnOffsetCommitResponsePartition] = []
    for topic in request.topics:
        row = TxnOffsetCommitResponseTopic(topic.name)
        response.topics.append(row)
        found = call.image.topics.get(topic.name)
        for part in topic.partitions:
            answer = TxnOffsetCommitResponsePartition(part.partition_index)
            row.partitions.append(answer)
            code = denied or call.refusal_of(AclOperation.READ, topic.name, part.partition_index)
            if found is not None and code is None:
                waiting.append(answer)
                entries.append(CommitEntry.of(found.name, found.topic_id, part))
            else:
                answer.error_code = code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def fill(codes: Sequence[ErrorCode]) -> TxnOffsetCommitResponse:
        for entry, answer, code in zip(entries, waiting, codes, strict=True):
            if (
                code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                and call.version < _FIRST_WITH_LOADING
            ):
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            late = call.error_for(entry.topic, entry.partition, after=True)
            answer.error_code = code if late is None else late
        return response

    return _commit(call, request, entries, fill) if entries else response


def _commit(
    call: RequestContext,
    request: TxnOffsetCommitRequest,
    entries: list[CommitEntry],
    fill: Callable[[Sequence[ErrorCode]], TxnOffsetCommitResponse],
) -> PendingResult[TxnOffsetCommitResponse]:
    groups, header = call.broker.groups, _header(call, request)
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    partition = (OFFSETS_TOPIC, groups.partition_of(header.group_id))
    answer: PendingResult[TxnOffsetCommitResponse] = PendingResult()
    adds = call.version >= _FIRST_THAT_ADDS
    verifies = adds or call.broker.config.verifies_transactions
    first = BatchStart(*producer, -1)

    def refuse(code: ErrorCode) -> None:
        answer.complete(fill([code_for_client(code)] * len(entries)))

    def commit(
        shard: Shard, moment: Moment, reply: Callable[[TxnOffsetCommitResponse], None]
    ) -> None:
        shard.commit(header, entries, lambda codes: reply(fill(codes)), moment)

    def verified(outcome: Verified) -> None:
        try:
            log = _log(call, partition)
            if verifies:
                outcome.check(partition, log, first)
        except ApiError as refused:
            refuse(refused.code)
            return
        committed = groups.ask(header.group_id, commit, lambda code: fill([code] * len(entries)))
        committed.then(answer.complete)

    try:
        if not header.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        log = _log(call, partition)
        log.producers.check_epoch(*producer)
    except ApiError as refused:
        refuse(refused.code)
        return answer
    if verifies:
        knows_abortable = call.version >= _FIRST_WITH_ABORTABLE
        caller = Caller(request.transactional_id, producer, adds, knows_abortable)
        call.broker.verifier.verify(caller, {partition: (log, first)}, verified)
    else:
        verified(Verified())
    return answer


def _header(call: RequestContext, request: TxnOffsetCommitRequest) -> CommitRequest:
    return CommitRequest(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        -1,
        call.version,
        ProducerIdentity(request.producer_id, request.producer_epoch),
    )


def _log(call: RequestContext, partition: Partition) -> PartitionLog:
    """The log that has a group's offsets. Raises ApiError: NOT_COORDINATOR."""
    replica = call.broker.replicas.get(*partition)
    if replica is None or not replica.leads:
        raise ApiError(ErrorCode.NOT_COORDINATOR)
    return replica.log


# WriteTxnMarkers


def write_markers(
    call: RequestContext, request: WriteTxnMarkersRequest
) -> PendingResult[WriteTxnMarkersResponse]:
    """Append markers to partitions that this broker leads; the response waits for the followers."""
    denied = call.denial(AclOperation.ALTER, ResourceType.CLUSTER)
    denied = denied and call.denial(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    response = WriteTxnMarkersResponse()
    gathering = PendingParts(response)
    for one in request.markers:
        result = WritableTxnMarkerResult(one.producer_id)
        response.markers.append(result)
        marker = Marker(
            one.producer_id,
            one.producer_epoch,
            one.coordinator_epoch,
            one.transaction_result,
            one.transaction_version,
        )
        for topic in one.topics:
            row = WritableTxnMarkerTopicResult(topic.name)
            result.topics.append(row)
            for index in topic.partition_indexes:
                part = WritableTxnMarkerPartitionResult(index)
                row.partitions.append(part)
                if denied is not None:
                    part.error_code = denied
                    continue
                _write(call, topic.name, part, marker, gathering.expect())
    return gathering.close()


def _write(
    call: RequestContext,
    topic: str,
    part: WritableTxnMarkerPartitionResult,
    marker: Marker,
    came: Callable[[], None],
) -> None:
    broker, index = call.broker, part.partition_index

    def done(code: ErrorCode) -> None:
        if code is ErrorCode.NONE and topic == OFFSETS_TOPIC:
            broker.groups.end_transaction(index, marker.producer_id, marker.committed)
        part.error_code = call.error_for(topic, index, after=True) or code
        came()

    replica = broker.replicas.get(topic, index)
    try:
        call.check_fault(topic, index)
        if replica is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not replica.leads:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    except ApiError as refused:
        part.error_code = refused.code
        came()
        return
    broker.replica_manager.append_marker(replica, marker, done, broker.config.request_timeout)

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
from kclient.testing.groups.offsets import CommitEntry, CommitRequest
from kclient.testing.groups.records import Producer
from kclient.testing.groups.shard import Shard
from kclient.testing.internal_topic import OFFSETS_TOPIC
from kclient.testing.log_state import BatchStart, Marker
from kclient.testing.request_context import RequestContext
from kclient.testing.responses import ApiError, PendingParts, PendingResult
from kclient.testing.timers import Moment
from kclient.testing.transactions.metadata import ProducerIdentity
from kclient.testing.transactions.verification import Caller, Verified

# TxnOffsetCommit

_FIRST_WITH_LOADING = 2
_FIRST_WITH_ABORTABLE = 4
_FIRST_THAT_ADDS = 5
"""The first version in which the group's coordinator adds its partition (KIP-890)."""
_AS_SEEN = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
}
"""What a producer gets if the transaction's coordinator can't be asked."""


def commit_offsets(
    call: RequestContext, request: TxnOffsetCommitRequest
) -> PendingResult[TxnOffsetCommitResponse] | TxnOffsetCommitResponse:
    """Write offsets that are committed with the transaction, of each partition that exists."""
    response = TxnOffsetCommitResponse()
    entries: list[CommitEntry] = []
    waiting: list[TxnOffsetCommitResponsePartition] = []
    for topic in request.topics:
        row = TxnOffsetCommitResponseTopic(topic.name)
        response.topics.append(row)
        found = call.image.topics.get(topic.name)
        for part in topic.partitions:
            index = part.partition_index
            answer = TxnOffsetCommitResponsePartition(index)
            row.partitions.append(answer)
            code = call.error_for(topic.name, index)
            if found is None or call.image.partition(topic.name, index) is None:
                code = code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if found is None or code is not None:
                answer.error_code = code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            waiting.append(answer)
            entries.append(
                CommitEntry(
                    topic.name,
                    found.topic_id,
                    index,
                    part.committed_offset,
                    part.committed_leader_epoch,
                    part.committed_metadata,
                )
            )

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
    groups, group_id = call.broker.groups, request.group_id
    producer = Producer(request.producer_id, request.producer_epoch)
    partition = (OFFSETS_TOPIC, groups.partition_of(group_id))
    answer: PendingResult[TxnOffsetCommitResponse] = PendingResult()

    def refuse(code: ErrorCode) -> None:
        answer.complete(fill([_AS_SEEN.get(code, code)] * len(entries)))

    def verified(outcome: Verified) -> None:
        replica = call.broker.replicas.get(*partition)
        if replica is None or not replica.leads:
            refuse(ErrorCode.NOT_COORDINATOR)
            return
        try:
            if call.broker.config.verifies_transactions or adds:
                outcome.check(partition, replica.log, first)
        except ApiError as refused:
            refuse(refused.code)
        else:
            groups.ask(group_id, commit, lambda code: fill([code] * len(entries))).then(
                answer.complete
            )

    header = CommitRequest(
        group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        -1,
        call.version,
        producer,
    )

    def commit(
        shard: Shard, moment: Moment, reply: Callable[[TxnOffsetCommitResponse], None]
    ) -> None:
        shard.commit(header, entries, lambda codes: reply(fill(codes)), moment)

    adds = call.version >= _FIRST_THAT_ADDS
    first = BatchStart(*producer, -1)
    replica = call.broker.replicas.get(*partition)
    state = None if replica is None else replica.log.producers.get(producer.producer_id)
    if not group_id:
        refuse(ErrorCode.INVALID_GROUP_ID)
    elif replica is None or not replica.leads:
        refuse(ErrorCode.NOT_COORDINATOR)
    elif state is not None and producer.epoch < state.epoch:
        refuse(ErrorCode.INVALID_PRODUCER_EPOCH)
    elif not adds and not call.broker.config.verifies_transactions:
        verified(Verified())
    else:
        caller = Caller(
            request.transactional_id,
            ProducerIdentity(*producer),
            adds,
            call.version >= _FIRST_WITH_ABORTABLE,
        )
        call.broker.verifier.verify(caller, {partition: (replica.log, first)}, verified)
    return answer


# WriteTxnMarkers


def write_markers(
    call: RequestContext, request: WriteTxnMarkersRequest
) -> PendingResult[WriteTxnMarkersResponse]:
    """Append markers to partitions that this broker leads; the response waits for the followers."""
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
    code = call.error_for(topic, index)
    if code is None and replica is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if code is None and replica is not None and not replica.leads:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if replica is None or code is not None:
        part.error_code = code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        came()
    else:
        broker.replica_manager.append_marker(replica, marker, done, broker.config.request_timeout)

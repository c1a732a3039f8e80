"""Produce (0): append batches to the logs of partitions that this broker leads.

The first batch of a transaction in a log waits until the transaction's coordinator has confirmed
the partition, or in version 2 has added it (KIP-890).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from kclient.error_codes import ErrorCode
from kclient.protocol.message import Response
from kclient.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kclient.record.layout import BATCH_HEADER_BYTES, CRC_START, REST, TRANSACTIONAL_BIT
from kclient.testing.authorizer import AclOperation, ResourceType
from kclient.testing.delayed_operations import DelayedProduce, ProducePartitionStatus, all_settled
from kclient.testing.image import NO_LEADER, TopicImage
from kclient.testing.log import PartitionLog
from kclient.testing.log_state import BatchStart, ProducerIdentity
from kclient.testing.log_validator import RecordValidationError, check_batch, open_batch
from kclient.testing.quotas import PRODUCER
from kclient.testing.replica import Replica
from kclient.testing.request_context import RequestContext
from kclient.testing.request_log import forget_produced
from kclient.testing.responses import ApiError, CloseConnection, PendingResult
from kclient.testing.stored_batch import StoredBatch
from kclient.testing.transactions.metadata import Partition
from kclient.testing.transactions.verification import Caller, Verified

_ALL = -1
_FIRST_WITH_IDS = 13
_FIRST_WITH_HINTS = 10
_ATTRIBUTES = 22
"""Position of the low byte of a batch's attributes."""
_WITHOUT_START = (
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
)
"""Errors for which Kafka doesn't return the log start offset."""
_FIRST_WITH_ABORTABLE = 11
_FIRST_THAT_ADDS = 12
"""The first version in which the leader adds the partition to the transaction."""
_UNVERIFIED = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""Codes of a verification that producers don't expect: they get NOT_ENOUGH_REPLICAS."""
_WITH_TEXT = (ErrorCode.INVALID_TXN_STATE, ErrorCode.NOT_ENOUGH_REPLICAS)
_UNVERIFIED_TEXT = "the partition is not known to be part of the transaction"


def produce(
    call: RequestContext, request: ProduceRequest
) -> ProduceResponse | PendingResult[Response] | None:
    """Append each partition's batch; with acks=0 an error closes the connection, as in Kafka.

    With acks=all the response waits until all in sync have the appended batches.
    """
    producers = {ProducerIdentity(one.producer_id, one.epoch) for one in _transactional(request)}
    adds = call.version >= _FIRST_THAT_ADDS
    refused = _refusal_of_all(call, request, producers)
    if (
        not producers
        or request.transactional_id is None
        or refused is not None
        or not (adds or call.broker.config.verifies_transactions)
    ):
        return _append_all(call, request, None, refused)
    caller = Caller(
        request.transactional_id,
        producers.pop(),
        adds,
        call.version >= _FIRST_WITH_ABORTABLE,
        is_patient=adds,
    )
    return _append_verified(call, request, caller)


def charge(call: RequestContext, response: Response | bytes | None) -> None:
    """Count a request against its client's quota, and throttle the client that exceeds it."""
    call.throttle_ms = call.charge(PRODUCER, call.served.size_bytes)
    if isinstance(response, ProduceResponse):
        response.throttle_time_ms = call.throttle_ms


def _refusal_of_all(
    call: RequestContext, request: ProduceRequest, producers: set[ProducerIdentity]
) -> ApiError | None:
    """Why nothing of a request with transactional batches is appended; None if it may be."""
    transactional_id = request.transactional_id
    if producers and (
        transactional_id is None
        or not call.allows(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    ):
        return ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if len(producers) > 1:
        return ApiError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the transactional batches are of two producers"
        )
    return None


def _append_verified(
    call: RequestContext, request: ProduceRequest, caller: Caller
) -> ProduceResponse | PendingResult[Response] | None:
    """Ask the coordinator if that is necessary, then append."""
    known: list[Verified] = []
    waits: list[PendingResult[Response]] = []
    asked = False

    def abandon() -> None:
        for one in waits:
            one.cancel()

    answer: PendingResult[Any] = PendingResult(abandon)

    def verified(outcome: Verified) -> None:
        outcome.codes = {one: _produce_code(code, caller) for one, code in outcome.codes.items()}
        if not asked:
            known.append(outcome)
            return
        try:
            response = _append_all(call, request, outcome)
        except CloseConnection:
            response = None  # a transaction with acks=0, which no client sends
        if isinstance(response, PendingResult):
            waits.append(response)
            response.then(answer.complete)
        else:
            answer.complete(response)

    call.broker.verifier.verify(caller, _logs(call, request), verified)
    if known:
        return _append_all(call, request, known[0])
    asked = True
    for topic_data in request.topic_data:
        for data in topic_data.partition_data:
            if data.records is not None:
                data.records = bytes(data.records)  # else a view of the buffer, which is reused
    return answer


def _produce_code(code: ErrorCode, caller: Caller) -> ErrorCode:
    concurrent = code is ErrorCode.CONCURRENT_TRANSACTIONS and not caller.adds
    return ErrorCode.NOT_ENOUGH_REPLICAS if concurrent or code in _UNVERIFIED else code


def _logs(
    call: RequestContext, request: ProduceRequest
) -> dict[Partition, tuple[PartitionLog, BatchStart]]:
    """The logs to which transactional batches are to be appended, where this broker leads."""
    found: dict[Partition, tuple[PartitionLog, BatchStart]] = {}
    for topic_data, parts in _merged(request):
        by_id = call.version >= _FIRST_WITH_IDS
        with contextlib.suppress(ApiError):
            topic = call.topic(AclOperation.WRITE, topic_data.name, topic_data.topic_id, by_id)
            for data in parts:
                replica = call.broker.replicas.get(topic.name, data.index)
                start = _start_of(data)
                if start is not None and replica is not None and replica.leads:
                    found[topic.name, data.index] = (replica.log, start)
    return found


def _append_all(
    call: RequestContext,
    request: ProduceRequest,
    verified: Verified | None,
    refused: ApiError | None = None,
) -> ProduceResponse | PendingResult[Response] | None:
    response = ProduceResponse()
    failed = False
    waiting: list[ProducePartitionStatus] = []
    for topic_data, parts in _merged(request):
        topic_response = TopicProduceResponse(topic_data.name, topic_data.topic_id)
        response.responses.append(topic_response)
        for data in parts:
            if refused is not None:
                answer = _refused(data, refused.code, refused.message)
            else:
                answer = _append(call, request, response, topic_data, data, waiting, verified)
            failed = failed or answer.error_code != ErrorCode.NONE
            topic_response.partition_responses.append(answer)
    forget_produced(request)  # the records are views of the read buffer, which is reused
    if request.acks == 0:
        if failed:
            raise CloseConnection("an error in a produce request with acks=0")
        return None
    if all_settled(waiting):
        return response
    wait = DelayedProduce[Response](waiting, request.timeout_ms / 1000, lambda: response)
    wait.answer.draft = response
    return wait.answer


def _merged(
    request: ProduceRequest,
) -> Iterator[tuple[TopicProduceData, Iterable[PartitionProduceData]]]:
    """Each topic once, with each of its partitions once; the last of several batches applies."""
    topics: dict[tuple[str, bytes], tuple[TopicProduceData, dict[int, PartitionProduceData]]] = {}
    for topic_data in request.topic_data:
        if topic_data.partition_data:
            key = (topic_data.name, bytes(topic_data.topic_id))
            _, parts = topics.setdefault(key, (topic_data, {}))
            for data in topic_data.partition_data:
                parts[data.index] = data
    for topic_data, parts in topics.values():
        yield topic_data, parts.values()


def _transactional(request: ProduceRequest) -> Iterator[BatchStart]:
    """The start of each batch that is part of a transaction."""
    for topic_data in request.topic_data:
        for data in topic_data.partition_data:
            start = _start_of(data)
            if start is not None:
                yield start


def _start_of(data: PartitionProduceData) -> BatchStart | None:
    """Producer and sequence of a transactional batch; None for others, and for malformed ones."""
    records = data.records
    if (
        records is None
        or len(records) < BATCH_HEADER_BYTES
        or not records[_ATTRIBUTES] & TRANSACTIONAL_BIT
    ):
        return None
    *_, producer_id, epoch, sequence, _ = REST.unpack_from(records, CRC_START)
    return BatchStart(producer_id, epoch, sequence)


def _refused(
    data: PartitionProduceData, code: ErrorCode, message: str | None = None
) -> PartitionProduceResponse:
    return PartitionProduceResponse(data.index, code, -1, error_message=message)


def _append(
    call: RequestContext,
    request: ProduceRequest,
    response: ProduceResponse,
    topic_data: TopicProduceData,
    data: PartitionProduceData,
    waiting: list[ProducePartitionStatus],
    verified: Verified | None,
) -> PartitionProduceResponse:
    answer = _refused(data, ErrorCode.NONE)
    name, by_id = topic_data.name, call.version >= _FIRST_WITH_IDS
    try:
        topic = call.topic(AclOperation.WRITE, name, topic_data.topic_id, by_id)
        name = topic.name
        call.check_fault(name, data.index)
        replica, required = _write(call, request, topic, data, answer, verified)
        call.check_fault(name, data.index, after=True)
    except ApiError as refused:
        _fail(call, response, answer, name, refused)
        return answer

    def settle(code: ErrorCode) -> None:
        answer.error_code = code  # the offset in the leader's log is returned all the same
        _hint(call, response, answer, name)

    if request.acks == _ALL:
        waiting.append(ProducePartitionStatus(replica, required, settle))
    return answer


def _fail(
    call: RequestContext,
    response: ProduceResponse,
    answer: PartitionProduceResponse,
    name: str,
    refused: ApiError,
) -> None:
    _refuse(answer, refused)
    _hint(call, response, answer, name)


def _write(
    call: RequestContext,
    request: ProduceRequest,
    topic: TopicImage,
    data: PartitionProduceData,
    answer: PartitionProduceResponse,
    verified: Verified | None,
) -> tuple[Replica, int]:
    """Append a batch; return the leader's replica, and the high watermark to wait for."""
    call.partition(topic, data.index)
    batch = open_batch(data.records, call.version)
    if request.acks not in (0, 1, _ALL):
        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS)
    if verified is not None and (code := verified.codes.get((topic.name, data.index))) is not None:
        # Without a look at the log, and so without its start offset.
        raise ApiError(code, _UNVERIFIED_TEXT if code in _WITH_TEXT else None)
    replica = call.replica(topic, data.index, leader_only=True)
    answer.log_start_offset = replica.log.start_offset
    if request.acks == _ALL and not replica.has_min_isr:
        raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
    now_ms = call.broker.wall_ms()
    check_batch(batch, replica.config, now_ms)
    if batch.size_bytes > replica.config.segment_bytes:
        raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE)
    if verified is not None and batch.is_transactional:
        _check_transaction(verified, (topic.name, data.index), replica.log, batch)
    stamp = now_ms if replica.config.log_append_time else None
    appended = call.broker.replica_manager.append(replica, batch, stamp)
    answer.base_offset = appended.base_offset
    answer.log_append_time_ms = appended.timestamp
    return replica, appended.base_offset + batch.last_offset - batch.base_offset + 1


def _check_transaction(
    verified: Verified, partition: Partition, log: PartitionLog, batch: StoredBatch
) -> None:
    """Raise ApiError unless the batch's transaction is open, or the log has the batch."""
    try:
        start = BatchStart(batch.producer_id, batch.producer_epoch, batch.base_sequence)
        verified.check(partition, log, start)
    except ApiError:
        if log.producers.find_duplicate(batch) is None:
            raise


def _refuse(answer: PartitionProduceResponse, refused: ApiError) -> None:
    answer.error_code = refused.code
    answer.base_offset = answer.log_append_time_ms = -1
    if refused.code in _WITHOUT_START:
        answer.log_start_offset = -1
    answer.error_message = refused.message
    if isinstance(refused, RecordValidationError):
        answer.record_errors = [
            BatchIndexAndErrorMessage(index, refused.message) for index in refused.records
        ]


def _hint(
    call: RequestContext, response: ProduceResponse, answer: PartitionProduceResponse, name: str
) -> None:
    """Add the current leader, in versions that have it, if this broker isn't it (KIP-951)."""
    if (
        answer.error_code is not ErrorCode.NOT_LEADER_OR_FOLLOWER
        or call.version < _FIRST_WITH_HINTS
    ):
        return
    partition = call.image.partition(name, answer.index)
    if partition is None:
        return
    answer.current_leader = LeaderIdAndEpoch(partition.leader, partition.leader_epoch)
    if partition.leader == NO_LEADER:
        return
    leader = call.image.brokers[partition.leader]
    if all(one.node_id != leader.node_id for one in response.node_endpoints):
        response.node_endpoints.append(
            NodeEndpoint(leader.node_id, leader.host, leader.port, leader.rack)
        )

"""Produce (0): append batches to the logs of partitions that this broker leads.

And InitProducerId (22), an id for an idempotent producer (KIP-98).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kclient.error_codes import ErrorCode
from kclient.protocol.message import Response
from kclient.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
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
from kclient.record.layout import TRANSACTIONAL_BIT
from kclient.testing.delayed_operations import DelayedProduce, ProducePartitionStatus, all_settled
from kclient.testing.image import NO_LEADER, TopicImage
from kclient.testing.log_validator import RecordValidationError, check_batch, open_batch
from kclient.testing.replica import Replica
from kclient.testing.request_context import RequestContext
from kclient.testing.request_log import forget_produced
from kclient.testing.responses import ApiError, CloseConnection, PendingResult

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
NO_ID = -1
"""No id, or no epoch: a producer that requests a newer epoch sends both (KIP-360)."""


def produce(
    call: RequestContext, request: ProduceRequest
) -> ProduceResponse | PendingResult[Response] | None:
    """Append each partition's batch; with acks=0 an error closes the connection, as in Kafka.

    With acks=all the response waits until all in sync have the appended batches.
    """
    response = ProduceResponse()
    failed = False
    waiting: list[ProducePartitionStatus] = []
    anonymous = request.transactional_id is None and _is_transactional(request)
    for topic_data, parts in _merged(request):
        topic_response = TopicProduceResponse(topic_data.name, topic_data.topic_id)
        response.responses.append(topic_response)
        for data in parts:
            if anonymous:
                answer = _refused(data, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            else:
                answer = _append(call, request, response, topic_data, data, waiting)
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


def _is_transactional(request: ProduceRequest) -> bool:
    return any(
        len(data.records) > _ATTRIBUTES and data.records[_ATTRIBUTES] & TRANSACTIONAL_BIT
        for topic_data in request.topic_data
        for data in topic_data.partition_data
        if data.records is not None
    )


def _refused(data: PartitionProduceData, code: ErrorCode) -> PartitionProduceResponse:
    return PartitionProduceResponse(data.index, code, -1, error_message=None)


def _append(
    call: RequestContext,
    request: ProduceRequest,
    response: ProduceResponse,
    topic_data: TopicProduceData,
    data: PartitionProduceData,
    waiting: list[ProducePartitionStatus],
) -> PartitionProduceResponse:
    answer = _refused(data, ErrorCode.NONE)
    name = topic_data.name
    try:
        topic = call.topic(name, topic_data.topic_id, call.version >= _FIRST_WITH_IDS)
        name = topic.name
        call.check_fault(name, data.index)
        replica, required = _write(call, request, topic, data, answer)
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
) -> tuple[Replica, int]:
    """Append a batch; return the leader's replica, and the high watermark to wait for."""
    call.partition(topic, data.index)
    batch = open_batch(data.records, call.version)
    if request.acks not in (0, 1, _ALL):
        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS)
    replica = call.replica(topic, data.index, leader_only=True)
    answer.log_start_offset = replica.log.start_offset
    if request.acks == _ALL and not replica.has_min_isr:
        raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
    now_ms = call.broker.wall_ms()
    check_batch(batch, replica.config, now_ms)
    if batch.size_bytes > replica.config.segment_bytes:
        raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE)
    stamp = now_ms if replica.config.log_append_time else None
    appended = call.broker.replica_manager.append(replica, batch, stamp)
    answer.base_offset = appended.base_offset
    answer.log_append_time_ms = appended.timestamp
    return replica, appended.base_offset + batch.last_offset - batch.base_offset + 1


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


# Ids of producers


def init_producer_id(
    call: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Return a new id with epoch 0; transactional ids are refused: there is no coordinator."""
    code = call.error_for()
    if code is None and request.transactional_id is not None:
        empty = not request.transactional_id
        code = ErrorCode.INVALID_REQUEST if empty else ErrorCode.UNSUPPORTED_VERSION
    elif code is None and (request.producer_id == NO_ID) != (request.producer_epoch == NO_ID):
        code = ErrorCode.INVALID_REQUEST
    if code is not None:
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=call.broker.new_producer_id(), producer_epoch=0)

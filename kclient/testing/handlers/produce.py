"""Produce (0): append batches to the logs of partitions that this broker leads."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
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
from kclient.testing.batch_rules import RecordsRefused, check_batch, open_batch
from kclient.testing.call import Call
from kclient.testing.refused import Hangup, Refused
from kclient.testing.state import NO_LEADER, TopicState
from kclient.testing.stored_batch import Malformed

_ALL = -1
_FIRST_WITH_IDS = 13
_FIRST_WITH_HINTS = 10
_ATTRIBUTES = 22
"""Where the low byte of a batch's attributes is."""


def handle(call: Call, request: ProduceRequest) -> ProduceResponse | None:
    """Append each partition's batch; with acks=0 an error closes the connection, as in Kafka."""
    response = ProduceResponse()
    failed = False
    anonymous = request.transactional_id is None and _is_transactional(request)
    for topic_data in request.topic_data:
        topic_response = TopicProduceResponse(topic_data.name, topic_data.topic_id)
        response.responses.append(topic_response)
        for data in topic_data.partition_data:
            if anonymous:
                answer = _refused(data, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            else:
                answer = _append(call, request, response, topic_data, data)
            data.records = None  # it lies in the connection's buffer, which is used again
            failed = failed or answer.error_code != ErrorCode.NONE
            topic_response.partition_responses.append(answer)
    if request.acks != 0:
        return response
    if failed:
        raise Hangup("an error in a produce request with acks=0")
    return None


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
    call: Call,
    request: ProduceRequest,
    response: ProduceResponse,
    topic_data: TopicProduceData,
    data: PartitionProduceData,
) -> PartitionProduceResponse:
    answer = _refused(data, ErrorCode.NONE)
    name = topic_data.name
    try:
        topic = call.topic(name, topic_data.topic_id, call.version >= _FIRST_WITH_IDS)
        name = topic.name
        code = call.error_for(name, data.index)
        if code is not None:
            raise Refused(code)
        _write(call, request, topic, data, answer)
        code = call.error_for(name, data.index, after=True)
        if code is not None:
            raise Refused(code)
    except Refused as refused:
        _refuse(answer, refused)
        if refused.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and call.version >= _FIRST_WITH_HINTS:
            _hint(call, response, answer, name)
    return answer


def _write(
    call: Call,
    request: ProduceRequest,
    topic: TopicState,
    data: PartitionProduceData,
    answer: PartitionProduceResponse,
) -> None:
    partition = call.partition(topic, data.index)
    where = f"{topic.name}-{data.index}"
    batch = open_batch(data.records, call.version)
    if request.acks not in (0, 1, _ALL):
        raise Refused(ErrorCode.INVALID_REQUIRED_ACKS)
    call.check_leader(partition, -1, leader_only=True)
    answer.log_start_offset = partition.log.start_offset
    if request.acks == _ALL and not partition.has_min_isr:
        raise Refused(ErrorCode.NOT_ENOUGH_REPLICAS)
    now_ms = call.broker.wall_ms()
    check_batch(batch, topic.config, now_ms, where)
    appended = partition.append(batch, now_ms if topic.config.log_append_time else None)
    answer.base_offset = appended.base_offset
    answer.log_append_time_ms = appended.timestamp


def _refuse(answer: PartitionProduceResponse, refused: Refused) -> None:
    answer.error_code = refused.code
    answer.base_offset = answer.log_append_time_ms = -1
    if refused.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE):
        answer.log_start_offset = -1
    if isinstance(refused, (RecordsRefused, Malformed)):
        answer.error_message = refused.message
    if isinstance(refused, RecordsRefused):
        answer.record_errors = [
            BatchIndexAndErrorMessage(index, text) for index, text in refused.records
        ]


def _hint(
    call: Call, response: ProduceResponse, answer: PartitionProduceResponse, name: str
) -> None:
    """Say who leads instead (KIP-951)."""
    partition = call.state.partition(name, answer.index)
    if partition is None:
        return
    answer.current_leader = LeaderIdAndEpoch(partition.leader, partition.leader_epoch)
    if partition.leader == NO_LEADER:
        return
    leader = call.state.brokers[partition.leader]
    if all(one.node_id != leader.node_id for one in response.node_endpoints):
        response.node_endpoints.append(
            NodeEndpoint(leader.node_id, leader.host, leader.port, leader.rack)
        )

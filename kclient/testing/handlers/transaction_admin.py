"""DescribeTransactions (65), ListTransactions (66) and DescribeProducers (61) (KIP-664)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kclient.error_codes import ErrorCode
from kclient.protocol.messages import describe_transactions as described
from kclient.protocol.messages import list_transactions as listed
from kclient.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kclient.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from kclient.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kclient.testing.authorizer import AclOperation, ResourceType
from kclient.testing.request_context import RequestContext
from kclient.testing.responses import ApiError
from kclient.testing.topic_rules import check_name
from kclient.testing.transactions.metadata import TransactionMetadata, TransactionState, by_topic

_NAMES = {state.shown: state for state in TransactionState}


# Transactional ids of this coordinator


def describe_transactions(
    call: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Describe each id."""
    return DescribeTransactionsResponse(
        transaction_states=[_describe(call, one) for one in request.transactional_ids]
    )


def _describe(call: RequestContext, transactional_id: str) -> described.TransactionState:
    try:
        call.check_fault()
        call.check_allowed(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        entry = call.broker.transactions.shard(transactional_id).entries.get(transactional_id)
        if entry is None:
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    except ApiError as refused:
        return described.TransactionState(refused.code, transactional_id)
    metadata = entry.metadata
    ending = metadata.state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
    topics = by_topic(entry.unmarked if ending else metadata.partitions)
    shown = call.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, topics)
    return described.TransactionState(
        ErrorCode.NONE,
        transactional_id,
        metadata.state.shown,
        metadata.timeout_ms,
        metadata.started_ms,
        metadata.producer_id,
        metadata.epoch,
        [described.TopicData(name, topics[name]) for name in shown],
    )


def list_transactions(
    call: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """List the ids that pass all filters; a filter without values passes all."""
    unknown = [one for one in dict.fromkeys(request.state_filters) if one not in _NAMES]
    try:
        call.check_fault()
        shards = call.broker.transactions.led()
        pattern = re.compile(request.transactional_id_pattern or "", re.ASCII)
    except ApiError as refused:
        return ListTransactionsResponse(error_code=refused.code)
    except re.error:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    entries = {name: entry for shard in shards for name, entry in shard.entries.items()}
    shown = call.allowed(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, entries)
    found = [
        listed.TransactionState(one.transactional_id, one.producer_id, one.state.shown)
        for one in (entries[name].metadata for name in shown)
        if _passes(request, one, call.broker.wall_ms())
        and (not pattern.pattern or pattern.fullmatch(one.transactional_id))
    ]
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found)


def _passes(request: ListTransactionsRequest, one: TransactionMetadata, now_ms: int) -> bool:
    if request.producer_id_filters and one.producer_id not in request.producer_id_filters:
        return False
    if request.state_filters and one.state.shown not in request.state_filters:
        return False
    return request.duration_filter < 0 or now_ms - one.started_ms > request.duration_filter


# Producers of a partition


def describe_producers(
    call: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """Describe the idempotent producers of partitions that this broker has, leader or follower."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                topic.name, [_producers(call, topic.name, one) for one in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


def _producers(call: RequestContext, topic: str, index: int) -> PartitionResponse:
    try:
        call.check_fault(topic, index)
        check_name(topic)
        found = call.topic(AclOperation.READ, topic, b"", False)
        replica = call.replica(found, index, leader_only=False)
    except ApiError as refused:
        return PartitionResponse(index, refused.code, refused.message)
    log = replica.log

    def states() -> Iterator[ProducerState]:
        for producer_id, state in log.producers.items():
            first = log.transactions.open_offset(producer_id)
            yield ProducerState(
                producer_id,
                state.epoch,
                state.last_sequence,
                state.last_timestamp,
                state.coordinator_epoch,
                -1 if first is None else first,
            )

    return PartitionResponse(index, active_producers=list(states()))

"""DescribeTopicPartitions (75): metadata of topics in pages (KIP-966)."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    RequestCursor,
    ResponseCursor,
)
from kclient.testing.call import Call
from kclient.testing.handlers.metadata import TOPIC_OPERATIONS
from kclient.testing.image import PartitionFacts
from kclient.testing.refused import Refused
from kclient.testing.topic_rules import check_name


def handle(call: Call, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """Topics in the order of their names, from the cursor on, up to the limit of partitions."""
    image, cursor = call.image, request.cursor
    code = _check(request)
    if code is not None:
        return DescribeTopicPartitionsResponse(
            topics=[DescribeTopicPartitionsResponseTopic(code, one.name) for one in request.topics],
            next_cursor=None,
        )
    limit = max(min(call.image.config.partition_limit, request.response_partition_limit), 1)
    names = sorted({one.name for one in request.topics} or set(image.topics))
    response = DescribeTopicPartitionsResponse(next_cursor=None)
    for name in names:
        if cursor is not None and name < cursor.topic_name:
            continue
        if limit <= 0:
            response.next_cursor = ResponseCursor(name, 0)
            break
        shown, first_left = _describe(call, name, cursor, limit)
        response.topics.append(shown)
        limit -= len(shown.partitions)
        if first_left is not None:
            response.next_cursor = ResponseCursor(name, first_left)
            break
    return response


def _check(request: DescribeTopicPartitionsRequest) -> ErrorCode | None:
    """What is wrong with the request as a whole; then all of its topics are answered with it."""
    cursor, names = request.cursor, {one.name for one in request.topics}
    if cursor is None:
        # Kafka asks its authorizer about each topic, which fails for one without a name.
        return ErrorCode.UNKNOWN_SERVER_ERROR if "" in names else None
    if cursor.partition_index < 0 or (names and cursor.topic_name not in names):
        return ErrorCode.INVALID_REQUEST
    return None


def _describe(
    call: Call, name: str, cursor: RequestCursor | None, limit: int
) -> tuple[DescribeTopicPartitionsResponseTopic, int | None]:
    topic = call.image.topics.get(name)
    code = call.error_for(name)
    if code is None and topic is None:
        code = _absent(name)
    if code is not None or topic is None:
        return (
            DescribeTopicPartitionsResponseTopic(
                code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                name,
                topic_authorized_operations=TOPIC_OPERATIONS,
            ),
            None,
        )
    first = 0
    if cursor is not None and cursor.topic_name == name:
        first = cursor.partition_index
    part = topic.partitions[first : first + limit]
    shown = DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_partition(call, one) for one in part],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
    left = first + limit
    return shown, left if left < len(topic.partitions) else None


def _absent(name: str) -> ErrorCode:
    try:
        check_name(name)
    except Refused as refused:
        return refused.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _partition(call: Call, one: PartitionFacts) -> DescribeTopicPartitionsResponsePartition:
    brokers = call.image.brokers
    return DescribeTopicPartitionsResponsePartition(
        ErrorCode.NONE,
        one.index,
        one.leader,
        one.leader_epoch,
        list(one.replicas),
        list(one.isr),
        list(one.elr),
        list(one.last_known_elr),
        [node_id for node_id in one.replicas if not brokers[node_id].alive],
    )

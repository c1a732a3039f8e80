"""Metadata (3), DescribeCluster (60), and DescribeTopicPartitions (75), in pages (KIP-966)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kclient.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    RequestCursor,
    ResponseCursor,
)
from kclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kclient.protocol.primitives import ZERO_UUID
from kclient.testing.authorizer import AclOperation, ResourceType
from kclient.testing.image import NO_LEADER, PartitionRegistration, TopicImage
from kclient.testing.request_context import RequestContext
from kclient.testing.responses import ApiError
from kclient.testing.topic_rules import TopicSpec, check_name, check_new_topic

UNASKED_OPERATIONS = -(1 << 31)
_FIRST_WITH_IDS = 12
_FIRST_WITH_NULL_FOR_ALL = 1
_BROKERS = 1
_CONTROLLERS = 2


# Metadata


def metadata(call: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """Return this broker's metadata, which is stale only after ``freeze_metadata``."""
    image = call.broker.metadata_image
    wanted = request.topics
    objection = _objection(call, wanted or ())
    if objection is not None:
        return _refuse_all(objection, wanted or ())
    if wanted is None or (not wanted and call.version < _FIRST_WITH_NULL_FOR_ALL):
        shown = call.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, image.topics)
        topics = [_known(call, request, image.topics[name]) for name in shown]
    else:
        once = {(one.topic_id, None if _by_id(one) else one.name): one for one in wanted}
        topics = [_asked(call, request, one) for one in once.values()]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(one.node_id, one.host, one.port, one.rack)
            for one in image.alive_brokers
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
        cluster_authorized_operations=_of_cluster(call, request),
    )


def _by_id(one: MetadataRequestTopic) -> bool:
    return one.topic_id != ZERO_UUID


def _objection(call: RequestContext, wanted: Iterable[MetadataRequestTopic]) -> ErrorCode | None:
    """The error of the whole request if it names a topic in a way that its version can't."""
    if call.version < _FIRST_WITH_IDS:
        if any(_by_id(one) or one.name is None for one in wanted):
            return ErrorCode.INVALID_REQUEST
    elif any(one.name is None and not _by_id(one) for one in wanted):
        return ErrorCode.UNKNOWN_SERVER_ERROR  # as Kafka's NullPointerException
    return None


def _refuse_all(code: ErrorCode, wanted: Iterable[MetadataRequestTopic]) -> MetadataResponse:
    return MetadataResponse(
        cluster_id=None,
        topics=[_failed(one.name or "", one.topic_id, code) for one in wanted],
        error_code=code,
    )


def _asked(
    call: RequestContext, request: MetadataRequest, one: MetadataRequestTopic
) -> MetadataResponseTopic:
    if _by_id(one):
        topic = call.broker.metadata_image.topic_by_id(one.topic_id)
        if topic is None:
            return _failed(None, one.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
        if not call.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name):
            return _failed(None, one.topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return _known(call, request, topic)
    name = one.name or ""
    if not call.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
        return _failed(name, ZERO_UUID, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = call.broker.metadata_image.topics.get(name)
    if topic is not None:
        return _known(call, request, topic)
    code = _absent(call, request, name)
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return _failed(name, ZERO_UUID, code)
    return _failed(name, ZERO_UUID, code, _operations(call, request, name))


def _absent(call: RequestContext, request: MetadataRequest, name: str) -> ErrorCode:
    """The error for an unknown topic; it may be created for the next request.

    KRaft brokers don't wait for the controller, so the response doesn't depend on its result.
    """
    code = call.error_for(name)
    if code is not None:
        return code
    code = _why_absent(name)
    if not (request.allow_auto_topic_creation and call.image.config.auto_create_topics):
        return code
    if not may_create(call, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        with contextlib.suppress(ApiError):
            controller = call.broker.controller()
            checked = check_new_topic(controller.image, TopicSpec(name))
            controller.create_topic(checked.name, checked.assignments, checked.config)
    return code


def may_create(call: RequestContext, name: str) -> bool:
    """Whether the client may create a topic of that name."""
    return call.allows(AclOperation.CREATE, ResourceType.CLUSTER) or call.allows(
        AclOperation.CREATE, ResourceType.TOPIC, name
    )


def _of_cluster(call: RequestContext, request: MetadataRequest | DescribeClusterRequest) -> int:
    if not request.include_cluster_authorized_operations:
        return UNASKED_OPERATIONS
    if not call.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return 0
    return call.operations_on(ResourceType.CLUSTER)


def _operations(call: RequestContext, request: MetadataRequest, name: str) -> int:
    if not request.include_topic_authorized_operations:
        return UNASKED_OPERATIONS
    return call.operations_on(ResourceType.TOPIC, name)


def _failed(
    name: str | None, topic_id: bytes, code: ErrorCode, operations: int = UNASKED_OPERATIONS
) -> MetadataResponseTopic:
    return MetadataResponseTopic(code, name, topic_id, topic_authorized_operations=operations)


def _known(
    call: RequestContext, request: MetadataRequest, topic: TopicImage
) -> MetadataResponseTopic:
    code = call.error_for(topic.name)
    if code is not None:
        operations = _operations(call, request, topic.name)
        return _failed(topic.name, topic.topic_id, code, operations)
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_partition(call, one) for one in topic.partitions],
        topic_authorized_operations=_operations(call, request, topic.name),
    )


def _partition(call: RequestContext, one: PartitionRegistration) -> MetadataResponsePartition:
    brokers = call.broker.metadata_image.brokers
    missing = one.leader == NO_LEADER
    return MetadataResponsePartition(
        ErrorCode.LEADER_NOT_AVAILABLE if missing else ErrorCode.NONE,
        one.index,
        one.leader,
        one.leader_epoch,
        list(one.replicas),
        list(one.isr),
        [node_id for node_id in one.replicas if not brokers[node_id].alive],
    )


# DescribeCluster (KIP-700)


def describe_cluster(
    call: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Return the brokers that are up, and with ``include_fenced_brokers`` the others, too."""
    image = call.image
    code = call.error_for()
    if code is not None:
        return DescribeClusterResponse(error_code=code, error_message=None)
    if request.endpoint_type != _BROKERS:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        if request.endpoint_type == _CONTROLLERS:
            code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        return DescribeClusterResponse(error_code=code, error_message="This is a broker.")
    shown = sorted(image.brokers.values(), key=lambda one: one.node_id)
    if not request.include_fenced_brokers:
        shown = [one for one in shown if one.alive]
    return DescribeClusterResponse(
        error_message=None,
        endpoint_type=_BROKERS,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=[
            DescribeClusterBroker(one.node_id, one.host, one.port, one.rack, not one.alive)
            for one in shown
        ],
        cluster_authorized_operations=_of_cluster(call, request),
    )


# DescribeTopicPartitions


def describe_topic_partitions(
    call: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Return topics in the order of their names, from the cursor on, up to the partition limit."""
    image, cursor = call.image, request.cursor
    code = _wrong_cursor(request)
    if code is not None:
        return DescribeTopicPartitionsResponse(
            topics=[DescribeTopicPartitionsResponseTopic(code, one.name) for one in request.topics],
            next_cursor=None,
        )
    limit = max(min(call.image.config.partition_limit, request.response_partition_limit), 1)
    asked = {one.name for one in request.topics}
    forbidden: list[str] = []
    response = DescribeTopicPartitionsResponse(next_cursor=None)
    for name in sorted(asked or image.topics):
        if cursor is not None and name < cursor.topic_name:
            continue
        if not call.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            forbidden.append(name)
            continue
        if limit <= 0:
            response.next_cursor = ResponseCursor(name, 0)
            break
        shown, first_left = _page(call, name, cursor, limit)
        response.topics.append(shown)
        limit -= len(shown.partitions)
        if first_left is not None:
            response.next_cursor = ResponseCursor(name, first_left)
            break
    response.topics += [
        DescribeTopicPartitionsResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
        for name in forbidden
        if asked
    ]
    return response


def _wrong_cursor(request: DescribeTopicPartitionsRequest) -> ErrorCode | None:
    """The error of the request as a whole, which each of its topics then gets."""
    cursor, names = request.cursor, {one.name for one in request.topics}
    if cursor is None:
        # Kafka calls its authorizer for each topic, which fails for one without a name.
        return ErrorCode.UNKNOWN_SERVER_ERROR if "" in names else None
    if cursor.partition_index < 0 or (names and cursor.topic_name not in names):
        return ErrorCode.INVALID_REQUEST
    return None


def _page(
    call: RequestContext, name: str, cursor: RequestCursor | None, limit: int
) -> tuple[DescribeTopicPartitionsResponseTopic, int | None]:
    topic = call.image.topics.get(name)
    operations = call.operations_on(ResourceType.TOPIC, name)
    code = call.error_for(name)
    if code is None and topic is None:
        code = _why_absent(name)
    if code is not None or topic is None:
        return (
            DescribeTopicPartitionsResponseTopic(
                code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                name,
                topic_authorized_operations=operations,
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
        partitions=[_described_partition(call, one) for one in part],
        topic_authorized_operations=operations,
    )
    left = first + limit
    return shown, left if left < len(topic.partitions) else None


def _why_absent(name: str) -> ErrorCode:
    try:
        check_name(name)
    except ApiError as refused:
        return refused.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _described_partition(
    call: RequestContext, one: PartitionRegistration
) -> DescribeTopicPartitionsResponsePartition:
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

"""CreatePartitions (37): more partitions for a topic (KIP-195)."""

from __future__ import annotations

from collections import Counter

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from kclient.testing.call import Call
from kclient.testing.refused import Refused
from kclient.testing.topic_rules import check_growth, check_total


def handle(call: Call, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Grow each topic that may be grown."""
    counts = Counter(topic.name for topic in request.topics)
    results = [
        CreatePartitionsTopicResult(name, ErrorCode.INVALID_REQUEST, "A topic is named twice.")
        for name, count in counts.items()
        if count > 1
    ]
    results += [
        _grow(call, topic, request.validate_only)
        for topic in request.topics
        if counts[topic.name] == 1
    ]
    return CreatePartitionsResponse(results=results)


def _grow(
    call: Call, topic: CreatePartitionsTopic, validate_only: bool
) -> CreatePartitionsTopicResult:
    try:
        call.check_fault(topic.name)
        controller = call.broker.controller()
        found = controller.image.topics.get(topic.name)
        if found is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        wanted = topic.assignments
        assignments = None if wanted is None else [one.broker_ids for one in wanted]
        check_total(topic.count - len(found.partitions))
        placed = check_growth(controller.image, found, topic.count, assignments)
        if not validate_only:
            controller.add_partitions(found.name, placed)
        call.check_fault(topic.name, after=True)
    except Refused as refused:
        return CreatePartitionsTopicResult(topic.name, refused.code, refused.message)
    return CreatePartitionsTopicResult(topic.name, error_message=None)

"""CreateTopics (19)."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kclient.testing.call import Call
from kclient.testing.config_access import ConfigAccess
from kclient.testing.config_descriptions import describe_topic
from kclient.testing.image import MetadataImage
from kclient.testing.refused import Refused
from kclient.testing.topic_configs import TopicConfig
from kclient.testing.topic_rules import TopicSpec, check_new_topic, check_total


def handle(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create each topic that may be; any broker takes the request, as with KRaft."""
    counts = Counter(topic.name for topic in request.topics)
    try:
        check_total(sum(_partitions_of(call, topic) for topic in request.topics))
    except Refused as refused:
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name, error_code=refused.code, error_message=refused.message)
                for name in counts
            ]
        )
    before = call.image
    with contextlib.suppress(Refused):  # no controller: each topic is told
        before = call.broker.controller().image
    results = [
        _create(call, topic, before, request.validate_only)
        for topic in request.topics
        if counts[topic.name] == 1
    ]
    results += [
        CreatableTopicResult(
            name, error_code=ErrorCode.INVALID_REQUEST, error_message="A topic is named twice."
        )
        for name, count in counts.items()
        if count > 1
    ]
    return CreateTopicsResponse(topics=results)


def _partitions_of(call: Call, topic: CreatableTopic) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return call.image.config.partitions if topic.num_partitions == -1 else topic.num_partitions


def _create(
    call: Call, topic: CreatableTopic, before: MetadataImage, validate_only: bool
) -> CreatableTopicResult:
    spec = TopicSpec(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(one.partition_index, one.broker_ids) for one in topic.assignments],
        {one.name: one.value for one in topic.configs},
    )
    try:
        call.check_fault(topic.name)
        controller = call.broker.controller()
        checked = check_new_topic(controller.image, spec, before)
    except Refused as refused:
        return CreatableTopicResult(
            topic.name, error_code=refused.code, error_message=refused.message
        )
    result = CreatableTopicResult(
        topic.name,
        error_message=None,
        num_partitions=len(checked.assignments),
        replication_factor=len(checked.assignments[0]),
        configs=_described(call, checked.config, spec.configs),
    )
    if validate_only:
        result.topic_id = call.broker.rng.randbytes(16)
    else:
        created = controller.create_topic(checked.name, checked.assignments, checked.config)
        result.topic_id = created.topic_id
        code = call.error_for(topic.name, after=True)
        if code is not None:
            return CreatableTopicResult(topic.name, error_code=code, error_message=None)
    return result


def _described(
    call: Call, config: TopicConfig, given: Mapping[str, str | None]
) -> list[CreatableTopicConfigs]:
    """All of its configurations; what was given is shown as it was sent."""
    rows = describe_topic(config, ConfigAccess(call).layers())
    return [
        CreatableTopicConfigs(
            row.name,
            given.get(row.name, row.value),
            row.read_only,
            row.source,
            row.is_sensitive,
        )
        for row in sorted(rows)
    ]

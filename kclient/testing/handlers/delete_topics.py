"""DeleteTopics (20), by name or by id (KIP-516)."""

from __future__ import annotations

from collections import Counter

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kclient.protocol.primitives import ZERO_UUID
from kclient.testing.call import Call
from kclient.testing.image import TopicFacts
from kclient.testing.refused import Refused


def handle(call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete each topic that is there."""
    results: list[DeletableTopicResult] = []
    names: Counter[str] = Counter(request.topic_names)
    ids: Counter[bytes] = Counter()
    for one in request.topics:
        if one.name is None and one.topic_id == ZERO_UUID:
            results.append(_invalid(None, ZERO_UUID))
        elif one.name is None:
            ids[bytes(one.topic_id)] += 1
        elif one.topic_id == ZERO_UUID:
            names[one.name] += 1
        else:
            results.append(_invalid(one.name, one.topic_id))
    doomed: dict[bytes, TopicFacts] = {}
    for topic_id, count in ids.items():
        topic = call.image.topic_by_id(topic_id)
        if count > 1:
            results.append(_invalid(None, topic_id))
        elif topic is None:
            results.append(_failed(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            doomed[topic_id] = topic
    for name, count in names.items():
        topic = call.image.topics.get(name)
        if count > 1:
            results.append(_invalid(name, ZERO_UUID))
        elif topic is None:
            results.append(_failed(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif topic.topic_id in ids:
            doomed.pop(topic.topic_id, None)
            results.append(_invalid(name, topic.topic_id))
        else:
            doomed[topic.topic_id] = topic
    results += [_delete(call, topic) for topic in doomed.values()]
    return DeleteTopicsResponse(responses=results)


def _delete(call: Call, topic: TopicFacts) -> DeletableTopicResult:
    code = call.error_for(topic.name)
    if code is None:
        try:
            call.broker.controller().delete_topic(topic)
        except Refused as refused:
            return DeletableTopicResult(topic.name, topic.topic_id, refused.code, refused.message)
        code = call.error_for(topic.name, after=True)
    return DeletableTopicResult(
        topic.name, topic.topic_id, ErrorCode.NONE if code is None else code, None
    )


def _failed(name: str | None, topic_id: bytes, code: ErrorCode) -> DeletableTopicResult:
    return DeletableTopicResult(name, topic_id, code, "There is no such topic.")


def _invalid(name: str | None, topic_id: bytes) -> DeletableTopicResult:
    return DeletableTopicResult(
        name, topic_id, ErrorCode.INVALID_REQUEST, "A topic is named once, by its name or its id."
    )

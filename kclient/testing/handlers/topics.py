"""Topics and their partitions: CreateTopics (19), DeleteTopics (20), by name or by id (KIP-516),
CreatePartitions (37), ElectLeaders (43).
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from kclient.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kclient.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kclient.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from kclient.protocol.primitives import ZERO_UUID
from kclient.testing.authorizer import AclOperation, ResourceType
from kclient.testing.config_descriptions import describe_topic
from kclient.testing.handlers.configs import layers
from kclient.testing.handlers.metadata import may_create
from kclient.testing.image import MetadataImage, TopicImage
from kclient.testing.quotas import UNLIMITED, MutationQuota
from kclient.testing.request_context import RequestContext
from kclient.testing.responses import ApiError
from kclient.testing.topic_configs import TopicConfig
from kclient.testing.topic_rules import TopicSpec, check_growth, check_new_topic, check_total

_PREFERRED, _UNCLEAN = 0, 1
_FIRST_STRICT_CREATION, _FIRST_STRICT_DELETION, _FIRST_STRICT_GROWTH = 6, 5, 3
"""The first versions whose requests are refused above a quota; older ones are only throttled."""


def _mutations(call: RequestContext, first_strict: int) -> MutationQuota:
    """The client's quota of changes, which is the controller's."""
    if not call.image.quotas:
        return UNLIMITED
    try:
        controller = call.broker.controller()
        quotas = controller.image.quotas
    except ApiError:
        return UNLIMITED  # each topic gets that error
    now, strict = round(call.broker.now() * 1000), call.version >= first_strict
    return controller.mutations.of_request(quotas, call.client, now, strict=strict)


# Creation


def create_topics(call: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create each valid topic; any broker accepts the request, as with KRaft."""
    counts = Counter(topic.name for topic in request.topics)
    try:
        check_total(sum(_partitions_of(call, topic) for topic in request.topics))
    except ApiError as refused:
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name, error_code=refused.code, error_message=refused.message)
                for name in counts
            ]
        )
    before = call.image
    with contextlib.suppress(ApiError):  # no controller: each topic gets the error
        before = call.broker.controller().image
    quota = _mutations(call, _FIRST_STRICT_CREATION)
    results = [
        _create(call, topic, before, request.validate_only, quota)
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
    return CreateTopicsResponse(quota.throttle_ms, results)


def _partitions_of(call: RequestContext, topic: CreatableTopic) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return call.image.config.partitions if topic.num_partitions == -1 else topic.num_partitions


def _create(
    call: RequestContext,
    topic: CreatableTopic,
    before: MetadataImage,
    validate_only: bool,
    quota: MutationQuota,
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
        if not may_create(call, topic.name):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        controller = call.broker.controller()
        checked = check_new_topic(controller.image, spec, before)
        quota.record(len(checked.assignments))
    except ApiError as refused:
        return CreatableTopicResult(
            topic.name, error_code=refused.code, error_message=refused.message
        )
    result = CreatableTopicResult(topic.name, error_message=None)
    if call.allows(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name):
        result.num_partitions = len(checked.assignments)
        result.replication_factor = len(checked.assignments[0])
        result.configs = _described(call, checked.config, spec.configs)
    else:
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
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
    call: RequestContext, config: TopicConfig, given: Mapping[str, str | None]
) -> list[CreatableTopicConfigs]:
    """All of its configurations; those in the request are shown as sent."""
    rows = describe_topic(config, layers(call))
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


# Deletion


def delete_topics(call: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete each topic that exists."""
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
    doomed: dict[bytes, TopicImage] = {}
    for topic_id, count in ids.items():
        topic = call.image.topic_by_id(topic_id)
        if count > 1:
            results.append(_invalid(None, topic_id))
        elif topic is None:
            results.append(_failed(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID))
        elif not _may_delete(call, AclOperation.DELETE, topic.name):
            shown = topic.name if _may_delete(call, AclOperation.DESCRIBE, topic.name) else None
            results.append(_forbidden(shown, topic_id))
        else:
            doomed[topic_id] = topic
    for name, count in names.items():
        topic = call.image.topics.get(name)
        if count > 1:
            results.append(_invalid(name, ZERO_UUID))
        elif not _may_delete(call, AclOperation.DESCRIBE, name):
            results.append(_forbidden(name, ZERO_UUID))
        elif topic is None:
            results.append(_failed(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif not _may_delete(call, AclOperation.DELETE, name):
            results.append(_forbidden(name, ZERO_UUID))
        elif topic.topic_id in ids:
            doomed.pop(topic.topic_id, None)
            results.append(_invalid(name, topic.topic_id))
        else:
            doomed[topic.topic_id] = topic
    quota = _mutations(call, _FIRST_STRICT_DELETION)
    results += [_delete(call, topic, quota) for topic in doomed.values()]
    return DeleteTopicsResponse(quota.throttle_ms, results)


def _may_delete(call: RequestContext, operation: AclOperation, name: str) -> bool:
    """Whether the client may do that with a topic, or delete any."""
    return call.allows(AclOperation.DELETE, ResourceType.CLUSTER) or call.allows(
        operation, ResourceType.TOPIC, name
    )


def _forbidden(name: str | None, topic_id: bytes) -> DeletableTopicResult:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return DeletableTopicResult(name, topic_id, code, "Topic authorization failed.")


def _delete(call: RequestContext, topic: TopicImage, quota: MutationQuota) -> DeletableTopicResult:
    code = call.error_for(topic.name)
    if code is None:
        try:
            quota.record(len(topic.partitions))
            call.broker.controller().delete_topic(topic)
        except ApiError as refused:
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


# Growth (KIP-195)


def create_partitions(
    call: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Add partitions to each topic for which that is valid."""
    counts = Counter(topic.name for topic in request.topics)
    results = [
        CreatePartitionsTopicResult(name, ErrorCode.INVALID_REQUEST, "A topic is named twice.")
        for name, count in counts.items()
        if count > 1
    ]
    quota = _mutations(call, _FIRST_STRICT_GROWTH)
    results += [
        _grow(call, topic, request.validate_only, quota)
        for topic in request.topics
        if counts[topic.name] == 1
    ]
    return CreatePartitionsResponse(quota.throttle_ms, results)


def _grow(
    call: RequestContext, topic: CreatePartitionsTopic, validate_only: bool, quota: MutationQuota
) -> CreatePartitionsTopicResult:
    try:
        call.check_fault(topic.name)
        call.check_allowed(AclOperation.ALTER, ResourceType.TOPIC, topic.name)
        controller = call.broker.controller()
        found = controller.image.topics.get(topic.name)
        if found is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        wanted = topic.assignments
        assignments = None if wanted is None else [one.broker_ids for one in wanted]
        check_total(topic.count - len(found.partitions))
        placed = check_growth(controller.image, found, topic.count, assignments)
        quota.record(len(placed))
        if not validate_only:
            controller.add_partitions(found.name, placed)
        call.check_fault(topic.name, after=True)
    except ApiError as refused:
        return CreatePartitionsTopicResult(topic.name, refused.code, refused.message)
    return CreatePartitionsTopicResult(topic.name, error_message=None)


# ElectLeaders (KIP-460)


def elect_leaders(call: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Elect a leader for each named partition, or for all partitions."""
    wanted = request.topic_partitions
    denied = call.denial(AclOperation.ALTER, ResourceType.CLUSTER)
    if denied is not None:
        return _refuse_all(ApiError(denied), wanted or [])
    if wanted is not None and not wanted:
        return ElectLeadersResponse()  # Kafka doesn't check the kind then
    kind = request.election_type
    try:
        if kind not in (_PREFERRED, _UNCLEAN):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"There is no election type {kind}.")
        image = call.broker.controller().image
    except ApiError as refused:
        return _refuse_all(refused, wanted or [])
    if wanted is None:
        every = [
            TopicPartitions(topic.name, [one.index for one in topic.partitions])
            for topic in image.topics.values()
        ]
        found = [_of_topic(call, topic, kind) for topic in every]
        for result in found:  # partitions that need no election are left out
            result.partition_result = [
                one
                for one in result.partition_result
                if one.error_code != ErrorCode.ELECTION_NOT_NEEDED
            ]
    else:
        found = [_of_topic(call, topic, kind) for topic in wanted]
    return ElectLeadersResponse(replica_election_results=found)


def _refuse_all(refused: ApiError, wanted: list[TopicPartitions]) -> ElectLeadersResponse:
    results = [
        ReplicaElectionResult(
            topic.topic,
            [PartitionResult(index, refused.code, refused.message) for index in topic.partitions],
        )
        for topic in wanted
    ]
    return ElectLeadersResponse(0, refused.code, results)


def _of_topic(call: RequestContext, topic: TopicPartitions, kind: int) -> ReplicaElectionResult:
    results = [_elect(call, topic.topic, index, kind) for index in topic.partitions]
    return ReplicaElectionResult(topic.topic, results)


def _elect(call: RequestContext, topic: str, index: int, kind: int) -> PartitionResult:
    try:
        call.check_fault(topic, index)
        controller = call.broker.controller()
        if topic not in controller.image.topics:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {topic!r}.")
        controller.elect(topic, index, unclean=kind == _UNCLEAN)
        call.check_fault(topic, index, after=True)
    except ApiError as refused:
        return PartitionResult(index, refused.code, refused.message)
    return PartitionResult(index, ErrorCode.NONE, None)

"""DescribeConfigs (32), of topics and brokers."""

from __future__ import annotations

import enum

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kclient.testing import broker_configs, topic_configs
from kclient.testing.call import Call
from kclient.testing.config_defs import ConfigDef, as_text
from kclient.testing.refused import Refused
from kclient.testing.state import ClusterState
from kclient.testing.topic_configs import TopicConfig
from kclient.testing.topic_rules import check_name

_KINDS = {"BOOLEAN": 1, "STRING": 2, "INT": 3, "LONG": 5, "DOUBLE": 6, "LIST": 7}


class Source(enum.IntEnum):
    """Where a value comes from, as on the wire."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


class Resource(enum.IntEnum):
    """What has configurations, as on the wire."""

    TOPIC = 2
    BROKER = 4


def source_of(state: ClusterState, config: TopicConfig, name: str) -> Source:
    """Where the value of a topic's configuration comes from."""
    if name in config.given:
        return Source.TOPIC
    return Source.STATIC_BROKER if name in state.config.topic_defaults else Source.DEFAULT


def handle(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describe each resource."""
    return DescribeConfigsResponse(
        results=[_describe(call, request, resource) for resource in request.resources]
    )


def _describe(
    call: Call, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        error_message=None,
    )
    try:
        code = call.error_for(resource.resource_name)
        if code is not None:
            raise Refused(code)
        if resource.resource_type == Resource.TOPIC:
            rows = _topic_rows(call.state, resource.resource_name)
        elif resource.resource_type == Resource.BROKER:
            rows = _broker_rows(call, resource.resource_name)
        else:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"Unsupported resource type: {resource.resource_type}",
            )
    except Refused as refused:
        result.error_code, result.error_message = refused.code, refused.message
        return result
    keys = resource.configuration_keys
    for definition, value, source in rows:
        if keys is None or definition.name in keys:
            result.configs.append(_row(definition, value, source, request.include_synonyms))
    return result


def _topic_rows(state: ClusterState, name: str) -> list[tuple[ConfigDef, str, Source]]:
    check_name(name)
    topic = state.topics.get(name)
    if topic is None:
        raise Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        )
    config = topic.config
    return [
        (one, as_text(config.value(one.name)), source_of(state, config, one.name))
        for one in topic_configs.DEFINITIONS.values()
    ]


def _broker_rows(call: Call, name: str) -> list[tuple[ConfigDef, str, Source]]:
    if name and name != str(call.node_id):
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {call.node_id} or empty string, but received {name}",
        )
    given = call.state.config.given
    if not name:  # the cluster-wide dynamic configuration, of which there is none
        return []
    return [
        (
            one,
            given.get(one.name, one.default) or "",
            Source.STATIC_BROKER if one.name in given else Source.DEFAULT,
        )
        for one in broker_configs.DEFINITIONS.values()
    ]


def _row(
    definition: ConfigDef, value: str, source: Source, synonyms: bool
) -> DescribeConfigsResourceResult:
    shown = DescribeConfigsResourceResult(
        definition.name,
        value,
        config_source=source,
        config_type=_KINDS[definition.kind],
        documentation=None,
    )
    if synonyms:
        shown.synonyms = [DescribeConfigsSynonym(definition.name, value, source)]
        if source != Source.DEFAULT:
            shown.synonyms.append(
                DescribeConfigsSynonym(definition.name, definition.default, Source.DEFAULT)
            )
    return shown

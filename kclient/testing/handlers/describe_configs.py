"""DescribeConfigs (32): of topics, brokers, their loggers, groups and client metrics.

Without documentation, whoever asks for it: Kafka's own pages have it.
"""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kclient.testing.call import Call
from kclient.testing.config_access import ConfigAccess
from kclient.testing.config_descriptions import (
    Described,
    Resource,
    describe_all_brokers,
    describe_broker,
    describe_client_metrics,
    describe_group,
    describe_loggers,
    describe_topic,
)
from kclient.testing.config_rules import check_node
from kclient.testing.refused import Refused, bad_request
from kclient.testing.topic_rules import check_name


def handle(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describe each resource."""
    access = ConfigAccess(call)
    return DescribeConfigsResponse(
        results=[_describe(call, access, request, resource) for resource in request.resources]
    )


def _describe(
    call: Call,
    access: ConfigAccess,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        error_message="",
    )
    try:
        call.check_fault(resource.resource_name)
        rows = _rows(access, resource)
    except Refused as refused:
        result.error_code, result.error_message = refused.code, refused.message or ""
        return result
    keys = resource.configuration_keys or None
    result.configs = [
        _shown(row, request.include_synonyms) for row in rows if keys is None or row.name in keys
    ]
    return result


def _rows(access: ConfigAccess, resource: DescribeConfigsResource) -> list[Described]:
    kind, name = resource.resource_type, resource.resource_name
    if kind not in tuple(Resource):
        raise bad_request(f"Resources of type {kind} can't be described.")
    given = access.given(Resource(kind), name)
    if kind == Resource.TOPIC:
        check_name(name)
        config = access.topic(name)
        if config is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return describe_topic(config, access.layers())
    if kind == Resource.BROKER:
        if not name:
            return describe_all_brokers(given)
        check_node(name, access.node_id)
        return describe_broker(access.layers())
    if not name:
        raise bad_request("The resource needs a name.")
    if kind == Resource.BROKER_LOGGER:
        check_node(name, access.node_id)
        return describe_loggers(given)
    if kind == Resource.GROUP:
        return describe_group(given, access.layers())
    return describe_client_metrics(given)


def _shown(row: Described, synonyms: bool) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        row.name,
        row.value,
        read_only=row.read_only,
        config_source=row.source,
        is_sensitive=row.is_sensitive,
        synonyms=[DescribeConfigsSynonym(*one) for one in row.synonyms] if synonyms else [],
        config_type=row.kind,
        documentation=None,
    )

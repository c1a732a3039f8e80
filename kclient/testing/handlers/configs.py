"""DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44), ListConfigResources (74).

Described without documentation, whoever asks for it: Kafka's own pages have it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from kclient.error_codes import ErrorCode
from kclient.protocol.messages import alter_configs, incremental_alter_configs
from kclient.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from kclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kclient.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kclient.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
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
from kclient.testing.config_rules import (
    Change,
    Operation,
    altered,
    altered_levels,
    check_broker,
    check_broker_operations,
    check_changes,
    check_client_metrics,
    check_group,
    check_min_isr,
    check_node,
)
from kclient.testing.refused import Refused, bad_request
from kclient.testing.topic_rules import check_name

A = TypeVar("A", bound=Any)
_FIRST_WITH_TYPES = 1
_ORDER = (
    Resource.GROUP,
    Resource.CLIENT_METRICS,
    Resource.BROKER_LOGGER,
    Resource.BROKER,
    Resource.TOPIC,
)


# Of topics, brokers, their loggers, groups and client metrics


def describe_configs(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
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


# Alteration: all of a resource is replaced, or some of it changed


def alter_configs_of(call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replace what is set on each resource, or only look whether it could be."""
    return AlterConfigsResponse(
        responses=_alter_each(call, request, _replace, alter_configs.AlterConfigsResourceResponse)
    )


def alter_incrementally(
    call: Call, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Alter each resource, or only look whether it could be."""
    return IncrementalAlterConfigsResponse(
        responses=_alter_each(
            call, request, _change, incremental_alter_configs.AlterConfigsResourceResponse
        )
    )


def _alter_each(
    call: Call,
    request: Any,
    alter: Callable[[ConfigAccess, Any], tuple[Resource, dict[str, str]]],
    answer: type[A],
) -> list[A]:
    """Alter each resource of a request; what is refused, or named twice, has it in its answer.

    Args:
        call: The request that is carried out.
        request: Of either kind.
        alter: What would be set on one resource, all of it checked; or raises Refused.
        answer: The class of answers.
    """
    access = ConfigAccess(call)
    named = Counter((one.resource_type, one.resource_name) for one in request.resources)
    answers = []
    for one in request.resources:
        name = one.resource_name
        made = answer(0, None, resource_type=one.resource_type, resource_name=name)
        answers.append(made)
        try:
            if named[one.resource_type, name] > 1:
                raise bad_request("A resource is named twice.")
            call.check_fault(name)
            resource, new = alter(access, one)
            if request.validate_only:
                continue
            access.replace(resource, name, new)
            call.check_fault(name, after=True)
        except Refused as refused:
            made.error_code, made.error_message = refused.code, refused.message
    return answers


def _replace(
    access: ConfigAccess, wanted: alter_configs.AlterConfigsResource
) -> tuple[Resource, dict[str, str]]:
    name = wanted.resource_name
    check_changes([Change(one.name, Operation.SET, one.value) for one in wanted.configs])
    resource = _known_resource(wanted.resource_type)
    if resource == Resource.BROKER_LOGGER:
        raise _unknown_type(wanted.resource_type)
    new = {one.name: one.value or "" for one in wanted.configs}
    if resource == Resource.BROKER:
        if name:
            check_node(name, access.node_id)
        check_broker(new, for_all=not name)
    _check_whole(access, resource, name, new, new)
    return resource, new


def _change(
    access: ConfigAccess, wanted: incremental_alter_configs.AlterConfigsResource
) -> tuple[Resource, dict[str, str]]:
    name = wanted.resource_name
    changes = [Change(one.name, one.config_operation, one.value) for one in wanted.configs]
    check_changes(changes)
    resource = _known_resource(wanted.resource_type)
    current = access.given(resource, name)
    if resource == Resource.BROKER_LOGGER:
        check_node(name, access.node_id)
        return resource, altered_levels(changes, current)
    if resource == Resource.BROKER:
        if name:
            check_node(name, access.node_id)
        check_broker_operations(changes)
        check_broker(altered(resource, changes, current), for_all=not name)
    new = altered(resource, changes, current)
    _check_whole(access, resource, name, [one.name for one in changes], new)
    return resource, new


def _known_resource(number: int) -> Resource:
    try:
        return Resource(number)
    except ValueError:
        raise _unknown_type(number) from None


def _unknown_type(number: int) -> Refused:
    return bad_request(f"Resources of type {number} can't be altered.")


def _check_whole(
    access: ConfigAccess,
    resource: Resource,
    name: str,
    touched: Iterable[str],
    new: Mapping[str, str],
) -> None:
    """Raise Refused unless exactly ``new`` may be set on a resource, as the controller looks at it.

    Args:
        access: What is set now.
        resource: Its kind.
        name: Its name.
        touched: What the request names.
        new: All that would be set.
    """
    if resource == Resource.TOPIC:
        if not name:
            raise bad_request("A topic needs a name.")
        check_name(name)
        access.checked_topic(new)
        if access.topic(name) is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name!r}.")
    elif resource == Resource.BROKER:
        check_min_isr(touched, access.given(resource, name), new, for_all=not name)
    elif resource == Resource.GROUP:
        check_group(name, new)
    else:
        check_client_metrics(name, new)


# What has configurations (KIP-714, KIP-1142)


def list_config_resources(
    call: Call, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """List the resources of the kinds that are asked for; of client metrics only before v1."""
    code = call.error_for()
    if code is not None:
        return ListConfigResourcesResponse(error_code=code)
    wanted = request.resource_types if call.version >= _FIRST_WITH_TYPES else []
    if any(kind not in tuple(Resource) for kind in wanted):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if call.version < _FIRST_WITH_TYPES:
        wanted = [Resource.CLIENT_METRICS]
    access = ConfigAccess(call)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(name, kind)
            for kind in _ORDER
            if not wanted or kind in wanted
            for name in access.names(kind)
        ]
    )

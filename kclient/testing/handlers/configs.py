"""DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44), ListConfigResources (74).

Described without documentation, even if it is requested: Kafka's own pages have it.
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
from kclient.testing.authorizer import AclOperation, ResourceType
from kclient.testing.config_descriptions import (
    BrokerLayers,
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
    ROOT_LOGGER,
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
from kclient.testing.listeners import address_of
from kclient.testing.request_context import RequestContext
from kclient.testing.responses import ApiError, bad_request
from kclient.testing.topic_configs import TopicConfig
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
_LOGGERS = {
    ROOT_LOGGER: "INFO",
    "org.apache.kafka.server.logger.LoggingController": "INFO",
}


# Storage: a configuration applies on a broker once it gets the image


def _topic(call: RequestContext, name: str) -> TopicConfig | None:
    """A topic's configuration; None if there is no such topic."""
    topic = call.image.topics.get(name)
    return None if topic is None else topic.config


def layers(call: RequestContext) -> BrokerLayers:
    """The layers of the configuration of the broker that got the request."""
    config, broker = call.image.config, call.image.brokers[call.node_id]
    address = f"PLAINTEXT://{address_of(broker.host, broker.port)}"
    static = {
        "process.roles": "broker,controller",
        "controller.listener.names": "CONTROLLER",
        "node.id": str(call.node_id),
        "broker.id": str(call.node_id),
        "listeners": address,
        "advertised.listeners": address,
        **({} if broker.rack is None else {"broker.rack": broker.rack}),
        **config.static,
    }
    own = config.stored.get((Resource.BROKER, str(call.node_id)), {})
    return BrokerLayers(own, config.dynamic, static)


def _given(call: RequestContext, resource: Resource, name: str) -> Mapping[str, str]:
    """Configurations that clients set on a resource."""
    if resource == Resource.TOPIC:
        topic = _topic(call, name)
        return {} if topic is None else topic.given
    if resource == Resource.BROKER and not name:
        return call.image.config.dynamic
    stored = call.image.config.stored.get((resource, name))
    if stored is None:
        return _LOGGERS if resource == Resource.BROKER_LOGGER else {}
    return stored


def _set(call: RequestContext, resource: Resource, name: str, configs: Mapping[str, str]) -> None:
    """Set exactly these on a resource, all of them checked.

    Raises:
        ApiError: NOT_CONTROLLER.
    """
    controller = call.broker.controller()
    if resource == Resource.TOPIC:
        controller.set_topic_configs({name: call.image.topic_config(configs)})
    elif resource == Resource.BROKER and not name:
        controller.set_broker_config(controller.image.config.with_dynamic(configs))
    else:
        controller.set_broker_config(controller.image.config.with_stored(resource, name, configs))


def _names(call: RequestContext, resource: Resource) -> list[str]:
    """All resources of a kind that have configurations."""
    if resource == Resource.TOPIC:
        return list(call.image.topics)
    if resource in (Resource.BROKER, Resource.BROKER_LOGGER):
        return [str(node_id) for node_id in call.image.brokers]
    return [name for kind, name in call.image.config.stored if kind == resource]


_KINDS = {Resource.TOPIC: ResourceType.TOPIC, Resource.GROUP: ResourceType.GROUP}
"""Resources with ACLs of their own; the others are the cluster's."""


def _check_allowed(
    call: RequestContext, operation: AclOperation, resource: Resource, name: str
) -> None:
    """Raise ApiError: TOPIC_, GROUP_ or CLUSTER_AUTHORIZATION_FAILED."""
    kind = _KINDS.get(resource)
    if kind is None:
        call.check_allowed(operation, ResourceType.CLUSTER)
    else:
        call.check_allowed(operation, kind, name)


# Of topics, brokers, their loggers, groups and client metrics


def describe_configs(
    call: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Describe each resource."""
    return DescribeConfigsResponse(
        results=[_describe(call, request, resource) for resource in request.resources]
    )


def _describe(
    call: RequestContext,
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
        rows = _rows(call, resource)
    except ApiError as refused:
        result.error_code, result.error_message = refused.code, refused.message or ""
        return result
    keys = resource.configuration_keys or None
    result.configs = [
        _shown(row, request.include_synonyms) for row in rows if keys is None or row.name in keys
    ]
    return result


def _rows(call: RequestContext, resource: DescribeConfigsResource) -> list[Described]:
    kind, name = resource.resource_type, resource.resource_name
    if kind not in tuple(Resource):
        raise bad_request(f"Resources of type {kind} can't be described.")
    _check_allowed(call, AclOperation.DESCRIBE_CONFIGS, Resource(kind), name)
    given = _given(call, Resource(kind), name)
    if kind == Resource.TOPIC:
        check_name(name)
        config = _topic(call, name)
        if config is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return describe_topic(config, layers(call))
    if kind == Resource.BROKER:
        if not name:
            return describe_all_brokers(given)
        check_node(name, call.node_id)
        return describe_broker(layers(call))
    if not name:
        raise bad_request("The resource needs a name.")
    if kind == Resource.BROKER_LOGGER:
        check_node(name, call.node_id)
        return describe_loggers(given)
    if kind == Resource.GROUP:
        return describe_group(given, layers(call))
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


# Alteration: all configurations of a resource are replaced, or some are changed


def alter_configs_of(call: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replace the configurations of each resource, or only validate that."""
    return AlterConfigsResponse(
        responses=_alter_each(call, request, _replace, alter_configs.AlterConfigsResourceResponse)
    )


def alter_incrementally(
    call: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Alter each resource, or only validate that."""
    return IncrementalAlterConfigsResponse(
        responses=_alter_each(
            call, request, _change, incremental_alter_configs.AlterConfigsResourceResponse
        )
    )


def _alter_each(
    call: RequestContext,
    request: Any,
    alter: Callable[[RequestContext, Any], tuple[Resource, dict[str, str]]],
    answer: type[A],
) -> list[A]:
    """Alter each resource of a request; one that is refused, or named twice, gets an error.

    Args:
        call: The request that is executed.
        request: Of either API.
        alter: Returns the new configurations of one resource, checked; or raises ApiError.
        answer: The class of the results.
    """
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
            resource, new = alter(call, one)
            if request.validate_only:
                continue
            _set(call, resource, name, new)
            call.check_fault(name, after=True)
        except ApiError as refused:
            made.error_code, made.error_message = refused.code, refused.message
    return answers


def _replace(
    call: RequestContext, wanted: alter_configs.AlterConfigsResource
) -> tuple[Resource, dict[str, str]]:
    name = wanted.resource_name
    check_changes([Change(one.name, Operation.SET, one.value) for one in wanted.configs])
    resource = _known_resource(wanted.resource_type)
    if resource == Resource.BROKER_LOGGER:
        raise _unknown_type(wanted.resource_type)
    _check_allowed(call, AclOperation.ALTER_CONFIGS, resource, name)
    new = {one.name: one.value or "" for one in wanted.configs}
    if resource == Resource.BROKER:
        if name:
            check_node(name, call.node_id)
        check_broker(new, for_all=not name)
    _check_whole(call, resource, name, new, new)
    return resource, new


def _change(
    call: RequestContext, wanted: incremental_alter_configs.AlterConfigsResource
) -> tuple[Resource, dict[str, str]]:
    name = wanted.resource_name
    changes = [Change(one.name, one.config_operation, one.value) for one in wanted.configs]
    check_changes(changes)
    resource = _known_resource(wanted.resource_type)
    _check_allowed(call, AclOperation.ALTER_CONFIGS, resource, name)
    current = _given(call, resource, name)
    if resource == Resource.BROKER_LOGGER:
        check_node(name, call.node_id)
        return resource, altered_levels(changes, current)
    if resource == Resource.BROKER:
        if name:
            check_node(name, call.node_id)
        check_broker_operations(changes)
        check_broker(altered(resource, changes, current), for_all=not name)
    new = altered(resource, changes, current)
    _check_whole(call, resource, name, [one.name for one in changes], new)
    return resource, new


def _known_resource(number: int) -> Resource:
    try:
        return Resource(number)
    except ValueError:
        raise _unknown_type(number) from None


def _unknown_type(number: int) -> ApiError:
    return bad_request(f"Resources of type {number} can't be altered.")


def _check_whole(
    call: RequestContext,
    resource: Resource,
    name: str,
    touched: Iterable[str],
    new: Mapping[str, str],
) -> None:
    """Raise ApiError unless the controller accepts ``new`` as all configurations of a resource.

    Args:
        call: The request that is executed.
        resource: Its kind.
        name: Its name.
        touched: Names of the configurations in the request.
        new: All configurations that would be set.
    """
    if resource == Resource.TOPIC:
        if not name:
            raise bad_request("A topic needs a name.")
        check_name(name)
        call.image.topic_config(new)
        if _topic(call, name) is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name!r}.")
    elif resource == Resource.BROKER:
        check_min_isr(touched, _given(call, resource, name), new, for_all=not name)
    elif resource == Resource.GROUP:
        check_group(name, new)
    else:
        check_client_metrics(name, new)


# Resources with configurations (KIP-714, KIP-1142)


def list_config_resources(
    call: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """List the resources of the requested kinds; of client metrics only before v1."""
    code = call.error_for() or call.denial(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
    if code is not None:
        return ListConfigResourcesResponse(error_code=code)
    wanted = request.resource_types if call.version >= _FIRST_WITH_TYPES else []
    if any(kind not in tuple(Resource) for kind in wanted):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if call.version < _FIRST_WITH_TYPES:
        wanted = [Resource.CLIENT_METRICS]
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(name, kind)
            for kind in _ORDER
            if not wanted or kind in wanted
            for name in _names(call, kind)
        ]
    )

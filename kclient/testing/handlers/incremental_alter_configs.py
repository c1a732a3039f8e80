"""IncrementalAlterConfigs (44)."""

from __future__ import annotations

from kclient.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kclient.testing.broker_config_rules import check_broker, check_broker_operations
from kclient.testing.call import Call
from kclient.testing.config_access import ConfigAccess
from kclient.testing.config_change import alter_each, check_whole, known_resource
from kclient.testing.config_descriptions import Resource
from kclient.testing.config_rules import (
    Change,
    altered,
    altered_levels,
    check_changes,
    check_node,
)
from kclient.testing.refused import Refused


def handle(call: Call, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    """Alter each resource, or only look whether it could be."""
    access = ConfigAccess(call)
    answers = alter_each(
        request.resources,
        lambda one: _alter(call, access, one, request.validate_only),
        lambda kind, name: AlterConfigsResourceResponse(
            0, None, resource_type=kind, resource_name=name
        ),
    )
    return IncrementalAlterConfigsResponse(responses=answers)


def _alter(
    call: Call, access: ConfigAccess, wanted: AlterConfigsResource, validate_only: bool
) -> None:
    code = call.error_for(wanted.resource_name)
    if code is not None:
        raise Refused(code)
    name = wanted.resource_name
    changes = [Change(one.name, one.config_operation, one.value) for one in wanted.configs]
    check_changes(changes)
    resource = known_resource(wanted.resource_type)
    current = access.given(resource, name)
    if resource == Resource.BROKER_LOGGER:
        new = altered_levels(name, access.node_id, changes, current)
    else:
        if resource == Resource.BROKER:
            if name:
                check_node(name, access.node_id)
            check_broker_operations(changes)
            check_broker(altered(resource, changes, current), access.layers(), for_all=not name)
        new = altered(resource, changes, current)
        check_whole(access, resource, name, [one.name for one in changes], new)
    if not validate_only:
        access.replace(resource, name, new)
        code = call.error_for(name, after=True)
        if code is not None:
            raise Refused(code)

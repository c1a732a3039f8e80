"""AlterConfigs (33), the older way, which replaces all configurations of a resource."""

from __future__ import annotations

from kclient.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from kclient.testing.broker_config_rules import check_broker
from kclient.testing.call import Call
from kclient.testing.config_access import ConfigAccess
from kclient.testing.config_change import alter_each, check_whole, known_resource
from kclient.testing.config_descriptions import Resource
from kclient.testing.config_rules import (
    Change,
    Operation,
    check_changes,
    check_node,
    unknown_type,
)
from kclient.testing.refused import Refused


def handle(call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replace what is set on each resource, or only look whether it could be."""
    access = ConfigAccess(call)
    answers = alter_each(
        request.resources,
        lambda one: _alter(call, access, one, request.validate_only),
        lambda kind, name: AlterConfigsResourceResponse(
            0, None, resource_type=kind, resource_name=name
        ),
    )
    return AlterConfigsResponse(responses=answers)


def _alter(
    call: Call, access: ConfigAccess, wanted: AlterConfigsResource, validate_only: bool
) -> None:
    code = call.error_for(wanted.resource_name)
    if code is not None:
        raise Refused(code)
    name = wanted.resource_name
    check_changes([Change(one.name, Operation.SET, one.value) for one in wanted.configs])
    resource = known_resource(wanted.resource_type)
    if resource == Resource.BROKER_LOGGER:
        raise unknown_type(wanted.resource_type)
    new = {one.name: one.value or "" for one in wanted.configs}
    if resource == Resource.BROKER:
        if name:
            check_node(name, access.node_id)
        check_broker(new, access.layers(), for_all=not name)
    check_whole(access, resource, name, new, new)
    if not validate_only:
        access.replace(resource, name, new)
        code = call.error_for(name, after=True)
        if code is not None:
            raise Refused(code)

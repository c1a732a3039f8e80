"""ListConfigResources (74): what has configurations (KIP-714, KIP-1142)."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from kclient.testing.call import Call
from kclient.testing.config_access import ConfigAccess
from kclient.testing.config_descriptions import Resource

_FIRST_WITH_TYPES = 1
_ORDER = (
    Resource.GROUP,
    Resource.CLIENT_METRICS,
    Resource.BROKER_LOGGER,
    Resource.BROKER,
    Resource.TOPIC,
)


def handle(call: Call, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
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

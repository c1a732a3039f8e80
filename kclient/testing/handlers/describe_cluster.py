"""DescribeCluster (60) (KIP-700)."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kclient.testing.call import Call
from kclient.testing.handlers.metadata import CLUSTER_OPERATIONS, UNASKED_OPERATIONS

_BROKERS = 1
_CONTROLLERS = 2


def handle(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """The brokers that are up, and with ``include_fenced_brokers`` the others, too."""
    image = call.image
    code = call.error_for()
    if code is not None:
        return DescribeClusterResponse(error_code=code, error_message=None)
    if request.endpoint_type != _BROKERS:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        if request.endpoint_type == _CONTROLLERS:
            code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        return DescribeClusterResponse(error_code=code, error_message="This is a broker.")
    shown = sorted(image.brokers.values(), key=lambda one: one.node_id)
    if not request.include_fenced_brokers:
        shown = [one for one in shown if one.alive]
    return DescribeClusterResponse(
        error_message=None,
        endpoint_type=_BROKERS,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=[
            DescribeClusterBroker(one.node_id, one.host, one.port, one.rack, not one.alive)
            for one in shown
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS
            if request.include_cluster_authorized_operations
            else UNASKED_OPERATIONS
        ),
    )

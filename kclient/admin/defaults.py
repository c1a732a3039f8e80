"""The brokers' default numbers of partitions and replicas, for controllers that can't apply them.

Before Apache Kafka 2.4 a new topic must come with both numbers; a user who leaves them open gets
what the controller's own settings say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.cluster.calls import NodeTarget
from kclient.errors import KafkaError, ProtocolError, broker_error
from kclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

if TYPE_CHECKING:
    from kclient.cluster.core import ClientCore

BROKER = 4
"""Kafka's number of the resource type."""

NAMES = ("num.partitions", "default.replication.factor")


async def broker_defaults(core: ClientCore, timeout: float) -> tuple[int, int]:
    """``num.partitions`` and ``default.replication.factor`` of the controller.

    Raises:
        KafkaError: They can't be had; ClusterAuthorizationFailed where this client may not see
            them.
    """
    # A broker's settings are told by that broker only.
    node_id = core.calls.controller()
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=BROKER, resource_name=str(node_id), configuration_keys=list(NAMES)
            )
        ]
    )
    response = await core.calls.call(NodeTarget(node_id), request, timeout=timeout, check=_error)
    values = {config.name: config.value for config in response.results[0].configs}
    try:
        partitions, replicas = (int(values[name] or "") for name in NAMES)
    except (KeyError, ValueError):
        raise ProtocolError(
            f"broker {node_id} tells no usable {' and '.join(NAMES)}",
            struct="DescribeConfigsResponse",
            field="configs",
            hint="give partitions and replication_factor",
        ) from None
    return partitions, replicas


def _error(response: DescribeConfigsResponse) -> KafkaError | None:
    if not response.results:
        return ProtocolError(
            "no result for the broker", struct="DescribeConfigsResponse", field="results"
        )
    said = response.results[0]
    if not said.error_code:
        return None
    return broker_error(
        said.error_code,
        "looking up the brokers' default numbers of partitions and replicas failed",
        broker_message=said.error_message,
    )

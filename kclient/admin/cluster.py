"""Describing the cluster: the value, and how it is read from either of two APIs. Sans-IO.

DescribeCluster is there since Apache Kafka 2.8; older brokers tell the same through Metadata.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kclient.cluster.broker import Broker
from kclient.errors import KafkaError, broker_error

if TYPE_CHECKING:
    from kclient.protocol.messages.describe_cluster import DescribeClusterResponse
    from kclient.protocol.messages.metadata import MetadataResponse


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster as it is now.

    Attributes:
        cluster_id: The cluster's own id; None where the brokers don't tell.
        controller_id: The node to send topic administration to (in KRaft clusters any broker,
            which forwards it); None while there is none.
        brokers: In order of their ids.
    """

    cluster_id: str | None
    controller_id: int | None
    brokers: tuple[Broker, ...]

    @property
    def controller(self) -> Broker | None:
        """The controller as a broker; None while there is none."""
        return next((b for b in self.brokers if b.node_id == self.controller_id), None)


def error_of(response: DescribeClusterResponse) -> KafkaError | None:
    """The error of a whole answer."""
    if not response.error_code:
        return None
    return broker_error(
        response.error_code,
        "describing the cluster failed",
        broker_message=response.error_message,
    )


def from_describe_cluster(response: DescribeClusterResponse) -> ClusterDescription:
    """What DescribeCluster says."""
    brokers = [
        Broker(b.broker_id, b.host, b.port, b.rack, fenced=b.is_fenced) for b in response.brokers
    ]
    return _description(response.cluster_id, response.controller_id, brokers)


def from_metadata(response: MetadataResponse) -> ClusterDescription:
    """What Metadata says of the cluster."""
    brokers = [Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers]
    return _description(response.cluster_id, response.controller_id, brokers)


def _description(
    cluster_id: str | None, controller_id: int, brokers: list[Broker]
) -> ClusterDescription:
    ordered = sorted(brokers, key=lambda broker: broker.node_id)
    return ClusterDescription(
        cluster_id or None, controller_id if controller_id >= 0 else None, tuple(ordered)
    )

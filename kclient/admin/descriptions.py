"""Descriptions of topics and of the cluster: values, requests, and readers of responses. Sans-IO.

Admin requests metadata of its own instead of waiting for the client's view, since its caller wants
the current state. DescribeCluster exists since Apache Kafka 2.8; older brokers describe the cluster
through Metadata.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kclient.admin.topics import TopicRef, name_of
from kclient.cluster.metadata_merge import read_topic
from kclient.cluster.topic import NO_TOPIC_ID, Partition
from kclient.cluster.view import Broker
from kclient.errors import KafkaError, NoCommonVersion, broker_error
from kclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

if TYPE_CHECKING:
    from kclient.cluster.topic import Row, Topic
    from kclient.protocol.messages.describe_cluster import DescribeClusterResponse

IDS_SINCE = 12
"""Metadata version that can request topics by id: Apache Kafka 3.0."""

CHUNK = 500
"""Topics per request, so that reading a response doesn't hold the loop."""


@dataclass(frozen=True, slots=True)
class TopicListing:
    """A topic in a list of topics.

    Attributes:
        name: Its name.
        topic_id: Its id of 16 bytes; None where the brokers don't report it (before 2.8).
        is_internal: It is one of Kafka's own, such as ``__consumer_offsets``.
        partitions: How many it has.
    """

    name: str
    topic_id: bytes | None
    is_internal: bool
    partitions: int


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic with its partitions.

    Attributes:
        name: Its name.
        topic_id: Its id of 16 bytes; None where the brokers don't report it (before 2.8).
        is_internal: It is one of Kafka's own, such as ``__consumer_offsets``.
        partitions: By index, each with leader, epoch, replicas (AR), ISR and offline replicas.
    """

    name: str
    topic_id: bytes | None
    is_internal: bool
    partitions: Sequence[Partition]

    @property
    def replication_factor(self) -> int:
        """How many replicas a partition has; the most, while a reassignment is in progress."""
        return max((len(p.replicas) for p in self.partitions), default=0)

    @property
    def under_replicated(self) -> list[Partition]:
        """The partitions with fewer replicas in sync than assigned."""
        return [p for p in self.partitions if p.under_replicated]

    @property
    def offline(self) -> list[Partition]:
        """The partitions without a leader."""
        return [p for p in self.partitions if p.offline]


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster as it is now.

    Attributes:
        cluster_id: The cluster's own id; None where the brokers don't report it.
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


def request_for(refs: Sequence[TopicRef], version: int) -> MetadataRequest:
    """The request about topics, all by name or all by id."""
    if version < IDS_SINCE and any(isinstance(ref, bytes) for ref in refs):
        raise NoCommonVersion(
            f"Metadata version {version} can't be asked by topic id",
            hint="give names, or use Apache Kafka 3.0 or newer",
        )
    return MetadataRequest(
        topics=[
            MetadataRequestTopic(name=ref)
            if isinstance(ref, str)
            else MetadataRequestTopic(name=None, topic_id=ref)
            for ref in refs
        ],
        # Before version 4 a request can't keep a broker from creating unknown topics.
        allow_auto_topic_creation=version < 4,
    )


def request_for_all(version: int) -> MetadataRequest:
    """The request about all topics: none in version 0, null since."""
    return MetadataRequest(
        topics=None if version >= 1 else [], allow_auto_topic_creation=version < 4
    )


def chunks(refs: Iterable[TopicRef]) -> Iterable[list[TopicRef]]:
    """Chunks of names and chunks of ids, since no request can hold both."""
    names: list[TopicRef] = []
    ids: list[TopicRef] = []
    for ref in dict.fromkeys(refs):
        (names if isinstance(ref, str) else ids).append(ref)
    for kind in (names, ids):
        for start in range(0, len(kind), CHUNK):
            yield kind[start : start + CHUNK]


def read_descriptions(
    response: MetadataResponse, refs: Sequence[TopicRef]
) -> dict[TopicRef, TopicDescription | KafkaError]:
    """Read the description or the error of each topic from the response."""
    found: dict[TopicRef, TopicDescription | KafkaError] = {}
    asked = set(refs)
    rows: dict[Row, Row] = {}
    # Epochs are shown as the broker reports them, also by those that are no base for decisions.
    for entry in response.topics:
        ref: TopicRef = entry.topic_id if entry.topic_id in asked else entry.name or ""
        topic = read_topic(entry, IDS_SINCE, rows)
        if topic.error and not topic.leaders:
            found[ref] = broker_error(topic.error, f"describing topic {name_of(ref)} failed")
        else:
            found[ref] = TopicDescription(
                topic.name, _id(topic), topic.is_internal, topic.partitions
            )
    return found


def listing_steps(
    response: MetadataResponse, *, internal: bool
) -> Generator[None, None, list[TopicListing]]:
    """Read the topics of a response, sorted by name, one per step; empties ``response.topics``."""
    listed = []
    while response.topics:  # popped, since freeing them all at once would hold the loop
        entry = response.topics.pop()
        if not entry.error_code and (internal or not entry.is_internal):
            topic_id = entry.topic_id if entry.topic_id != NO_TOPIC_ID else None
            listed.append(
                TopicListing(entry.name or "", topic_id, entry.is_internal, len(entry.partitions))
            )
        yield
    return sorted(listed, key=lambda topic: topic.name)


def _id(topic: Topic) -> bytes | None:
    return topic.topic_id if topic.topic_id != NO_TOPIC_ID else None


def cluster_error(response: DescribeClusterResponse) -> KafkaError | None:
    """Return the error of the response as a whole."""
    if not response.error_code:
        return None
    return broker_error(
        response.error_code,
        "describing the cluster failed",
        broker_message=response.error_message,
    )


def cluster_from_describe_cluster(response: DescribeClusterResponse) -> ClusterDescription:
    """Read the description of the cluster from a DescribeCluster response."""
    brokers = [
        Broker(b.broker_id, b.host, b.port, b.rack, fenced=b.is_fenced) for b in response.brokers
    ]
    return _cluster(response.cluster_id, response.controller_id, brokers)


def cluster_from_metadata(response: MetadataResponse) -> ClusterDescription:
    """Read the description of the cluster from a Metadata response."""
    brokers = [Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers]
    return _cluster(response.cluster_id, response.controller_id, brokers)


def _cluster(
    cluster_id: str | None, controller_id: int, brokers: list[Broker]
) -> ClusterDescription:
    ordered = sorted(brokers, key=lambda broker: broker.node_id)
    return ClusterDescription(
        cluster_id or None, controller_id if controller_id >= 0 else None, tuple(ordered)
    )

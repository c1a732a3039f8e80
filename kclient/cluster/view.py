"""Cluster: everything that the client knows of the cluster, as one frozen snapshot.

Made by ``metadata``, read by everybody who needs a leader, a partition count or a topic id.
Sans-IO. A ``Cluster`` is replaced, never edited: adding and removing gives a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any

from kclient.cluster.broker import Broker
from kclient.cluster.partition import NO_EPOCH, Partition, Replica
from kclient.cluster.topic import (
    EMPTY_ROW,
    ERROR,
    IS_INTERNAL,
    LEADER_EPOCHS,
    LEADERS,
    NO_NODE,
    NO_TOPIC_ID,
    Partitions,
    Row,
    Topic,
    Topics,
    unpack_row,
)
from kclient.frozen import Frozen, frozen

__all__ = [
    "EMPTY_ROW",
    "NO_EPOCH",
    "NO_NODE",
    "NO_TOPIC_ID",
    "Broker",
    "Cluster",
    "Partition",
    "Partitions",
    "Replica",
    "Row",
    "Topic",
]

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Kafka's own; brokers that tell of them mark them, too."""


@frozen
class Cluster(Frozen):
    """A snapshot of the cluster: brokers, controller, and the topics that were asked for.

    Attributes:
        version: Counts the snapshots of one client; a newer one has a higher number.
        cluster_id: The cluster's own id; None where the brokers don't tell.
        controller_id: The broker to send topic administration to; None while unknown.
        brokers: By node id.
        topics: By name, those with an error included.
    """

    version: int = 0
    cluster_id: str | None = None
    controller_id: int | None = None
    brokers: Mapping[int, Broker] = field(default_factory=lambda: MappingProxyType({}))
    topics: Topics = field(default_factory=lambda: Topics({}))
    _names: Mapping[bytes, str] | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        brokers: Iterable[Broker] = (),
        topics: Iterable[Topic] = (),
        *,
        version: int = 0,
        cluster_id: str | None = None,
        controller_id: int | None = None,
    ) -> Cluster:
        """A cluster out of lists of values."""
        return cls(
            version,
            cluster_id,
            controller_id,
            MappingProxyType({broker.node_id: broker for broker in brokers}),
            Topics.of(topics),
        )

    # Looking up: hot, so plain and without an object in between.

    def leader(self, topic: str, partition: int) -> int | None:
        """Node id of the leader; None where topic, partition or leader is not known."""
        found = self.topics.raw.get(topic)
        if found is None or not 0 <= partition < len(found[LEADERS]):
            return None
        leader = found[LEADERS][partition]
        return None if leader == NO_NODE else leader

    def leader_epoch(self, topic: str, partition: int) -> int:
        """The leader's epoch; -1 where unknown."""
        found = self.topics.raw.get(topic)
        if found is None or not 0 <= partition < len(found[LEADER_EPOCHS]):
            return NO_EPOCH
        return found[LEADER_EPOCHS][partition]

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has; None where it isn't known or has an error."""
        found = self.topics.raw.get(topic)
        return len(found[LEADERS]) or None if found is not None and not found[ERROR] else None

    def topic(self, topic: str) -> Topic | None:
        """The topic by its name; None where it was not asked for."""
        return self.topics.get(topic)

    def topic_error(self, topic: str) -> int:
        """Kafka's error code of a topic; 0 where there is none or the topic isn't known."""
        found = self.topics.get(topic)
        return found.error if found is not None else 0

    def topic_id(self, topic: str) -> bytes | None:
        """The topic's id of 16 bytes; None where unknown."""
        found = self.topics.raw.get(topic)
        return found[1] if found is not None and found[1] != NO_TOPIC_ID else None

    def is_internal(self, topic: str) -> bool:
        """Whether a topic is one of Kafka's own, such as ``__consumer_offsets``."""
        found = self.topics.raw.get(topic)
        # Metadata version 0 doesn't tell, and neither does a view without the topic.
        return topic in INTERNAL_TOPICS or (found is not None and found[IS_INTERNAL])

    @property
    def listed(self) -> Iterator[str]:
        """The names of the topics that are there and can be used, internal ones included.

        Of all topics while somebody watches all; see ``MetadataUpdater.watch_all``.
        """
        for name, facts in self.topics.raw.items():
            if facts[LEADERS] and not facts[ERROR]:
                yield name

    def leads_like(self, other: Cluster, topic: str) -> bool:
        """Whether both tell the same of a topic: its id, its error, its leaders, their epochs."""
        mine, others = self.topics.raw.get(topic), other.topics.raw.get(topic)
        if mine is None or others is None or mine is others:
            return mine is others
        return mine[: LEADER_EPOCHS + 1] == others[: LEADER_EPOCHS + 1]

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id; None where unknown."""
        names = self._names
        if names is None:
            names = {
                topic.topic_id: topic.name
                for topic in self.topics.values()
                if topic.topic_id != NO_TOPIC_ID
            }
            object.__setattr__(self, "_names", names)  # a cache of what is here already
        return names.get(topic_id)

    def partition(self, topic: str, index: int) -> Partition | None:
        """One partition as a value; None where it isn't known."""
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.leaders):
            return None
        return found.partition(index)

    def partitions_of(self, topic: str) -> Sequence[Partition]:
        """All partitions of a topic, built one by one as they are looked at; empty if unknown."""
        found = self.topics.get(topic)
        return found.partitions if found is not None else ()

    @property
    def controller(self) -> Broker | None:
        """The controller as a broker; None while unknown."""
        return None if self.controller_id is None else self.brokers.get(self.controller_id)

    def broker(self, node_id: int) -> Broker | None:
        """The broker by its id; None where it isn't known."""
        return self.brokers.get(node_id)

    def led_by(self, node_id: int) -> Iterator[Partition]:
        """The partitions that ``node_id`` leads."""
        for topic in self.topics.values():
            for index, leader in enumerate(topic.leaders):
                if leader == node_id:
                    yield topic.partition(index)

    @property
    def under_replicated(self) -> Iterator[Partition]:
        """The partitions with fewer replicas in sync than assigned."""
        for topic in self.topics.values():
            for index, row in enumerate(topic.rows):
                replicas, isr, _ = unpack_row(row)
                if len(isr) < len(replicas):
                    yield topic.partition(index)

    @property
    def offline(self) -> Iterator[Partition]:
        """The partitions without a leader."""
        for topic in self.topics.values():
            for index, leader in enumerate(topic.leaders):
                if leader == NO_NODE:
                    yield topic.partition(index)

    @property
    def partition_total(self) -> int:
        """How many partitions are known, over all topics."""
        return sum(len(topic.leaders) for topic in self.topics.values())

    # Adding and removing: each gives a new snapshot with the next version.

    def with_broker(self, broker: Broker) -> Cluster:
        """With ``broker`` added, or replacing the one of the same id."""
        return self._next(brokers={**self.brokers, broker.node_id: broker})

    def without_broker(self, node_id: int) -> Cluster:
        """Without that broker, if it was there; what it leads keeps naming it."""
        return self._next(brokers={i: b for i, b in self.brokers.items() if i != node_id})

    def with_topic(self, topic: Topic) -> Cluster:
        """With ``topic`` added, or replacing the one of the same name."""
        return self._next(Topics({**self.topics.raw, topic.name: topic.facts}))

    def without_topic(self, name: str) -> Cluster:
        """Without that topic, if it was there."""
        return self._next(Topics({n: t for n, t in self.topics.raw.items() if n != name}))

    def with_partition(self, partition: Partition) -> Cluster:
        """With one partition replaced, or added as its topic's last."""
        topic = self.topics.get(partition.topic) or Topic(partition.topic)
        return self.with_topic(topic.with_partition(partition))

    def with_controller(self, node_id: int | None) -> Cluster:
        """With another controller."""
        return replace(self, version=self.version + 1, controller_id=node_id)

    def _next(
        self,
        topics: Topics | None = None,
        *,
        brokers: dict[int, Broker] | None = None,
    ) -> Cluster:
        return Cluster(
            self.version + 1,
            self.cluster_id,
            self.controller_id,
            self.brokers if brokers is None else MappingProxyType(brokers),
            self.topics if topics is None else topics,
            self._names if topics is None else None,
        )

    def __eq__(self, other: object) -> bool:
        """Same content; the version is not part of it."""
        if not isinstance(other, Cluster):
            return NotImplemented
        return (
            self.cluster_id == other.cluster_id
            and self.controller_id == other.controller_id
            and self.brokers == other.brokers
            and self.topics == other.topics
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (list(self.brokers.values()), list(self.topics.values()))
        return _restore, (*parts, self.version, self.cluster_id, self.controller_id)

    def __repr__(self) -> str:
        return (
            f"Cluster(version={self.version}, cluster_id={self.cluster_id!r}, "
            f"controller_id={self.controller_id}, {len(self.brokers)} brokers, "
            f"{len(self.topics)} topics, {self.partition_total} partitions)"
        )


def _restore(
    brokers: list[Broker],
    topics: list[Topic],
    version: int,
    cluster_id: str | None,
    controller_id: int | None,
) -> Cluster:
    return Cluster.of(
        brokers, topics, version=version, cluster_id=cluster_id, controller_id=controller_id
    )

"""Cluster: everything that the client knows of the cluster, as one frozen snapshot.

Made by ``metadata``, read wherever there is need of a leader, a partition count or a topic id; a
``Broker`` is where one node listens. Sans-IO. A ``Cluster`` is replaced, never edited.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from kclient.cluster.topic import (
    ERROR,
    IS_INTERNAL,
    LEADER_EPOCHS,
    LEADERS,
    NO_EPOCH,
    NO_NODE,
    NO_TOPIC_ID,
    Partition,
    Topic,
    Topics,
)
from kclient.frozen import Frozen, frozen


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker, as the cluster announces it.

    Attributes:
        node_id: Its id, from 0.
        host: Advertised host name or address, IPv6 without brackets.
        port: Advertised port.
        rack: Its rack or availability zone; None where the cluster has none.
        fenced: Registered, but not allowed to lead anything (KRaft; only ``Admin`` knows).
    """

    node_id: int
    host: str
    port: int
    rack: str | None = None
    fenced: bool = False

    @property
    def connection_string(self) -> str:
        """``host:port``, with an IPv6 address in brackets: what a bootstrap list takes."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"broker {self.node_id} at {self.connection_string}"


INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Kafka's own; brokers that list them mark them, too."""


@frozen
class Cluster(Frozen):
    """A snapshot of the cluster: brokers, controller, and the topics that were asked for.

    Equal to another one of the same content, whatever their versions.

    Attributes:
        version: Counts the snapshots of one client; a newer one has a higher number.
        cluster_id: The cluster's own id; None where the brokers don't report it.
        controller_id: The broker to send topic administration to; None while unknown.
        brokers: By node id.
        topics: By name, those with an error included.
    """

    version: int = field(default=0, compare=False)
    cluster_id: str | None = None
    controller_id: int | None = None
    brokers: Mapping[int, Broker] = field(default_factory=lambda: MappingProxyType({}))
    topics: Topics = field(default_factory=lambda: Topics({}))

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
        # Metadata version 0 doesn't have it, and neither does a view without the topic.
        return topic in INTERNAL_TOPICS or (found is not None and found[IS_INTERNAL])

    @property
    def listed(self) -> Iterator[str]:
        """The names of the topics that are there and can be used, internal ones included.

        Of all topics while all are watched; see ``MetadataUpdater.watch_all``.
        """
        for name, facts in self.topics.raw.items():
            if facts[LEADERS] and not facts[ERROR]:
                yield name

    def has_same_leaders(self, other: Cluster, topic: str) -> bool:
        """Whether both know the same of a topic: its id, its error, its leaders, their epochs."""
        mine, others = self.topics.raw.get(topic), other.topics.raw.get(topic)
        if mine is None or others is None or mine is others:
            return mine is others
        return mine[: LEADER_EPOCHS + 1] == others[: LEADER_EPOCHS + 1]

    def partitions_of(self, topic: str) -> Sequence[Partition]:
        """All partitions of a topic, built one by one as they are looked at; empty if unknown."""
        found = self.topics.get(topic)
        return found.partitions if found is not None else ()

    def broker(self, node_id: int) -> Broker | None:
        """The broker by its id; None where it isn't known."""
        return self.brokers.get(node_id)

    @property
    def partition_total(self) -> int:
        """How many partitions are known, over all topics."""
        return sum(len(topic.leaders) for topic in self.topics.values())

    def __repr__(self) -> str:
        return (
            f"Cluster(version={self.version}, cluster_id={self.cluster_id!r}, "
            f"controller_id={self.controller_id}, {len(self.brokers)} brokers, "
            f"{len(self.topics)} topics, {self.partition_total} partitions)"
        )

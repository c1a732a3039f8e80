"""What the whole embedded cluster knows: brokers, topics, partitions, leaders and epochs.

The one place that changes them. Handlers read it and ask for changes; ``Cluster`` does so for
tests. Elections are at once: a broker that goes hands its leaderships to the first replica in
sync, with a new leader epoch; one that comes is in sync. No waiting, no clock; randomness only for
ids, from an ``rng``.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kclient.error_codes import ErrorCode
from kclient.testing.broker_configs import BrokerConfig
from kclient.testing.log import Appended, PartitionLog
from kclient.testing.refused import Refused
from kclient.testing.stored_batch import StoredBatch
from kclient.testing.topic_configs import TopicConfig

NO_LEADER = -1

INTERNAL_TOPICS = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))


@dataclass(slots=True)
class BrokerState:
    """A registered broker; it stays registered while it is down."""

    node_id: int
    host: str
    rack: str | None = None
    port: int = 0
    alive: bool = False


@dataclass(slots=True)
class PartitionState:
    """One partition: who has it, who leads it, and its log.

    Attributes:
        replicas: Node ids, the preferred leader first.
        isr: Those in sync, all of them up.
        elr: Those that are down but have all that was committed, so that they may lead again
            (KIP-966).
        last_known_elr: The last leader, where nobody is in sync.
    """

    topic: str
    index: int
    config: TopicConfig
    replicas: list[int]
    isr: list[int]
    leader: int
    leader_epoch: int = 0
    elr: list[int] = field(default_factory=list)
    last_known_elr: list[int] = field(default_factory=list)
    log: PartitionLog = field(default_factory=PartitionLog)

    @property
    def has_min_isr(self) -> bool:
        """Enough replicas are in sync for acks=all, and for readers to get more (KIP-966)."""
        return len(self.isr) >= min(self.config.min_insync_replicas, len(self.replicas))

    def lead(self, leader: int) -> None:
        """Give the partition another leader, or none, with a new epoch; waiting readers notice."""
        self.leader = leader
        self.leader_epoch += 1
        if leader != NO_LEADER:
            self.log.epochs.assign(self.leader_epoch, self.log.end_offset)
        self.log.disturb()

    def append(self, batch: StoredBatch, log_append_time: int | None) -> Appended:
        """Append what a producer sent; see ``PartitionLog.append``."""
        appended = self.log.append(batch, self.leader_epoch, log_append_time)
        self.advance()
        return appended

    def advance(self) -> None:
        """Let readers have what all in sync have: with one log for all, all of it."""
        if self.has_min_isr:
            self.log.advance(self.log.end_offset)

    def replica_up(self, node_id: int) -> None:
        """A replica is up again, and in sync at once where somebody leads."""
        if self.leader != NO_LEADER:
            self._set_isr(sorted({*self.isr, node_id}))
        elif node_id in self.elr:
            self._set_isr([node_id])
            self.lead(node_id)

    def replica_down(self, node_id: int) -> None:
        """A replica is gone: the first of those that are left in sync leads."""
        if node_id in self.isr:
            if len(self.isr) == 1:
                self.last_known_elr = [self.leader]
            self._set_isr([one for one in self.isr if one != node_id])
        if self.leader == node_id:
            left = [one for one in self.replicas if one in self.isr]
            self.lead(left[0] if left else NO_LEADER)

    def _set_isr(self, isr: list[int]) -> None:
        was = {*self.isr, *self.elr}
        self.isr = isr
        if self.has_min_isr:
            self.elr = []
        else:
            self.elr = [one for one in self.replicas if one in was and one not in isr]
        if isr:
            self.last_known_elr = []
            self.advance()


@dataclass(slots=True)
class TopicState:
    """One topic."""

    name: str
    topic_id: bytes
    config: TopicConfig
    partitions: list[PartitionState]

    @property
    def is_internal(self) -> bool:
        """One of Kafka's own."""
        return self.name in INTERNAL_TOPICS

    @property
    def replication_factor(self) -> int:
        """Of its first partition."""
        return len(self.partitions[0].replicas)


class ClusterState:
    """Brokers and topics.

    Attributes:
        cluster_id: Base64 of 16 random bytes, as Kafka makes it.
        config: Of all brokers.
        brokers: By node id, those included that are down.
        topics: By name.
    """

    def __init__(self, config: BrokerConfig, rng: random.Random) -> None:
        self._rng = rng
        self._topics_by_id: dict[bytes, TopicState] = {}
        self._next_producer_id = 0
        self.cluster_id = base64.urlsafe_b64encode(self._new_id()).decode().rstrip("=")
        self.config = config
        self.brokers: dict[int, BrokerState] = {}
        self.topics: dict[str, TopicState] = {}

    @property
    def alive_brokers(self) -> list[BrokerState]:
        """Those that are up, by node id."""
        return [self.brokers[one] for one in sorted(self.brokers) if self.brokers[one].alive]

    @property
    def controller_id(self) -> int:
        """The lowest broker that is up, -1 if none is."""
        alive = self.alive_brokers
        return alive[0].node_id if alive else NO_LEADER

    def outline(self) -> ClusterState:
        """A copy of what metadata tells, as it is now; without records."""
        copy = ClusterState(self.config, random.Random(0))
        copy.cluster_id = self.cluster_id
        copy.brokers = {node_id: replace(broker) for node_id, broker in self.brokers.items()}
        for name, topic in self.topics.items():
            partitions = [
                replace(one, replicas=[*one.replicas], isr=[*one.isr], log=PartitionLog())
                for one in topic.partitions
            ]
            copy.topics[name] = replace(topic, partitions=partitions)
            copy._topics_by_id[topic.topic_id] = copy.topics[name]
        return copy

    def topic_by_id(self, topic_id: bytes) -> TopicState | None:
        """The topic with that id."""
        return self._topics_by_id.get(bytes(topic_id))

    def partition(self, topic: str, index: int) -> PartitionState | None:
        """The partition, None if the topic or the index does not exist."""
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def partitions(self) -> Iterator[PartitionState]:
        """All partitions of all topics."""
        for topic in self.topics.values():
            yield from topic.partitions

    def new_producer_id(self) -> int:
        """An id that no producer has."""
        producer_id = self._next_producer_id
        self._next_producer_id += 1
        return producer_id

    def add_topic(
        self, name: str, assignments: Sequence[Sequence[int]], config: TopicConfig
    ) -> TopicState:
        """Create a topic whose name, assignments and configuration were checked."""
        topic = TopicState(name, self._new_id(), config, [])
        self.topics[name] = topic
        self._topics_by_id[topic.topic_id] = topic
        self.add_partitions(topic, assignments)
        return topic

    def add_partitions(self, topic: TopicState, assignments: Sequence[Sequence[int]]) -> None:
        """Give ``topic`` one more partition per assignment, each with a replica that is up."""
        for replicas in assignments:
            isr = [one for one in replicas if self.brokers[one].alive]
            partition = PartitionState(
                topic.name,
                len(topic.partitions),
                topic.config,
                list(replicas),
                isr,
                isr[0],
            )
            partition.log.epochs.assign(0, 0)
            topic.partitions.append(partition)

    def delete_topic(self, topic: TopicState) -> None:
        """Remove a topic and its logs; a later one of the same name has another id."""
        del self.topics[topic.name]
        del self._topics_by_id[topic.topic_id]
        for partition in topic.partitions:
            partition.log.disturb()

    def broker_up(self, node_id: int) -> None:
        """A broker is up: it is in sync at once, and leads what only it can lead."""
        self.brokers[node_id].alive = True
        for partition in self.partitions():
            if node_id in partition.replicas:
                partition.replica_up(node_id)

    def broker_down(self, node_id: int) -> None:
        """A broker is gone: others in sync lead what it led."""
        self.brokers[node_id].alive = False
        for partition in self.partitions():
            if node_id in partition.replicas:
                partition.replica_down(node_id)

    def move_leader(self, topic: str, index: int, node_id: int) -> None:
        """Make ``node_id``, a replica that is up, the leader.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION, or REPLICA_NOT_AVAILABLE.
        """
        partition = self.partition(topic, index)
        if partition is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {topic}-{index}")
        if node_id not in partition.replicas or not self.brokers[node_id].alive:
            raise Refused(
                ErrorCode.REPLICA_NOT_AVAILABLE,
                f"broker {node_id} has no replica of {topic}-{index} that is up; "
                f"its replicas are {partition.replicas}",
            )
        partition.lead(node_id)

    def place(self, count: int, replication_factor: int, first: int = 0) -> list[list[int]]:
        """Replicas of ``count`` partitions: leaders in turn over all brokers, racks alternating.

        Raises:
            Refused: INVALID_REPLICATION_FACTOR.
        """
        up = self._striped()
        if not up:
            raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced.")
        if replication_factor > len(self.brokers):
            raise Refused(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The target replication factor of {replication_factor} cannot be reached because "
                f"only {len(self.brokers)} broker(s) are registered or some brokers have all their "
                "log directories cordoned.",
            )
        down = [one for one in sorted(self.brokers) if not self.brokers[one].alive]
        placed = []
        for index in range(first, first + count):
            turn = index % len(up)
            placed.append((up[turn:] + up[:turn] + down)[:replication_factor])
        return placed

    def topic_config(self, given: Mapping[str, str]) -> TopicConfig:
        """A checked topic configuration on top of the brokers'. Raises Refused: INVALID_CONFIG."""
        return TopicConfig(given, self.config.topic_defaults)

    def _striped(self) -> list[int]:
        racks: dict[str | None, list[int]] = {}
        for broker in self.alive_brokers:
            racks.setdefault(broker.rack, []).append(broker.node_id)
        columns = list(racks.values())
        longest = max((len(column) for column in columns), default=0)
        return [column[row] for row in range(longest) for column in columns if row < len(column)]

    def _new_id(self) -> bytes:
        return bytes([self._rng.randrange(1, 0xF8)]) + self._rng.randbytes(15)

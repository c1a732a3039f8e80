"""Partition and Replica: who leads, who follows, who keeps up, and up to which offset.

Frozen values, built by ``topic`` when somebody asks for one. Sans-IO: offsets are put in by
those who looked them up.
"""

from __future__ import annotations

from dataclasses import dataclass

from kclient.errors import InvalidArgument
from kclient.types import TopicPartition

NO_EPOCH = -1
"""A leader epoch that isn't known."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of one partition.

    Attributes:
        node_id: The broker that holds it.
        is_leader: It takes the writes.
        in_sync: It is in the in-sync replica set (ISR): it may become the leader without loss.
        offline: Its broker or its disk is down.
        log_end_offset: The offset that its next record gets; None where nobody asked.
    """

    node_id: int
    is_leader: bool = False
    in_sync: bool = False
    offline: bool = False
    log_end_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of a topic.

    Attributes:
        topic: Topic name.
        index: Its number within the topic, from 0.
        leader: Node id of the leader; None while there is none.
        leader_epoch: Counts the leaders that it has had; -1 where the brokers don't tell.
        replicas: Node ids of all assigned replicas (AR), the preferred leader first.
        isr: Node ids of those in sync.
        offline_replicas: Node ids of those whose broker or disk is down.
        high_watermark: The first offset that is not yet on all in-sync replicas, so the end of
            what a consumer can see; None where nobody asked.
        log_end_offset: The offset that the leader gives to its next record (LEO), never below the
            high watermark; None where nobody asked.
        error: Kafka's error code of this partition in the metadata; 0 for none.
    """

    topic: str
    index: int
    leader: int | None = None
    leader_epoch: int = NO_EPOCH
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    high_watermark: int | None = None
    log_end_offset: int | None = None
    error: int = 0

    def __post_init__(self) -> None:
        high, end = self.high_watermark, self.log_end_offset
        if high is not None and end is not None and high > end:
            raise InvalidArgument(
                f"high_watermark {high} of {self} lies past its log_end_offset {end}"
            )

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.index)

    @property
    def offline(self) -> bool:
        """It has no leader: nobody can write or read it."""
        return self.leader is None

    @property
    def under_replicated(self) -> bool:
        """Fewer replicas are in sync than are assigned."""
        return len(self.isr) < len(self.replicas)

    @property
    def preferred_leader(self) -> int | None:
        """The first assigned replica, which leads when all is well."""
        return self.replicas[0] if self.replicas else None

    @property
    def uncommitted(self) -> int | None:
        """Records that the leader has and a consumer can't see yet: LEO minus high watermark."""
        if self.high_watermark is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.high_watermark

    @property
    def replica_states(self) -> tuple[Replica, ...]:
        """The assigned replicas as values, the preferred leader first."""
        return tuple(self._replica(node_id) for node_id in self.replicas)

    def replica(self, node_id: int) -> Replica | None:
        """The replica on ``node_id``; None where that broker has none."""
        return self._replica(node_id) if node_id in self.replicas else None

    def _replica(self, node_id: int) -> Replica:
        leads = node_id == self.leader
        return Replica(
            node_id=node_id,
            is_leader=leads,
            in_sync=node_id in self.isr,
            offline=node_id in self.offline_replicas,
            log_end_offset=self.log_end_offset if leads else None,
        )

"""Topic: a topic's partitions in columns, immutable. Sans-IO.

A cluster of 100,000 partitions is refreshed every few minutes, so what a refresh builds per
partition is three small integers and a shared row; ``Partition`` and ``Replica`` objects are built
on access. Offsets are put in by their lookups.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, overload

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
        log_end_offset: The offset that its next record gets; None where it wasn't looked up.
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
        leader_epoch: Counts the leaders that it has had; -1 where the brokers don't report it.
        replicas: Node ids of all assigned replicas (AR), the preferred leader first.
        isr: Node ids of those in sync.
        offline_replicas: Node ids of those whose broker or disk is down.
        high_watermark: The first offset that is not yet on all in-sync replicas, so the end of
            what a consumer can see; None where it wasn't looked up.
        log_end_offset: The offset that the leader gives to its next record (LEO), never below the
            high watermark; None where it wasn't looked up.
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
        """It has no leader: it can't be written or read."""
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


NO_TOPIC_ID = bytes(16)
"""The topic id where brokers don't report ids (Metadata before version 10)."""

NO_NODE = -1
"""The leader of a partition that has none."""

Row = bytes
"""Assigned, in-sync and offline node ids of one partition, packed; equal rows are shared."""


def pack_row(replicas: Sequence[int], isr: Sequence[int], offline: Sequence[int]) -> Row:
    """The row of three lists of node ids."""
    return array("i", (len(replicas), len(isr), *replicas, *isr, *offline)).tobytes()


def unpack_row(row: Row) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The three lists of node ids."""
    first, second, *nodes = array("i", row)
    return (
        tuple(nodes[:first]),
        tuple(nodes[first : first + second]),
        tuple(nodes[first + second :]),
    )


EMPTY_ROW = pack_row((), (), ())

TopicFields = tuple[
    str, bytes, bool, int, tuple[int, ...], tuple[int, ...], tuple[Row, ...], dict[int, int] | None
]
"""A topic as a plain tuple: name, id, whether internal, error code, leaders, epochs, rows, and the
error codes of those partitions that have one."""

IS_INTERNAL: Final = 2
"""Where it is in ``TopicFields``."""
ERROR: Final = 3
"""Likewise."""
LEADERS: Final = 4
"""Likewise."""
LEADER_EPOCHS: Final = 5
"""Likewise."""


class Topic:
    """One topic and its partitions, in columns. Immutable.

    Args:
        facts: All of it, as a plain tuple.
    """

    __slots__ = ("facts",)

    def __init__(self, facts: TopicFields) -> None:
        self.facts = facts

    @classmethod
    def of_columns(
        cls,
        name: str,
        topic_id: bytes,
        is_internal: bool,
        error: int,
        leaders: Sequence[int] = (),
        leader_epochs: Sequence[int] = (),
        rows: Sequence[Row] = (),
        partition_errors: dict[int, int] | None = None,
    ) -> Topic:
        """A topic out of columns of equal length, without a Partition object in between."""
        columns = tuple(leaders), tuple(leader_epochs), tuple(rows)
        return cls((name, topic_id, is_internal, error, *columns, partition_errors or None))

    @property
    def name(self) -> str:
        """Topic name."""
        return self.facts[0]

    @property
    def topic_id(self) -> bytes:
        """16 bytes that are new whenever the topic is created again.

        ``NO_TOPIC_ID`` where the brokers don't report it.
        """
        return self.facts[1]

    @property
    def is_internal(self) -> bool:
        """Whether it is one of Kafka's own, such as ``__consumer_offsets``."""
        return self.facts[2]

    @property
    def error(self) -> int:
        """Kafka's error code of the topic in the metadata; 0 for none."""
        return self.facts[3]

    @property
    def leaders(self) -> tuple[int, ...]:
        """Leader of each partition, -1 while there is none."""
        return self.facts[LEADERS]

    @property
    def leader_epochs(self) -> tuple[int, ...]:
        """Leader epoch of each partition, -1 where unknown."""
        return self.facts[LEADER_EPOCHS]

    @property
    def partitions(self) -> Partitions:
        """The partitions by index, each built when it is looked at."""
        return Partitions(self)

    @property
    def rows(self) -> tuple[Row, ...]:
        """Assigned, in-sync and offline node ids of each partition, packed."""
        return self.facts[6]

    @property
    def partition_errors(self) -> Mapping[int, int]:
        """Kafka's error code of those partitions that have one."""
        return self.facts[7] or {}

    def partition(self, index: int) -> Partition:
        """Partition ``index``. Raises IndexError where there is none."""
        if index < 0:
            raise IndexError(f"partition index {index} is negative")
        leader = self.leaders[index]
        replicas, isr, offline = unpack_row(self.rows[index])
        return Partition(
            self.name,
            index,
            None if leader == NO_NODE else leader,
            self.leader_epochs[index],
            replicas,
            isr,
            offline,
            error=self.partition_errors.get(index, 0),
        )

    def with_leader(self, index: int, leader: int, leader_epoch: int) -> Topic:
        """The same topic after a change of leader of one partition."""
        leaders, epochs = list(self.leaders), list(self.leader_epochs)
        leaders[index], epochs[index] = leader, leader_epoch
        errors = {i: code for i, code in self.partition_errors.items() if i != index}
        known = (self.name, self.topic_id, self.is_internal, self.error)
        return Topic.of_columns(*known, leaders, epochs, self.rows, errors)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Topic):
            return NotImplemented
        return self.facts == other.facts

    def __repr__(self) -> str:
        text = f"Topic({self.name!r}, {len(self.leaders)} partitions"
        if self.topic_id != NO_TOPIC_ID:
            text += f", topic_id={self.topic_id.hex()}"
        return text + (f", error={self.error})" if self.error else ")")


class Topics(Mapping[str, Topic]):
    """Topics by name. Immutable.

    Kept as plain tuples of tuples of plain values, since the garbage collector stops looking at
    those by the time that they are old: a full pass over the objects of 10,000 topics would hold
    the loop for longer than all that a refresh does. A ``Topic`` is made whenever one is looked at.

    Args:
        raw: The facts by name; must not change any more.

    Attributes:
        raw: The same.
    """

    __slots__ = ("raw",)

    def __init__(self, raw: Mapping[str, TopicFields]) -> None:
        self.raw = raw

    def __getitem__(self, name: str) -> Topic:
        return Topic(self.raw[name])

    def __contains__(self, name: object) -> bool:
        return name in self.raw

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)

    def __len__(self) -> int:
        return len(self.raw)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Topics):
            return self.raw == other.raw
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self.raw)} topics>"


class Partitions(Sequence[Partition]):
    """The partitions of one topic as a read-only sequence that builds its items when asked."""

    __slots__ = ("_topic",)

    def __init__(self, topic: Topic) -> None:
        self._topic = topic

    def __len__(self) -> int:
        return len(self._topic.leaders)

    @overload
    def __getitem__(self, index: int) -> Partition: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Partition]: ...
    def __getitem__(self, index: int | slice) -> Partition | Sequence[Partition]:
        if isinstance(index, slice):
            return [self._topic.partition(i) for i in range(*index.indices(len(self)))]
        return self._topic.partition(index + len(self) if index < 0 else index)

    def __iter__(self) -> Iterator[Partition]:
        return (self._topic.partition(i) for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence) and not isinstance(other, str | bytes):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} partitions of {self._topic.name}>"

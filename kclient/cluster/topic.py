"""Topic: a topic's partitions in columns, immutable. Sans-IO.

A cluster of 100,000 partitions is refreshed every few minutes, so what a refresh builds per
partition is three small integers and a shared row; ``Partition`` objects are built when somebody
looks at one.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, overload

from kclient.cluster.partition import Partition
from kclient.errors import InvalidArgument

NO_TOPIC_ID = bytes(16)
"""The topic id of a broker that doesn't tell ids (Metadata before version 10)."""

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

Exceptions = dict[int, tuple[int | None, int | None, int]]
"""High watermark, log end and error code of those partitions that have one."""

Facts = tuple[
    str, bytes, bool, int, tuple[int, ...], tuple[int, ...], tuple[Row, ...], Exceptions | None
]
"""A topic as a plain tuple: name, id, whether internal, error code, leaders, epochs, rows, rest."""

IS_INTERNAL: Final = 2
"""Where it is in ``Facts``."""
ERROR: Final = 3
"""Likewise."""
LEADERS: Final = 4
"""Likewise."""
LEADER_EPOCHS: Final = 5
"""Likewise."""


class Topic:
    """One topic and its partitions, in columns. Immutable."""

    __slots__ = ("facts",)

    facts: Facts
    """All of it, as a plain tuple."""

    def __init__(
        self,
        name: str,
        partitions: Iterable[Partition] = (),
        *,
        topic_id: bytes = NO_TOPIC_ID,
        is_internal: bool = False,
        error: int = 0,
    ) -> None:
        listed = sorted(partitions, key=lambda partition: partition.index)
        if [partition.index for partition in listed] != list(range(len(listed))):
            raise InvalidArgument(
                f"the partitions of topic {name} must be numbered from 0 without holes, not "
                f"{[partition.index for partition in listed][:10]}"
            )
        # Offsets and error codes are rare: only those partitions that have one are kept whole.
        exceptions = {
            p.index: (p.high_watermark, p.log_end_offset, p.error)
            for p in listed
            if p.error or p.high_watermark is not None or p.log_end_offset is not None
        }
        self.facts = (
            name,
            topic_id,
            is_internal,
            error,
            tuple(NO_NODE if p.leader is None else p.leader for p in listed),
            tuple(p.leader_epoch for p in listed),
            tuple(pack_row(p.replicas, p.isr, p.offline_replicas) for p in listed),
            exceptions or None,
        )

    @classmethod
    def of_columns(
        cls,
        name: str,
        topic_id: bytes,
        is_internal: bool,
        error: int,
        leaders: Sequence[int],
        leader_epochs: Sequence[int],
        rows: Sequence[Row],
        partition_errors: Mapping[int, int] | None = None,
    ) -> Topic:
        """A topic out of columns of equal length, without a Partition object in between."""
        exceptions: Exceptions | None = None
        if partition_errors:
            exceptions = {i: (None, None, code) for i, code in partition_errors.items()}
        return cls.of_facts(
            (
                name,
                topic_id,
                is_internal,
                error,
                tuple(leaders),
                tuple(leader_epochs),
                tuple(rows),
                exceptions,
            )
        )

    @classmethod
    def of_facts(cls, facts: Facts) -> Topic:
        """The topic that ``facts`` are of."""
        self = cls.__new__(cls)
        self.facts = facts
        return self

    @property
    def name(self) -> str:
        """Topic name."""
        return self.facts[0]

    @property
    def topic_id(self) -> bytes:
        """16 bytes that are new whenever the topic is created again.

        ``NO_TOPIC_ID`` where the brokers don't tell.
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
    def partition_errors(self) -> dict[int, int]:
        """Kafka's error code of those partitions that have one."""
        return {index: row[2] for index, row in self._exceptions.items() if row[2]}

    @property
    def _exceptions(self) -> Exceptions:
        return self.facts[7] or {}

    def partition(self, index: int) -> Partition:
        """Partition ``index``. Raises IndexError where there is none."""
        if index < 0:
            raise IndexError(f"partition index {index} is negative")
        leader = self.leaders[index]
        replicas, isr, offline = unpack_row(self.rows[index])
        high, end, error = self._exceptions.get(index, (None, None, 0))
        return Partition(
            self.name,
            index,
            None if leader == NO_NODE else leader,
            self.leader_epochs[index],
            replicas,
            isr,
            offline,
            high,
            end,
            error,
        )

    def with_partition(self, partition: Partition) -> Topic:
        """The same topic with one partition replaced, or added at the end."""
        partitions = list(self.partitions)
        partitions[partition.index : partition.index + 1] = [partition]
        return Topic(
            self.name,
            partitions,
            topic_id=self.topic_id,
            is_internal=self.is_internal,
            error=self.error,
        )

    def with_leader(self, index: int, leader: int, leader_epoch: int) -> Topic:
        """The same topic after a change of leader of one partition."""
        leaders, epochs = list(self.leaders), list(self.leader_epochs)
        leaders[index], epochs[index] = leader, leader_epoch
        errors = {i: code for i, code in self.partition_errors.items() if i != index}
        return Topic.of_columns(
            self.name,
            self.topic_id,
            self.is_internal,
            self.error,
            leaders,
            epochs,
            self.rows,
            errors,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Topic):
            return NotImplemented
        return self.facts == other.facts

    def __hash__(self) -> int:
        return hash(self.facts[:7])

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

    def __init__(self, raw: Mapping[str, Facts]) -> None:
        self.raw = raw

    @classmethod
    def of(cls, topics: Iterable[Topic]) -> Topics:
        """Topics by their own names."""
        return cls({topic.name: topic.facts for topic in topics})

    def __getitem__(self, name: str) -> Topic:
        return Topic.of_facts(self.raw[name])

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

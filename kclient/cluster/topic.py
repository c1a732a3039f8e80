"""Topic: a topic's partitions in columns, immutable. Sans-IO.

A cluster of 100,000 partitions is refreshed every few minutes, so what a refresh builds per
partition is three small integers and a shared row; ``Partition`` objects are built when somebody
looks at one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

from kclient.cluster.partition import Partition
from kclient.errors import InvalidArgument

NO_TOPIC_ID = bytes(16)
"""The topic id of a broker that doesn't tell ids (Metadata before version 10)."""

NO_NODE = -1
"""The leader of a partition that has none."""

Row = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Assigned, in-sync and offline node ids of one partition; equal rows are shared."""

EMPTY_ROW: Row = ((), (), ())

_NO_EXCEPTIONS: dict[int, tuple[int | None, int | None, int]] = {}
"""Of all topics without one: 10,000 empty dicts less for the collector to look at. Stays empty."""


class Topic:
    """One topic and its partitions, in columns. Immutable.

    Attributes:
        name: Topic name.
        topic_id: 16 bytes that are new whenever the topic is created again; ``NO_TOPIC_ID`` where
            the brokers don't tell.
        is_internal: It is one of Kafka's own, such as ``__consumer_offsets``.
        error: Kafka's error code of the topic in the metadata; 0 for none.
        leaders: Leader of each partition, -1 while there is none.
        leader_epochs: Leader epoch of each partition, -1 where unknown.
    """

    __slots__ = (
        "_exceptions",
        "_rows",
        "error",
        "is_internal",
        "leader_epochs",
        "leaders",
        "name",
        "topic_id",
    )

    name: str
    topic_id: bytes
    is_internal: bool
    error: int
    leaders: tuple[int, ...]
    leader_epochs: tuple[int, ...]

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
        self.name = name
        self.topic_id = topic_id
        self.is_internal = is_internal
        self.error = error
        self.leaders = tuple(NO_NODE if p.leader is None else p.leader for p in listed)
        self.leader_epochs = tuple(p.leader_epoch for p in listed)
        self._rows = tuple((p.replicas, p.isr, p.offline_replicas) for p in listed)
        # Offsets and error codes are rare: only those partitions that have one are kept whole.
        self._exceptions = {
            p.index: (p.high_watermark, p.log_end_offset, p.error)
            for p in listed
            if p.error or p.high_watermark is not None or p.log_end_offset is not None
        }

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
        self = cls.__new__(cls)
        self.name = name
        self.topic_id = topic_id
        self.is_internal = is_internal
        self.error = error
        self.leaders = tuple(leaders)
        self.leader_epochs = tuple(leader_epochs)
        self._rows = tuple(rows)
        self._exceptions = _NO_EXCEPTIONS
        if partition_errors:
            self._exceptions = {i: (None, None, code) for i, code in partition_errors.items()}
        return self

    @property
    def partitions(self) -> Partitions:
        """The partitions by index, each built when it is looked at."""
        return Partitions(self)

    @property
    def rows(self) -> tuple[Row, ...]:
        """Assigned, in-sync and offline node ids of each partition."""
        return self._rows

    @property
    def partition_errors(self) -> dict[int, int]:
        """Kafka's error code of those partitions that have one."""
        return {index: row[2] for index, row in self._exceptions.items() if row[2]}

    def partition(self, index: int) -> Partition:
        """Partition ``index``. Raises IndexError where there is none."""
        if index < 0:
            raise IndexError(f"partition index {index} is negative")
        leader = self.leaders[index]
        replicas, isr, offline = self._rows[index]
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
            self._rows,
            errors,
        )

    @property
    def _key(self) -> tuple[Any, ...]:
        return (
            self.name,
            self.topic_id,
            self.is_internal,
            self.error,
            self.leaders,
            self.leader_epochs,
            self._rows,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Topic):
            return NotImplemented
        return self._key == other._key and self._exceptions == other._exceptions

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        text = f"Topic({self.name!r}, {len(self.leaders)} partitions"
        if self.topic_id != NO_TOPIC_ID:
            text += f", topic_id={self.topic_id.hex()}"
        return text + (f", error={self.error})" if self.error else ")")


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

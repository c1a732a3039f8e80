"""What a consumer returns: the shape of a record with typed key and value, and its two makers.

Without deserializers a consumer returns ``kclient.Record`` as it is, which has this shape with
bytes. With one, each record is wrapped in a ``DeserializedRecord``. Used by ``poller``; no state
here.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from kclient.errors import DeserializationFailed

if TYPE_CHECKING:
    import datetime as dt

    from kclient.hooks import Deserializer
    from kclient.record import Record
    from kclient.types import Headers, TimestampType, TopicPartition

K_co = TypeVar("K_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)

Convert: TypeAlias = Callable[["Record"], Any]
"""Converts a record for the application, or raises DeserializationFailed."""


class ConsumerRecord(Protocol[K_co, V_co]):
    """A record as a ``Consumer[K, V]`` returns it."""

    @property
    def topic(self) -> str:
        """Topic name."""

    @property
    def partition(self) -> int:
        """Partition index."""

    @property
    def offset(self) -> int:
        """Offset in the partition."""

    @property
    def timestamp(self) -> int:
        """Int milliseconds since the epoch; -1 where the record has none."""

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether the producer or the broker set the timestamp."""

    @property
    def key(self) -> K_co:
        """The key."""

    @property
    def value(self) -> V_co:
        """The value."""

    @property
    def headers(self) -> Headers:
        """(name, value) pairs in order."""

    @property
    def leader_epoch(self) -> int | None:
        """Epoch of the leader that appended it, None where unknown."""

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition as one value."""

    @property
    def datetime(self) -> dt.datetime:
        """``timestamp`` as an aware datetime in UTC."""

    @property
    def size_bytes(self) -> int:
        """Bytes of key and value together, as stored."""


def _of_raw(name: str, doc: str) -> Any:
    """A property that reads the same attribute of the stored record."""
    return property(attrgetter(f"raw.{name}"), doc=doc)


class DeserializedRecord(Generic[K_co, V_co]):
    """A record whose key or value went through a deserializer.

    Attributes:
        raw: The record as stored.
    """

    __slots__ = ("_key", "_value", "raw")

    def __init__(self, raw: Record, key: K_co, value: V_co) -> None:
        self.raw = raw
        self._key = key
        self._value = value

    @property
    def key(self) -> K_co:
        """The key."""
        return self._key

    @property
    def value(self) -> V_co:
        """The value."""
        return self._value

    topic: str = _of_raw("topic", "Topic name.")
    partition: int = _of_raw("partition", "Partition index.")
    offset: int = _of_raw("offset", "Offset in the partition.")
    timestamp: int = _of_raw(
        "timestamp", "Int milliseconds since the epoch; -1 where the record has none."
    )
    timestamp_type: TimestampType = _of_raw(
        "timestamp_type", "Whether the producer or the broker gave the timestamp."
    )
    headers: Headers = _of_raw("headers", "(name, value) pairs in order.")
    leader_epoch: int | None = _of_raw(
        "leader_epoch", "Epoch of the leader that appended it, None where unknown."
    )
    topic_partition: TopicPartition = _of_raw(
        "topic_partition", "Topic and partition as one value."
    )
    datetime: dt.datetime = _of_raw("datetime", "``timestamp`` as an aware datetime in UTC.")
    size_bytes: int = _of_raw("size_bytes", "Bytes of key and value together, as stored.")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeserializedRecord):
            return NotImplemented
        return bool((self.raw, self.key, self.value) == (other.raw, other.key, other.value))

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        return (
            f"DeserializedRecord(topic={self.topic!r}, partition={self.partition}, "
            f"offset={self.offset}, timestamp={self.timestamp}, {self.size_bytes} bytes)"
        )


def converter(
    key_deserializer: Deserializer[Any] | None, value_deserializer: Deserializer[Any] | None
) -> Convert | None:
    """The function that wraps a record; None where there is nothing to deserialize."""
    if key_deserializer is None and value_deserializer is None:
        return None

    def convert(record: Record) -> DeserializedRecord[Any, Any]:
        topic, key, value = record.topic, record.key, record.value
        part = "key"
        try:
            if key_deserializer is not None:
                key = key_deserializer(topic, key)
            part = "value"
            if value_deserializer is not None:
                value = value_deserializer(topic, value)
        except Exception as error:
            raise DeserializationFailed(
                f"the {part} at offset {record.offset} of {record.topic_partition} can't be "
                f"deserialized: {type(error).__name__}",
                offset=record.offset,
                topic_partition=record.topic_partition,
                hint=f"the position stays there, seek to {record.offset + 1} to go past it",
            ) from error
        return DeserializedRecord(record, key, value)

    return convert

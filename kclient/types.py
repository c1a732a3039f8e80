"""Frozen values that travel through the public API. No behaviour beyond small properties.

``Record`` lives in ``kclient.record``, beside its codec, and is re-exported by ``kclient``.
"""

from __future__ import annotations

import enum
import re
from dataclasses import Field, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from kclient.errors import InvalidArgument

if TYPE_CHECKING:  # imported when one is asked for: it takes as long as all of this package's types
    import datetime as _dt

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
"""Record headers: (name, value) pairs in order; a name may repeat, a value may be None."""

_MAX_OFFSET = 2**63 - 1
_MAX_PARTITION = 2**31 - 1
_MAX_EPOCH = 2**31 - 1
_MAX_NOTE_BYTES = 2**15 - 1
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Event:
    """Base of what observers receive. Fields never hold a key, a value or a password."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


class TimestampType(enum.IntEnum):
    """Who gave a record its timestamp."""

    CREATE_TIME = 0
    """The producer, when the record was made."""
    LOG_APPEND_TIME = 1
    """The broker, when the batch was appended."""


class IsolationLevel(enum.IntEnum):
    """Which records of transactions a reader is given (KIP-98)."""

    READ_UNCOMMITTED = 0
    """All, also those of open and aborted transactions."""
    READ_COMMITTED = 1
    """Only those below the last stable offset whose transaction was committed."""


class RecordMetadata(NamedTuple):
    """Where a record was written. A named tuple: one is made for each awaited send.

    Attributes:
        topic: Topic name.
        partition: Partition index.
        offset: The record's offset; -1 where the broker doesn't report it (acks=0, or a duplicate
            of a batch that it no longer remembers).
        timestamp: Int milliseconds since the epoch: the record's, or the broker's where the topic
            uses LogAppendTime.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def datetime(self) -> _dt.datetime:
        """``timestamp`` as an aware datetime in UTC."""
        return datetime_of(self.timestamp)


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset: the next one to read, with the committer's note."""

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A consumer's identity in its group, for a transaction that commits its offsets (KIP-447).

    Attributes:
        group: The group.
        generation_id: Of the group; -1 for a consumer that assigns by hand, or is outside.
        member_id: Given by the coordinator; empty outside.
        instance_id: Its ``group_instance_id``.
    """

    group: str
    generation_id: int = -1
    member_id: str = ""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """A transaction whose records are all written, for another process to end.

    ``Transaction.prepare`` returns it; ``Admin.end_transaction`` takes it. It can be pickled, or
    kept as its four plain values.

    Attributes:
        transactional_id: Of the producer that wrote it.
        producer_id, epoch: The identity that it was written under.
        protocol: 1 or 2: of the transaction (KIP-890). With 2 its end raises the epoch.
        is_empty: There is nothing in it, so nothing to end.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    protocol: int
    is_empty: bool = False


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """The answer of an offset lookup.

    Attributes:
        offset: The offset found.
        timestamp: Int milliseconds of the record there; -1 for earliest and latest.
        leader_epoch: Epoch of the leader that wrote it, None where the broker doesn't report it.
    """

    offset: int
    timestamp: int = -1
    leader_epoch: int | None = None


class OffsetSpec(enum.IntEnum):
    """Symbolic offsets of a lookup, with their value on the wire (ListOffsets)."""

    LATEST = -1
    """The next offset to be written (read_uncommitted: high watermark; read_committed: LSO)."""
    EARLIEST = -2
    """The first offset that is still there."""
    MAX_TIMESTAMP = -3
    """The record with the greatest timestamp (KIP-734, brokers from 3.0)."""
    EARLIEST_LOCAL = -4
    """The first offset on the leader's own disk (KIP-405)."""
    LATEST_TIERED = -5
    """The last offset in remote storage (KIP-1005)."""


def datetime_of(timestamp_ms: int) -> _dt.datetime:
    """Int milliseconds since the epoch to an aware datetime in UTC."""
    import datetime

    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return epoch + datetime.timedelta(milliseconds=timestamp_ms)


def timestamp_of(when: _dt.datetime) -> int:
    """Int milliseconds since the epoch of an aware datetime; parts of one count as a whole one.

    A record of that millisecond or later is then not before ``when``.

    Raises:
        InvalidArgument: It has no time zone, or is before 1970.
    """
    import datetime

    if when.utcoffset() is None:
        raise InvalidArgument(
            f"the time {when!r} has no time zone",
            hint="of local time make it aware by `.astimezone()`, of UTC by "
            "`.replace(tzinfo=datetime.UTC)`",
        )
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    timestamp = -((epoch - when) // datetime.timedelta(milliseconds=1))
    if timestamp < 0:
        raise InvalidArgument(f"the time {when!r} is before 1970, and no record is so old")
    return timestamp


def check_topic_name(topic: object, field: str = "topic", hint: str | None = None) -> str:
    """Return ``topic`` as a plain str if Kafka allows it as a name, else raise InvalidArgument."""
    if not isinstance(topic, str):
        raise InvalidArgument(f"{field} must be a str, not {type(topic).__name__}")
    if not _TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
        raise InvalidArgument(
            f"{field} {topic!r} is not a topic name: allowed are 1 to 249 characters out of "
            "letters, digits, '.', '_' and '-', but neither '.' nor '..'",
            hint=hint,
        )
    return topic if type(topic) is str else str.__str__(topic)


def checked_partition(value: object) -> TopicPartition:
    """A (topic, partition) pair as a TopicPartition."""
    if not isinstance(value, tuple) or len(value) != 2:
        hint = None
        if isinstance(value, str):
            hint = f"such as TopicPartition({value!r}, 0)"
        elif isinstance(value, list | set | frozenset):
            hint = "give each as an argument of its own: *partitions"
        raise InvalidArgument(f"a TopicPartition is needed, not {value!r}", hint=hint)
    topic, partition = value
    check_topic_name(topic)
    if isinstance(partition, bool) or not isinstance(partition, int):
        raise InvalidArgument(f"partition must be an int, not {type(partition).__name__}")
    if not 0 <= partition <= _MAX_PARTITION:
        raise InvalidArgument(
            f"partition {partition} of {topic} can't be: allowed is 0 to {_MAX_PARTITION:,}"
        )
    return value if isinstance(value, TopicPartition) else TopicPartition(topic, partition)


def checked_offset(value: object, hint: str | None = None) -> int:
    """An offset to read from. ``hint`` is added to the error where it is below 0."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(
            f"offset must be an int or an OffsetAndMetadata, not {type(value).__name__}"
        )
    if not 0 <= value <= _MAX_OFFSET:
        hint = hint if value < 0 else None
        raise InvalidArgument(f"offset {value} can't be: allowed is 0 to 2**63-1", hint=hint)
    return value


def checked_commit(value: object) -> OffsetAndMetadata:
    """The offset to commit of one partition; those of others are in the same request."""
    if not isinstance(value, OffsetAndMetadata):
        return OffsetAndMetadata(checked_offset(value))
    checked_offset(value.offset)
    epoch, note = value.leader_epoch, value.metadata
    if epoch is not None:
        if isinstance(epoch, bool) or not isinstance(epoch, int):
            raise InvalidArgument(f"leader_epoch must be an int or None, not {epoch!r}")
        if not 0 <= epoch <= _MAX_EPOCH:
            raise InvalidArgument(f"leader_epoch {epoch} can't be", hint="None is for unknown")
    if not isinstance(note, str):
        raise InvalidArgument(f"metadata must be a str, not {type(note).__name__}")
    try:
        size = len(note.encode())
    except UnicodeEncodeError as error:
        raise InvalidArgument("metadata can't be encoded as UTF-8") from error
    if size > _MAX_NOTE_BYTES:
        raise InvalidArgument(
            f"metadata of {size} bytes can't be sent, {_MAX_NOTE_BYTES} are the most",
            hint="brokers take 4096 by default (offset.metadata.max.bytes)",
        )
    return value

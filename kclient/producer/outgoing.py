"""Arguments of a producer, and their conversion to what a batch takes: bytes and header tuples.

``Outgoing`` is one record with every property that ``send_many`` supports; the other types are
those of arguments of other methods. Admission converts arguments that aren't plain ``bytes``.
Every failure is a ``SerializationFailed`` that names topic, role and type; it has content only if
the text of the serializer's own exception shows it. Sans-IO.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from kclient.errors import InvalidArgument, KafkaError, SerializationFailed, a_or_an
from kclient.record.layout import HEADER_OVERHEAD
from kclient.types import Headers, check_topic_name

if TYPE_CHECKING:
    from kclient.hooks import Serializer

BytesLike: TypeAlias = bytes | bytearray | memoryview
HeadersArgument: TypeAlias = (
    Iterable[tuple[str, BytesLike | None]] | Mapping[str, BytesLike | None] | None
)


Content: TypeAlias = tuple[int, bytes | None, bytes | None, bytes, int]
"""A record as batches take it: timestamp, key, value, encoded headers, size estimate in bytes."""
LAST_TIMESTAMP = 2**63 - 2
"""Latest timestamp of a record; one more must still be an int64."""
_TO_MILLISECONDS = {
    "float": "of seconds: int(seconds * 1000)",
    "datetime": "of a datetime: int(when.timestamp() * 1000)",
}


class ArrowStream(Protocol):
    """A table in Arrow's PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return its batches as a capsule."""
        ...


class ArrowArray(Protocol):
    """A record batch in Arrow's PyCapsule interface."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Return its schema and its columns as capsules."""
        ...


ArrowData: TypeAlias = ArrowStream | ArrowArray


class Outgoing(NamedTuple):
    """A record to send.

    Attributes:
        value: An argument for ``value_serializer``; bytes-like or None without one.
        key: An argument for ``key_serializer``; bytes-like or None without one.
        headers: (name, value) pairs.
        partition: Partition to write to; None lets the partitioner choose.
        timestamp: Int milliseconds since the epoch; None means now.
    """

    value: Any
    key: Any = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None


def plain_bytes(topic: str, role: str, value: Any) -> bytes | None:
    """Return ``value`` as bytes, copied if it is another bytes-like object."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    check_topic_name(topic)  # value and topic in the wrong order
    raise SerializationFailed(
        f"the {role} for topic {topic!r} is {a_or_an(type(value).__name__)}: without a "
        f"{role}_serializer it must be bytes-like or None",
        hint="each record needs a send of its own, or all of them go to send_many"
        if role == "value" and isinstance(value, (list, tuple))
        else f"encode it, or give the producer a {role}_serializer (see kclient.serializers)",
        maybe_written=False,
    )


def serialized(topic: str, role: str, value: Any, serializer: Serializer[Any]) -> bytes | None:
    """Return ``value`` as converted by the application's ``serializer``."""
    try:
        data = serializer(topic, value)
    except KafkaError as error:
        if type(error) is not SerializationFailed:
            raise
        raise SerializationFailed(
            f"the {role} can't be serialized: {error.message}",
            hint=error.hint or f"convert it first, or give the producer another {role}_serializer",
            maybe_written=False,
        ) from error
    except Exception as error:
        raise SerializationFailed(
            f"the {role}_serializer failed on {a_or_an(type(value).__name__)} for topic {topic!r}: "
            f"{type(error).__name__}",
            maybe_written=False,
        ) from error
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise SerializationFailed(
        f"the {role}_serializer returned {a_or_an(type(data).__name__)} for topic {topic!r}: "
        "bytes or None are needed",
        maybe_written=False,
    )


def plain_headers(topic: str, headers: Any) -> tuple[Headers, int]:
    """Return headers as (str, bytes | None) tuples, and the most bytes they take in a batch."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    size = 0
    checked: list[tuple[str, bytes | None]] = []
    pair: Any = ("", None)
    try:
        for pair in pairs:
            name, value = pair
            if not isinstance(name, str):
                raise TypeError(f"a name is {a_or_an(type(name).__name__)}, not a str")
            if isinstance(value, (bytearray, memoryview)):
                value = bytes(value)
            elif value is not None and not isinstance(value, bytes):
                kind = a_or_an(type(value).__name__)
                raise TypeError(f"a value is {kind}, not bytes-like or None")
            size += len(name.encode()) + (len(value) if value else 0) + HEADER_OVERHEAD
            checked.append((name, value))
    except (TypeError, ValueError) as error:
        no_pair = _no_pair(pair)
        raise SerializationFailed(
            f"the headers for topic {topic!r} can't be sent: {no_pair or error}",
            hint="give (str, bytes | None) pairs or a mapping",
            maybe_written=False,
        ) from (error if no_pair is None else None)
    return tuple(checked), size


def _no_pair(given: object) -> str | None:
    """Return an error text for an item of headers that is no pair; None if it is one."""
    kind = a_or_an(type(given).__name__)
    if isinstance(given, Iterable) and not isinstance(given, (str, bytes)):
        if not isinstance(given, Sized) or len(given) == 2:
            return None
        kind += f" of {len(given)}"
    return f"a (name, value) pair is expected, not {kind}"


def checked_timestamp(timestamp: Any) -> int:
    """Return ``timestamp`` as int milliseconds since the epoch; InvalidArgument if it isn't."""
    if not isinstance(timestamp, int) or isinstance(timestamp, bool):
        raise InvalidArgument(
            f"timestamp must be an int of milliseconds, not {a_or_an(type(timestamp).__name__)}",
            hint=_TO_MILLISECONDS.get(type(timestamp).__name__),
        )
    if not 0 <= timestamp <= LAST_TIMESTAMP:
        raise InvalidArgument(f"timestamp={timestamp} is out of range: allowed is 0 to 2**63-2")
    return int(timestamp)


def checked_partition(partition: Any) -> int:
    """Return ``partition`` as a partition index; InvalidArgument if it isn't one."""
    if not isinstance(partition, int) or isinstance(partition, bool):
        raise InvalidArgument(f"partition must be an int, not {a_or_an(type(partition).__name__)}")
    if not 0 <= partition < 2**31:
        raise InvalidArgument(f"partition={partition} is out of range: allowed is 0 to 2**31-1")
    return partition

"""``Outgoing``: one record with everything that ``send_many`` can be told about it.

A value only; ``send_many`` also takes plain values and ``(key, value)`` pairs. Beside it the types
of what the producer's other doors take. Sans-IO.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

from kclient.types import Headers

BytesLike: TypeAlias = bytes | bytearray | memoryview
HeadersArgument: TypeAlias = (
    Iterable[tuple[str, BytesLike | None]] | Mapping[str, BytesLike | None] | None
)


Content: TypeAlias = tuple[int, bytes | None, bytes | None, Headers | None, int]
"""A record as batches take it: timestamp, key, value, headers, and the bytes it is said to take."""


class ArrowStream(Protocol):
    """A table, as Arrow's PyCapsule interface has it."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Its batches, as a capsule."""
        ...


class ArrowArray(Protocol):
    """A record batch, likewise."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Its schema and its columns, as capsules."""
        ...


ArrowData: TypeAlias = ArrowStream | ArrowArray


class Outgoing(NamedTuple):
    """A record to send.

    Attributes:
        value: What ``value_serializer`` takes; bytes-like or None without one.
        key: What ``key_serializer`` takes; bytes-like or None without one.
        headers: (name, value) pairs.
        partition: Where to; None lets the partitioner choose.
        timestamp: Int milliseconds since the epoch; None means now.
    """

    value: Any
    key: Any = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None

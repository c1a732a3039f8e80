"""Ready-made serializers and deserializers for the common plain types.

A serializer is any callable ``(topic, value) -> bytes | None``, a deserializer any callable
``(topic, data) -> object``; null passes through both ways in all of these.
"""

from __future__ import annotations

import json
import struct
import uuid
from typing import Any

from kclient.errors import SerializationFailed, a_or_an

_INT64 = struct.Struct(">q")
_FLOAT64 = struct.Struct(">d")


def _refuse(topic: str, value: object, wanted: str) -> SerializationFailed:
    return SerializationFailed(
        f"for topic {topic!r} {a_or_an(type(value).__name__)} was given where {wanted} is needed"
    )


class StringSerializer:
    """``str`` to UTF-8, as Java's StringSerializer."""

    def __call__(self, topic: str, value: str | None, /) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise _refuse(topic, value, "a str or None")
        return value.encode()


class StringDeserializer:
    """UTF-8 to ``str``, as Java's StringDeserializer."""

    def __call__(self, topic: str, data: bytes | None, /) -> str | None:
        return None if data is None else str(data, "utf-8")


class JsonSerializer:
    """Anything that ``json.dumps`` takes, to compact UTF-8."""

    def __call__(self, topic: str, value: Any, /) -> bytes | None:
        if value is None:
            return None
        try:
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
        except (TypeError, ValueError) as error:
            raise SerializationFailed(f"for topic {topic!r} not JSON: {error}") from error


class JsonDeserializer:
    """UTF-8 JSON to Python objects."""

    def __call__(self, topic: str, data: bytes | None, /) -> Any:
        return None if data is None else json.loads(data)


class IntegerSerializer:
    """``int`` to 8 bytes, big-endian, as Java's LongSerializer."""

    def __call__(self, topic: str, value: int | None, /) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, int) or not -(2**63) <= value < 2**63:
            raise _refuse(topic, value, "an int of 64 bits or None")
        return _INT64.pack(value)


class IntegerDeserializer:
    """8, 4 or 2 bytes, big-endian, to ``int``: Java's Long, Integer and Short deserializers."""

    def __call__(self, topic: str, data: bytes | None, /) -> int | None:
        if data is None:
            return None
        if len(data) not in (2, 4, 8):
            raise SerializationFailed(
                f"for topic {topic!r} an integer has 2, 4 or 8 bytes, not {len(data)}"
            )
        return int.from_bytes(data, "big", signed=True)


class FloatSerializer:
    """``float`` to 8 bytes, IEEE 754 big-endian, as Java's DoubleSerializer."""

    def __call__(self, topic: str, value: float | None, /) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, (int, float)):
            raise _refuse(topic, value, "a float or None")
        return _FLOAT64.pack(value)


class FloatDeserializer:
    """8 bytes, IEEE 754 big-endian, to ``float``, as Java's DoubleDeserializer."""

    def __call__(self, topic: str, data: bytes | None, /) -> float | None:
        if data is None:
            return None
        if len(data) != _FLOAT64.size:
            raise SerializationFailed(f"for topic {topic!r} a float has 8 bytes, not {len(data)}")
        value: float = _FLOAT64.unpack(data)[0]
        return value


class UUIDSerializer:
    """``uuid.UUID`` to its text, as Java's UUIDSerializer."""

    def __call__(self, topic: str, value: uuid.UUID | None, /) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, uuid.UUID):
            raise _refuse(topic, value, "a uuid.UUID or None")
        return str(value).encode()


class UUIDDeserializer:
    """Text to ``uuid.UUID``, as Java's UUIDDeserializer."""

    def __call__(self, topic: str, data: bytes | None, /) -> uuid.UUID | None:
        return None if data is None else uuid.UUID(str(data, "utf-8"))

"""Ready-made serializers and deserializers for the common plain types.

A serializer is any callable ``(topic, value) -> bytes | None``, a deserializer any callable
``(topic, data) -> object``; null passes through both ways in all of these. Both are called once per
record, on the loop; async ones are refused when a client is made.
"""

from __future__ import annotations

import json
import struct
import uuid
from typing import Any

from kclient.errors import InvalidConfig, SerializationFailed, a_or_an

_FLOAT64 = struct.Struct(">d")
_FLOAT32 = struct.Struct(">f")


def _refuse(topic: str, value: object, wanted: str) -> SerializationFailed:
    return SerializationFailed(
        f"{a_or_an(type(value).__name__)} was given for topic {topic!r} where {wanted} is needed"
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
            kind = a_or_an(type(value).__name__)
            raise SerializationFailed(f"{kind} for topic {topic!r} is not JSON: {error}") from error


class JsonDeserializer:
    """UTF-8 JSON to Python objects."""

    def __call__(self, topic: str, data: bytes | None, /) -> Any:
        return None if data is None else json.loads(data)


class IntegerSerializer:
    """``int`` to 8, 4 or 2 bytes, big-endian: Java's Long, Integer and Short serializers.

    Args:
        size: How many bytes.

    Raises:
        InvalidConfig: No such size.
    """

    __slots__ = ("_size",)

    def __init__(self, size: int = 8) -> None:
        if size not in (8, 4, 2):
            raise InvalidConfig(f"size={size!r} can't be used: allowed are 8, 4 and 2")
        self._size = size

    def __call__(self, topic: str, value: int | None, /) -> bytes | None:
        if value is None:
            return None
        limit = 1 << (8 * self._size - 1)
        if not isinstance(value, int) or not -limit <= value < limit:
            raise _refuse(topic, value, f"an int of {8 * self._size} bits or None")
        return value.to_bytes(self._size, "big", signed=True)


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
    """``float`` to 8 or 4 bytes, IEEE 754 big-endian: Java's Double and Float serializers.

    Args:
        size: How many bytes.

    Raises:
        InvalidConfig: No such size.
    """

    __slots__ = ("_format",)

    def __init__(self, size: int = 8) -> None:
        self._format = _float_format(size)

    def __call__(self, topic: str, value: float | None, /) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, (int, float)):
            raise _refuse(topic, value, "a float or None")
        try:
            return self._format.pack(value)
        except OverflowError:
            raise _refuse(topic, value, "a float in range") from None


class FloatDeserializer:
    """8 or 4 bytes, IEEE 754 big-endian, to ``float``: Java's Double and Float deserializers.

    Args:
        size: How many bytes.

    Raises:
        InvalidConfig: No such size.
    """

    __slots__ = ("_format",)

    def __init__(self, size: int = 8) -> None:
        self._format = _float_format(size)

    def __call__(self, topic: str, data: bytes | None, /) -> float | None:
        if data is None:
            return None
        if len(data) != self._format.size:
            raise SerializationFailed(
                f"for topic {topic!r} a float has {self._format.size} bytes, not {len(data)}"
            )
        value: float = self._format.unpack(data)[0]
        return value


def _float_format(size: int) -> struct.Struct:
    if size not in (8, 4):
        raise InvalidConfig(f"size={size!r} can't be used: allowed are 8 and 4")
    return _FLOAT64 if size == 8 else _FLOAT32


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

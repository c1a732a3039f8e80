"""Ready-made serializers: Java's bytes, None passes through, wrong types are refused by name."""

from __future__ import annotations

import uuid

import pytest

from kclient import serializers as s
from kclient.errors import SerializationFailed

ONE = uuid.UUID("12345678-1234-5678-1234-567812345678")


@pytest.mark.parametrize(
    ("write", "read", "value", "data"),
    [
        (s.StringSerializer(), s.StringDeserializer(), "zoë", b"zo\xc3\xab"),
        (s.JsonSerializer(), s.JsonDeserializer(), {"a": [1, "é"]}, b'{"a":[1,"\xc3\xa9"]}'),
        (s.IntegerSerializer(), s.IntegerDeserializer(), -2, b"\xff" * 7 + b"\xfe"),
        (s.FloatSerializer(), s.FloatDeserializer(), 1.5, b"\x3f\xf8" + b"\0" * 6),
        (s.UUIDSerializer(), s.UUIDDeserializer(), ONE, str(ONE).encode()),
    ],
)
def test_round_trip_and_null(write: object, read: object, value: object, data: bytes) -> None:
    assert write("t", value) == data  # type: ignore[operator]
    assert read("t", data) == value  # type: ignore[operator]
    assert write("t", None) is None  # type: ignore[operator]
    assert read("t", None) is None  # type: ignore[operator]


@pytest.mark.parametrize(
    ("write", "value"),
    [
        (s.StringSerializer(), 5),
        (s.JsonSerializer(), object()),
        (s.IntegerSerializer(), "5"),
        (s.IntegerSerializer(), 2**63),
        (s.FloatSerializer(), "1"),
        (s.UUIDSerializer(), "x"),
    ],
)
def test_wrong_types_are_refused_naming_the_topic(write: object, value: object) -> None:
    with pytest.raises(SerializationFailed, match="orders"):
        write("orders", value)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("read", "data"), [(s.IntegerDeserializer(), b"123"), (s.FloatDeserializer(), b"1234")]
)
def test_wrong_lengths_are_refused(read: object, data: bytes) -> None:
    with pytest.raises(SerializationFailed, match="bytes"):
        read("t", data)  # type: ignore[operator]


def test_java_integers_and_shorts_are_read() -> None:
    read = s.IntegerDeserializer()
    assert read("t", b"\0\0\0\7") == 7
    assert read("t", b"\xff\xfe") == -2

"""Malformed payloads: one typed error each, the same from both builds."""

from __future__ import annotations

import struct

import pytest

from kclient.errors import CorruptRecord
from kclient.record import read_batches
from kclient.record.implementation import Implementation

HEADER = struct.Struct(">qiibIhiqqqhii")


def batch_around(payload: bytes, count: int = 1, base_timestamp: int = 0) -> bytes:
    """Return a v2 batch with this payload; its CRC is 0, as it is not verified here."""
    return (
        HEADER.pack(
            5, 49 + len(payload), -1, 2, 0, 0, count + 1, base_timestamp, 0, -1, -1, -1, count
        )
        + payload
    )


def failure(payload: bytes, count: int = 1, base_timestamp: int = 0) -> str:
    """Return the reader's error for this payload."""
    (batch,) = read_batches(batch_around(payload, count, base_timestamp))
    with pytest.raises(CorruptRecord) as caught:
        batch.records("t", 0)
    return caught.value.message.removeprefix("in the given bytes the batch at offset 5: ")


# length, attributes, timestamp delta, offset delta, key size, value size, header count
GOOD = bytes([12, 0, 0, 0, 1, 1, 0])


def test_the_smallest_record_is_fine(build: Implementation) -> None:
    (batch,) = read_batches(batch_around(GOOD))
    (record,) = batch.records("t", 0)
    assert (record.key, record.value, record.headers, record.offset) == (None, None, (), 5)


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (bytes([13, 0, 0, 0, 1, 1, 0]), "at byte 1 of the payload a record of -7 bytes"),
        (bytes([10, 0, 0, 0, 1, 1, 0]), "at byte 1 of the payload a record of 5 bytes"),
        (bytes([14, 0, 0, 0, 1, 1, 0]), "at byte 1 of the payload a record of 7 bytes"),
        (bytes([12, 0, 0, 0, 2, 1, 0]), "at byte 5 of the payload a key of 1 bytes runs past"),
        (bytes([12, 0, 0, 0, 1, 2, 0]), "at byte 6 of the payload a value of 1 bytes runs past"),
        (bytes([14, 0, 0, 0, 1, 1, 0, 0]), "at byte 7 of the payload the record has 1 bytes"),
        (bytes([12, 0, 0, 0, 1, 1, 2]), "at byte 7 of the payload 1 headers can't be in 0 bytes"),
        (bytes([12, 0, 0, 0, 1, 1, 1]), "at byte 7 of the payload -1 headers can't be in 0 bytes"),
        (bytes([12, 0, 0, 5, 1, 1, 0]), "at byte 0 of the payload an offset delta of -3 is not"),
        (bytes([12, 0, 0, 6, 1, 1, 0]), "at byte 0 of the payload an offset delta of 3 is not"),
        (bytes([12, 0, 0x80, 0, 1, 1, 0]), "at byte 2 of the payload a varint runs past the end"),
        (bytes([255] * 7), "at byte 0 of the payload is a varint of more than 32 bits"),
        (bytes([0x80] * 7), "at byte 0 of the payload is a varint of more than 32 bits"),
        (bytes([12, 0] + [0x80] * 5), "at byte 2 of the payload a varint runs past the end"),
        (bytes([12, 0, 0] + [0x80] * 4), "at byte 3 of the payload a varint runs past the end"),
        (bytes([12, 0, 0, 0, 0x80, 1, 0]), "at byte 4 of the payload a varint runs past the end"),
    ],
)
def test_each_part_of_a_record(build: Implementation, payload: bytes, text: str) -> None:
    assert failure(payload).startswith(text)


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ([2, 1, 1], "a header name of -1 bytes runs past"),
        ([2, 4, 65], "a header name of 2 bytes runs past"),
        ([2, 2, 65], "a varint runs past the end"),
        ([2, 2, 65, 4, 66], "a header value of 2 bytes runs past"),
        ([2, 2, 65, 2, 66, 0], "the record has 1 bytes too many"),
        ([4, 2, 65, 1], "2 headers can't be in 3 bytes"),
        ([0xFE, 0xFF, 0xFF, 0xFF, 0x0F, 0], "2147483647 headers can't be in 1 bytes"),
        ([0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0], "is a varint of more than 32 bits"),
    ],
)
def test_each_part_of_the_headers(build: Implementation, headers: list[int], text: str) -> None:
    body = bytes([0, 0, 0, 1, 1, *headers])
    assert text in failure(bytes([2 * len(body)]) + body)


def test_headers_are_read_as_they_are(build: Implementation) -> None:
    body = bytes([0, 0, 0, 1, 1, 6, 2, 65, 1, 0, 0, 4, 0xFF, 66, 2, 67])
    (batch,) = read_batches(batch_around(bytes([2 * len(body)]) + body))
    # A name that is not UTF-8 gets a replacement character, as in Java.
    assert batch.records("t", 0)[0].headers == (("A", None), ("", b""), ("�B", b"C"))


@pytest.mark.parametrize(
    ("base", "delta"),
    [
        (2**63 - 1, bytes([2])),
        (-(2**63), bytes([1])),
        (1, bytes([0xFE] + [0xFF] * 8 + [0x01])),
        (-2, bytes([0xFF] * 9 + [0x01])),
    ],
)
def test_timestamps_that_leave_64_bits(build: Implementation, base: int, delta: bytes) -> None:
    body = bytes([0]) + delta + bytes([0, 1, 1, 0])
    assert "leaves the 64 bits" in failure(bytes([2 * len(body)]) + body, base_timestamp=base)


@pytest.mark.parametrize(
    ("delta", "timestamp"),
    [
        (bytes([0xFE] + [0xFF] * 8 + [0x01]), 2**63 - 1),
        (bytes([0xFD] + [0xFF] * 8 + [0x01]), -(2**63) + 1),
        (bytes([0x80, 0x80, 0x80, 0]), 0),
    ],
)
def test_long_varints_are_read(build: Implementation, delta: bytes, timestamp: int) -> None:
    body = bytes([0]) + delta + bytes([0, 1, 1, 0])
    (batch,) = read_batches(batch_around(bytes([2 * len(body)]) + body))
    assert batch.records("t", 0)[0].timestamp == timestamp


def test_a_varint_of_more_than_64_bits(build: Implementation) -> None:
    body = bytes([0] + [0xFF] * 9 + [0x02] + [0, 1, 1, 0])
    assert "is a varint of more than 64 bits" in failure(bytes([2 * len(body)]) + body)


def test_any_negative_size_is_null_as_in_java(build: Implementation) -> None:
    body = bytes([0, 0, 0, 0xFF, 0x01, 0xFF, 0x01, 0])
    (batch,) = read_batches(batch_around(bytes([2 * len(body)]) + body))
    (record,) = batch.records("t", 0)
    assert (record.key, record.value) == (None, None)


@pytest.mark.parametrize("cut", range(1, 42))
def test_a_payload_cut_anywhere(build: Implementation, cut: int) -> None:
    builder = build.BatchBuilder()
    builder.append(0, b"key", b"value" * 3, (("name", b"value"), ("none", None)))
    whole = builder.encode()[61:]
    assert len(whole) == 42
    assert failure(whole[:cut])

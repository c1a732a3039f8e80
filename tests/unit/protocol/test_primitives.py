"""Variable-length integers, strings and arrays at their limits."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kclient.protocol import primitives
from kclient.protocol.primitives import DECODE_ERRORS, Malformed


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (16383, "ff7f"),
        (16384, "808001"),
        (2**31 - 1, "ffffffff07"),
    ],
)
def test_an_unsigned_varint_has_seven_bits_a_byte_low_ones_first(value: int, data: str) -> None:
    out = bytearray()
    primitives.put_uvarint(out, value)
    assert out.hex() == data
    assert primitives.read_uvarint(out, 0, len(out)) == (value, len(out))


@pytest.mark.parametrize("data", ["", "80", "ffffffff08", "ffffffffff01", "80" * 10, "ff" * 10])
def test_a_cut_or_too_large_unsigned_varint_is_refused(data: str) -> None:
    raw = bytes.fromhex(data)
    with pytest.raises(DECODE_ERRORS):
        primitives.read_uvarint(raw, 0, len(raw))


@pytest.mark.parametrize("value", [-1, 2**31])
def test_an_unsigned_varint_out_of_range_is_not_written(value: int) -> None:
    with pytest.raises(OverflowError):
        primitives.put_uvarint(bytearray(), value)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (-64, "7f"),
        (64, "8001"),
        (300, "d804"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_zigzag_keeps_small_negative_numbers_short(value: int, data: str) -> None:
    out = bytearray()
    primitives.put_varint(out, value)
    assert out.hex() == data


def test_a_varint_of_more_than_64_bits_is_not_written() -> None:
    with pytest.raises(OverflowError):
        primitives.put_varint(bytearray(), 2**63)


@given(st.text(max_size=300))
def test_strings_round_trip_in_both_encodings(text: str) -> None:
    out = bytearray()
    primitives.put_compact_string(out, text)
    assert primitives.read_compact_string(out, 0, len(out)) == (text, len(out))
    out = bytearray()
    primitives.put_strings(out, [text])
    assert primitives.read_strings(out, 4, len(out), 1) == ([text], len(out))


def test_a_string_of_more_than_32767_bytes_is_refused_both_ways() -> None:
    longest = "x" * primitives.MAX_STRING
    for put in (primitives.put_string, primitives.put_compact_string):
        put(bytearray(), longest)
        with pytest.raises(OverflowError):
            put(bytearray(), longest + "x")
    raw = bytearray()
    primitives.put_uvarint(raw, primitives.MAX_STRING + 2)
    raw += b"x" * (primitives.MAX_STRING + 1)
    with pytest.raises(Malformed):
        primitives.read_compact_string(raw, 0, len(raw))


def test_counts_beyond_the_bytes_are_refused_before_anything_is_read() -> None:
    raw = bytes(8)
    for read in (
        primitives.read_strings,
        primitives.read_compact_strings,
        primitives.read_uuids,
        lambda buf, pos, end, count: primitives.read_numbers(buf, pos, end, count, "i"),
    ):
        with pytest.raises(Malformed):
            read(raw, 0, len(raw), 2**31 - 1)


def test_negative_counts_and_lengths_are_refused() -> None:
    with pytest.raises(Malformed):
        primitives.read_numbers(bytes(8), 0, 8, -1, "i")
    with pytest.raises(Malformed):
        primitives.read_strings(b"\xff\xff", 0, 2, 1)


def test_only_bytes_pass_as_bytes_and_only_16_of_them_as_uuid() -> None:
    for put in (primitives.put_bytes, primitives.put_compact_bytes):
        with pytest.raises(TypeError):
            put(bytearray(), "text")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="16 bytes"):
        primitives.check_uuid(b"short")


def test_tags_are_written_in_order_and_read_back() -> None:
    out = bytearray()
    primitives.put_tags(out, {300: b"b", 2: b"a"})
    assert out.hex() == "02" + "020161" + "ac020162"
    assert primitives.read_unknown_tags(out, 0, len(out)) == ({2: b"a", 300: b"b"}, len(out))


def test_a_tag_that_reaches_past_the_end_is_refused() -> None:
    with pytest.raises(Malformed):
        primitives.read_unknown_tags(b"\x01\x05\x09ab", 0, 5)
    with pytest.raises(DECODE_ERRORS):
        primitives.read_unknown_tags(b"\xff\xff\xff\xff\x07", 0, 5)


def test_ready_made_unpackers_match_struct() -> None:
    raw = bytes(range(128))
    for count, unpack in enumerate(primitives.UNPACK_INT32S):
        assert unpack(raw) == struct.unpack_from(f">{count}i", raw)

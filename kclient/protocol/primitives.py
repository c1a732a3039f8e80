"""Kafka's primitive types: variable-length integers, strings, bytes and arrays of them.

Used by the generated messages and by hand-written schemas. Readers take the buffer, a position and
the buffer's end, and return the value and the next position. On malformed bytes they raise
``Malformed``, ``IndexError``, ``struct.error`` or ``UnicodeDecodeError``; the caller
(``Message.decode``) converts these into a ProtocolError. Nothing here allocates more than the given
bytes could hold.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

ZERO_UUID = b"\0" * 16
"""The uuid that means none."""

MAX_STRING = 0x7FFF
"""Most bytes in a string, even if the length's encoding could hold more."""

_MAX_INT32 = 0x7FFFFFFF


class Malformed(ValueError):
    """The bytes don't match the schema."""


DECODE_ERRORS = (Malformed, IndexError, struct.error, UnicodeDecodeError)
"""Errors that reading malformed bytes may raise."""

UNPACK_INT32S = [struct.Struct(f">{count}i").unpack_from for count in range(32)]
"""Unpackers of short arrays of int32, by their length."""

_SIZES = {"b": 1, "B": 1, "?": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8}


def read_uvarint(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """Read an unsigned varint of at most five bytes and 31 bits."""
    value = shift = 0
    while shift < 35:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _MAX_INT32:
                raise Malformed
            return value, pos
        shift += 7
    raise Malformed


def put_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint (0 to 2**31-1)."""
    if not 0 <= value <= _MAX_INT32:
        raise OverflowError(value)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def put_varint(out: bytearray, value: int) -> None:
    """Append a signed (zigzag) varint of 32 or 64 bits."""
    if not -(1 << 63) <= value < 1 << 63:
        raise OverflowError(value)
    value = value << 1 if value >= 0 else (-value << 1) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_compact_string(buf: Buffer, pos: int, end: int) -> tuple[str, int]:
    """Read a string behind an unsigned varint of its length plus one; null is an error."""
    size, pos = read_uvarint(buf, pos, end)
    stop = pos + size - 1
    if not 0 < size <= MAX_STRING + 1 or stop > end:
        raise Malformed
    return str(buf[pos:stop], "utf-8"), stop


def read_compact_bytes(buf: Buffer, pos: int, end: int) -> tuple[bytes, int]:
    """Read bytes behind an unsigned varint of their length plus one; null is an error."""
    size, pos = read_uvarint(buf, pos, end)
    stop = pos + size - 1
    if size == 0 or stop > end:
        raise Malformed
    return bytes(buf[pos:stop]), stop


def read_compact_view(buf: memoryview, pos: int, end: int) -> tuple[memoryview, int]:
    """Like ``read_compact_bytes``, as a slice of the buffer."""
    size, pos = read_uvarint(buf, pos, end)
    stop = pos + size - 1
    if size == 0 or stop > end:
        raise Malformed
    return buf[pos:stop], stop


def put_string(out: bytearray, value: str) -> None:
    """Append a string behind an int16 of its length."""
    raw = value.encode()
    if len(raw) > MAX_STRING:
        raise OverflowError(len(raw))
    out += len(raw).to_bytes(2, "big")
    out += raw


def put_compact_string(out: bytearray, value: str) -> None:
    """Append a string behind an unsigned varint of its length plus one."""
    raw = value.encode()
    size = len(raw) + 1
    if size < 0x80:
        out.append(size)
    elif size > MAX_STRING + 1:
        raise OverflowError(size)
    else:
        put_uvarint(out, size)
    out += raw


def put_bytes(out: bytearray, value: Buffer) -> None:
    """Append bytes behind an int32 of their length."""
    put_count(out, _byte_length(value))
    out += value


def put_compact_bytes(out: bytearray, value: Buffer) -> None:
    """Append bytes behind an unsigned varint of their length plus one."""
    put_uvarint(out, _byte_length(value) + 1)
    out += value


def _byte_length(value: Buffer) -> int:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"bytes are needed, not {type(value).__name__}")
    return value.nbytes if isinstance(value, memoryview) else len(value)


def check_uuid(value: bytes) -> bytes:
    """Return ``value`` if it is 16 bytes; ``struct`` would cut or pad it silently."""
    if len(value) != 16:
        raise ValueError(f"a uuid has 16 bytes, not {len(value)}")
    return value


def read_strings(buf: Buffer, pos: int, end: int, count: int) -> tuple[list[str], int]:
    """Read ``count`` strings with int16 lengths."""
    if count > end - pos:
        raise Malformed
    items = []
    for _ in range(count):
        stop = pos + 2 + (buf[pos] << 8 | buf[pos + 1])
        if stop > end or buf[pos] > 0x7F:
            raise Malformed
        items.append(str(buf[pos + 2 : stop], "utf-8"))
        pos = stop
    return items, pos


def read_compact_strings(buf: Buffer, pos: int, end: int, count: int) -> tuple[list[str], int]:
    """Read ``count`` compact strings."""
    if count > end - pos:
        raise Malformed
    items = []
    for _ in range(count):
        size = buf[pos]
        if 0 < size < 0x80:
            stop = pos + size
            if stop > end:
                raise Malformed
            items.append(str(buf[pos + 1 : stop], "utf-8"))
            pos = stop
        else:
            item, pos = read_compact_string(buf, pos, end)
            items.append(item)
    return items, pos


def read_numbers(buf: Buffer, pos: int, end: int, count: int, code: str) -> tuple[list[int], int]:
    """Read ``count`` numbers of one ``struct`` code."""
    stop = pos + count * _SIZES[code]
    if count < 0 or stop > end:
        raise Malformed
    return list(struct.unpack_from(f">{count}{code}", buf, pos)), stop


def read_compact_int32s(buf: Buffer, pos: int, end: int) -> tuple[list[int], int]:
    """Read an array of int32 behind an unsigned varint of its length plus one; null is an error."""
    count, pos = read_uvarint(buf, pos, end)
    return read_numbers(buf, pos, end, count - 1, "i")


def read_uuids(buf: Buffer, pos: int, end: int, count: int) -> tuple[list[bytes], int]:
    """Read ``count`` uuids."""
    stop = pos + 16 * count
    if stop > end:
        raise Malformed
    return [bytes(buf[start : start + 16]) for start in range(pos, stop, 16)], stop


def put_count(out: bytearray, count: int) -> None:
    """Append the length of an array as int32."""
    out += count.to_bytes(4, "big", signed=True)


def put_compact_count(out: bytearray, count: int) -> None:
    """Append the length of an array, plus one, as an unsigned varint."""
    if count < 0x7F:
        out.append(count + 1)
    else:
        put_uvarint(out, count + 1)


def put_strings(out: bytearray, values: Sequence[str]) -> None:
    """Append an array of strings."""
    put_count(out, len(values))
    for value in values:
        put_string(out, value)


def put_compact_strings(out: bytearray, values: Sequence[str]) -> None:
    """Append a compact array of compact strings."""
    put_compact_count(out, len(values))
    for value in values:
        put_compact_string(out, value)


def put_numbers(out: bytearray, values: Sequence[int], code: str) -> None:
    """Append an array of numbers of one ``struct`` code."""
    packed = struct.pack(f">{len(values)}{code}", *values)
    put_count(out, len(values))
    out += packed


def put_compact_numbers(out: bytearray, values: Sequence[int], code: str) -> None:
    """Append a compact array of numbers of one ``struct`` code."""
    packed = struct.pack(f">{len(values)}{code}", *values)
    put_compact_count(out, len(values))
    out += packed


def put_uuids(out: bytearray, values: Sequence[bytes]) -> None:
    """Append an array of uuids."""
    put_count(out, len(values))
    for value in values:
        out += check_uuid(value)


def put_compact_uuids(out: bytearray, values: Sequence[bytes]) -> None:
    """Append a compact array of uuids."""
    put_compact_count(out, len(values))
    for value in values:
        out += check_uuid(value)


def read_unknown_tags(buf: Buffer, pos: int, end: int) -> tuple[dict[int, bytes] | None, int]:
    """Read a section of unknown tagged fields: tag -> its bytes; None if it is empty."""
    count, pos = read_uvarint(buf, pos, end)
    tags: dict[int, bytes] = {}
    for _ in range(count):
        tag, pos = read_uvarint(buf, pos, end)
        size, pos = read_uvarint(buf, pos, end)
        stop = pos + size
        if stop > end:
            raise Malformed
        tags[tag] = bytes(buf[pos:stop])
        pos = stop
    return tags or None, pos


def put_tags(out: bytearray, tags: Mapping[int, bytes]) -> None:
    """Append a section of tagged fields in the order of their tags."""
    put_uvarint(out, len(tags))
    for tag in sorted(tags):
        put_uvarint(out, tag)
        put_uvarint(out, len(tags[tag]))
        out += tags[tag]

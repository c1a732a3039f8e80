"""Makes malformed batches out of real ones: seeds, and ways to spoil them.

Half of the mutants are repaired afterwards (lengths and CRC right again), so that they get past
the first checks and into the decoder; of compressed ones it is the inflated payload that is
spoiled. Everything follows from the given random source.
"""

from __future__ import annotations

import random
import struct
import zlib
from typing import NamedTuple

from crc32c import crc32c

from kclient.errors import CorruptRecord
from kclient.record import BatchBuilder, Compression, compress, decompress
from tests.unit.record.captures import KAFKA_1_0_2, KAFKA_4_3_0

HEADER_BYTES = 61
MAGIC_AT = 16
FIELDS = {
    # Of a v2 header: position -> layout. Length and CRC are what a repair puts right.
    0: ">q",
    8: ">i",
    12: ">i",
    16: ">b",
    17: ">i",
    21: ">h",
    23: ">i",
    27: ">q",
    35: ">q",
    43: ">q",
    51: ">h",
    53: ">i",
    57: ">i",
}
VARINTS = (
    b"\x00",
    b"\x01",
    b"\x02",
    b"\x7f",
    b"\x80\x01",
    b"\xfe\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x1f",
    b"\x80\x80\x80\x80\x00",
    b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\x80" * 10,
    b"\xff" * 11,
)
KINDS = (
    "bits flipped",
    "byte overwritten",
    "truncated",
    "bytes removed",
    "bytes inserted",
    "varint overwritten",
    "part doubled",
    "spliced",
    "edge value",
)
INFLATED_CAP = 1 << 20


def seeds() -> list[bytes]:
    """What real brokers stored, and some of our own with more records and more of each kind."""
    found = [*KAFKA_4_3_0.values(), *KAFKA_1_0_2.values()]
    source = random.Random(20130101)
    for codec in Compression:
        for options in ({}, {"log_append_time": True}, {"transactional": True, "control": True}):
            builder = BatchBuilder(1 << 20, **options)
            for number in range(source.randrange(1, 25)):
                count = source.choice((0, 0, 1, 3))
                headers = tuple(
                    (f"h{n}é", source.choice((None, b"", b"v" * n))) for n in range(count)
                )
                builder.append(
                    1357016400000 + source.randrange(-1000, 100_000),
                    source.choice((None, b"", b"\0\0\0\1", b"key%d" % number)),
                    source.choice((None, b"", b"v" * source.randrange(200))),
                    headers,
                )
            builder.compress(codec)
            found.append(builder.encode(source.randrange(-1, 5), 3, 0, leader_epoch=4))
    return found


class BatchMutant(NamedTuple):
    """A piece of a fetch, malformed or, seldom, still sound.

    Attributes:
        operator: How it was spoiled; of several ways the first one.
        repaired: Lengths and CRCs were made right afterwards.
        data: The bytes.
    """

    operator: str
    repaired: bool
    data: bytes


def mutant(source: random.Random, pool: list[bytes]) -> BatchMutant:
    """One of the many."""
    data = bytearray(source.choice(pool))
    repair = source.random() < 0.5
    inside = repair and source.random() < 0.6
    if source.random() < 0.1:  # in the place of a header: for the decoders' inner functions
        varint = source.choice(VARINTS)
        return BatchMutant("varint in front", False, varint + data[source.choice((0, 61)) :])
    if inside and len(data) > HEADER_BYTES and data[MAGIC_AT] == 2:
        operator, data = spoiled_inside(source, data, pool)
    else:
        ways = [spoil(source, data, 0, pool) for _ in range(source.choice((1, 1, 1, 2, 3, 8)))]
        operator = ways[0]
    if repair:
        repaired(data)
    return BatchMutant(operator, repair, bytes(data))


def spoil(source: random.Random, data: bytearray, start: int, pool: list[bytes]) -> str:
    """Change ``data`` from ``start`` on in one of many ways, and return its name."""
    if len(data) <= start:
        return "nothing left"
    at = source.randrange(start, len(data))
    kind = source.choice(KINDS)
    if kind == "bits flipped":
        data[at] ^= 1 << source.randrange(8)
    elif kind == "byte overwritten":
        data[at] = source.choice((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF, source.randrange(256)))
    elif kind == "truncated":
        del data[at:]
    elif kind == "bytes removed":
        del data[at : at + source.randrange(1, 9)]
    elif kind == "bytes inserted":
        data[at:at] = source.randbytes(source.randrange(1, 9))
    elif kind == "varint overwritten":
        varint = source.choice(VARINTS)
        data[at : at + source.randrange(len(varint) + 1)] = varint
    elif kind == "part doubled":
        end = at + source.randrange(1, 64)
        data[at:at] = data[at:end]
    elif kind == "spliced":
        other = source.choice(pool)
        begin = source.randrange(len(other))
        data[at : at + source.randrange(64)] = other[begin : begin + source.randrange(64)]
    elif start == 0 and len(data) >= HEADER_BYTES:
        spoil_field(source, data)
    return kind


def spoil_field(source: random.Random, data: bytearray) -> None:
    """Give a field of the header a value from the edges of what it can hold."""
    at = source.choice(list(FIELDS))
    layout = FIELDS[at]
    bits = 8 * struct.calcsize(layout)
    top = 1 << bits - 1
    value = source.choice((0, 1, -1, 2, 7, -top, top - 1, top - 2, source.randrange(-top, top)))
    struct.pack_into(layout, data, at, value)


def spoiled_inside(
    source: random.Random, data: bytearray, pool: list[bytes]
) -> tuple[str, bytearray]:
    """A v2 batch with a spoiled payload, compressed again as it was, and the way it was spoiled."""
    codec = Compression(data[22] & 7)
    try:
        payload = bytearray(decompress(codec, data[HEADER_BYTES:], INFLATED_CAP))
    except CorruptRecord:  # a seed of several batches, compressed
        return "none", data
    ways = [spoil(source, payload, 0, pool) for _ in range(source.choice((1, 1, 2, 4)))]
    if source.random() < 0.3:
        spoil_field(source, data)
        data[22] = data[22] & 0xF8 | codec
    return f"inside: {ways[0]}", data[:HEADER_BYTES] + compress(codec, payload)


def repaired(data: bytearray) -> None:
    """Make lengths and CRCs right, of each message in a set of several."""
    pos = 0
    while len(data) - pos > MAGIC_AT:
        legacy = data[pos + MAGIC_AT] < 2
        (length,) = struct.unpack_from(">i", data, pos + 8)
        end = pos + 12 + length
        if not legacy or length < 14 or end > len(data):
            end = len(data)
            struct.pack_into(">i", data, pos + 8, end - pos - 12)
        if legacy:
            struct.pack_into(">I", data, pos + 12, zlib.crc32(data[pos + 16 : end]))
        elif end - pos >= HEADER_BYTES:
            struct.pack_into(">I", data, pos + 17, crc32c(bytes(data[pos + 21 : end])))
        pos = end

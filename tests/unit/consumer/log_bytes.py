"""Bytes of a partition's log for these tests, made with the builder of ``kclient.record``."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from kclient.record import BatchBuilder, Compression
from kclient.record.layout import CONTROL_BIT, TRANSACTIONAL_BIT
from kclient.types import Headers
from tests.support.v2_batch import encode_batch

_BASE_OFFSET = struct.Struct(">q")
_HEAD_TO_MAGIC = 12


def batch(
    base_offset: int,
    count: int,
    *,
    codec: Compression = Compression.NONE,
    producer_id: int = -1,
    transactional: bool = False,
    leader_epoch: int = 0,
    value_bytes: int = 0,
    headers: Headers | None = None,
) -> bytes:
    """``count`` records from ``base_offset`` on; their values name their offsets."""
    builder = BatchBuilder(2**30)
    for offset in range(base_offset, base_offset + count):
        value = b"%d" % offset
        builder.append(offset, b"k", value.ljust(value_bytes, b"."), headers)
    builder.compress(codec)
    data = builder.encode(producer_id, 0, 0, leader_epoch=leader_epoch, transactional=transactional)
    return _BASE_OFFSET.pack(base_offset) + data[_BASE_OFFSET.size :]


def batch_of(
    values: Iterable[bytes], *, producer_id: int = -1, transactional: bool = False
) -> bytes:
    """One batch with these values, from offset 0 on."""
    builder = BatchBuilder(2**30)
    for value in values:
        builder.append(1_700_000_000_000, None, value, None)
    return builder.encode(producer_id, 0, 0, transactional=transactional)


def gapped(data: bytes, last_delta: int) -> bytes:
    """``data``, one batch, as compaction leaves it: it ends later than its last record."""
    from kclient.record.layout import crc32c

    out = bytearray(data)
    struct.pack_into(">i", out, 23, last_delta)
    struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])))
    return bytes(out)


def control(offset: int, producer_id: int, *kinds: int, leader_epoch: int = 0) -> bytes:
    """Transaction markers in one batch, mostly one: ``kinds`` 0 aborts, 1 commits."""
    records = b""
    for delta, kind in enumerate(kinds):
        key = struct.pack(">hh", 0, kind)
        value = struct.pack(">hi", 0, 0)
        head = bytes([0, 0, delta << 1, len(key) << 1])
        body = head + key + bytes([len(value) << 1]) + value + b"\0"
        records += bytes([len(body) << 1]) + body
    return encode_batch(
        records,
        CONTROL_BIT | TRANSACTIONAL_BIT,
        len(kinds),
        0,
        0,
        producer_id=producer_id,
        producer_epoch=0,
        base_offset=offset,
        leader_epoch=leader_epoch,
    )


def corrupted(data: bytes, position: int = -1) -> bytes:
    """``data`` with one byte flipped, the last by default: the CRC doesn't fit any more."""
    out = bytearray(data)
    out[position] ^= 0xFF
    return bytes(out)

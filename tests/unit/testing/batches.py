"""Record batches for the tests of the embedded broker, made with `kclient.record`'s builder."""

from __future__ import annotations

import struct

from kclient.record.builder import BatchBuilder
from kclient.record.compression import Compression
from kclient.record.layout import crc32c
from kclient.testing.stored_batch import StoredBatch
from tests.support.v2_batch import encode_batch

NOW = 1_700_000_000_000
"""The time of the tests, in milliseconds."""

ABORT, COMMIT = 0, 1


def batch_bytes(
    count: int = 1,
    *,
    timestamp: int = NOW,
    step_ms: int = 1,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    codec: Compression = Compression.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> bytes:
    """Return a v2 batch of ``count`` equal records; ``producer`` is id, epoch and base sequence."""
    builder = BatchBuilder(1 << 24)
    for index in range(count):
        builder.append(timestamp + index * step_ms, key, value, ())
    if codec:
        builder.compress(codec)
    return builder.encode(*producer, transactional=transactional)


def stored(count: int = 1, **options: object) -> StoredBatch:
    """Return ``batch_bytes`` as the log accepts it."""
    return StoredBatch(batch_bytes(count, **options))  # type: ignore[arg-type]


def placed(count: int, offset: int, epoch: int = 0) -> StoredBatch:
    """Return a batch with the offset that its leader assigned."""
    batch = stored(count)
    batch.place(offset, epoch)
    return batch


def marker(kind: int, producer_id: int, epoch: int = 0, base_offset: int = 0) -> bytes:
    """Return a control batch that ends a transaction."""
    key, value = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0)
    body = bytes((0, 0, 0, len(key) << 1)) + key + bytes((len(value) << 1,)) + value + b"\0"
    record = bytes((len(body) << 1,)) + body
    return encode_batch(
        record,
        0x30,
        1,
        NOW,
        NOW,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_offset=base_offset,
    )


def patched(data: bytes, layout: str, position: int, value: int) -> bytes:
    """Return ``data`` with a field of its header changed and the CRC recomputed."""
    out = bytearray(data)
    struct.pack_into(layout, out, position, value)
    struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])))
    return bytes(out)

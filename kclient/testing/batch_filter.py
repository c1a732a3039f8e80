"""A stored batch with some of its records gone, as Kafka's cleaner writes it.

The batch keeps its base offset, last offset, producer and sequence; the records that stay keep
their offsets and times. Tombstones and markers give a batch its delete horizon (KIP-534): the time
from which they may go, kept where the base timestamp is. Used by ``compaction.py``, which decides
what stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kclient.protocol.primitives import put_varint
from kclient.record.batch import parse_record
from kclient.record.compression import Compression, compress
from kclient.record.crc import crc32c
from kclient.record.inflate import decompress
from kclient.record.layout import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    HEAD,
    LOG_OVERHEAD,
    REST,
)
from kclient.testing.stored_batch import StoredBatch

DELETE_HORIZON_BIT = 0x40
INFLATE_CAP_BYTES = 256 << 20
"""Most that one batch may inflate to when its records are looked at."""
_MAGIC = 2
_NO_TIMESTAMP = -1


class StoredRecord(NamedTuple):
    """One record of a stored batch."""

    offset: int
    timestamp: int
    key: bytes | None
    is_tombstone: bool
    """It has no value."""
    tail: bytes
    """From the key's length on, as it is stored."""


def delete_horizon(batch: StoredBatch) -> int | None:
    """Milliseconds from when the batch's tombstones or markers may go; None if it has none yet."""
    return batch.base_timestamp if batch.attributes & DELETE_HORIZON_BIT else None


def records_of(batch: StoredBatch) -> list[StoredRecord]:
    """All records of a batch.

    Raises:
        CorruptRecord: The batch is not what it should be.
        DecompressionFailed: It can't be inflated here.
        CodecUnavailable: Its codec's package is missing.
    """
    if not batch.record_count:
        return []
    data = decompress(
        Compression(batch.codec), memoryview(batch.data)[BATCH_HEADER_BYTES:], INFLATE_CAP_BYTES
    )
    found = []
    pos, end = 0, len(data)
    for _ in range(batch.record_count):
        late, delta, key_pos, key_size, _, value_size, _, stop = parse_record(data, pos, end)
        tail = bytearray()
        put_varint(tail, key_size)
        tail += data[key_pos:stop]
        found.append(
            StoredRecord(
                batch.base_offset + delta,
                batch.max_timestamp if batch.is_log_append_time else batch.base_timestamp + late,
                data[key_pos : key_pos + key_size] if key_size >= 0 else None,
                value_size < 0,
                bytes(tail),
            )
        )
        pos = stop
    return found


def with_records(
    batch: StoredBatch, kept: Sequence[StoredRecord], horizon: int | None
) -> StoredBatch:
    """The batch with the records ``kept``, at least one, and nothing else.

    Args:
        batch: As it is stored.
        kept: Some of ``records_of(batch)``.
        horizon: The delete horizon in milliseconds, None for none.
    """
    appended = batch.is_log_append_time
    base_timestamp = kept[0].timestamp if horizon is None else horizon
    body = bytearray()
    for record in kept:
        inner = bytearray(1)  # attributes, which no record has
        put_varint(inner, record.timestamp - base_timestamp)
        put_varint(inner, record.offset - batch.base_offset)
        inner += record.tail
        put_varint(body, len(inner))
        body += inner
    attributes = batch.attributes & ~DELETE_HORIZON_BIT
    return _encoded(
        batch,
        compress(Compression(batch.codec), body),
        attributes if horizon is None else attributes | DELETE_HORIZON_BIT,
        base_timestamp,
        batch.max_timestamp if appended else max(record.timestamp for record in kept),
        len(kept),
    )


def without_records(batch: StoredBatch) -> StoredBatch:
    """Its header alone: what tells of a producer's last sequence, or where the log ends."""
    attributes = batch.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    return _encoded(batch, b"", attributes, _NO_TIMESTAMP, batch.max_timestamp, 0)


def _encoded(
    batch: StoredBatch,
    body: bytes,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    record_count: int,
) -> StoredBatch:
    rest = REST.pack(
        attributes,
        batch.last_offset - batch.base_offset,
        base_timestamp,
        max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        record_count,
    )
    length = BATCH_HEADER_BYTES - LOG_OVERHEAD + len(body)
    crc = crc32c(body, crc32c(rest))
    head = HEAD.pack(batch.base_offset, length, batch.leader_epoch, _MAGIC, crc)
    return StoredBatch(head + rest + body)

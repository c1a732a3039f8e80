"""Compaction of batches: it keeps the last record of each key.

Two passes over a log: the first notes the last offset of each key among the dirty records, the
second drops each record that a later one replaces. A batch without records stays if it holds the
last sequence of a producer, or the end of the cleaned range. A batch keeps its base offset, last
offset, producer and sequence; the records that stay keep their offsets and timestamps. Tombstones
give a batch its delete horizon (KIP-534): the time from which they may be removed, stored in the
base timestamp. Transactions are left as they are. Used by ``log_cleaner.py``, which sets the range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kclient.protocol.primitives import put_varint
from kclient.record.compression import Compression, compress, decompress
from kclient.record.layout import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    HEAD,
    LOG_OVERHEAD,
    REST,
    crc32c,
)
from kclient.record.record import parse_record
from kclient.testing.log import INFLATE_CAP_BYTES
from kclient.testing.log_state import ProducerStates
from kclient.testing.stored_batch import StoredBatch

DELETE_HORIZON_BIT = 0x40
_MAGIC = 2
_NO_TIMESTAMP = -1


class Round(NamedTuple):
    """One run over a log.

    Attributes:
        first_dirty: Offsets below it were compacted before.
        end: Nothing from this offset on is touched.
        now_ms: The time, which is compared with delete horizons.
        delete_retention_ms: Time until a new delete horizon.
        producers: The producers whose last batches stay.
    """

    first_dirty: int
    end: int
    now_ms: int
    delete_retention_ms: int
    producers: ProducerStates


class _Record(NamedTuple):
    """One record of a stored batch."""

    offset: int
    timestamp: int
    key: bytes | None
    is_tombstone: bool
    """The record has no value."""
    tail: bytes
    """The stored bytes from the key's length on."""


def compact(batches: Sequence[StoredBatch], run: Round) -> list[StoredBatch]:
    """Return the batches of a log below ``run.end`` that remain after compaction.

    Args:
        batches: From the first of the log to the last one below ``run.end``.
        run: The range, the time and the limits.

    Raises:
        CorruptRecord: A batch is malformed; nothing was changed.
        DecompressionFailed: A batch can't be inflated.
        CodecUnavailable: Its codec's package is missing.
    """
    latest = {
        record.key: record.offset
        for batch in batches
        if batch.last_offset >= run.first_dirty and not _is_kept(batch)
        for record in _records_of(batch)
        if record.key is not None and record.offset >= run.first_dirty
    }
    found = (batch if _is_kept(batch) else _cleaned(batch, run, latest) for batch in batches)
    return [batch for batch in found if batch is not None]


def _is_kept(batch: StoredBatch) -> bool:
    return batch.is_control or batch.is_transactional


def _cleaned(batch: StoredBatch, run: Round, latest: dict[bytes, int]) -> StoredBatch | None:
    """The batch with the records that remain; None if it is removed."""
    horizon = delete_horizon(batch)
    tombstones_stay = horizon is None or run.now_ms < horizon
    records = _records_of(batch)
    kept = [
        one
        for one in records
        if one.key is not None
        and one.offset >= latest.get(one.key, -1)
        and (tombstones_stay or not one.is_tombstone)
    ]
    if not kept:
        return _without_records(batch) if _must_stay(batch, run) else None
    if horizon is None and any(one.is_tombstone for one in kept):
        return _with_records(batch, kept, run.now_ms + run.delete_retention_ms)
    return batch if len(kept) == len(records) else _with_records(batch, kept, horizon)


def _must_stay(batch: StoredBatch, run: Round) -> bool:
    """Whether the batch must stay even without records."""
    if batch.next_offset == run.end:
        return True
    state = run.producers.get(batch.producer_id) if batch.producer_id >= 0 else None
    return (
        state is not None
        and bool(state.batches)
        and batch.last_offset == state.batches[-1].last_offset
    )


def delete_horizon(batch: StoredBatch) -> int | None:
    """Wall-clock milliseconds from which its tombstones may be removed; None if not set yet."""
    return batch.base_timestamp if batch.attributes & DELETE_HORIZON_BIT else None


def _records_of(batch: StoredBatch) -> list[_Record]:
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
            _Record(
                batch.base_offset + delta,
                batch.max_timestamp if batch.is_log_append_time else batch.base_timestamp + late,
                data[key_pos : key_pos + key_size] if key_size >= 0 else None,
                value_size < 0,
                bytes(tail),
            )
        )
        pos = stop
    return found


def _with_records(batch: StoredBatch, kept: Sequence[_Record], horizon: int | None) -> StoredBatch:
    """The batch with the records ``kept``, at least one, and nothing else."""
    base_timestamp = kept[0].timestamp if horizon is None else horizon
    body = bytearray()
    for record in kept:
        inner = bytearray(1)  # record attributes, unused
        put_varint(inner, record.timestamp - base_timestamp)
        put_varint(inner, record.offset - batch.base_offset)
        inner += record.tail
        put_varint(body, len(inner))
        body += inner
    attributes = batch.attributes & ~DELETE_HORIZON_BIT
    max_timestamp = max(record.timestamp for record in kept)
    return _encoded(
        batch,
        compress(Compression(batch.codec), body),
        attributes if horizon is None else attributes | DELETE_HORIZON_BIT,
        base_timestamp,
        batch.max_timestamp if batch.is_log_append_time else max_timestamp,
        len(kept),
    )


def _without_records(batch: StoredBatch) -> StoredBatch:
    """The header alone: it keeps a producer's last sequence, or the end of the cleaned range."""
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

"""Logs of keyed records for the tests of the cleaner, and what a reader gets of them."""

from __future__ import annotations

from collections.abc import Sequence

from kclient.record.builder import BatchBuilder
from kclient.record.compression import Compression
from kclient.record.message_set import read_batches
from kclient.testing.log import PartitionLog
from kclient.testing.stored_batch import StoredBatch
from kclient.testing.topic_configs import TopicConfig
from tests.unit.testing.batches import NOW, marker

Pair = tuple[bytes | None, bytes | None]


def keyed(
    pairs: Sequence[Pair],
    *,
    timestamp: int = NOW,
    step_ms: int = 1,
    codec: Compression = Compression.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> StoredBatch:
    """Return a batch with these keys and values."""
    builder = BatchBuilder(1 << 24)
    for index, (key, value) in enumerate(pairs):
        builder.append(timestamp + index * step_ms, key, value, (("h", b"1"),))
    if codec:
        builder.compress(codec)
    return StoredBatch(builder.encode(*producer, transactional=transactional))


def put(log: PartitionLog, *pairs: Pair, **options: object) -> None:
    """Append a batch, and commit it."""
    log.append(keyed(pairs, **options), 0, None)  # type: ignore[arg-type]
    log.advance(log.end_offset)


def end(log: PartitionLog, kind: int, producer_id: int) -> None:
    """End a transaction."""
    log.append_placed(StoredBatch(marker(kind, producer_id, base_offset=log.end_offset)))
    log.advance(log.end_offset)


def topic(**given: object) -> TopicConfig:
    """Return a topic configuration, underscores for dots; by default one batch per segment."""
    texts = {name.replace("_", "."): str(value) for name, value in given.items()}
    return TopicConfig({"internal.segment.bytes": "1", **texts}, {})


def compacted(**given: object) -> TopicConfig:
    """Return a compacted topic's configuration, which is cleaned however little is dirty."""
    return topic(**{"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0, **given})


def seen(log: PartitionLog, start: int | None = None) -> list[tuple[int, bytes | None, int]]:
    """Return (offset, value, timestamp) of records, fetched one batch at a time."""
    offset = log.start_offset if start is None else start
    found: list[tuple[int, bytes | None, int]] = []
    while True:
        batches = log.read(offset, 1, log.high_watermark, at_least_one=True).batches
        if not batches:
            return found
        for batch in read_batches(memoryview(batches[0].data)):
            batch.check_crc()
            batch.inflate()
            if not batch.is_control:
                found += [
                    (record.offset, record.value, record.timestamp)
                    for record in batch.records("", 0, start_offset=offset)
                ]
        offset = batches[-1].next_offset


def values(log: PartitionLog) -> list[bytes | None]:
    """Return the values that a consumer reads."""
    return [value for _, value, _ in seen(log)]

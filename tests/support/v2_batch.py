"""A v2 batch around any bytes, for tests that send or store what no builder makes."""

from __future__ import annotations

from kclient.record.layout import batch_head


def encode_batch(
    body: bytes | bytearray | memoryview,
    attributes: int,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """A whole v2 batch around ``body``, with its CRC."""
    head = batch_head(
        body,
        attributes,
        record_count,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        base_offset,
        leader_epoch,
    )
    return b"".join((head, body))

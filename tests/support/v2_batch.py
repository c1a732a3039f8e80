"""A v2 batch around any bytes, for tests that send or store what no builder makes."""

from __future__ import annotations

from kclient.record.layout import batch_head


def encode_batch(body: bytes | bytearray | memoryview, *fields: int, **named_fields: int) -> bytes:
    """A whole v2 batch around ``body``, with its CRC; the fields are those of ``batch_head``."""
    return batch_head(body, *fields, **named_fields) + bytes(body)

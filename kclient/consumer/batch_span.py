"""How far the batches of one fetched piece reach, without looking into them, sans-IO.

Called by ``fetch_reply`` when a response comes, so that the next fetch can be sent before anything
is decoded. The batches themselves are read one by one when poll wants them: a piece of many tiny
ones would hold the loop, and take a multiple of its size as objects.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from kclient.errors import CorruptRecord
from kclient.record import read_batches
from kclient.record.layout import BATCH_HEADER_BYTES, LOG_OVERHEAD

if TYPE_CHECKING:
    from kclient.types import TopicPartition

_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8
_ENDS = struct.Struct(">q8xb6xi")
"""Base offset, magic, last offset delta."""
_INT64_MAX = 0x7FFFFFFFFFFFFFFF
_SMALLEST_MESSAGE_BYTES = 14


class BatchSpan(NamedTuple):
    """What a piece covers.

    Attributes:
        end_offset: Behind its last whole batch.
        clean: Reading the batches ends without an error of structure.
    """

    end_offset: int
    clean: bool


def measure(data: memoryview, offset: int, topic_partition: TopicPartition) -> BatchSpan:
    """Walk over the batches in ``data``, which was fetched at ``offset``."""
    size, pos, last = len(data), 0, -1
    length_of = _LENGTH.unpack_from
    clean = True
    while size - pos >= LOG_OVERHEAD:
        length = length_of(data, pos + _LENGTH_AT)[0]
        if length < _SMALLEST_MESSAGE_BYTES:
            clean = False
            break
        end = pos + LOG_OVERHEAD + length
        if end > size:
            break  # the broker cut it off
        last, pos = pos, end
    if last < 0:
        return BatchSpan(offset, clean)
    if pos - last >= BATCH_HEADER_BYTES:
        base, magic, delta = _ENDS.unpack_from(data, last)
        if magic == 2 and base >= 0 and 0 <= delta < _INT64_MAX - base:
            return BatchSpan(max(base + delta + 1, offset), clean)
    try:
        batch = next(read_batches(data[last:], topic_partition=topic_partition))
    except CorruptRecord:
        return BatchSpan(offset, False)
    return BatchSpan(max(batch.next_offset, offset), clean)

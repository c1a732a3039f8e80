"""``read_batches``: what a fetch response holds of a partition, batch by batch, of any age.

Batches are windows on the given bytes (``record_batch``), as are the messages of message sets with
magic 0 and 1 (``legacy``). It must not do I/O or know about positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.record.layout import LOG_OVERHEAD, MAGIC_POSITION, PREFIX
from kclient.record.record_batch import Batch, corrupt_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kclient.types import TopicPartition

_SMALLEST_MESSAGE_BYTES = 14
"""Of a v0 message: CRC, magic, attributes, and two lengths."""


def read_batches(
    data: bytes | memoryview, *, topic_partition: TopicPartition | None = None
) -> Iterator[Batch]:
    """Every whole batch in ``data``, in order.

    What a broker cuts off at the end of a fetch is silently left: no batch, no error.

    Args:
        data: Record bytes of one partition; the batches keep a view of them, so they must not
            change as long as records are taken.
        topic_partition: Where they are from, for the texts of errors.

    Raises:
        CorruptRecord: A batch's length, magic or header can't be right.
    """
    view = memoryview(data)
    if view.format != "B" or view.ndim != 1:
        view = view.cast("B")
    pos = 0
    size = len(view)
    while size - pos >= LOG_OVERHEAD:
        base_offset, length = PREFIX.unpack_from(view, pos)
        if length < _SMALLEST_MESSAGE_BYTES:
            what = f"announces a length of {length} bytes"
            raise corrupt_batch(topic_partition, base_offset, what)
        end = pos + LOG_OVERHEAD + length
        if end > size:
            return
        magic = view[pos + MAGIC_POSITION]
        if magic == 2:
            yield Batch(view[pos:end], topic_partition)
        elif magic < 2:
            from kclient.record.legacy import LegacyBatch  # rare: topics of the 0.10 era

            yield LegacyBatch(view[pos:end], topic_partition)
        else:
            what = f"has magic {magic}; this client reads 0, 1 and 2"
            raise corrupt_batch(topic_partition, base_offset, what)
        pos = end

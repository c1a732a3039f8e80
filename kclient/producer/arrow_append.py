"""Append rows of Arrow columns to open batches: the fast path of ``send_arrow``.

One source, two builds: compiled as ``_arrow_append_c`` with the C types of ``_arrow_append_c.pxd``;
``arrow_send`` imports ``append_rows`` from ``_compiled``. A row that needs a decision (no open
batch, a full one, or one that another call has added to; full memory) is left to ``arrow_send``, so
nothing is rejected here, only not taken. Sans-IO.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import cython  # type: ignore[import-untyped]
else:
    from kclient.record import _cython as cython

if not cython.compiled:  # else the .pxd has them
    from kclient.producer.append import MemoryBudget, TopicState
    from kclient.producer.batch import ProducerBatch
    from kclient.record.arrow_rows import ArrowRows

_BYTES_AT_ONCE = 4 * 1024 * 1024
"""Bytes of rows after which it returns, so that the caller can yield to the loop."""


def append_rows(
    rows: ArrowRows,
    row: int,
    last: int,
    topic_state: TopicState,
    budget: MemoryBudget,
    targets: Any,
    nexts: Any,
    watcher: object,
    now: int,
) -> int:
    """Add rows from ``row`` on to the open batches that ``watcher`` watches.

    Args:
        rows: A slice of rows.
        row: The first to add.
        last: The end; ``targets`` has no partitions for rows from there on.
        topic_state: The topic.
        budget: The producer's memory budget and counters.
        targets: An array of int32: the partition of each row, -1 for any; the chosen partition is
            then stored there.
        nexts: An array of int64: the index in its open batch that the next row of a partition
            gets, unless another call has added to it.
        watcher: The call that watches the batches.
        now: Timestamp in milliseconds for rows that have none.

    Returns:
        The first row that was not added; ``last`` if all were.
    """
    targets_view: Any = targets
    nexts_view: Any = nexts
    partitions = min(topic_state.count, len(nexts_view))
    left = _BYTES_AT_ONCE
    last = min(last, rows.count, len(targets_view))
    while row < last and left > 0:
        target = targets_view[row]
        sticky = target < 0
        if sticky:
            target = topic_state.sticky.ready(0)
            if target < 0:
                break
        if target >= partitions:
            break
        batch: ProducerBatch | None = topic_state.batches[target]
        if batch is None or batch.builder is None or batch.watcher is not watcher:
            break
        if batch.builder.record_count != nexts_view[target]:
            break
        size = rows.stage(row)
        if budget.used + size > budget.limit:
            break
        if rows.put(batch.builder, row, now) < 0:
            break
        budget.take(batch, size)
        if sticky:
            topic_state.sticky.note(size)
            targets_view[row] = target
        nexts_view[target] += 1
        left -= size
        row += 1
    return row

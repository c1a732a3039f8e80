"""Columns for ``poll_arrow``, which needs pyarrow: that is imported on first use.

``poller`` has the fetch buffer pass batches to ``Columns.add`` and takes the result at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.errors import InvalidConfig
from kclient.record.columnar import ColumnBuilder

if TYPE_CHECKING:
    import pyarrow

    from kclient.consumer.partition_state import PartitionState
    from kclient.record import Batch

ROWS_PER_STEP = 5_000
"""Rows decoded between two checks of the clock: a batch may hold millions."""
ENOUGH_ROWS = 100_000
"""Rows of one record batch after which no further batch is added."""
ENOUGH_BYTES = 64 * 1024 * 1024
"""Bytes of keys and values, likewise."""


class Columns:
    """The records of one ``poll_arrow``.

    Args:
        expected: The attribute of the previous ``Columns``, from the second one on.

    Raises:
        InvalidConfig: pyarrow is not installed.

    Attributes:
        begun: Offset of each partition's first record that was added.
    """

    __slots__ = ("_builder", "begun")

    def __init__(self, expected: tuple[int, int, int] = (0, 0, 0)) -> None:
        try:
            import pyarrow  # noqa: F401 - only whether it is there
        except ImportError as error:
            raise InvalidConfig(
                "poll_arrow() needs the package pyarrow, which is not installed",
                hint="pip install 'kclient[arrow]'",
            ) from error
        self._builder = ColumnBuilder(expected)
        self.begun: dict[PartitionState, int] = {}

    @property
    def expected(self) -> tuple[int, int, int]:
        """Expected size of the next record batch, judged by the previous ones."""
        return self._builder.expected

    @property
    def row_count(self) -> int:
        """How many records were added."""
        return self._builder.num_rows

    @property
    def is_full(self) -> bool:
        """It holds enough for one record batch."""
        builder = self._builder
        return builder.num_rows >= ENOUGH_ROWS or builder.size_bytes >= ENOUGH_BYTES

    def add(self, state: PartitionState, batch: Batch, start_offset: int) -> int | None:
        """Add records of ``batch`` from ``start_offset`` on.

        Returns the offset to continue at, None where there is no space for any.
        """
        topic, partition = state.topic_partition
        builder = self._builder
        added = builder.add(batch, topic, partition, start_offset=start_offset, limit=ROWS_PER_STEP)
        if added:
            self.begun.setdefault(state, start_offset)
        if batch.exhausted:
            return batch.next_offset
        return builder.last_offset + 1 if added else None

    def to_record_batch(self) -> pyarrow.RecordBatch:
        """The records that were added, as one record batch."""
        return self._builder.to_record_batch()

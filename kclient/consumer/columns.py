"""Columns: the records of one ``poll_arrow``, and where it ends.

``poller`` fills it from ``fetch_buffer`` batch by batch. pyarrow is imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kclient.errors import InvalidArgument, InvalidConfig, a_or_an
from kclient.record.columnar import CHOICES, COLUMNS, ColumnBuilder
from kclient.types import checked_offset, checked_partition

if TYPE_CHECKING:
    import pyarrow

    from kclient.consumer.partition_state import PartitionState
    from kclient.consumer.subscription import Subscription
    from kclient.record import Batch
    from kclient.types import TopicPartition

ROWS_PER_STEP = 5_000
"""Rows decoded between two checks of the clock: a batch may hold millions."""
ENOUGH_ROWS = 100_000
"""Rows of one record batch after which no further batch is added."""
ENOUGH_BYTES = 64 * 1024 * 1024
"""Bytes of keys and values, likewise."""


class Columns:
    """The records of one ``poll_arrow``.

    Args:
        expected: That of the previous builder, from the second one on.
        names: The columns, in their order.
        ends: By partition, the offset in front of which it ends; others don't.

    Raises:
        InvalidConfig: pyarrow is not installed.

    Attributes:
        begun: Offset of each partition's first record that was added.
        builder: Has the columns, and what to expect of the next ones.
    """

    __slots__ = ("_ends", "begun", "builder")

    def __init__(
        self,
        expected: tuple[int, int, int] = (0, 0, 0),
        names: tuple[str, ...] = COLUMNS,
        ends: Mapping[PartitionState, int] | None = None,
    ) -> None:
        try:
            import pyarrow  # noqa: F401 - only whether it is there
        except ImportError as error:
            raise InvalidConfig(
                "poll_arrow() needs the package pyarrow, which is not installed",
                hint="pip install 'kclient[arrow]'",
            ) from error
        self.builder = ColumnBuilder(expected, names)
        self.begun: dict[PartitionState, int] = {}
        self._ends = ends or {}

    @property
    def is_full(self) -> bool:
        """It holds enough for one record batch."""
        builder = self.builder
        return builder.num_rows >= ENOUGH_ROWS or builder.size_bytes >= ENOUGH_BYTES

    def add(self, state: PartitionState, batch: Batch, start_offset: int) -> int | None:
        """Add records of ``batch`` from ``start_offset`` on.

        Returns the offset to continue at, None where there is no space for any.
        """
        topic, partition = state.topic_partition
        builder = self.builder
        end = self._ends.get(state)
        if end is not None and start_offset >= end:
            return None
        added = builder.add(
            batch,
            topic,
            partition,
            start_offset=start_offset,
            limit=ROWS_PER_STEP,
            stop_offset=end,
        )
        if added:
            self.begun.setdefault(state, start_offset)
        if builder.stopped:
            return end
        if batch.exhausted:
            return batch.next_offset
        return builder.last_offset + 1 if added else None

    def to_record_batch(self) -> pyarrow.RecordBatch:
        """The records that were added, as one record batch."""
        return self.builder.to_record_batch()


def checked_columns(names: object) -> tuple[str, ...]:
    """The columns that ``poll_arrow`` builds: some of ``CHOICES``, each once; None for the usual.

    Raises:
        InvalidArgument: They are not.
    """
    if names is None:
        return COLUMNS
    given = tuple(names) if isinstance(names, Iterable) and not isinstance(names, str) else ()
    known = given and all(name in CHOICES for name in given)
    if not known or len({*given}) < len(given):
        raise InvalidArgument(
            f"columns={names!r} can't be used: allowed are one or more of {', '.join(CHOICES)}, "
            "each once"
        )
    return given


def checked_ends(subscription: Subscription, until: object) -> dict[PartitionState, int] | None:
    """The offset in front of which each partition ends, by its state.

    Raises:
        InvalidArgument: It is no mapping of partitions to offsets, or one isn't assigned.
    """
    if until is None:
        return None
    if not isinstance(until, Mapping):
        raise InvalidArgument(
            "until must be a mapping of TopicPartition to offset, not "
            f"{a_or_an(type(until).__name__)}",
            hint="until=await consumer.end_offsets(consumer.assignment) is up to now",
        )
    ends: dict[TopicPartition, int] = {
        checked_partition(partition): checked_offset(end) for partition, end in until.items()
    }
    return {subscription.require(partition): end for partition, end in ends.items()}

"""Reading ranges of offsets in a task: batches of columns, the next one under way already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kclient.broker_errors import OffsetOutOfRange
from kclient.errors import RequestTimedOut
from kclient.spark.columns import ROWS, Converter, polled
from kclient.spark.loop import consumer_of, submit
from kclient.spark.planning import data_lost

if TYPE_CHECKING:
    import pyarrow

    from kclient.consumer import Consumer
    from kclient.spark.options import SourceOptions
    from kclient.spark.ranges import OffsetRange, ReadTask
    from kclient.types import TopicPartition

_LOOK = 2.0
"""Seconds without records, after which it is found out why there are none."""


@dataclass
class RangeReader:
    """Reads the ranges of one source with one set of columns.

    Attributes:
        options: What was asked for.
        properties: Settings of the client.
        names: Spark's names of the columns.
        converter: Makes Spark's batches.
    """

    options: SourceOptions
    properties: Mapping[str, Any]
    names: list[str]
    converter: Converter

    def read(self, task: ReadTask) -> Iterator[pyarrow.RecordBatch]:
        """The batches of a task.

        Raises:
            DataLoss: Records of it are gone, unless the options say to go on.
            RequestTimedOut: Nothing came for ``poll_timeout`` seconds.
            KafkaError: What ``Consumer.poll_arrow`` raises.
        """
        if not task.ranges:
            return
        only = task.ranges[0].topic_partition if len(task.ranges) == 1 else None
        with consumer_of(self.properties) as consumer:
            reading = _Reading(
                self.options, polled(self.names, several=only is None), consumer, task.ranges
            )
            pending = submit(reading.begin())
            while (batch := pending.result()) is not None:
                pending = submit(reading.more())
                whole = self.converter.convert(batch, only)
                for row in range(0, whole.num_rows, ROWS):
                    yield whole.slice(row, ROWS)


class _Reading:
    """The ranges of one task; its coroutines run in the loop of the process."""

    def __init__(
        self,
        options: SourceOptions,
        columns: list[str],
        consumer: Consumer[Any, Any],
        ranges: tuple[OffsetRange, ...],
    ) -> None:
        self._options = options
        self._columns = columns
        self._consumer = consumer
        self._starts = {one.topic_partition: one.start for one in ranges}
        self._ends = {one.topic_partition: one.end for one in ranges}

    async def begin(self) -> pyarrow.RecordBatch | None:
        """Seek, and the first batch."""
        self._consumer.assign(self._starts)
        for partition, start in self._starts.items():
            self._consumer.seek(partition, start)
        return await self.more()

    async def more(self) -> pyarrow.RecordBatch | None:
        """The next batch; None where all ranges are at their end."""
        waited = 0.0
        while left := self._unfinished():
            try:
                batch = await self._consumer.poll_arrow(
                    columns=self._columns, until=self._ends, timeout=_LOOK
                )
            except OffsetOutOfRange as error:
                lost = [one for one in left if error.topic_partition in (None, one)]
                for partition in lost:
                    await self._skip_lost(partition)
                continue
            if batch.num_rows:
                return batch
            now = self._unfinished()
            waited = 0.0 if now != left else waited + _LOOK
            if now == left:
                await self._find_out(left, waited)
        return None

    def _unfinished(self) -> dict[TopicPartition, int]:
        """Positions of the partitions that aren't at their end."""
        positions = self._consumer.positions()
        at = {key: positions.get(key) for key in self._ends}
        known = {key: self._starts[key] if one is None else one for key, one in at.items()}
        return {key: one for key, one in known.items() if one < self._ends[key]}

    async def _skip_lost(self, key: TopicPartition) -> None:
        """Go to the beginning of the log where the position is before it."""
        at = self._unfinished()[key]
        first = (await self._consumer.beginning_offsets([key]))[key]
        if first <= at:
            await self._check_end(key, at)
            return
        end = self._ends[key]
        data_lost(
            self._options,
            f"{min(first, end) - at} offsets of {key} from {at} on are gone: its log begins at "
            f"{first}",
        )
        self._starts[key] = min(first, end)
        self._go_on(key)

    async def _check_end(self, key: TopicPartition, position: int) -> None:
        """End the range where the log does, if what is missing can't come any more."""
        last = (await self._consumer.end_offsets([key]))[key]
        committed_only = self._consumer.config.isolation_level == "read_committed"
        if last >= self._ends[key] or (committed_only and last >= position):
            return
        data_lost(
            self._options,
            f"{self._ends[key] - position} offsets of {key} from {position} on are gone: its log "
            f"ends at {last}",
        )
        self._starts[key] = self._ends[key]
        self._go_on(key)

    def _go_on(self, key: TopicPartition) -> None:
        """Seek to the start, or leave a partition out of which nothing is left."""
        if self._starts[key] < self._ends[key]:
            self._consumer.seek(key, self._starts[key])
            return
        del self._ends[key], self._starts[key]
        self._consumer.assign(self._starts)

    async def _find_out(self, left: Mapping[TopicPartition, int], waited: float) -> None:
        """Look why nothing comes."""
        for key, position in left.items():
            await self._check_end(key, position)
        if waited >= self._options.poll_timeout and self._unfinished():
            key, position = next(iter(left.items()))
            raise RequestTimedOut(
                f"no record of {key} from offset {position} to {self._ends[key]} came within "
                f"{waited:g} s (option kafkaConsumer.pollTimeoutMs)",
                topic_partition=key,
                hint="with read_committed, an open transaction may hold them back",
            )

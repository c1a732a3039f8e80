"""Reading ranges of offsets in a task: batches of columns, the next one under way already."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kclient.broker_errors import OffsetOutOfRange, UnknownTopicId, UnknownTopicOrPartition
from kclient.errors import KafkaError, NoPosition, RequestTimedOut
from kclient.spark.columns import ROWS, Converter, polled
from kclient.spark.loop import client_properties, consumer_of, submit
from kclient.spark.planning import data_lost

if TYPE_CHECKING:
    import pyarrow

    from kclient.consumer import Consumer
    from kclient.spark.options import SourceOptions
    from kclient.spark.ranges import OffsetRange, ReadTask
    from kclient.types import TopicPartition

_PAUSE = 0.2
"""Seconds before it is tried again after an error."""
_LOOK = 2.0
"""Seconds without records, after which it is found out why there are none."""


@dataclass
class RangeReader:
    """Reads the ranges of one source with one set of columns.

    Attributes:
        options: What was asked for.
        names: Spark's names of the columns.
        converter: Makes Spark's batches.
    """

    options: SourceOptions
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
        # Read here, on each node: the file may have secrets, which mustn't travel with the task.
        properties = client_properties(self.options.properties, self.options.properties_file)
        with consumer_of(properties) as consumer:
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
        self._settled: set[TopicPartition] = set()
        """Partitions that were read from, or sought a second time."""

    async def begin(self) -> pyarrow.RecordBatch | None:
        """Seek, and the first batch."""
        self._consumer.assign(self._starts)
        for partition, start in self._starts.items():
            self._consumer.seek(partition, start)
        return await self.more()

    async def more(self) -> pyarrow.RecordBatch | None:
        """The next batch; None where all ranges are at their end."""
        since = time.monotonic()
        while left := self._unfinished():
            waited = time.monotonic() - since
            try:
                batch = await self._consumer.poll_arrow(
                    columns=self._columns, until=self._ends, timeout=_LOOK
                )
                if batch.num_rows:
                    self._keep_positions()
                    return batch
                if self._unfinished() == left:
                    await self._find_out(left, waited)
                else:
                    since = time.monotonic()
            except NoPosition:
                self._seek_again(left)
            except OffsetOutOfRange as error:
                await self._skip_lost(error, left)
            except KafkaError as error:
                if not error.retriable or waited >= self._options.poll_timeout:
                    raise
                if isinstance(error, (UnknownTopicOrPartition, UnknownTopicId)):
                    await self._skip_deleted(left)
                await asyncio.sleep(_PAUSE)
        return None

    def _unfinished(self) -> dict[TopicPartition, int]:
        """Positions of the partitions that aren't at their end."""
        positions = self._consumer.positions()
        at = {key: positions.get(key) for key in self._ends}
        known = {key: self._starts[key] if one is None else one for key, one in at.items()}
        return {key: one for key, one in known.items() if one < self._ends[key]}

    def _keep_positions(self) -> None:
        for key, position in self._consumer.positions().items():
            if position is not None and position > self._starts.get(key, position):
                self._starts[key] = position
                self._settled.add(key)

    def _seek_again(self, left: Mapping[TopicPartition, int]) -> None:
        """Positions are lost where another topic of that name has taken the place of one.

        The consumer may know the topic that was there in an earlier task: then it is this one that
        was planned.
        """
        positions = self._consumer.positions()
        for key in [key for key in left if positions.get(key) is None]:
            if key in self._settled:
                data_lost(self._options, f"topic {key.topic} was deleted and created again")
                self._starts[key] = self._ends[key]
            self._settled.add(key)
            self._go_on(key)

    async def _skip_lost(self, error: OffsetOutOfRange, left: Mapping[TopicPartition, int]) -> None:
        """Go to the beginning of the log where a position is before it."""
        keys = [key for key in left if error.topic_partition in (None, key)]
        begins = await self._consumer.beginning_offsets(keys)
        for key in keys:
            at, first, end = left[key], begins[key], self._ends[key]
            if first <= at:
                await self._check_end(key, at)
                continue
            data_lost(
                self._options,
                f"{min(first, end) - at} offsets of {key} from {at} on are gone: its log begins "
                f"at {first}",
            )
            self._starts[key] = min(first, end)
            self._go_on(key)
        await asyncio.sleep(_PAUSE)

    async def _skip_deleted(self, left: Mapping[TopicPartition, int]) -> None:
        """Leave out the partitions of topics that don't exist any more."""
        for topic in {key.topic for key in left}:
            try:
                await self._consumer.partitions_for(topic)
            except UnknownTopicOrPartition:
                data_lost(self._options, f"topic {topic} doesn't exist any more")
                for key in [key for key in left if key.topic == topic]:
                    self._starts[key] = self._ends[key]
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
                f"{waited:.0f} s (option kafkaConsumer.pollTimeoutMs)",
                topic_partition=key,
                hint="with read_committed, an open transaction may hold them back",
            )

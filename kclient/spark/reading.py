"""Reading one range of offsets in a task: batches of columns, the next one under way already."""

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
    from kclient.spark.ranges import OffsetRange
    from kclient.types import TopicPartition

_LOOK = 2.0
"""Seconds without records, after which it is found out why there are none."""


@dataclass
class RangeReader:
    """Reads ranges of one source with one set of columns.

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

    def read(self, part: OffsetRange) -> Iterator[pyarrow.RecordBatch]:
        """The batches of a range.

        Raises:
            DataLoss: Records of it are gone, unless the options say to go on.
            RequestTimedOut: Nothing came for ``poll_timeout`` seconds.
            KafkaError: What ``Consumer.poll_arrow`` raises.
        """
        if part.size <= 0:
            return
        with consumer_of(self.properties) as consumer:
            reading = _Reading(self, consumer, part)
            pending = submit(reading.begin())
            while (batch := pending.result()) is not None:
                pending = submit(reading.more())
                whole = self.converter.convert(batch, part.topic)
                for row in range(0, whole.num_rows, ROWS):
                    yield whole.slice(row, ROWS)


class _Reading:
    """One range; its coroutines run in the loop of the process."""

    def __init__(self, reader: RangeReader, consumer: Consumer[Any, Any], part: OffsetRange):
        self._options = reader.options
        self._columns = polled(reader.names)
        self._consumer = consumer
        self._partition: TopicPartition = part.topic_partition
        self._start = part.start
        self._end = part.end

    async def begin(self) -> pyarrow.RecordBatch | None:
        """Seek, and the first batch."""
        self._consumer.assign([self._partition])
        self._consumer.seek(self._partition, self._start)
        return await self.more()

    async def more(self) -> pyarrow.RecordBatch | None:
        """The next batch; None at the end of the range."""
        waited = 0.0
        while True:
            position = self._consumer.positions().get(self._partition)
            if position is not None and position >= self._end:
                return None
            try:
                batch = await self._consumer.poll_arrow(
                    columns=self._columns, until={self._partition: self._end}, timeout=_LOOK
                )
            except OffsetOutOfRange:
                if not await self._skip_lost():
                    return None
                continue
            if batch.num_rows:
                return batch
            now = self._consumer.positions().get(self._partition)
            if now != position:
                waited = 0.0
                continue
            waited += _LOOK
            if not await self._may_wait(waited):
                return None

    async def _skip_lost(self) -> bool:
        """Go to the beginning of the log where the position is before it; False at the end."""
        key = self._partition
        position = self._consumer.positions().get(key)
        at = self._start if position is None else position
        first = (await self._consumer.beginning_offsets([key]))[key]
        if first <= at:
            return await self._check_end(at)
        lost = min(first, self._end) - at
        data_lost(
            self._options,
            f"{lost} offsets of {key} from {at} on are gone: its log begins at {first}",
        )
        if first >= self._end:
            return False
        self._consumer.seek(key, first)
        return True

    async def _check_end(self, position: int) -> bool:
        """Whether what is missing may still come; False where the log ends before it."""
        key = self._partition
        last = (await self._consumer.end_offsets([key]))[key]
        level = self._consumer.config.isolation_level
        if last >= self._end or (level == "read_committed" and last >= position):
            return True
        data_lost(
            self._options,
            f"{self._end - position} offsets of {key} from {position} on are gone: its log ends at "
            f"{last}",
        )
        return False

    async def _may_wait(self, waited: float) -> bool:
        """Look why nothing comes."""
        key = self._partition
        position = self._consumer.positions().get(key, self._start)
        if not await self._check_end(self._start if position is None else position):
            return False
        if waited >= self._options.poll_timeout:
            raise RequestTimedOut(
                f"no record of {key} from offset {position} to {self._end} came within "
                f"{waited:g} s (option kafkaConsumer.pollTimeoutMs)",
                topic_partition=key,
                hint="with read_committed, an open transaction may hold them back",
            )
        return True

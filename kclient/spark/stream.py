"""The stream: how far it may read, the ranges of a micro-batch, and what was lost meanwhile.

One object of it lives in Spark's planning process as long as the query; ``read`` is called in
tasks, on copies. Pyspark 4.0 and 4.1 know no limits of Python sources: ``stream_reader`` chooses.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyspark.sql.datasource as api

from kclient.errors import InvalidConfig
from kclient.spark.loop import run
from kclient.spark.options import LATEST, SourceOptions
from kclient.spark.planning import Planner, data_lost
from kclient.spark.ranges import ReadTask, ranges_between, rate_limited, tasks_of
from kclient.spark.stream_offset import StreamOffset

if TYPE_CHECKING:
    import pyarrow

    from kclient.spark.reading import RangeReader
    from kclient.types import TopicPartition

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    HAS_LIMITS = True
except ImportError:  # before 4.2
    HAS_LIMITS = False
    if not TYPE_CHECKING:
        SupportsTriggerAvailableNow = object


def stream_reader(options: SourceOptions, ranges: RangeReader) -> api.DataSourceStreamReader:
    """The reader for this version of PySpark.

    Raises:
        InvalidConfig: A limit was asked for, which it doesn't know.
    """
    if HAS_LIMITS:
        return StreamReader(options, ranges)
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
        if name.lower() in options.given:
            raise InvalidConfig(f"option {name} needs pyspark 4.2 or newer")
    return UnlimitedStreamReader(options, ranges)


class _BaseStreamReader(api.DataSourceStreamReader):
    """What all versions have in common."""

    def __init__(self, options: SourceOptions, ranges: RangeReader) -> None:
        self._options = options
        self._ranges = ranges
        self._latest: StreamOffset | None = None
        self._target: StreamOffset | None = None
        self._triggered = float("-inf")
        self._first: StreamOffset | None = None
        self._compared = False
        """Topics were compared with those of the checkpoint, once for each start of a query."""

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins."""
        self._first = run(self._initial())
        return self._first.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[ReadTask]:
        """The tasks of a micro-batch, the same for the same offsets."""
        return run(self._ranges_of(StreamOffset.from_json(start), StreamOffset.from_json(end)))

    def read(  # type: ignore[override]
        self, partition: ReadTask
    ) -> Iterator[pyarrow.RecordBatch]:
        """The batches of a task."""
        return self._ranges.read(partition)

    async def _initial(self) -> StreamOffset:
        planner = Planner(self._options)
        ids = await planner.partitions()
        starts = await planner.starts(ids, self._options.starting or LATEST)
        return StreamOffset(starts, _ids(ids))

    async def _now(self) -> StreamOffset:
        """Where the partitions end now, or ended as the last query was to stop there."""
        planner = Planner(self._options)
        if self._target is not None:
            return await self._what_exists(self._target)
        ids = await planner.existing()
        self._latest = StreamOffset(await planner.latest(ids), _ids(ids))
        return self._latest

    async def _what_exists(self, target: StreamOffset) -> StreamOffset:
        """The target without topics that are gone, where that is accepted."""
        if self._options.fail_on_data_loss:
            return target
        found = await Planner(self._options).existing()
        kept = {key: one for key, one in target.positions.items() if key in found}
        return StreamOffset(
            kept, {key.topic: target.ids[key.topic] for key in kept if key.topic in target.ids}
        )

    async def _starts(
        self, start: StreamOffset, now: StreamOffset
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Where each partition goes on, and where those begin that are new."""
        planner, options = Planner(self._options), self._options
        replaced = self._replaced(start, now)
        self._check_deleted(start, now)
        first = await planner.earliest(now.positions)
        begins: dict[TopicPartition, int] = {}
        added: dict[TopicPartition, int] = {}
        for key in now.positions:
            position = None if key.topic in replaced else start.positions.get(key)
            if position is None:
                begins[key] = added[key] = first[key]
                continue
            if position < first[key]:
                data_lost(
                    options,
                    f"{first[key] - position} offsets of {key} from {position} on are gone: its "
                    f"log begins at {first[key]}",
                )
            if position > now.positions[key]:
                data_lost(
                    options,
                    f"{key} ends at {now.positions[key]}, before offset {position}, up to which "
                    "it was read",
                )
                begins[key] = added[key] = now.positions[key]
                continue
            begins[key] = position
        return begins, added

    def _check_deleted(self, start: StreamOffset, end: StreamOffset) -> None:
        """Topics of the start that the end doesn't have: a loss, too."""
        kept = {key.topic for key in end.positions}
        deleted = sorted({key.topic for key in start.positions} - kept)
        if deleted:
            data_lost(self._options, f"topics don't exist any more: {', '.join(deleted)}")

    def _replaced(self, start: StreamOffset, end: StreamOffset) -> list[str]:
        """Topics of which the end has another id than the start; that is a loss."""
        replaced = sorted(
            topic for topic, one in end.ids.items() if start.ids.get(topic) not in (None, one)
        )
        if replaced:
            data_lost(
                self._options, f"topics were deleted and created again: {', '.join(replaced)}"
            )
        return replaced

    async def _next(self, start: StreamOffset, *, limited: bool) -> StreamOffset:
        """Where the next micro-batch ends; ``start`` for none."""
        options, now = self._options, await self._now()
        begins, added = await self._starts(start, now)
        ends = {key: max(one, begins[key]) for key, one in now.positions.items()}
        self._compared = True
        if ends == start.positions and now.ids == start.ids:
            return start
        if start == self._first:
            # Spark doesn't keep where a query began: it asks again to repeat the first batch.
            added = dict(begins)
        new = sum(end - begins[key] for key, end in ends.items())
        if limited and self._is_to_wait(new):
            return start
        self._triggered = time.monotonic()
        if limited and options.max_offsets_per_trigger is not None and new:
            ends = rate_limited(options.max_offsets_per_trigger, begins, ends)
        return StreamOffset(ends, now.ids, added)

    def _is_to_wait(self, new: int) -> bool:
        least = self._options.min_offsets_per_trigger
        if least is None or new >= least or self._target is not None:
            return False
        return time.monotonic() - self._triggered < self._options.max_trigger_delay

    async def _ranges_of(self, start: StreamOffset, end: StreamOffset) -> list[ReadTask]:
        begins = {**dict.fromkeys(end.positions), **start.positions, **end.added}
        begins = {key: begins[key] for key in end.positions}
        if not HAS_LIMITS:  # the end was made without a look at the start
            self._check_deleted(start, end)
            replaced = self._replaced(start, end)
            begins.update({key: None for key in begins if key.topic in replaced})
            for key, position in begins.items():
                if position is not None and position > end.positions[key]:
                    data_lost(
                        self._options,
                        f"{key} ends at {end.positions[key]}, before offset {position}, up to "
                        "which it was read",
                    )
        if not self._compared:
            self._compared = True
            begins = await self._of_same_topics(begins, end)
        missing = [key for key, one in begins.items() if one is None]
        found: dict[TopicPartition, int] = {k: one for k, one in begins.items() if one is not None}
        if missing:
            found |= await Planner(self._options).earliest(missing)
        return tasks_of(
            ranges_between(found, {key: end.positions[key] for key in begins}),
            self._options.min_partitions,
            self._options.max_records_per_partition,
        )

    async def _of_same_topics(
        self, begins: dict[TopicPartition, int | None], end: StreamOffset
    ) -> dict[TopicPartition, int | None]:
        """Those of a repeated micro-batch whose topics are still the ones that it is about."""
        found = await Planner(self._options).existing()
        other = sorted(
            {
                key.topic
                for key in begins
                if key not in found or end.ids.get(key.topic) not in (None, found[key])
            }
        )
        if other:
            data_lost(
                self._options,
                "topics were deleted, or deleted and created again, since a batch of them was "
                f"planned: {', '.join(other)}",
            )
        return {key: one for key, one in begins.items() if key.topic not in other}


class UnlimitedStreamReader(_BaseStreamReader):
    """For PySpark 4.0 and 4.1: a micro-batch has all that there is."""

    _end: StreamOffset | None = None
    """Of the batch before, as Spark doesn't say."""

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        """Where the next micro-batch ends."""
        start = self._end or self._first
        self._end = run(self._next(start, limited=False) if start else self._now())
        return self._end.to_json()


class StreamReader(_BaseStreamReader, SupportsTriggerAvailableNow):
    """For PySpark 4.2 and newer: with limits, ``Trigger.AvailableNow`` and the latest offsets."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends; ``start`` for none. ``Trigger.Once`` has no limit."""
        limited = not isinstance(limit, ReadAllAvailable)
        return run(self._next(StreamOffset.from_json(start), limited=limited)).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options say."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember where the topics end now."""
        self._target = run(self._now())

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For the progress report."""
        return None if self._latest is None else self._latest.to_json()


def _ids(ids: Mapping[TopicPartition, str | None]) -> dict[str, str]:
    return {key.topic: one for key, one in ids.items() if one is not None}

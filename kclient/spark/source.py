"""``KafkaDataSource``: topics as tables and streams of PySpark, format "kclient".

Spark makes it on the driver, pickles it, and has it make readers in its own Python processes:
there is nothing in it but options. A batch is planned once, in ``BatchReader.partitions``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

import pyspark.sql.datasource as api

from kclient.spark.columns import (
    DATA,
    Converter,
    Decoder,
    ValueDecoder,
    arrow_schema,
    check_schema,
    ddl,
    decode_json,
)
from kclient.spark.loop import client_properties, run
from kclient.spark.options import EARLIEST, SourceOptions, parse_options
from kclient.spark.planning import Planner
from kclient.spark.ranges import ReadTask, ranges_between, tasks_of
from kclient.spark.reading import RangeReader

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

    from kclient.types import TopicPartition

_PUSHDOWN = "pyspark.sql.worker.data_source_pushdown_filters"
"""Spark's process that pushes filters down. In any other one a reader that takes filters is an
error."""


class KafkaDataSource(api.DataSource):
    """Topics as tables and streams, with the options of Spark's Kafka connector.

    Spark finds it by itself as format "kclient" (module ``pyspark_kclient``). A class derived from
    it may decode values in Python::

        class Flights(KafkaDataSource):
            value_schema = "carrier string, delay int"

            @classmethod
            def name(cls):
                return "flights"

            def decode_value(self, topic, value):
                carrier, delay = value.decode().split(",")
                return {"carrier": carrier, "delay": int(delay)}

        spark.dataSource.register(Flights)

    Raises:
        InvalidConfig: An option is unknown, can't be used, or is missing.
    """

    value_schema: ClassVar[str | None] = None
    """DDL of what ``decode_value`` makes."""
    decode_value: ClassVar[Any] = None

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self.parsed = parse_options(options)

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "kclient"

    def schema(self) -> str:
        """The columns of Spark's connector; and ``data`` and ``error``, if values are decoded."""
        return ddl(headers=self.parsed.include_headers, data=self._data())

    def _data(self) -> str | None:
        return self.parsed.value_schema or self.value_schema

    def _range_reader(self, schema: StructType) -> RangeReader:
        client_properties(self.parsed.properties, self.parsed.properties_file)  # can be read
        decodes = self._data() is not None
        check_schema(schema, decodes=decodes)
        names = [field.name for field in schema.fields]
        decoder: Decoder = self.decode_value or decode_json
        wanted = decodes and DATA in names  # `error` comes with it
        return RangeReader(
            self.parsed,
            names,
            Converter(arrow_schema(schema), ValueDecoder(decoder) if wanted else None),
        )

    def reader(self, schema: StructType) -> api.DataSourceReader:
        """For ``spark.read``. Spark calls it."""
        self.parsed.check_batch()
        kind = FilteringReader if _PUSHDOWN in sys.modules else BatchReader
        return kind(self.parsed, self._range_reader(schema))

    def streamReader(self, schema: StructType) -> api.DataSourceStreamReader:
        """For ``spark.readStream``. Spark calls it."""
        from kclient.spark.stream import stream_reader

        self.parsed.check_stream()
        return stream_reader(self.parsed, self._range_reader(schema))


class BatchReader(api.DataSourceReader):
    """Plans a batch, and reads its ranges in tasks."""

    def __init__(self, options: SourceOptions, ranges: RangeReader) -> None:
        self._options = options
        self._ranges = ranges
        self._indexes: frozenset[int] | None = None
        """Partitions that filters allow; None for all."""
        self._least = 0
        self._below: int | None = None
        self._since: int | None = None

    def partitions(self) -> list[ReadTask]:
        """The tasks, at least one."""
        return run(self._plan()) or [ReadTask(())]

    def read(  # type: ignore[override]
        self, partition: ReadTask
    ) -> Iterator[pyarrow.RecordBatch]:
        """The batches of a task."""
        return self._ranges.read(partition)

    async def _plan(self) -> list[ReadTask]:
        options, planner = self._options, Planner(self._options)
        partitions = list(await planner.partitions())
        starts = await planner.starts(partitions, options.starting or EARLIEST)
        ends = await planner.ends(partitions, options.ending)
        if self._since is not None:
            young = await planner.look_up(dict.fromkeys(partitions, self._since))
            for key, offset in young.items():
                starts[key] = max(starts[key], ends[key] if offset is None else offset)
        ranges = ranges_between(
            {key: max(one, self._least) for key, one in starts.items() if self._allows(key)},
            {key: self._cut(one) for key, one in ends.items() if self._allows(key)},
        )
        return tasks_of(ranges, options.min_partitions, options.max_records_per_partition)

    def _allows(self, key: TopicPartition) -> bool:
        return self._indexes is None or key.partition in self._indexes

    def _cut(self, end: int) -> int:
        return end if self._below is None else min(end, self._below)


class FilteringReader(BatchReader):
    """Reads no ranges that filters on partition, offset and timestamp leave nothing of.

    Spark filters what is read again: a filter only makes the ranges smaller.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Go by what can be used, and give all back."""
        for one in filters:
            path: tuple[str, ...] = getattr(one, "attribute", ())
            if len(path) == 1:
                self._take(path[0].lower(), type(one).__name__, getattr(one, "value", None))
        return filters

    def _take(self, column: str, kind: str, value: Any) -> None:
        match column, value:
            case "partition", int() | tuple() | list():
                self._take_partition(kind, value)
            case "offset", int():
                self._take_offset(kind, value)
            case "timestamp", datetime() if kind in (
                "EqualTo",
                "EqualNullSafe",
                "GreaterThan",
                "GreaterThanOrEqual",
            ):
                aware = value if value.tzinfo is not None else value.astimezone(UTC)
                since = int(aware.timestamp() * 1000)
                if since > 0:  # a record without a time has -1
                    self._since = max(since, self._since or 0)

    def _take_partition(self, kind: str, value: Any) -> None:
        if kind in ("EqualTo", "EqualNullSafe"):
            allowed = {value}
        elif kind == "In":
            allowed = {one for one in value if isinstance(one, int)}
        else:
            return
        self._indexes = frozenset(allowed if self._indexes is None else allowed & self._indexes)

    def _take_offset(self, kind: str, value: int) -> None:
        if kind in ("EqualTo", "EqualNullSafe", "GreaterThanOrEqual"):
            self._least = max(self._least, value)
        elif kind == "GreaterThan":
            self._least = max(self._least, value + 1)
        below = {"EqualTo": value + 1, "EqualNullSafe": value + 1, "LessThan": value}
        below["LessThanOrEqual"] = value + 1
        if kind in below:
            self._below = below[kind] if self._below is None else min(self._below, below[kind])

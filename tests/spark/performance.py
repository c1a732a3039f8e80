"""What a read costs beside Spark's own connector, tuned, and beside ready Arrow batches.

    python -m tests.spark.performance 127.0.0.1:9092 [--rounds 10] [--only sum] [--records 1000000]
                                                     [--tcp]

Each row runs the variants one after the other in each round, in turns; the first two rounds warm up
and are dropped. Medians of the rest, and of the ratios of each round. The tuned settings of the
connector are its best of those measured; its defaults wait a second for nothing. With ``--tcp``
Spark speaks with its Python workers as it does by default. The row ``planning`` is about the
driver: the CPU of planning tasks for 1,000 partitions, its first plan included.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyspark.sql.datasource as api

from kclient import Admin, NewTopic, Producer
from kclient.spark import KafkaDataSource
from kclient.spark.columns import ROWS, arrow_schema, ddl
from tests.spark.connector import connector_jars
from tests.spark.session import WORKERS, spark_session

TUNED = {
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": str(4 * 2**20),
    "kafka.fetch.max.bytes": str(64 * 2**20),
    "kafka.receive.buffer.bytes": str(2**20),
    "kafka.fetch.max.wait.ms": "10",
}
PARTITIONS = 4
WARM_UP = 2
MICRO_BATCH = 50_000
MANY_PARTITIONS = 1000


class ReadyBatches(api.DataSource):
    """The same source without Kafka: batches of the same columns, made when a task begins."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "ready"

    def schema(self) -> str:
        """As of kclient."""
        return ddl(headers=False, data=None)

    def reader(self, schema: Any) -> api.DataSourceReader:
        """Spark calls it."""
        return ReadyReader(int(self.options["records"]), arrow_schema(schema))

    def streamReader(self, schema: Any) -> api.DataSourceStreamReader:
        """Spark calls it."""
        return ReadyStream(int(self.options["records"]), arrow_schema(schema))


def _ready(records: int, schema: pyarrow.Schema) -> Iterator[pyarrow.RecordBatch]:
    rows = min(ROWS, records)
    columns = {
        "key": pyarrow.array([b"%08d" % n for n in range(rows)], pyarrow.binary()),
        "value": pyarrow.repeat(pyarrow.scalar(b"v" * 100), rows),
        "topic": pyarrow.repeat("perf-0123ab", rows),
        "partition": pyarrow.repeat(pyarrow.scalar(0, pyarrow.int32()), rows),
        "offset": pyarrow.array(range(rows), pyarrow.int64()),
        "timestamp": pyarrow.repeat(pyarrow.scalar(0, pyarrow.timestamp("us", "UTC")), rows),
        "timestampType": pyarrow.repeat(pyarrow.scalar(0, pyarrow.int32()), rows),
    }
    batch = pyarrow.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
    while records > 0:
        yield batch.slice(0, min(rows, records))
        records -= rows


class ReadyReader(api.DataSourceReader):
    """One range per partition."""

    def __init__(self, records: int, schema: pyarrow.Schema) -> None:
        self._each = records // PARTITIONS
        self._schema = schema

    def partitions(self) -> list[api.InputPartition]:
        """Spark calls it."""
        return [api.InputPartition(self._each) for _ in range(PARTITIONS)]

    def read(self, partition: api.InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Spark calls it."""
        return _ready(partition.value, self._schema)


class ReadyStream(api.DataSourceStreamReader):
    """One micro-batch."""

    def __init__(self, records: int, schema: pyarrow.Schema) -> None:
        self._records = records
        self._schema = schema

    def initialOffset(self) -> dict[str, int]:
        """Spark calls it."""
        return {"at": 0}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        """Spark calls it."""
        return {"at": self._records}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[api.InputPartition]:
        """Spark calls it."""
        each = (end["at"] - start["at"]) // PARTITIONS
        return [api.InputPartition(each) for _ in range(PARTITIONS)]

    def read(self, partition: api.InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Spark calls it."""
        return _ready(partition.value, self._schema)


async def _fill(
    bootstrap: str, records: int, *, partitions: int, compression: str, headers: bool
) -> str:
    topic = f"perf-{secrets.token_hex(3)}"
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, partitions=partitions)])
    keys = pyarrow.array([b"%08d" % n for n in range(50_000)])
    pairs = (
        ([[("source", b"sensor-17"), ("trace", b"00f067aa0ba902b7")]] * 50_000) if headers else []
    )
    async with Producer(bootstrap, compression=compression, linger=0.02) as producer:
        sent = 0
        while sent < records:
            rows = min(50_000, records - sent)
            table = {
                "key": keys.slice(0, rows),
                "value": pyarrow.array([secrets.token_bytes(50).hex().encode()] * rows),
                "partition": pyarrow.array([n % partitions for n in range(rows)], pyarrow.int32()),
            }
            if headers:
                table["headers"] = pyarrow.array(
                    pairs[:rows], pyarrow.map_(pyarrow.string(), pyarrow.binary())
                )
            await producer.send_arrow(topic, pyarrow.table(table))
            sent += rows
    return topic


class Bench:
    """Runs rows.

    Args:
        spark: The session.
        bootstrap: Of the broker.
        rounds: How many count.
    """

    def __init__(self, spark: Any, bootstrap: str, rounds: int) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._rounds = rounds
        self._folder = Path(tempfile.mkdtemp(prefix="spark-performance-"))

    def frame(
        self, source: str, topic: str, records: int, *, stream: bool = False, **more: str
    ) -> Any:
        """A table or stream of one of the sources."""
        reader = self._spark.readStream if stream else self._spark.read
        reader = reader.format("kafka" if source == "tuned" else source)
        if source == "ready":
            return reader.option("records", str(records)).load()
        options = {"kafka.bootstrap.servers": self._bootstrap, "subscribe": topic, **more}
        options["startingOffsets"] = "earliest"
        if source == "tuned":
            options |= TUNED
        return reader.options(**options).load()

    def total(self, source: str, topic: str, records: int) -> float:
        """Seconds of a sum over keys and values."""
        begun = time.perf_counter()
        frame = self.frame(source, topic, records)
        found = frame.selectExpr("sum(length(value)) + sum(length(key))").collect()[0][0]
        seconds = time.perf_counter() - begun
        assert found == records * 108, found
        return seconds

    def parquet(self, source: str, topic: str, records: int) -> float:
        """Seconds of a stream to parquet."""
        folder = self._folder / secrets.token_hex(4)
        begun = time.perf_counter()
        writer = self.frame(source, topic, records, stream=True).writeStream.format("parquet")
        query = (
            writer.option("path", str(folder / "out"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(**({"availableNow": True} if source != "ready" else {"once": True}))
            .start()
        )
        query.awaitTermination()
        seconds = time.perf_counter() - begun
        assert self._spark.read.parquet(str(folder / "out")).count() == records
        shutil.rmtree(folder)
        return seconds

    def micro_batches(self, source: str, topic: str, records: int) -> float:
        """Seconds of the median trigger of a stream in small batches."""
        folder = self._folder / secrets.token_hex(4)
        frame = self.frame(
            source, topic, records, stream=True, maxOffsetsPerTrigger=str(MICRO_BATCH)
        )
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", str(folder))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        times = [p.durationMs["triggerExecution"] / 1000 for p in query.recentProgress[1:]]
        shutil.rmtree(folder)
        assert len(times) >= records // MICRO_BATCH - 2
        return statistics.median(times)

    def row(
        self,
        name: str,
        measure: Callable[[str, str, int], float],
        topic: str,
        records: int,
        sources: tuple[str, ...] = ("kclient", "tuned", "ready"),
    ) -> None:
        """Measure one row, and print it."""
        found: dict[str, list[float]] = {source: [] for source in sources}
        for number in range(self._rounds + WARM_UP):
            turn = number % len(sources)
            for source in sources[turn:] + sources[:turn]:
                seconds = measure(source, topic, records)
                if number >= WARM_UP:
                    found[source].append(seconds)
        parts = [f"{source} {statistics.median(found[source]):.3f} s" for source in sources]
        for other in sources[1:]:
            ratios = [a / b for a, b in zip(found["kclient"], found[other], strict=True)]
            parts.append(f"{statistics.median(ratios):.2f}x of {other}")
        print(f"{name}: {', '.join(parts)}", flush=True)

    def planning(self, topic: str) -> None:
        """Print the CPU of planning, by offsets and by time, without Spark's worker around it."""
        schema = self.frame("kclient", topic, 0).schema
        for name, more in (("offsets", {}), ("a time", {"startingTimestamp": "1"})):
            times = []
            for _ in range(self._rounds):
                options = {"kafka.bootstrap.servers": self._bootstrap, "subscribe": topic, **more}
                begun = time.process_time()
                tasks = KafkaDataSource(options).reader(schema).partitions()
                times.append(time.process_time() - begun)
                assert sum(len(task.ranges) for task in tasks) == MANY_PARTITIONS
            print(
                f"planning of {MANY_PARTITIONS} partitions by {name}: "
                f"{max(times):.2f} s of CPU at most, median {statistics.median(times):.2f} s",
                flush=True,
            )


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bootstrap")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--only", default="")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--tcp", action="store_true")
    given = parser.parse_args()
    spark = spark_session(connector_jars(), {} if given.tcp else WORKERS)
    spark.dataSource.register(ReadyBatches)
    bench = Bench(spark, given.bootstrap, given.rounds)

    def topic(records: int, partitions: int = PARTITIONS, compression: str = "none",
              headers: bool = False) -> str:  # fmt: skip
        return asyncio.run(
            _fill(
                given.bootstrap,
                records,
                partitions=partitions,
                compression=compression,
                headers=headers,
            )
        )

    both = ("kclient", "tuned")
    plain = topic(given.records)
    rows: dict[str, Callable[[], None]] = {
        "sum": lambda: bench.row("sum", bench.total, plain, given.records),
        "parquet": lambda: bench.row("stream to parquet", bench.parquet, plain, given.records),
        "trigger": lambda: bench.row(
            "micro-batch trigger", bench.micro_batches, plain, given.records, both
        ),
        "lz4": lambda: bench.row(
            "sum of lz4", bench.total, topic(given.records, compression="lz4"), given.records, both
        ),
        "headers": lambda: bench.row(
            "sum, with headers",
            bench.total,
            topic(given.records, headers=True),
            given.records,
            both,
        ),
        "partitions": lambda: bench.row(
            "sum of 100 partitions", bench.total, topic(given.records, 100), given.records, both
        ),
        "planning": lambda: bench.planning(topic(10 * MANY_PARTITIONS, MANY_PARTITIONS)),
        "large": lambda: bench.row(
            "sum of 4x", bench.total, topic(4 * given.records), 4 * given.records, both
        ),
    }
    for name, run in rows.items():
        if given.only in name:
            run()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The last value of each key: where each aircraft was last, from a topic of flights to parquet.

``python -m examples.spark.last_values``: all flights of 2013 go to a topic, keyed by tail number.
Spark decodes the values, and keeps the one of the highest offset of each key, as a compacted topic
would. The result is ``out/last_values`` (parquet) and ``out/last_values.png``. The brokers are in
this process, unless ``--bootstrap host:port`` names others.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import matplotlib
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from examples.flights.events import Event, load
from examples.spark.common import brokers, options, spark, topics
from kclient import Admin, NewTopic, Producer

FLIGHT = "day string, flight string, `from` string, `to` string, arrival_delay int"
SHOWN = 20


async def write(bootstrap: str, name: str, flights: list[Event]) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(name, partitions=4)])
    async with Producer(bootstrap, compression="lz4") as producer:
        await producer.send_arrow(
            name,
            pa.table(
                {
                    "key": pa.array([one.key for one in flights], pa.binary()),
                    "value": pa.array([one.value for one in flights], pa.binary()),
                    "timestamp": pa.array([one.timestamp for one in flights], pa.int64()),
                }
            ),
        )


def last_values(frame: DataFrame) -> DataFrame:
    """One row per key. The records of a key are in one partition, in order of offset."""
    return (
        frame.where("key is not null and data is not null")
        .groupBy(f.col("key").cast("string").alias("tail"))
        .agg(
            f.max_by("data", "offset").alias("last"),
            f.max_by("timestamp", "offset").alias("departure"),
            f.count("*").alias("flights"),
        )
        .select("tail", "last.*", "departure", "flights")
    )


def draw(airports: list[tuple[str, int]], file: Path) -> None:
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(10, 5))
    axes.bar([name for name, _ in airports], [count for _, count in airports], color="#2e86c1")
    axes.set_ylabel("aircraft")
    axes.set_title("Where the aircraft were last seen")
    figure.savefig(file, dpi=120)


def expected(flights: list[Event]) -> dict[str, tuple[Any, ...]]:
    last = {one.key.decode(): json.loads(one.value) for one in flights if one.key is not None}
    return {tail: (one["day"], one["flight"], one["to"]) for tail, one in last.items()}


def main() -> int:
    given = options(__doc__)
    flights = load(given.limit)
    name = f"flights-{uuid.uuid4().hex[:8]}"
    with brokers(given.bootstrap) as bootstrap, spark("last values") as session:
        asyncio.run(write(bootstrap, name, flights))
        frame = topics(session, bootstrap, name, valueSchema=FLIGHT)
        last_values(frame).write.mode("overwrite").parquet(str(given.out / "last_values"))
        rows = session.read.parquet(str(given.out / "last_values")).collect()
    draw(Counter(row["to"] for row in rows).most_common(SHOWN), given.out / "last_values.png")
    print(f"{len(rows)} aircraft of {len(flights)} flights")
    print(f"results: {given.out / 'last_values'}, {given.out / 'last_values.png'}")
    if {row.tail: (row.day, row.flight, row["to"]) for row in rows} != expected(flights):
        print("WRONG: it isn't the last flight of each aircraft")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

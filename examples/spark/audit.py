"""Two topics reconciled: what a mirror lost or doubled, and how late it was, week by week.

``python -m examples.spark.audit``: all flights of 2013 go to a topic, and through a forwarder that
loses some and doubles others to a second one. Spark reads headers and times of both, no values, and
finds out which. The result is ``out/audit`` (parquet) and ``out/audit.png``. The brokers are in
this process, unless ``--bootstrap host:port`` names others.
"""

from __future__ import annotations

import asyncio
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import matplotlib
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from examples.flights.events import Event, load
from examples.spark.common import brokers, options, spark
from kclient import Admin, NewTopic, Producer

LOST, DOUBLED = 997, 1009
"""One flight in so many."""
ROWS = 20_000
TRACED = """
    topic string, timestamp timestamp, headers array<struct<key: string, value: binary>>
"""


async def write(bootstrap: str, name: str, flights: list[Event]) -> None:
    """Write all flights to the topic, and a part of them to its mirror."""
    async with Admin(bootstrap) as admin:
        stamped = {"message.timestamp.type": "LogAppendTime"}  # when it arrived
        await admin.create_topics(
            [NewTopic(one, partitions=4, configs=stamped) for one in (name, f"{name}-mirror")]
        )
    async with Producer(bootstrap, compression="lz4") as producer:
        for start in range(0, len(flights), ROWS):
            numbers = range(start, min(start + ROWS, len(flights)))
            await producer.send_arrow(name, table(flights, numbers))
            mirrored = [n for n in numbers if n % LOST]
            mirrored += [n for n in mirrored if n % DOUBLED == 0]
            await producer.send_arrow(f"{name}-mirror", table(flights, mirrored))


def table(flights: list[Event], numbers: Any) -> pa.Table:
    now = b"%d" % (time.time() * 1000)
    traces = [
        [(b"seq", b"%d" % n), (b"at", b"%d" % flights[n].timestamp), (b"sent", now)]
        for n in numbers
    ]
    return pa.table(
        {
            "key": pa.array([flights[n].key for n in numbers], pa.binary()),
            "value": pa.array([flights[n].value for n in numbers], pa.binary()),
            "headers": pa.array(traces, pa.map_(pa.binary(), pa.binary())),
        }
    )


def reconciled(frame: DataFrame) -> DataFrame:
    """Per week of departure: sent, lost, doubled, and how many milliseconds until they arrived."""
    entry = f.transform("headers", lambda h: f.struct(h["key"], h["value"].cast("string")))
    trace = f.map_from_entries(entry)
    copies = frame.select(
        trace["seq"].cast("long").alias("seq"),
        f.timestamp_millis(trace["at"].cast("long")).alias("departure"),
        f.col("topic").endswith("-mirror").alias("mirrored"),
        (f.unix_millis("timestamp") - trace["sent"].cast("long")).alias("late"),
    )
    flights = copies.groupBy(f.window("departure", "7 days").start.alias("week"), "seq").agg(
        f.count_if(~f.col("mirrored")).alias("sent"),
        f.count_if(f.col("mirrored")).alias("arrived"),
        f.min(f.when(f.col("mirrored"), f.col("late"))).alias("late"),
    )
    return (
        flights.groupBy("week")
        .agg(
            f.sum("sent").alias("sent"),
            f.sum("arrived").alias("arrived"),
            f.count_if(f.col("arrived") == 0).alias("lost"),
            f.sum(f.greatest(f.col("arrived") - 1, f.lit(0))).alias("doubled"),
            f.percentile_approx("late", 0.5).alias("late_p50_ms"),
            f.percentile_approx("late", 0.99).alias("late_p99_ms"),
        )
        .orderBy("week")
    )


def draw(rows: list[Any], file: Path) -> None:
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, sharex=True, figsize=(10, 6))
    weeks = [row.week for row in rows]
    above.bar(weeks, [row.lost for row in rows], width=5, label="lost", color="#c0392b")
    above.bar(
        weeks,
        [row.doubled for row in rows],
        width=5,
        bottom=[row.lost for row in rows],
        label="doubled",
        color="#e59866",
    )
    above.set_ylabel("flights per week")
    above.legend()
    below.plot(weeks, [row.late_p50_ms for row in rows], label="p50")
    below.plot(weeks, [row.late_p99_ms for row in rows], label="p99")
    below.set_ylabel("ms until mirrored")
    below.legend()
    figure.suptitle("What the mirror lost and doubled, and how late it was")
    figure.autofmt_xdate()
    figure.savefig(file, dpi=120)


def main() -> int:
    given = options(__doc__)
    flights = load(given.limit)
    name = f"flights-{uuid.uuid4().hex[:8]}"
    with brokers(given.bootstrap) as bootstrap, spark("audit") as session:
        asyncio.run(write(bootstrap, name, flights))
        reader = session.read.format("kclient").schema(TRACED)
        frame = reader.options(
            **{"kafka.bootstrap.servers": bootstrap, "includeHeaders": "true"},
            subscribe=f"{name},{name}-mirror",
        ).load()
        reconciled(frame).write.mode("overwrite").parquet(str(given.out / "audit"))
        rows = session.read.parquet(str(given.out / "audit")).orderBy("week").collect()
    draw(rows, given.out / "audit.png")
    numbers = range(len(flights))
    lost = sum(1 for n in numbers if n % LOST == 0)
    doubled = sum(1 for n in numbers if n % LOST and n % DOUBLED == 0)
    found = [sum(row[name] for row in rows) for name in ("sent", "lost", "doubled")]
    print(f"{len(rows)} weeks: {found[0]} sent, {found[1]} lost, {found[2]} doubled")
    print(f"results: {given.out / 'audit'}, {given.out / 'audit.png'}")
    if found != [len(flights), lost, doubled]:
        print(f"WRONG: there were {len(flights)} sent, {lost} lost, {doubled} doubled")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Option by option: the same rows, offsets and types as Spark's own connector.

python -m tests.spark.equality 127.0.0.1:9092            all cases
python -m tests.spark.equality 127.0.0.1:9092 --subset   some of them, as CI has it
python -m tests.spark.equality 127.0.0.1:9092 --table    the table of docs/spark.md
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyspark

from tests.spark.connector import connector_jars, connector_version
from tests.spark.session import spark_session
from tests.spark.topics import CODECS, PARTITIONS, RECORDS, START, Topics, fill

COLUMNS = ("topic", "partition", "offset")


@dataclass
class Case:
    """One question to both.

    Attributes:
        name: What it is about.
        options: Given to both.
        subset: Whether CI asks it.
        fails: Both must refuse it.
        parts: Compare the number of tasks, too.
    """

    name: str
    options: dict[str, str]
    subset: bool = False
    fails: bool = False
    parts: bool = False


def _by_partition(topic: str, *offsets: int) -> str:
    return json.dumps({topic: {str(index): one for index, one in enumerate(offsets)}})


def cases(topics: Topics) -> Iterator[Case]:
    """All questions."""
    one = topics.codecs["lz4"]
    each = RECORDS // PARTITIONS
    middle = START + RECORDS * 500
    for codec in CODECS:
        yield Case(
            f"codec {codec}, headers, null and empty keys and values",
            {"subscribe": topics.codecs[codec], "includeHeaders": "true"},
            subset=codec in ("none", "zstd"),
        )
    yield Case("without headers", {"subscribe": one}, subset=True)
    yield Case("timestamps by the broker", {"subscribe": topics.log_append})
    yield Case("several topics", {"subscribe": f"{one},{topics.empty},{topics.deleted}"})
    yield Case("pattern", {"subscribePattern": one[:-3] + "(lz4|gzip|empty)"})
    yield Case("pattern without a match", {"subscribePattern": "none-such-.*"})
    yield Case("assign", {"assign": json.dumps({one: [0, 2]})}, subset=True)
    yield Case("empty topic", {"subscribe": topics.empty})
    for level in ("read_uncommitted", "read_committed"):
        yield Case(
            f"transactions, {level}",
            {"subscribe": topics.transactions, "kafka.isolation.level": level},
            subset=True,
        )
    yield Case("compacted", {"subscribe": topics.compacted}, subset=True)
    yield Case("deleted, from earliest", {"subscribe": topics.deleted}, subset=True)
    yield Case(
        "deleted, from 0: an error", {
            "subscribe": topics.deleted, "startingOffsets": _by_partition(topics.deleted, 0, 0, 0)
        }, fails=True,
    )  # fmt: skip
    yield Case(
        "deleted, from 0, failOnDataLoss=false",
        {
            "subscribe": topics.deleted,
            "startingOffsets": _by_partition(topics.deleted, 0, 0, 0),
            "failOnDataLoss": "false",
        },
    )
    yield Case(
        "startingOffsets and endingOffsets",
        {
            "subscribe": one,
            "startingOffsets": _by_partition(one, 10, -2, each - 1),
            "endingOffsets": _by_partition(one, 50, -1, each),
        },
        subset=True,
    )
    yield Case("startingTimestamp", {"subscribe": one, "startingTimestamp": str(middle)})
    yield Case(
        "startingTimestamp and endingTimestamp",
        {"subscribe": one, "startingTimestamp": str(START + 9000), "endingTimestamp": str(middle)},
        subset=True,
    )
    yield Case(
        "endingTimestamp behind all records",
        {"subscribe": one, "endingTimestamp": str(START + RECORDS * 10_000)},
    )
    late = str(START + RECORDS * 10_000)
    yield Case(
        "startingTimestamp behind all records: an error",
        {"subscribe": one, "startingTimestamp": late},
        fails=True,
    )
    yield Case(
        "startingOffsetsByTimestampStrategy=latest",
        {
            "subscribe": one,
            "startingTimestamp": late,
            "startingOffsetsByTimestampStrategy": "latest",
        },
    )
    yield Case(
        "startingOffsetsByTimestamp and endingOffsetsByTimestamp",
        {
            "subscribe": one,
            "startingOffsetsByTimestamp": _by_partition(one, START, middle, START + 5),
            "endingOffsetsByTimestamp": _by_partition(one, middle, middle + 60_000, middle),
        },
    )
    yield Case(
        "a time goes before offsets",
        {"subscribe": one, "startingTimestamp": str(middle), "startingOffsets": "earliest"},
    )
    for number in (2, 4, 7, 20):
        yield Case(f"minPartitions={number}", {"subscribe": one, "minPartitions": str(number)},
                   parts=True)  # fmt: skip
    if connector_version() != "4.0.0":
        yield Case(
            "maxRecordsPerPartition (theirs has an effect only together with minPartitions)",
            {"subscribe": one, "maxRecordsPerPartition": "70"},
        )
        yield Case(
            "maxRecordsPerPartition and minPartitions",
            {"subscribe": one, "maxRecordsPerPartition": "200", "minPartitions": "11"},
            parts=True,
        )
    for name, options in {
        "latest as the start of a batch": {"subscribe": one, "startingOffsets": "latest"},
        "earliest as the end": {"subscribe": one, "endingOffsets": "earliest"},
        "a partition without an offset": {
            "subscribe": one,
            "startingOffsets": _by_partition(one, 1),
        },
        "an unknown topic": {"subscribe": "none-such"},
        "two subscriptions": {"subscribe": one, "subscribePattern": one},
        "no subscription": {},
        "auto.offset.reset": {"subscribe": one, "kafka.auto.offset.reset": "earliest"},
        "enable.auto.commit": {"subscribe": one, "kafka.enable.auto.commit": "true"},
        "a deserializer": {"subscribe": one, "kafka.value.deserializer": "x"},
        "minPartitions=0": {"subscribe": one, "minPartitions": "0"},
    }.items():
        yield Case(f"{name}: an error", options, fails=True)


def answer(spark: Any, source: str, bootstrap: str, options: dict[str, str]) -> Any:
    """Types, rows and number of tasks; or that it failed."""
    try:
        reader = spark.read.format(source).option("kafka.bootstrap.servers", bootstrap)
        frame = reader.options(**options).load()
        table = frame.toArrow()
        rows = sorted(table.to_pylist(), key=lambda row: [row[name] for name in COLUMNS])
        kinds = [(field.name, field.dataType.simpleString()) for field in frame.schema.fields]
        return kinds, rows, frame.rdd.getNumPartitions()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def compare(case: Case, theirs: Any, ours: Any) -> str | None:
    """What differs."""
    if isinstance(theirs, str) or isinstance(ours, str):
        if case.fails and isinstance(theirs, str) and isinstance(ours, str):
            return None
        return f"theirs {str(theirs)[:300]}, ours {str(ours)[-600:]}"
    if case.fails:
        return "both read what they should refuse"
    if theirs[0] != ours[0]:
        return f"types: theirs {theirs[0]}, ours {ours[0]}"
    if theirs[1] != ours[1]:
        first = next(
            (pair for pair in zip(theirs[1], ours[1], strict=False) if pair[0] != pair[1]), None
        )
        return f"{len(theirs[1])} rows and {len(ours[1])}, first difference {first}"
    if case.parts and theirs[2] != ours[2]:
        return f"tasks: theirs {theirs[2]}, ours {ours[2]}"
    return None


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bootstrap")
    parser.add_argument("--subset", action="store_true")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    topics = asyncio.run(fill(given.bootstrap))
    spark = spark_session(connector_jars())
    print(f"pyspark {pyspark.__version__}, connector {connector_version()}")
    wrong = compared = 0
    lines = []
    for case in cases(topics):
        if given.subset and not case.subset:
            continue
        theirs = answer(spark, "kafka", given.bootstrap, case.options)
        ours = answer(spark, "kclient", given.bootstrap, case.options)
        difference = compare(case, theirs, ours)
        compared += 1
        wrong += difference is not None
        rows = "refused" if isinstance(ours, str) else f"{len(ours[1])} rows"
        print(f"{'ok   ' if difference is None else 'WRONG'} {case.name}: {difference or rows}")
        lines.append(f"| {case.name.removesuffix(': an error')} | {rows} |")
    spark.stop()
    print(f"{compared} cases compared, {wrong} differ")
    if given.table:
        print("\n".join(lines))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

"""What is planned and read again after a restart, and what changed meanwhile. Without Spark."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from kclient.errors import InvalidConfig
from kclient.spark import DataLoss, KafkaDataSource
from kclient.spark.stream import HAS_LIMITS

SCHEMA = StructType([StructField("value", BinaryType()), StructField("offset", LongType())])


def stream(topics: Any, **options: str) -> Any:
    """A reader, as after each start of a query."""
    given = {"kafka.bootstrap.servers": topics.bootstrap, **options}
    return KafkaDataSource(given).streamReader(SCHEMA)


def latest(reader: Any, start: Any) -> Any:
    if not HAS_LIMITS:
        return reader.latestOffset()
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    return reader.latestOffset(start, ReadAllAvailable())


def values(reader: Any, start: Any, end: Any) -> list[bytes]:
    return [
        value
        for task in reader.partitions(start, end)
        for batch in reader.read(task)
        for value in batch.column("value").to_pylist()
    ]


def numbered(*numbers: int) -> list[tuple[int, bytes]]:
    return [(0, b"%d" % n) for n in numbers]


def test_a_first_batch_that_is_repeated_begins_where_it_began(topics: Any) -> None:
    name = topics.create()
    topics.write(name, numbered(*range(5)))
    first = stream(topics, subscribe=name)
    start = first.initialOffset()
    topics.write(name, numbered(5, 6))
    end = latest(first, start)
    topics.write(name, numbered(7))
    again = stream(topics, subscribe=name)  # Spark asks it where to begin once more
    assert values(again, again.initialOffset(), end) == [b"5", b"6"]


def test_nothing_new_is_no_batch(topics: Any) -> None:
    name = topics.create()
    topics.write(name, numbered(1))
    reader = stream(topics, subscribe=name, startingOffsets="earliest")
    start = reader.initialOffset()
    end = latest(reader, start)
    assert end != start
    assert latest(reader, end) == end


def test_a_repeated_batch_never_reads_another_topic_of_that_name(topics: Any) -> None:
    name = topics.create()
    topics.write(name, numbered(*range(5)))
    reader = stream(topics, subscribe=name, startingOffsets="earliest")
    start = reader.initialOffset()
    end = latest(reader, start)
    topics.admin(lambda admin: admin.delete_topics([name]))
    topics.create(name=name)
    topics.write(name, numbered(*range(100, 110)))
    with pytest.raises(DataLoss, match="were deleted"):
        stream(topics, subscribe=name).partitions(start, end)
    going_on = stream(topics, subscribe=name, failOnDataLoss="false")
    assert values(going_on, start, end) == []
    if HAS_LIMITS:
        assert values(going_on, end, latest(going_on, end)) == [b"%d" % n for n in range(100, 110)]


def test_a_topic_that_is_deleted_under_a_task_ends_it_where_that_is_accepted(topics: Any) -> None:
    names = topics.create(), topics.create()
    for name in names:
        topics.write(name, numbered(*range(5)))
    reader = stream(
        topics, subscribe=",".join(names), startingOffsets="earliest", failOnDataLoss="false"
    )
    start = reader.initialOffset()
    end = latest(reader, start)
    tasks = reader.partitions(start, end)
    topics.admin(lambda admin: admin.delete_topics([names[0]]))
    found = [v for t in tasks for b in reader.read(t) for v in b.column("value").to_pylist()]
    assert found == [b"%d" % n for n in range(5)]


def test_no_secret_of_a_file_travels_with_tasks(topics: Any, tmp_path: Any) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={topics.bootstrap}\nssl.key.password=hunter2\n")
    source = KafkaDataSource({"subscribe": "t", "kclient.properties.file": str(file)})
    for reader in (source, source.reader(SCHEMA), source.streamReader(SCHEMA)):
        assert b"hunter2" not in pickle.dumps(reader)
        assert "hunter2" not in repr(reader)


def test_what_does_not_fit_is_an_error_and_an_error_needs_data(topics: Any) -> None:
    options = {
        "kafka.bootstrap.servers": topics.bootstrap,
        "subscribe": "t",
        "valueSchema": "x int",
    }
    alone = StructType([StructField("error", StringType())])
    with pytest.raises(InvalidConfig, match="error without data"):
        KafkaDataSource(options).reader(alone)


@pytest.mark.parametrize("name", ["kafka.fetch.max.bytes", "kafka.fetch.maxx.bytes"])
def test_a_client_setting_that_tasks_cannot_use_is_refused_on_the_driver(
    topics: Any, name: str
) -> None:
    options = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": "t", name: "lots"}
    with pytest.raises(InvalidConfig, match=r"fetch\.maxx?\.bytes|fetch_maxx?_bytes"):
        KafkaDataSource(options).reader(SCHEMA).partitions()

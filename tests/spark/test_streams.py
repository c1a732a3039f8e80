"""Topics as streams."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

from kclient import TopicPartition
from kclient.spark import OffsetListener
from kclient.spark.stream import HAS_LIMITS

OFFSETS = ("endOffset", "latestOffset")


def numbered(count: int, start: int = 0, partitions: int = 1) -> list[tuple[int, bytes]]:
    return [(n % partitions, b"%d" % n) for n in range(start, start + count)]


def test_a_stream_goes_on_where_its_checkpoint_is(topics: Any, streams: Any) -> None:
    name = topics.create(partitions=2)
    topics.write(name, numbered(10, partitions=2))
    first = streams.run(subscribe=name, startingOffsets="earliest")
    topics.write(name, numbered(6, 10, partitions=2))
    second = streams.run(subscribe=name, startingOffsets="earliest")
    assert sorted(first) == sorted((n % 2, n // 2, b"%d" % n) for n in range(10))
    assert sorted(second) == sorted((n % 2, n // 2, b"%d" % n) for n in range(10, 16))
    assert streams.run(subscribe=name) == []


def test_without_starting_offsets_it_begins_at_the_end(topics: Any, streams: Any) -> None:
    name = topics.create()
    topics.write(name, numbered(5))
    assert streams.run(subscribe=name) == []
    topics.write(name, numbered(3, 5))
    assert [row[1] for row in streams.run(subscribe=name)] == [5, 6, 7]


def test_a_limit_divides_what_is_there_into_batches(topics: Any, streams: Any) -> None:
    name = topics.create(partitions=2)
    topics.write(name, numbered(100, partitions=2))
    options = {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
    if not HAS_LIMITS:
        with pytest.raises(Exception, match=r"needs pyspark 4\.2"):
            streams.start(**options).awaitTermination(60)
        return
    found = streams.run(**options)
    assert len(found) == 100
    assert [len(batch) for batch in streams.batches] == [30, 30, 30, 10]


def test_a_batch_waits_for_enough_offsets_or_for_the_delay(topics: Any, streams: Any) -> None:
    name = topics.create()
    topics.write(name, numbered(10))
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "20"}
    query = streams.start(once=False, subscribe=name, maxTriggerDelay="4s", **options)
    if not HAS_LIMITS:
        with pytest.raises(Exception, match=r"needs pyspark 4\.2"):
            query.awaitTermination(60)
        return
    try:
        _until(lambda: len(streams.batches) == 1)  # the first one doesn't wait
        topics.write(name, numbered(5, 10))
        begun = time.monotonic()
        _until(lambda: len(streams.batches) == 2)
        assert [len(batch) for batch in streams.batches] == [10, 5]
        assert time.monotonic() - begun > 0.5  # the delay runs from the first batch on
        topics.write(name, numbered(25, 15))
        _until(lambda: sum(map(len, streams.batches)) == 40)
    finally:
        query.stop()


def _until(condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_new_partitions_are_read_from_their_beginning(topics: Any, streams: Any) -> None:
    name = topics.create()
    topics.write(name, numbered(3))
    assert streams.run(subscribe=name) == []
    topics.admin(lambda admin: admin.create_partitions({name: 3}))
    topics.write(name, [(1, b"new"), (2, b"new")])
    assert sorted(streams.run(subscribe=name)) == [(1, 0, b"new"), (2, 0, b"new")]


def test_a_topic_that_was_created_again_is_an_error_unless_it_is_said_to_go_on(
    topics: Any, streams: Any
) -> None:
    name = topics.create()
    topics.write(name, numbered(5))
    assert len(streams.run(subscribe=name, startingOffsets="earliest")) == 5
    topics.admin(lambda admin: admin.delete_topics([name]))
    topics.create(name=name)
    topics.write(name, numbered(8, 100))
    query = streams.start(subscribe=name)
    with pytest.raises(Exception, match="deleted and created again"):
        query.awaitTermination(120)
    found = streams.run(subscribe=name, failOnDataLoss="false")
    assert [row[2] for row in found] == [b"%d" % n for n in range(100, 108)]


def test_a_topic_that_is_deleted_leaves_a_pattern_with_an_error_unless_it_is_said_to_go_on(
    topics: Any, streams: Any
) -> None:
    stem = topics.create()
    deleted = f"{stem}-deleted"
    topics.create(name=deleted)
    for name in (stem, deleted):
        topics.write(name, numbered(3))
    pattern = f"{stem}.*"
    assert len(streams.run(subscribePattern=pattern, startingOffsets="earliest")) == 6
    topics.admin(lambda admin: admin.delete_topics([deleted]))
    topics.write(stem, numbered(2, 3))
    query = streams.start(subscribePattern=pattern)
    with pytest.raises(Exception, match=r"(don't exist any more|were deleted).*-deleted"):
        query.awaitTermination(120)
    found = streams.run(subscribePattern=pattern, failOnDataLoss="false")
    assert [row[2] for row in found] == [b"3", b"4"]


def test_retention_that_overtakes_it_is_an_error_unless_it_is_said_to_go_on(
    topics: Any, streams: Any
) -> None:
    name = topics.create()
    topics.write(name, numbered(5))
    assert len(streams.run(subscribe=name, startingOffsets="earliest")) == 5
    topics.write(name, numbered(20, 5))
    topics.delete_records(name, 15)
    query = streams.start(subscribe=name)
    with pytest.raises(Exception, match=r"10 offsets of .* from 5 on are gone"):
        query.awaitTermination(120)
    found = streams.run(subscribe=name, failOnDataLoss="false")
    assert [row[1] for row in found] == list(range(15, 25))


def test_finished_batches_are_committed_to_a_group_with_their_lag(
    spark: Any, topics: Any, streams: Any
) -> None:
    name = topics.create(partitions=2)
    topics.write(name, numbered(20, partitions=2))
    group, seen = f"{name}-group", []
    listener = OffsetListener(
        topics.bootstrap, group, query="followed", on_lag=lambda *lag: seen.append(lag)
    )
    spark.streams.addListener(listener)
    try:
        limit = {"maxOffsetsPerTrigger": "8"} if HAS_LIMITS else {}
        streams.run("followed", subscribe=name, startingOffsets="earliest", **limit)
        _until(lambda: len(seen) >= (3 if HAS_LIMITS else 1))
    finally:
        spark.streams.removeListener(listener)
    expected = {TopicPartition(name, 0): 10, TopicPartition(name, 1): 10}
    assert _committed(topics, group, expected) == expected
    assert sorted(seen[0][1].values()) == ([6, 6] if HAS_LIMITS else [0, 0])
    assert listener.offsets_behind_latest("followed") == (0, 0.0, 0)


def _committed(topics: Any, group: str, partitions: Any) -> Any:
    import asyncio

    from kclient import Consumer

    async def look() -> Any:
        async with Consumer(topics.bootstrap, group=group) as consumer:
            found = await consumer.committed(partitions)
            return {key: one and one.offset for key, one in found.items()}

    return asyncio.run(look())


def test_the_progress_has_the_latest_offsets(topics: Any, streams: Any) -> None:
    name = topics.create()
    topics.write(name, numbered(10))
    limit = {"maxOffsetsPerTrigger": "4"} if HAS_LIMITS else {}
    query = streams.start(subscribe=name, startingOffsets="earliest", **limit)
    assert query.awaitTermination(120)
    progress = query.recentProgress[0]
    behind = 0
    if HAS_LIMITS:
        behind = 6
        latest = json.loads(progress.sources[0].latestOffset)
        assert latest["topics"][name]["partitions"] == {"0": 10}
        # As PySpark 4.1 has it, where progress comes by JSON.
        as_python = {key: str(json.loads(progress.sources[0][key])) for key in OFFSETS}
        progress = SimpleNamespace(name=query.name, sources=[SimpleNamespace(**as_python)])
    listener = OffsetListener(topics.bootstrap, f"{name}-group")
    listener.onQueryProgress(SimpleNamespace(progress=progress))
    assert listener.lag == {query.name: {TopicPartition(name, 0): behind}}
    assert _committed(topics, f"{name}-group", [TopicPartition(name, 0)]) == {
        TopicPartition(name, 0): 10 - behind
    }

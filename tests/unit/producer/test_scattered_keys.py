"""Keys over so many partitions that the compiled build chooses them for a block in advance."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kclient.producer._compiled import (
    END,
    BatchOutcome,
    MemoryBudget,
    ProducerBatch,
    RecordAppender,
    StickyPartitioner,
    TopicState,
    YieldTimer,
)
from kclient.producer.append import _SCATTERED
from kclient.record import BatchBuilder, partition_of_key, read_batches

NOW = 1_700_000_000_000
FEW = _SCATTERED + 3
keys = st.integers(0, 60).map(lambda number: b"key-%d" % number)
pairs = st.tuples(keys, st.binary(max_size=20))
records = st.lists(pairs | st.binary(max_size=20) | st.just("odd"), max_size=60)


def first_home_of(key: bytes) -> int:
    """Return the key's partition before the topic grows."""
    return partition_of_key(key, FEW)


class Scene:
    """One topic whose batches are open, except for those of the ``shut`` partitions."""

    def __init__(self, shut: set[int]) -> None:
        self.shut = shut
        self.watcher = object()
        self.builders: list[BatchBuilder] = []
        sticky = StickyPartitioner(1_000_000, random.Random(1), lambda _: 0)
        sticky.move([0], 1)
        self.topic_state = TopicState(sticky)
        self.grow(FEW)
        budget = MemoryBudget(1_000_000)
        self.appender = RecordAppender(budget, 1_000)
        self.appender.topics["t"] = self.topic_state
        self.appender.open(None, lambda: NOW * 1_000_000)
        self.turn = YieldTimer(budget, lambda: 0.0, 1.0)

    def grow(self, count: int) -> None:
        for index in range(self.topic_state.count, count):
            no_queue: Any = None
            builder = BatchBuilder()
            batch = ProducerBatch(no_queue, builder, BatchOutcome(no_queue, "t", index), 0.0, 1.0)
            batch.watcher = self.watcher
            self.builders.append(builder)
            self.topic_state.batches.append(None if index in self.shut else batch)
        self.topic_state.count = count

    def partition_of(self, record: Any) -> int:
        if isinstance(record, tuple):
            return partition_of_key(record[0], self.topic_state.count)
        return self.topic_state.sticky.current

    def found(self) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
        return {
            index: [
                (record.key, record.value)
                for batch in read_batches(builder.encode())
                for record in batch.records("t", 0)
            ]
            for index, builder in enumerate(self.builders)
            if builder.record_count
        }


@given(records, st.sets(st.integers(1, FEW - 1), max_size=40), st.integers(0, 5))
def test_each_record_comes_to_the_partition_of_its_key_whenever_the_topic_grows(
    given: list[Any], shut: set[int], grows_after: int
) -> None:
    scene = Scene(shut)
    wanted: dict[int, list[tuple[bytes | None, bytes | None]]] = defaultdict(list)
    feed = scene.appender.feed(iter(given))
    rest = list(given)
    while True:
        count, left_over = scene.appender.take_many("t", feed, scene.turn, scene.watcher)
        for record in rest[:count]:
            pair = record if isinstance(record, tuple) else (None, record)
            wanted[scene.partition_of(record)].append(pair)
        del rest[:count]
        if left_over is END:
            break
        assert left_over is rest.pop(0)
        assert left_over == "odd" or scene.partition_of(left_over) in shut
        if grows_after == 0:
            scene.grow(2 * FEW)
        grows_after -= 1
    assert scene.found() == wanted
    assert not rest


def test_what_was_chosen_for_a_block_is_void_once_the_topic_has_grown() -> None:
    keys = [b"key-%d" % number for number in range(40)]
    scene = Scene({first_home_of(keys[10])})
    keys = [key for at, key in enumerate(keys) if at == 10 or first_home_of(key) not in scene.shut]
    at = keys.index(b"key-10")
    feed = scene.appender.feed(iter((key, b"") for key in keys))
    assert scene.appender.take_many("t", feed, scene.turn, scene.watcher) == (at, (b"key-10", b""))
    assert feed.at + 2 < feed.count
    scene.grow(2 * FEW)
    assert scene.appender.take_many("t", feed, scene.turn, scene.watcher) == (
        len(keys) - at - 1,
        END,
    )
    found = scene.found()
    for key in keys[at + 1 :]:
        assert (key, b"") in found.get(scene.partition_of((key, b"")), [])


@pytest.mark.parametrize("grows_at", range(40))
def test_what_was_chosen_is_void_also_where_the_topic_grows_while_a_block_is_pulled(
    grows_at: int,
) -> None:
    scene = Scene(set())
    keys = [b"key-%d" % number for number in range(40)]
    put_before: list[int] = []

    def given() -> Iterator[tuple[bytes, bytes]]:
        for at, key in enumerate(keys):
            if at == grows_at:
                put_before.append(sum(builder.record_count for builder in scene.builders))
                scene.grow(2 * FEW)
            yield key, b"%d" % at

    feed = scene.appender.feed(given())
    assert scene.appender.take_many("t", feed, scene.turn, scene.watcher) == (len(keys), END)
    found = scene.found()
    for at, key in enumerate(keys):
        home = first_home_of(key) if at < put_before[0] else scene.partition_of((key, b""))
        assert (key, b"%d" % at) in found[home]


def test_records_that_are_handed_over_one_by_one_come_to_the_partitions_of_their_keys() -> None:
    scene = Scene(set())
    feed = scene.appender.feed(iter(()))
    wanted: dict[int, int] = {}
    for number in range(500):
        key = b"key-%d" % number
        feed.hold((key, b""))
        assert scene.appender.take_many("t", feed, scene.turn, scene.watcher) == (1, END)
        home = scene.partition_of((key, b""))
        wanted[home] = wanted.get(home, 0) + 1
    assert {at: len(found) for at, found in scene.found().items()} == wanted


@given(st.lists(pairs, max_size=60))
def test_each_record_taken_alone_comes_to_the_partition_of_its_key(
    given: list[tuple[bytes, bytes]],
) -> None:
    scene = Scene(set())
    wanted: dict[int, list[tuple[bytes | None, bytes | None]]] = defaultdict(list)
    for key, value in given:
        assert scene.appender.take("t", value, key, None, None, None) is not None
        wanted[scene.partition_of((key, value))].append((key, value))
    assert scene.found() == wanted

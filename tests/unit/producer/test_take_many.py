"""``RecordAppender.take_many`` compared with a plain model of which records it may take."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
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
from kclient.producer.record_source import BLOCK
from kclient.record import BatchBuilder

NOW = 1_700_000_000_000
OVERHEAD = 21
MOST = 500
values = st.integers(0, 120).map(lambda size: b"v" * size)
others = st.sampled_from([None, (None, b"v" * 30), b"x" * MOST, b"x" * (MOST + 1), "odd"])
stretches = st.lists(st.lists(values, max_size=40) | st.lists(others, max_size=1), max_size=5)
records = stretches.map(lambda found: [record for stretch in found for record in stretch])


@dataclass
class Scene:
    """One topic with one partition, its batch open and watched."""

    memory: int = 1_000_000
    space: int = 1_000_000
    switch: int = 1_000_000
    watcher: object = field(default_factory=object)

    def __post_init__(self) -> None:
        self.budget = MemoryBudget(self.memory)
        self.sticky = StickyPartitioner(self.switch, random.Random(1), lambda _: 0)
        self.sticky.move([0], 1)
        self.builder = BatchBuilder(self.space)
        no_queue: Any = None
        self.batch = ProducerBatch(no_queue, self.builder, BatchOutcome(no_queue, "t", 0), 0.0, 1.0)
        self.batch.watcher = self.watcher
        self.topic_state = TopicState(self.sticky)
        self.topic_state.count = 1
        self.topic_state.batches = [self.batch]
        self.appender = RecordAppender(self.budget, MOST + OVERHEAD)
        self.appender.topics["t"] = self.topic_state
        self.appender.open(None, lambda: NOW * 1_000_000)
        self.turn = YieldTimer(self.budget, lambda: 0.0, 1.0)

    def take(self, source: Iterator[Any]) -> tuple[int, Any]:
        return self.appender.take_many("t", self.appender.feed(source), self.turn, self.watcher)


def plainly(scene: Scene, given: list[Any]) -> tuple[int, Any, int, Any]:
    """Return the expected result for ``given``: count, record left over, memory, and the batch."""
    twin = BatchBuilder(scene.space)
    used, left = 0, scene.switch
    for at, record in enumerate(given):
        value = record[1] if isinstance(record, tuple) else record
        if value is not None and type(value) is not bytes:
            return at, record, used, twin
        size = OVERHEAD + len(value or b"")
        if size > MOST + OVERHEAD or used + size > scene.memory or left <= -scene.switch:
            return at, record, used, twin
        if twin.append(NOW, None, value, None) < 0:
            return at, record, used, twin
        used += size
        left -= size
    return len(given), END, used, twin


def check(given: list[Any], memory: int, space: int, switch: int) -> None:
    scene = Scene(memory, space, switch)
    count, rest, used, twin = plainly(scene, given)
    taken, left_over = scene.take(iter(given))
    assert taken == count
    assert left_over is rest
    assert scene.budget.used == scene.batch.reserved == used <= memory
    assert scene.sticky.due() == (used >= switch)
    assert (scene.sticky.ready(0) < 0) == (used >= 2 * switch)
    if count:
        assert scene.builder.encode() == twin.encode()


@given(
    records,
    st.integers(0, 3000) | st.just(1_000_000),
    st.integers(61, 3000) | st.just(1_000_000),
    st.integers(1, 1500) | st.just(1_000_000),
)
def test_it_takes_just_what_needs_no_decision(
    given: list[Any], memory: int, space: int, switch: int
) -> None:
    check(given, memory, space, switch)


@given(
    st.lists(values, min_size=10, max_size=60),
    st.integers(500, 5000),
    st.integers(500, 5000),
    st.integers(250, 2500),
)
def test_each_bound_holds_to_the_record(
    given: list[Any], memory: int, space: int, switch: int
) -> None:
    check(given, memory, space, switch)


def begun() -> Scene:
    """Return a scene whose batch has a record."""
    scene = Scene()
    assert scene.take(iter([b"first"])) == (1, END)
    return scene


def takes_nothing(scene: Scene) -> bool:
    before = scene.builder.record_count
    return scene.take(iter([b"a", b"b"])) == (0, b"a") and scene.builder.record_count == before


def test_it_takes_nothing_while_records_wait() -> None:
    scene = begun()
    scene.budget.waiting = 1
    assert takes_nothing(scene)


def test_a_batch_that_another_call_watches_takes_nothing() -> None:
    scene = begun()
    scene.batch.watcher = None
    assert takes_nothing(scene)


def test_without_a_chosen_partition_it_takes_nothing() -> None:
    scene = begun()
    scene.sticky.current = -1
    assert takes_nothing(scene)


def test_without_an_open_batch_it_takes_nothing() -> None:
    scene = begun()
    scene.topic_state.batches[0] = None
    assert takes_nothing(scene)


@pytest.mark.parametrize("at", range(20))
def test_what_the_source_does_meanwhile_counts(at: int) -> None:
    scene = Scene()

    def source() -> Iterator[bytes]:
        for number in range(20):
            if number == at:
                scene.topic_state.batches[0] = None
            yield b"%d" % number

    taken, left_over = scene.take(source())
    assert at - BLOCK < taken <= at, "all but the block that was being pulled"
    assert left_over == b"%d" % taken
    assert scene.builder.record_count == taken
    assert scene.budget.used == sum(OVERHEAD + len(b"%d" % number) for number in range(taken))

"""Ranges: how partitions are divided into tasks, and limits shared among them."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from kclient.spark.ranges import OffsetRange, divided, ranges_between, rate_limited, tasks_of
from kclient.types import TopicPartition

SIZES = st.lists(st.integers(1, 10_000), min_size=1, max_size=12)


def of(sizes: list[int]) -> list[OffsetRange]:
    return [OffsetRange("t", index, 5, 5 + size) for index, size in enumerate(sizes)]


def test_empty_ranges_make_no_tasks() -> None:
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    assert ranges_between({first: 5, second: 9}, {first: 8, second: 9}) == [
        OffsetRange("t", 0, 5, 8)
    ]


@given(SIZES, st.none() | st.integers(1, 40), st.none() | st.integers(1, 500))
def test_tasks_cover_each_offset_once(sizes, at_least, most) -> None:
    parts = divided(of(sizes), at_least, most)
    for index, size in enumerate(sizes):
        own = [part for part in parts if part.partition == index]
        assert own[0].start == 5
        assert own[-1].end == 5 + size
        assert all(a.end == b.start for a, b in itertools.pairwise(own))
    assert all(part.size > 0 for part in parts)
    if most is not None:
        assert all(part.size <= most for part in parts)


def test_long_ranges_are_divided_and_short_ones_are_not() -> None:
    parts = divided(of([1000, 10, 10]), 6, None)
    assert [sum(1 for part in parts if part.partition == n) for n in range(3)] == [4, 1, 1]


@given(SIZES, st.integers(1, 5000))
def test_a_limit_is_shared_by_size_and_starves_none(sizes, limit) -> None:
    starts = {TopicPartition("t", n): 5 for n in range(len(sizes))}
    ends = {TopicPartition("t", n): 5 + size for n, size in enumerate(sizes)}
    limited = rate_limited(limit, starts, ends)
    assert all(starts[key] < limited[key] <= ends[key] for key in ends)
    assert sum(limited[key] - 5 for key in ends) <= limit + len(sizes)


@given(SIZES)
def test_few_ranges_have_a_task_each(sizes) -> None:
    assert [task.ranges for task in tasks_of(of(sizes), None, None)] == [
        (one,) for one in of(sizes)
    ]


@given(st.lists(st.integers(1, 10_000), min_size=17, max_size=200))
def test_many_short_ranges_share_tasks_evenly(sizes) -> None:
    tasks = tasks_of(of(sizes), None, None)
    assert sorted((one for task in tasks for one in task.ranges), key=lambda r: r.partition) == of(
        sizes
    )
    totals = [sum(one.size for one in task.ranges) for task in tasks]
    assert len(tasks) <= max(16, sum(sizes) // 50_000 + 1)
    assert max(totals) - min(totals) <= max(sizes)


def test_a_number_of_tasks_that_was_asked_for_is_kept() -> None:
    assert len(tasks_of(of([100] * 100), 100, None)) == 100
    assert len(tasks_of(of([100] * 100), None, 100)) == 100

"""Helpers of the coordinator: deadlines by key, and Java's hashes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from kclient.testing.internal_topic import java_hash, partition_of
from kclient.testing.timers import DeadlineQueue, Moment


def test_what_is_due_is_done_in_order() -> None:
    deadlines, done = DeadlineQueue(), []
    for name, at in (("b", 2.0), ("a", 1.0), ("c", 3.0)):
        deadlines.set((name,), at, lambda _, name=name: done.append(name))
    deadlines.run(Moment(2.0, 0))
    assert done == ["a", "b"]
    assert deadlines.next_at == 3.0


def test_a_key_that_is_set_again_is_done_once_at_the_new_time() -> None:
    deadlines, done = DeadlineQueue(), []
    deadlines.set(("a",), 1.0, lambda _: done.append("old"))
    deadlines.set(("a",), 5.0, lambda _: done.append("new"))
    deadlines.run(Moment(4.0, 0))
    assert not done
    deadlines.run(Moment(5.0, 0))
    assert done == ["new"]
    assert deadlines.next_at is None


def test_what_was_cancelled_is_not_done() -> None:
    deadlines, done = DeadlineQueue(), []
    deadlines.set(("a",), 1.0, lambda _: done.append("a"))
    deadlines.cancel(("a",))
    deadlines.cancel(("b",))
    deadlines.run(Moment(9.0, 0))
    assert (done, len(deadlines)) == ([], 0)


def test_what_is_scheduled_meanwhile_waits_for_the_next_run() -> None:
    deadlines, done = DeadlineQueue(), []

    def again(moment: Moment) -> None:
        done.append(moment.now)
        deadlines.set(("a",), moment.now, again)

    deadlines.set(("a",), 1.0, again)
    deadlines.run(Moment(1.0, 0))
    assert done == [1.0]
    assert deadlines.next_at == 1.0


def test_moving_a_deadline_for_ever_takes_no_more_memory() -> None:
    deadlines = DeadlineQueue()
    for step in range(10_000):
        deadlines.set(("a",), float(step), lambda _: None)
    assert len(deadlines._heap) < 200


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(1 << 31)),
        ("kafka-consumer-group", -1551072401),
        ("é", 233),
        ("😀", 1772899),
    ],
)
def test_hashes_are_those_of_java(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_a_hash_without_an_absolute_value_is_zero_as_in_kafka() -> None:
    assert partition_of("polygenelubricants", 50) == 0


@given(some.text(), some.integers(1, 1000))
def test_every_group_has_a_partition(text: str, count: int) -> None:
    assert 0 <= partition_of(text, count) < count

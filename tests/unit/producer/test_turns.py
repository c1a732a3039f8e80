"""When a loop that writes yields to the event loop."""

from __future__ import annotations

import pytest

import kclient
from kclient.producer._compiled import MemoryBudget, YieldTimer

KIB = 1024


class Scene:
    """A yield timer of one second, on a clock that stands still unless the test moves it."""

    def __init__(self, per_turn: int = 4) -> None:
        self.now = 100.0
        self.budget = MemoryBudget(1 << 20, per_turn)
        self.turn = YieldTimer(self.budget, lambda: self.now, 1.0)

    def seal(self, batches: int) -> None:
        self.budget.sealed += batches


def test_a_yield_is_due_when_four_batches_were_sealed() -> None:
    scene = Scene()
    scene.seal(3)
    assert not scene.turn.due()
    scene.seal(1)
    assert scene.turn.due()


def test_batches_that_were_sealed_before_the_last_yield_do_not_count() -> None:
    scene = Scene()
    scene.seal(9)
    scene.turn.note()
    scene.turn.begin()
    scene.seal(3)
    assert not scene.turn.due()


def test_batches_that_are_sealed_during_a_yield_count_for_the_next() -> None:
    scene = Scene()
    scene.seal(4)
    scene.turn.note()
    scene.seal(4)
    scene.turn.begin()
    assert scene.turn.due()


@pytest.mark.parametrize(
    ("batch_size", "max_request_size", "batches"),
    [
        (64 * KIB, KIB * KIB, 4),
        (256 * KIB, KIB * KIB, 4),
        (257 * KIB, KIB * KIB, 3),
        (KIB * KIB, KIB * KIB, 1),
        (2 * KIB * KIB, KIB * KIB, 1),
    ],
)
def test_batches_between_two_yields_fit_into_a_request(
    batch_size: int, max_request_size: int, batches: int
) -> None:
    producer: kclient.Producer = kclient.Producer(
        "127.0.0.1:9092", batch_size=batch_size, max_request_size=max_request_size
    )
    assert producer._accumulator.budget.per_turn == batches


def test_a_yield_is_due_for_each_batch_where_one_fills_a_request() -> None:
    scene = Scene(per_turn=1)
    assert not scene.turn.due()
    scene.seal(1)
    assert scene.turn.due()


def test_a_yield_is_due_for_each_batch_where_memory_gets_scarce() -> None:
    scene = Scene()
    scene.budget.used = (1 << 19) + 1
    assert not scene.turn.due()
    scene.seal(1)
    assert scene.turn.due()
    scene.budget.used = 1 << 19
    assert not scene.turn.due()


def test_a_yield_is_due_after_its_interval_whatever_was_sealed() -> None:
    scene = Scene()
    scene.now += 0.999
    assert not scene.turn.due()
    scene.now += 0.002
    assert scene.turn.due()
    scene.turn.begin()
    assert not scene.turn.due()

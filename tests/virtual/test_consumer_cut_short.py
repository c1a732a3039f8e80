"""Whatever is cut short after a moment, thousands of times: nothing is lost, nothing comes twice.

Connections break and leaders move meanwhile. ``cut_short`` has the runs, and longer ones by hand.
"""

from __future__ import annotations

import pytest

from kclient.testing import run_virtually
from tests.virtual.cut_short import cut_anything_short, cut_short

SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))]
TIMES = 5_000
"""Calls per seed: 10,000 of either sort, and as many again in the long run."""


@pytest.mark.parametrize("seed", SEEDS)
def test_polls_and_steps_that_are_cut_short_skip_and_repeat_nothing(seed: int) -> None:
    outcome = run_virtually(cut_short(seed, TIMES, troubles=True), seed=seed)
    assert outcome.cut > 1_000
    assert outcome.records > TIMES
    assert outcome.troubles > 20


@pytest.mark.parametrize("seed", SEEDS)
def test_calls_of_any_kind_that_are_cut_short_leave_positions_true(seed: int) -> None:
    outcome = run_virtually(cut_anything_short(seed, TIMES), seed=seed)
    assert outcome.cut > 1_000
    assert outcome.records > TIMES
    assert outcome.troubles > 20


@pytest.mark.parametrize("seed", [11, 12])
def test_a_seed_gives_the_same_run_twice(seed: int) -> None:
    first, second = (
        run_virtually(cut_short(seed, 500, troubles=True), seed=seed) for _ in range(2)
    )
    assert first == second

"""Clusters in which everything breaks keep what they promised; and a broken one is found out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields

import pytest

from tests.virtual.cluster_run import run, run_many
from tests.virtual.planted_in_brokers import BUGS

SEEDS = 200
SEEDS_WITH_A_BUG = 50
OFTEN = 100
"""Each kind of event must have come more often than this."""


def test_a_cluster_keeps_what_is_committed_whatever_breaks() -> None:
    totals = run_many(1000, 12, 200)
    assert not totals.failures, "\n".join(totals.failures)
    assert totals.operations == 12 * 200


def test_a_seed_gives_the_same_run_every_time() -> None:
    one, other = run(7, 150, trace=True), run(7, 150, trace=True)
    assert one.trace == other.trace
    assert one.tally == other.tally


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_hundred_clusters_keep_what_is_committed(
    capsys: pytest.CaptureFixture[str], fewer_seeds: int
) -> None:
    totals = run_many(0, SEEDS // fewer_seeds)
    with capsys.disabled():
        sys.stdout.write(f"\n{totals}\n")
    assert not totals.failures, "\n".join(totals.failures)
    for one in fields(totals.tally):
        assert getattr(totals.tally, one.name) > OFTEN // fewer_seeds, one.name


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_bug_in_a_broker_is_found(plant: Callable[[pytest.MonkeyPatch], None]) -> None:
    for seed in range(SEEDS_WITH_A_BUG):
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            broken = run(seed)
        if broken.failures:
            sound = run(seed)
            assert not sound.failures, sound.describe()
            return
    pytest.fail(f"{SEEDS_WITH_A_BUG} seeds, and nothing was found")

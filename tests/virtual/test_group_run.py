"""Groups in which everything breaks keep what they promise."""

from __future__ import annotations

import sys

import pytest

from tests.virtual.group_run import run, run_many

SEEDS = 200
OFTEN = 200
"""Each kind of operation must have come more often than this."""


def test_a_group_keeps_its_promises_whatever_breaks() -> None:
    totals = run_many(1000, 3, 250)
    assert not totals.failures, "\n".join(totals.failures)
    assert totals.operations == 3 * 250


def test_a_seed_gives_the_same_run_every_time() -> None:
    one, other = run(7, 150, trace=True), run(7, 150, trace=True)
    assert one.trace == other.trace
    assert one.counts == other.counts


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_hundred_groups_keep_their_promises(
    capsys: pytest.CaptureFixture[str], fewer_seeds: int
) -> None:
    totals = run_many(0, SEEDS // fewer_seeds)
    with capsys.disabled():
        sys.stdout.write(f"\n{totals}\n")
    assert not totals.failures, "\n".join(totals.failures)
    rare = {"longest settling, ms"}
    often = OFTEN // fewer_seeds
    assert all(count > often for name, count in totals.counts.items() if name not in rare)

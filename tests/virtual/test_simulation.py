"""A thousand seeds of clients at work while everything breaks: nothing lost, doubled or reordered.

A failure prints the command that shows its seed again. That the checker would see it if something
were wrong is shown in ``test_planted_bugs``.
"""

from __future__ import annotations

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.virtual.simulation import OPERATIONS, SHOWN, Totals, quiet, simulate, simulate_many

SEEDS = 1_000
CHUNK = 25
PROCESSES = 2
AT_LEAST = 100
"""How often each kind of trouble must have come: without it, a run shows nothing."""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_thousand_seeds_lose_double_and_reorder_nothing(
    capsys: pytest.CaptureFixture[str], fewer_seeds: int
) -> None:
    seeds, at_least = SEEDS // fewer_seeds, AT_LEAST // fewer_seeds
    totals, failures = Totals(), []
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, mp_context=spawn) as pool:
        firsts = range(0, seeds, CHUNK)
        counts = [min(CHUNK, seeds - first) for first in firsts]
        for more, failed in pool.map(simulate_many, firsts, counts):
            totals += more
            failures += failed
    with capsys.disabled():
        sys.stdout.write(f"\nsimulation: {totals}\n")
    assert not failures, "\n".join([f"{len(failures)} failed", *failures[:SHOWN]])
    assert (totals.runs, totals.operations) == (seeds, seeds * OPERATIONS)
    trouble = (
        totals.crashes,
        totals.cuts,
        totals.retries,
        totals.reconnects,
        totals.leader_moves,
    )
    assert min(trouble) > at_least
    assert min(totals.acknowledged, totals.failed, totals.unknown, totals.delivered) > at_least


def test_a_failing_seed_comes_with_the_command_that_shows_it_again() -> None:
    with quiet():
        run = simulate(5)
    run.trouble.append("something")
    assert "python -m tests.virtual.simulation --seed 5 --trace" in run.describe()
    assert not run.well

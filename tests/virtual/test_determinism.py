"""A seed reproduces a run exactly: in every process, on both builds of the record codec.

What breaks this is a set that is walked in the order of hashes or addresses, a look at real time,
or randomness from elsewhere than the loop. The digest takes in the history and all that passed on
the network, with the time of each.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.virtual.simulation import quiet, simulate

COUNT = 4
ROOT = Path(__file__).parents[2]


def digests(hash_seed: int, **environment: str) -> list[str]:
    """The digests of some seeds as another process has them, which hashes texts otherwise."""
    command = ["-m", "tests.virtual.simulation", "--digest", "--count", str(COUNT)]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    first = digests(1)
    assert len(first) == COUNT
    assert digests(2) == first
    assert digests(3, KCLIENT_PURE="1") == first


def test_a_seed_gives_the_same_run_again_in_the_same_process() -> None:
    with quiet():
        first, second = simulate(COUNT), simulate(COUNT)
    assert first.history.lines == second.history.lines
    assert first.digest == second.digest


def test_different_seeds_give_different_runs() -> None:
    with quiet():
        assert len({simulate(seed).digest for seed in range(4)}) == 4

"""Compiled and pure say the same to 50,000 malformed batches, and neither crashes.

Each portion of mutants is read in a process of its own, so that a segmentation fault is a failed
test which names the mutant. The seeds are fixed: the same mutants in each run.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PORTION = 6_250
PORTIONS = 8
TIMEOUT = 100.0


@pytest.mark.parametrize("seed", range(PORTIONS))
def test_both_builds_say_the_same(seed: int, tmp_path: Path) -> None:
    scratch = tmp_path / "mutant"
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.differ", str(seed), str(PORTION), str(scratch)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    mutant = scratch.read_bytes().hex() if scratch.exists() else "none"
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nthe last mutant: {mutant}"
    sound, refused = map(int, done.stdout.split())
    assert sound + refused == PORTION
    # Mutants that nobody could read, or that all are fine, would prove little.
    assert sound > PORTION // 20
    assert refused > PORTION // 4

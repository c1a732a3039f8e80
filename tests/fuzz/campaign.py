"""Many mutants, in portions, each in a process of its own: for the tests and for the command.

A process that dies, finds something or takes too long ends the campaign with ``Found``, whose text
names the mutant and the command that repeats it.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.tally import Tally

PROJECT = Path(__file__).parents[2]
TIMEOUT = 600.0
"""Seconds for a portion. Mutants that hang are ended by their own limit of CPU long before."""


class Portion(NamedTuple):
    """Mutants ``first`` to ``first + count`` of a seed."""

    target: str
    seed: int
    first: int
    count: int


COUNTS = {
    "frames": 120_000,
    "batches": 50_000,
    "fetch": 15_000,
    "metadata": 10_000,
    "handshake": 7_000,
    "requests": 4_000,
    "broker": 20_000,
    "clients": 1_500,  # lives, of some three spoiled responses each
}
"""Target -> numbers of the run with fixed seeds."""
SIZES = {"clients": 750, "fetch": 7_500, "broker": 5_000}
"""Target -> numbers of one process at most; elsewhere ``SIZE``."""
SIZE = 20_000


class Found(AssertionError):
    """A mutant broke something."""


def portions(counts: dict[str, int], seed: int = 0) -> Iterator[Portion]:
    """What is to be run, the longest targets first."""
    for target, count in counts.items():
        size = SIZES.get(target, SIZE)
        for first in range(0, count, size):
            yield Portion(target, seed, first, min(size, count - first))


def scaled(mutants: int, targets: list[str] | None = None) -> dict[str, int]:
    """``COUNTS`` in the same proportions, for about so many mutants of some targets."""
    chosen = {name: COUNTS[name] for name in targets or COUNTS}
    total = sum(chosen.values())
    return {name: max(1, round(count * mutants / total)) for name, count in chosen.items()}


def run_portion(portion: Portion) -> Tally:
    """Run one in its process. Raises Found."""
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory) / "number"
        command = [sys.executable, "-m", "tests.fuzz.portion", *map(str, portion), str(scratch)]
        try:
            done = subprocess.run(
                command,
                cwd=PROJECT,
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                check=False,
            )
            output, ended = done.stdout + done.stderr, f"ended with {done.returncode}"
            if done.returncode == 0:
                return Tally.from_json(done.stdout.splitlines()[-1])
        except subprocess.TimeoutExpired as late:
            output, ended = str(late), f"took more than {TIMEOUT:.0f} s"
        at_work = scratch.read_bytes() if scratch.exists() else b""
    number = struct.unpack(">q", at_work)[0] if len(at_work) == 8 else portion.first
    raise Found(
        f"{output}\n{portion} {ended} at mutant {number}; to repeat it:\n"
        f"python -m tests.fuzz.portion {portion.target} {portion.seed} {number} 1"
    )


def run(todo: list[Portion], jobs: int = 1) -> Iterator[tuple[Portion, Tally]]:
    """Run portions, ``jobs`` at once."""
    with ThreadPoolExecutor(jobs) as pool:
        try:
            yield from zip(todo, pool.map(run_portion, todo), strict=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise

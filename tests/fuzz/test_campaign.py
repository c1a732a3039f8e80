"""The fuzzer finds planted defects, and reports how to find them again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import planted
from tests.fuzz.campaign import PROJECT, Found, Portion, portions, run_portion, scaled
from tests.fuzz.tally import Tally


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (planted.RAISES, "an error that is none of ours"),
        (planted.HANGS, "no end after"),
        (planted.DIES, "Aborted"),
        (planted.HOARDS, "bytes of memory for 1"),
        (planted.GREEDY, "MemoryError"),
    ],
)
def test_a_defect_is_found_and_can_be_repeated(number: int, words: str) -> None:
    with pytest.raises(Found, match=words) as caught:
        run_portion(Portion("planted", 0, number - 1, 3))
    assert f"mutant {number}" in str(caught.value)
    assert f"python -m tests.fuzz.portion planted 0 {number} 1" in str(caught.value)


def test_a_sound_portion_is_counted() -> None:
    tally = run_portion(Portion("planted", 0, planted.SOUND, 2))
    assert tally.counts == {("planted", "planted", "sound"): 2}


def test_portions_cover_all_numbers_once() -> None:
    counts = {"clients": 1_600, "frames": 50_000}
    seen: dict[str, list[int]] = {"clients": [], "frames": []}
    for portion in portions(counts, seed=5):
        assert portion.seed == 5
        seen[portion.target] += range(portion.first, portion.first + portion.count)
    assert {name: len(numbers) for name, numbers in seen.items()} == counts
    assert all(numbers == sorted(set(numbers)) for numbers in seen.values())


def test_more_mutants_keep_the_proportions() -> None:
    counts = scaled(1_000_000)
    assert abs(sum(counts.values()) - 1_000_000) < 10
    assert counts["frames"] > counts["batches"] > counts["clients"] > 0
    assert scaled(100, ["fetch"]) == {"fetch": 100}


def test_the_command_prints_and_keeps_the_counts(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    options = ["--target", "handshake", "--mutants", "300", "--seed", "9", "--jobs", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *options, "--report", str(report)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    tally = Tally.from_json(report.read_text())
    assert tally.total() == tally.total("handshake") == 300
    assert "handshake: 300 mutants" in done.stdout
    assert tally.table() in done.stdout

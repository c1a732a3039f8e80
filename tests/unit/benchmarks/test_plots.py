"""Charts are drawn from whatever results exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.results import Run

pytest.importorskip("matplotlib")


def run(entry: str, cost: float) -> Run:
    return Run("consume: base", entry, 0, {"cpu_us": cost})


@pytest.mark.parametrize(
    "runs",
    [
        [run("confluent consume", 0.8), run("confluent consume, tuned", 0.7)],
        [Run("consume: base", "kclient poll", 0, {"error": "x"}), run("aiokafka getmany", 1.5)],
        [run("kclient poll", 0.1), run("confluent aio poll", 60.0)],
    ],
    ids=["peers alone", "ours failed", "a long tail"],
)
def test_bars_are_drawn(runs: list[Run], tmp_path: Path) -> None:
    from benchmarks.plots import draw

    (path,) = draw(tmp_path, runs, "lower is better; " + "many words " * 40)
    assert path.stat().st_size > 10_000


def test_nothing_to_draw_is_nothing(tmp_path: Path) -> None:
    from benchmarks.plots import draw

    assert draw(tmp_path, [Run("consume: base", "kclient poll", 0, {"error": "x"})], "") == []

"""Arithmetic over runs: medians, spreads, ratios. Pure; knows neither clients nor files.

A ratio between two entries is the median of the ratios of their runs in the same round, which are a
few seconds apart: a machine that is slower for a minute doesn't shift it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.job import Outcome

ROUNDS = 5
"""Of a session whose verdicts count; fewer decide nothing."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one entry in one cell."""

    cell: str
    entry: str
    round: int
    outcome: Outcome

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Summary:
    """What the runs of an entry in a cell came to."""

    cell: str
    entry: str
    figures: dict[str, float]
    """Medians by name."""
    lowest: dict[str, float]
    highest: dict[str, float]
    runs: int
    error: str = ""
    missing: str = ""

    def spread(self, figure: str) -> float:
        """Half the way from the lowest to the highest run, as a share of the median."""
        middle = self.figures.get(figure, 0.0)
        if not middle:
            return 0.0
        return (self.highest[figure] - self.lowest[figure]) / 2 / middle


def rounds_of(runs: Iterable[Run]) -> int:
    """Rounds of the session, the cells with most of them counted."""
    return max((run.round for run in runs), default=-1) + 1


def summarize(runs: Iterable[Run]) -> dict[tuple[str, str], Summary]:
    """Summaries by cell and entry, in the order of their first runs."""
    grouped: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        grouped.setdefault((run.cell, run.entry), []).append(run)
    return {key: _summary(*key, found) for key, found in grouped.items()}


def _summary(cell: str, entry: str, runs: Sequence[Run]) -> Summary:
    errors = [run.outcome["error"] for run in runs if "error" in run.outcome]
    missing = [run.outcome["missing"] for run in runs if "missing" in run.outcome]
    good = [run.outcome for run in runs if "error" not in run.outcome and not missing]
    columns: dict[str, list[float]] = {}
    for outcome in good:
        for name, value in outcome.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                columns.setdefault(name, []).append(float(value))
    return Summary(
        cell,
        entry,
        {name: statistics.median(values) for name, values in columns.items()},
        {name: min(values) for name, values in columns.items()},
        {name: max(values) for name, values in columns.items()},
        len(good),
        errors[0] if errors else "",
        missing[0] if missing else "",
    )


def ratio(
    runs: Iterable[Run],
    mine: tuple[str, str],
    other: tuple[str, str],
    figure: str,
    other_figure: str = "",
) -> float | None:
    """How many times greater ``other``'s figure is than ``mine``'s; None without a common round."""
    tables: dict[tuple[str, str], dict[int, Outcome]] = {mine: {}, other: {}}
    for run in runs:
        if (run.cell, run.entry) in tables:
            tables[run.cell, run.entry][run.round] = run.outcome
    found = [
        outcome[other_figure or figure] / tables[mine][number][figure]
        for number, outcome in tables[other].items()
        if (other_figure or figure) in outcome and tables[mine].get(number, {}).get(figure)
    ]
    return statistics.median(found) if found else None

"""Arithmetic over runs: medians, spreads, ratios. Pure; knows neither clients nor files.

A ratio between two entries is the median of the ratios of their runs in the same round, which are a
few seconds apart: it doesn't change when the machine is slower for a minute.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.job import Outcome

ROUNDS = 5
"""Rounds of a session whose verdicts count; fewer decide nothing."""


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
    """The combined runs of one entry in one cell."""

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
        """Return half the range of the runs, as a share of the median."""
        middle = self.figures.get(figure, 0.0)
        if not middle:
            return 0.0
        return (self.highest[figure] - self.lowest[figure]) / 2 / middle


def rounds_of(runs: Iterable[Run]) -> int:
    """Return the number of rounds of the session: that of the cells with most rounds."""
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
    """Return ``other``'s figure divided by ``mine``'s; None without a common round."""
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

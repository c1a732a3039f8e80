"""Two sessions side by side: ``python -m benchmarks --compare a.json b.json``.

Shows the medians of both and how far they are apart, entry by entry. If the machine was slower in
one of them, the peers' rows show that as well. Pure, except for the console.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.cells import CELLS
from benchmarks.results import Run, summarize

TOLERANCE = 0.15
"""Relative difference within which two runs of the same code should be."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One entry of one cell in both sessions."""

    cell: str
    entry: str
    first: float
    second: float

    @property
    def apart(self) -> float:
        """Share by which the greater exceeds the lesser; 0 if both are 0."""
        low, high = sorted((self.first, self.second))
        if low == high:
            return 0.0
        return high / low - 1 if low else float("inf")


def differences(first: Sequence[Run], second: Sequence[Run]) -> list[Difference]:
    """What both sessions measured, in the order of the first."""
    others, found = summarize(second), []
    for key, mine in summarize(first).items():
        figure = CELLS[mine.cell].figure if mine.cell in CELLS else "cpu_us"
        other = others.get(key)
        if other is not None and figure in mine.figures and figure in other.figures:
            found.append(Difference(*key, mine.figures[figure], other.figures[figure]))
    return found


def show_comparison(console: Console, names: tuple[str, str], found: Sequence[Difference]) -> None:
    """A table of all, and how many are within the tolerance."""
    table = Table(title="two sessions", title_style="bold", title_justify="left")
    for heading in ("cell", "entry"):
        table.add_column(heading, no_wrap=True)
    for heading in (*names, "apart"):
        table.add_column(heading, justify="right")
    for one in found:
        style = "" if one.apart <= TOLERANCE else "yellow"
        table.add_row(
            one.cell,
            one.entry,
            f"{one.first:,.3g}",
            f"{one.second:,.3g}",
            f"{one.apart:.0%}",
            style=style,
        )
    console.print(table)
    within = sum(one.apart <= TOLERANCE for one in found)
    console.print(f"{within} of {len(found)} within {TOLERANCE:.0%} of each other")

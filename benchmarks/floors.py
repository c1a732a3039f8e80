"""The floors: limits for kclient's figures, and whether they hold. Limits are in floors.toml.

Pure: runs in, verdicts out. A row whose runs are missing is undecided, never passed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.results import Run, ratio, summarize

FILE = Path(__file__).with_name("floors.toml")
Holds = Literal["holds", "doesn't hold", "not decided"]


@dataclass(frozen=True, slots=True)
class Against:
    """A bound relative to another entry: ``cheaper`` times less, or ``within`` times as much."""

    entry: str
    cell: str
    cheaper: float | None = None
    within: float | None = None


@dataclass(frozen=True, slots=True)
class Floor:
    """One row of the table that must hold."""

    row: str
    cell: str
    entry: str
    figure: str = "cpu_us"
    unit: str = "us"
    at_most: float | None = None
    against: tuple[Against, ...] = ()
    bare: str | None = None
    """Entry of no client: the least that any client on that kind of loop costs, shown beside what
    was measured."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One bound of a floor, measured."""

    row: str
    measured: str
    limit: str
    holds: Holds


def read_floors(path: Path = FILE) -> tuple[Floor, ...]:
    """The floors of a file, in its order.

    Raises:
        TypeError: An item has a key that no floor has, or lacks one.
        ValueError: A bound doesn't have either ``cheaper`` or ``within``, or a floor has no bound.
    """
    floors = []
    for item in tomllib.loads(path.read_text(encoding="utf-8"))["floor"]:
        bounds: list[dict[str, Any]] = item.pop("against", [])
        against = tuple(Against(**{"cell": item["cell"], **bound}) for bound in bounds)
        if any((one.cheaper is None) == (one.within is None) for one in against):
            raise ValueError(f"{item['row']}: either cheaper or within")
        floor = Floor(**item, against=against)
        if floor.at_most is None and not against:
            raise ValueError(f"{floor.row}: no bound")
        floors.append(floor)
    return tuple(floors)


def looked_at(floors: Sequence[Floor]) -> frozenset[tuple[str, str]]:
    """Return the cells and entries whose figures a floor needs."""
    own = {(floor.cell, floor.entry) for floor in floors}
    others = {(one.cell, one.entry) for floor in floors for one in floor.against}
    bare = {(floor.cell, floor.bare) for floor in floors if floor.bare is not None}
    return frozenset(own | others | bare)


def verdicts(floors: Sequence[Floor], runs: Sequence[Run]) -> list[Verdict]:
    """Return one verdict per bound."""
    summaries = summarize(runs)
    found = []
    for floor in floors:
        summary = summaries.get((floor.cell, floor.entry))
        value = summary.figures.get(floor.figure) if summary else None
        if floor.at_most is not None:
            limit = f"<= {floor.at_most:g} {floor.unit}"
            measured = "-" if value is None else f"{value:.3g} {floor.unit}"
            holds = None if value is None else value <= floor.at_most
            found.append(Verdict(floor.row, measured, limit, _word(holds)))
        found += [_relative(floor, one, runs) for one in floor.against]
    return found


def _relative(floor: Floor, bound: Against, runs: Sequence[Run]) -> Verdict:
    mine, other = (floor.cell, floor.entry), (bound.cell, bound.entry)
    times = ratio(runs, mine, other, floor.figure)
    name = bound.entry if bound.cell == floor.cell else bound.cell
    if bound.cheaper is not None:
        measured = "-" if times is None else f"{times:.2f}x cheaper"
        limit, holds = f">= {bound.cheaper:g}x {name}", times and times >= bound.cheaper
    else:
        within = bound.within or 0.0
        measured = "-" if times is None else f"{1 / times:.2f}x"
        if times is not None and floor.bare is not None:
            least = ratio(runs, (floor.cell, floor.bare), other, floor.figure)
            measured += f" (no client: {1 / least:.2f}x)" if least else ""
        limit, holds = f"<= {within:g}x {name}", times and 1 / times <= within
    return Verdict(floor.row, measured, limit, _word(None if times is None else bool(holds)))


def _word(holds: bool | None) -> Holds:
    if holds is None:
        return "not decided"
    return "holds" if holds else "doesn't hold"

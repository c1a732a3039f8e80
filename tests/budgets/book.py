"""The stored budgets: a TOML file per Python minor version, and what it means to exceed them.

A table per build and path, such as ``[compiled.append]``. Counts differ from one minor version of
Python to the next, so each has a file of its own, ``budgets-3.11.toml``; a version without one
can't be checked.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.budgets.machine import Cost

HERE = Path(__file__).resolve().parent
SLACK = 1.10
"""What a record may cost, as a multiple of what it did when the budget was recorded."""
CALL_SLACK = 1.5
"""Calls per record hardly swing, and one more call of an empty Python function shows as three or
four, while it is lost in a tenth of the instructions."""
FEW_CALLS, FEW_SLACK = 50, 0.5
"""Where there are fewer they swing by a tenth: there a single call of C shows, too."""
MANY_CALLS, MANY_SLACK = 1000, 1.03
"""Where there are more, as for a whole request, a share of them swings with memory's layout."""
FLOOR = 0.05
"""Allocations and blocks per record that count as none: a record's part of its batch's."""
_HEAD = """# What a record (or a request) costs on each hot path, by build; Python {version}.
# instructions: executed; calls: of C functions; allocations: calls of Python's allocator;
# kept: blocks of memory that the result keeps. Checked by `python -m tests.budgets`, written by
# `python -m tests.budgets --record`: read the difference before you commit it.
"""

Costs = dict[str, dict[str, Cost]]
"""By build and path."""


@dataclass(frozen=True, slots=True)
class Excess:
    """A count over its budget.

    Attributes:
        build: ``compiled`` or ``pure``.
        path: Name of the hot path.
        figure: Which count.
        budget: What it may be, the slack included.
        found: What it is.
    """

    build: str
    path: str
    figure: str
    budget: float
    found: float

    def __str__(self) -> str:
        return (
            f"{self.build} {self.path}: {self.found:.2f} {self.figure} per record, "
            f"allowed are {self.budget:.2f}"
        )


class NoBudget(LookupError):
    """Nothing is stored for this Python, or for a path."""


def file_of_this_python() -> Path:
    """The file for the running version."""
    major, minor = sys.version_info[:2]
    return HERE / f"budgets-{major}.{minor}.toml"


def load(path: Path) -> Costs:
    """The stored costs.

    Raises:
        NoBudget: There is no such file, or it can't be read.
    """
    try:
        stored = tomllib.loads(path.read_text())
        return {
            build: {name: Cost(**costs) for name, costs in rows.items()}
            for build, rows in stored.items()
        }
    except (OSError, TypeError, AttributeError, tomllib.TOMLDecodeError) as error:
        raise NoBudget(
            f"{path.name} can't be read ({error}): write it with `python -m tests.budgets --record`"
        ) from error


def save(path: Path, costs: Mapping[str, Mapping[str, Cost]]) -> None:
    """Write them."""
    major, minor = sys.version_info[:2]
    lines = [_HEAD.format(version=f"{major}.{minor}")]
    for build, rows in costs.items():
        for name, cost in rows.items():
            lines.append(f"[{build}.{name}]\n")
            lines += [f"{figure} = {count:.3f}\n" for figure, count in asdict(cost).items()]
            lines.append("\n")
    path.write_text("".join(lines).rstrip("\n") + "\n")


def _calls_allowed(stored: float) -> float:
    if stored < FEW_CALLS:
        return stored + FEW_SLACK
    return stored + CALL_SLACK if stored < MANY_CALLS else stored * MANY_SLACK


def budget_of(stored: Cost) -> Cost:
    """What is allowed where that was recorded."""
    return Cost(
        stored.instructions * SLACK,
        _calls_allowed(stored.calls),
        stored.allocations * SLACK + FLOOR,
        stored.kept * SLACK + FLOOR,
    )


def excesses(build: str, path: str, stored: Cost, found: Cost) -> list[Excess]:
    """Each count that is over its budget."""
    allowed, counted = asdict(budget_of(stored)), asdict(found)
    return [
        Excess(build, path, figure, allowed[figure], count)
        for figure, count in counted.items()
        if count > allowed[figure]
    ]

"""Makes docs/behaviours.md: which behaviour was seen on which broker, build and event loop.

    python -m tests.support.behaviour_table DIRECTORY            writes the page
    python -m tests.support.behaviour_table DIRECTORY --check    fails when the page differs

DIRECTORY holds the outcome files of `pytest tests/behaviours --outcomes FILE`, one for each column.
A behaviour is a test function; its parameters are counted inside its cell.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.support.skip_policy import listed_skips

PAGE = Path(__file__).parents[2] / "docs" / "behaviours.md"
BEHAVIOURS = "tests/behaviours/"
AT_LEAST = 100
"""Named behaviours that the project promises to show."""

Column = tuple[str, str, str]
"""Broker, implementation, loop."""

COLUMNS: tuple[Column, ...] = (
    ("embedded", "cython", "asyncio"),
    ("embedded", "pure", "asyncio"),
    ("embedded", "cython", "uvloop"),
    ("4.3.0", "cython", "asyncio"),
    ("docker", "cython", "asyncio"),
    ("3.9.1", "cython", "uvloop"),
    ("2.8.2", "pure", "asyncio"),
    ("1.0.2", "cython", "asyncio"),
)
_WORDS = {("cython", "asyncio"): "", ("pure", "asyncio"): " pure", ("cython", "uvloop"): " uvloop"}

_HEAD = """# Behaviours

What the clients do, each line a test in `tests/behaviours`, run against the embedded cluster and
against real Apache Kafka. This page is made by `python -m tests.support.behaviour_table` from the
outcomes of a CI run, and CI fails when it differs from what was seen.

The columns without a word are the compiled build on asyncio; "pure" is the build without compiled
code, "uvloop" the compiled build on uvloop, "docker" the newest release in a container. A number is
how many variants of the test passed.

"""

Table = dict[str, dict[Column, Counter[str]]]
"""Behaviour -> column -> how many of its variants came to which outcome."""


class Incomplete(RuntimeError):
    """The outcomes do not make a whole table."""


def read(directory: Path) -> Table:
    """Read all outcome files of a directory.

    Raises:
        Incomplete: A column is missing, or a behaviour did not run in one of them.
    """
    table: Table = {}
    seen: set[Column] = set()
    for path in sorted(directory.glob("*.json")):
        content = json.loads(path.read_text())
        run = content["run"]
        column = (run["broker"], run["implementation"], run["loop"])
        seen.add(column)
        for test, outcome in content["outcomes"].items():
            if test.startswith(BEHAVIOURS):
                name = test.removeprefix(BEHAVIOURS).partition("[")[0]
                table.setdefault(name, {}).setdefault(column, Counter())[outcome] += 1
    if missing := [_title(column) for column in COLUMNS if column not in seen]:
        raise Incomplete(f"no outcomes for {', '.join(missing)} in {directory}")
    for name, cells in table.items():
        if absent := [_title(column) for column in COLUMNS if column not in cells]:
            raise Incomplete(f"{name} did not run on {', '.join(absent)}")
    return table


def render(table: Table) -> str:
    """Render the outcomes as the page."""
    titles = [_title(column) for column in COLUMNS]
    passed = [_passed(table.values(), column) for column in COLUMNS]
    lines = [
        _row(["Behaviours", *titles]),
        _row(["---", *["---:"] * len(titles)]),
        _row([f"**{len(table)} in all, passed:**", *(f"**{count}**" for count in passed)]),
    ]
    sections: dict[str, list[str]] = {}
    for name in sorted(table):
        sections.setdefault(name.partition("::")[0], []).append(name)
    for file, names in sections.items():
        lines += ["", f"## {_words(file.removeprefix('test_').removesuffix('.py'))}", ""]
        lines += [_row(["", *titles]), _row(["---", *["---:"] * len(titles)])]
        lines += [
            _row([_words(name.partition("::test_")[2]), *(_cell(table[name][c]) for c in COLUMNS)])
            for name in names
        ]
    skips = [f"- `{test}` on {broker}: {why}" for (test, broker), why in listed_skips().items()]
    lines += ["", "## Not run", "", *(skips or ["Every behaviour ran everywhere."])]
    return _HEAD + "\n".join(lines) + "\n"


def _title(column: Column) -> str:
    broker, implementation, loop = column
    return broker + _WORDS[implementation, loop]


def _passed(rows: Iterable[Mapping[Column, Counter[str]]], column: Column) -> int:
    return sum(1 for cells in rows if set(cells[column]) == {"passed"})


def _cell(outcomes: Counter[str]) -> str:
    if set(outcomes) == {"passed"}:
        return str(outcomes["passed"])
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))


def _words(name: str) -> str:
    words = name.replace("_", " ")
    return words[:1].upper() + words[1:]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main(arguments: list[str]) -> int:
    """The command line; returns the exit status."""
    check = "--check" in arguments
    directories = [argument for argument in arguments if argument != "--check"]
    if len(directories) != 1:
        sys.stderr.write("usage: python -m tests.support.behaviour_table DIRECTORY [--check]\n")
        return 2
    try:
        table = read(Path(directories[0]))
    except Incomplete as error:
        sys.stderr.write(f"{error}\n")
        return 1
    page = render(table)
    if len(table) < AT_LEAST:
        sys.stderr.write(f"only {len(table)} behaviours, {AT_LEAST} are promised\n")
        return 1
    if not check:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page)
    elif not PAGE.exists() or PAGE.read_text() != page:
        sys.stderr.write(f"{PAGE.name} is not what was seen: run this without --check\n")
        return 1
    sys.stdout.write(f"{len(table)} behaviours x {len(COLUMNS)} columns\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

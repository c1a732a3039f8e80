"""``python -m tests.budgets``: count what a record costs on the hot paths, and hold it to budgets.

    python -m tests.budgets                    # all; ends with 1 where a budget is exceeded
    python -m tests.budgets --only append      # some paths
    python -m tests.budgets --record           # rewrite the budgets of this Python

Needs valgrind; without it the run fails. Counts are the same on each run of one build.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from kclient.record import IMPLEMENTATION
from tests.budgets import book
from tests.budgets.machine import CantCount, Cost, measure_all
from tests.budgets.paths import PATHS

BUILDS = ("compiled", "pure")
SHARES = {"compiled": 2, "pure": 1}
"""Processes that the paths of a build are spread over: each one more imports once more."""
AT_ONCE = 2
HEADING = (
    f"{'build':8}  {'path':18}  {'instructions':>12}  {'change':>6}  {'calls':>8}  "
    f"{'allocs':>7}  {'kept':>5}   per record"
)


def emit(text: str) -> None:
    """A line on the terminal."""
    print(text, flush=True)  # noqa: T201


def count(builds: Sequence[str], only: Sequence[str], at_once: int) -> book.Costs:
    """The costs of the chosen paths.

    Raises:
        CantCount: ``machine.measure`` raised it; or there is no compiled build.
    """
    if "compiled" in builds and IMPLEMENTATION != "cython":
        raise CantCount("there is no compiled build here: python setup.py build_ext --inplace")
    chosen = {
        build: [
            path
            for path in PATHS
            if (not only or path.name in only) and (path.pure or build == "compiled")
        ]
        for build in builds
    }
    jobs = [
        (share, build == "pure")
        for build, paths in chosen.items()
        for first in range(SHARES[build])
        if (share := paths[first :: SHARES[build]])
    ]
    costs = measure_all(jobs, at_once=at_once)
    return {
        build: {
            path.name: cost[path.name]
            for path in paths
            for (_, pure), cost in zip(jobs, costs, strict=True)
            if pure == (build == "pure") and path.name in cost
        }
        for build, paths in chosen.items()
        if paths
    }


def row(build: str, name: str, cost: Cost, stored: Cost | None) -> str:
    """One line of the table."""
    change = "new" if stored is None else f"{cost.instructions / stored.instructions - 1:+.1%}"
    return (
        f"{build:8}  {name:18}  {cost.instructions:12.1f}  {change:>6}  {cost.calls:8.2f}  "
        f"{cost.allocations:7.2f}  {cost.kept:5.2f}"
    )


def check(found: book.Costs, stored: book.Costs) -> list[str]:
    """Print the table; return what is wrong, a line each."""
    wrong = []
    emit(HEADING)
    for build, rows in found.items():
        for name, cost in rows.items():
            budget = stored.get(build, {}).get(name)
            emit(row(build, name, cost, budget))
            if budget is None:
                wrong.append(f"{build} {name} has no budget: record it")
            else:
                wrong += map(str, book.excesses(build, name, budget, cost))
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from a command line; gives the exit status."""
    names = [path.name for path in PATHS]
    parser = argparse.ArgumentParser(
        prog="python -m tests.budgets",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--record", action="store_true", help="write the budgets")
    parser.add_argument("--only", action="append", default=[], choices=names, metavar="PATH")
    parser.add_argument("--build", choices=BUILDS, help="both by default")
    parser.add_argument("--jobs", type=int, default=AT_ONCE, help="processes beside each other")
    options = parser.parse_args(arguments)
    builds = (options.build,) if options.build else BUILDS
    file = book.file_of_this_python()
    begun = time.monotonic()
    try:
        stored = {} if options.record and not file.exists() else book.load(file)
        found = count(builds, options.only, options.jobs)
    except (CantCount, book.NoBudget) as error:
        print(f"broken: {error}", file=sys.stderr)  # noqa: T201
        return 2
    wrong = check(found, stored)
    seconds = time.monotonic() - begun
    if options.record:
        book.save(file, merged(stored, found, whole=not options.only and not options.build))
        emit(f"wrote {file.name} in {seconds:.0f} s")
        return 0
    for line in wrong:
        emit(f"EXCEEDED  {line}")
    total = sum(map(len, found.values()))
    emit(f"{total} hot paths, {len(wrong)} counts over their budget, in {seconds:.0f} s")
    return 1 if wrong or not total else 0


def merged(stored: book.Costs, found: book.Costs, *, whole: bool) -> book.Costs:
    """What to store: all that was found, and of the rest what was there unless it was ``whole``."""
    if whole:
        return found
    names = [path.name for path in PATHS]
    rows = {build: {**stored.get(build, {}), **found.get(build, {})} for build in BUILDS}
    return {
        build: {name: costs[name] for name in names if name in costs}
        for build, costs in rows.items()
    }


if __name__ == "__main__":
    sys.exit(main())

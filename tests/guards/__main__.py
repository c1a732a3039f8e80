"""``python -m tests.guards``: remove each guard in turn and demand that its tests notice.

    python -m tests.guards                      # all of them
    python -m tests.guards network.toml         # those of one file
    python -m tests.guards --only 15 --only 62  # those of some pitfalls

Prints a table; ends with 1 where a removal isn't noticed or an entry can't be tried.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.guards.guard import BadGuard, Guard, read
from tests.guards.sandbox import Workshop
from tests.guards.trial import Trial, Verdict, failing_unmutated, try_guard

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
PACKAGE = "kclient"
AT_ONCE = 2
"""Trials beside each other."""


def try_all(
    project: Path,
    package: str,
    guards: Sequence[Guard],
    *,
    at_once: int = AT_ONCE,
    tell: Callable[[Trial], object] = lambda trial: None,
) -> list[Trial]:
    """Try these guards of a project; ``tell`` is given each outcome as it comes.

    Returns:
        One trial per guard, in their order.
    """
    with tempfile.TemporaryDirectory(prefix="guards-") as folder:
        workshop = Workshop(project, package, Path(folder))
        failing = failing_unmutated(workshop, guards)

        def one(guard: Guard) -> Trial:
            begun = time.monotonic()
            if guard in failing:
                why = f"its tests don't pass as things are: {failing[guard]}"
                trial = Trial(guard, Verdict.BROKEN, why)
            else:
                trial = try_guard(workshop, guard)
            trial = dataclasses.replace(trial, seconds=time.monotonic() - begun)
            tell(trial)
            return trial

        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(one, guards))


def row(trial: Trial) -> str:
    """One line of the table."""
    guard = trial.guard
    verdict = trial.verdict.name.lower()
    return f"{verdict:9}  {guard.pitfall:24}  {guard.about}\n{trial.seconds:7.1f} s  {trial.why}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from a command line; gives the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.guards", description=__doc__)
    parser.add_argument("files", nargs="*", help="names of files in tests/guards; all by default")
    parser.add_argument("--only", action="append", default=[], help="a pitfall; may be repeated")
    parser.add_argument("--jobs", type=int, default=AT_ONCE, help="trials beside each other")
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    try:
        files = [HERE / name for name in options.files] or sorted(HERE.glob("*.toml"))
        guards = [guard for path in files for guard in read(path)]
    except (BadGuard, OSError) as error:
        print(f"broken: {error}", file=sys.stderr)  # noqa: T201
        return 1
    if options.only:
        guards = [guard for guard in guards if guard.pitfall in options.only]
    if not guards:
        print("no guard to try", file=sys.stderr)  # noqa: T201
        return 1
    trials = try_all(
        PROJECT,
        PACKAGE,
        guards,
        at_once=options.jobs,
        tell=lambda trial: print(row(trial), flush=True),  # noqa: T201
    )
    counts = {verdict: sum(trial.verdict is verdict for trial in trials) for verdict in Verdict}
    summary = ", ".join(f"{count} {verdict.name.lower()}" for verdict, count in counts.items())
    print(f"{len(trials)} guards: {summary}, in {time.monotonic() - begun:.0f} s")  # noqa: T201
    return 0 if counts[Verdict.NOTICED] == len(trials) else 1


if __name__ == "__main__":
    sys.exit(main())

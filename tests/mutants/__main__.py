"""``python -m tests.mutants``: how many small mistakes do the tests notice?

    python -m tests.mutants sans-io                     # 300 of them, against the baseline
    python -m tests.mutants drivers                     # in the files that do input and output
    python -m tests.mutants sans-io --count 50 --seed 7 # others, fewer
    python -m tests.mutants sans-io --write             # what it finds is the new baseline

Prints what was not noticed. Ends with 1 if a smaller share was noticed than by the baseline.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.mutants.sites import Site, sites_in, with_switches
from tools.code_metrics import GENERATED, PACKAGE, SANS_IO, is_one_of

PROJECT = Path(__file__).resolve().parent.parent.parent
BASELINE = Path(__file__).parent / "baseline.json"
RINGS = ("tests/unit", "tests/virtual")
WORKERS = 2
MOST_SECONDS = 12.0
"""Of tests that are run for one mutant, the quickest first: what none of them notices is not."""
KINDS = ("sans-io", "drivers")
"""Of files: those of the client that do no input or output, and the rest of it."""
_NO_CLIENT = ("testing/", "cli/", "pytest_plugin/")
_LEFT_OUT = (".git", ".venv", ".ci", "build", "__pycache__", "*.so", ".*_cache", ".hypothesis")


def draw(project: Path, kind: str, count: int, seed: int) -> list[Site]:
    """The mutants: sites of one of ``KINDS``, each as likely as another."""
    found: list[Site] = []
    for path in sorted((project / PACKAGE).rglob("*.py")):
        name = path.relative_to(project).as_posix()
        if _kind_of(name) == kind:
            found.extend(sites_in(name, path.read_text()))
    return random.Random(f"mutants {seed}").sample(found, min(count, len(found)))


def _kind_of(name: str) -> str | None:
    if is_one_of(name, GENERATED):
        return None
    if is_one_of(name, SANS_IO):
        return "sans-io"
    return None if is_one_of(name, _NO_CLIENT) else "drivers"


def copy_with_switches(project: Path, into: Path, mutants: Sequence[Site]) -> None:
    """The whole project, pure, with all of the mutants switched off."""
    shutil.copytree(project, into, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    shutil.copy(Path(__file__).with_name("switch.py"), into / PACKAGE / "_mutant.py")
    numbers: dict[str, dict[int, int]] = defaultdict(dict)
    for number, mutant in enumerate(mutants):
        numbers[mutant.file][mutant.ordinal] = number
    for file, wanted in numbers.items():
        path = into / file
        path.write_text(with_switches(path.read_text(), wanted))


def work(root: Path, parts: Sequence[tuple[dict[str, Any], Sequence[str]]]) -> dict[str, Any]:
    """Let one worker do each part, beside each other; together what they found.

    Args:
        parts: What to do, and the tests that are collected for it.
    """
    running = []
    for index, (task, tests) in enumerate(parts):
        path = root / f"part-{index}.json"
        path.write_text(json.dumps(task))
        running.append((_start(root, path, tests), path))
    found: dict[str, Any] = {}
    for process, path in running:
        output, _ = process.communicate()
        done = path.with_suffix(".out")
        if not done.exists():
            raise SystemExit(f"a worker ended with {process.returncode}:\n{output[-3000:]}")
        found.update(json.loads(done.read_text()))
        done.unlink()
    return found


def _start(root: Path, path: Path, tests: Sequence[str]) -> subprocess.Popen[str]:
    dropped = ("PYTEST_ADDOPTS", "PYTHONPATH", "PYTHONASYNCIODEBUG")
    kept = {key: value for key, value in os.environ.items() if key not in dropped}
    options = ("-q", "-p", "tests.mutants.worker", "-p", "no:cacheprovider", "--capture=no")
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, "--implementation", "pure", *tests],
        cwd=root,
        env={**kept, "KCLIENT_PURE": "1", "KCLIENT_MUTANTS": str(path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def plans_of(
    count: int, tests: Mapping[str, tuple[float, Sequence[int]]]
) -> dict[int, Sequence[str]]:
    """The tests that are run for each mutant, in this order."""
    passing: dict[int, list[tuple[float, str]]] = {number: [] for number in range(count)}
    for name, (seconds, numbers) in tests.items():
        for number in numbers:
            passing[number].append((seconds, name))
    return {number: _within_limit(sorted(names)) for number, names in passing.items()}


def _within_limit(names: Iterable[tuple[float, str]]) -> list[str]:
    chosen, total = [], 0.0
    for seconds, name in names:
        total += seconds
        if chosen and total > MOST_SECONDS:
            break
        chosen.append(name)
    return chosen


def shares(files: Sequence[str], count: int) -> list[list[str]]:
    """Deal out files round robin, so that each worker has some of each kind."""
    return [list(files[index::count]) for index in range(count)]


def try_mutants(
    project: Path, mutants: Sequence[Site], rings: Sequence[str] = RINGS
) -> dict[int, str]:
    """By which test each mutant was noticed; empty: by none."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        root = Path(folder) / "copy"
        copy_with_switches(project, root, mutants)
        files = [
            path.relative_to(root).as_posix()
            for ring in rings
            for path in sorted((root / ring).rglob("test_*.py"))
        ]
        found = work(root, [({"do": "map"}, part) for part in shares(files, WORKERS)])
        plans = plans_of(len(mutants), found)
        seconds = {name: test[0] for name, test in found.items()}
        parts = []
        for index in range(WORKERS):
            mine = {number: names for number, names in plans.items() if number % WORKERS == index}
            wanted = {name.partition("::")[0] for names in mine.values() for name in names}
            parts.append(({"do": "try", "plans": mine, "seconds": seconds}, sorted(wanted)))
        return {int(number): by for number, by in work(root, parts).items()}


def report(mutants: Sequence[Site], noticed: Mapping[int, str]) -> dict[str, Any]:
    """What is printed, and kept as the baseline."""
    return {
        "mutants": len(mutants),
        "noticed": sum(bool(by) for by in noticed.values()),
        "hung": sum(by == "hung" for by in noticed.values()),
        "not_noticed": sorted(str(mutants[number]) for number, by in noticed.items() if not by),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from a command line; gives the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kind", choices=KINDS, help="which files they are in")
    parser.add_argument("--count", type=int, default=300, help="mutants")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--write", action="store_true", help="make this the baseline")
    options = parser.parse_args(arguments)
    baselines = json.loads(BASELINE.read_text())
    if options.kind not in baselines and not options.write:
        parser.error(f"{BASELINE.name} has nothing of {options.kind}: give --write")
    begun = time.monotonic()
    mutants = draw(PROJECT, options.kind, options.count, options.seed)
    found = report(mutants, try_mutants(PROJECT, mutants))
    for line in found["not_noticed"]:
        sys.stdout.write(f"not noticed: {line}\n")
    share = found["noticed"] / max(1, found["mutants"])
    sys.stdout.write(
        f"{found['noticed']} of {found['mutants']} mutants noticed ({share:.1%}), "
        f"{found['hung']} of them by hanging, in {time.monotonic() - begun:.0f} s\n"
    )
    if options.write:
        baselines[options.kind] = {"seed": options.seed, **found}
        BASELINE.write_text(json.dumps(baselines, indent=1) + "\n")
        return 0
    floor = baselines[options.kind]["noticed"] / baselines[options.kind]["mutants"]
    sys.stdout.write(f"baseline: {floor:.1%}\n")
    return 0 if share >= floor else 1


if __name__ == "__main__":
    sys.exit(main())

"""``python -m tests.budgets.plants``: plants slow-downs in copies; all must be noticed.

    python -m tests.budgets.plants          # the quick ones: two copies, one compiled module
    python -m tests.budgets.plants --all    # each in a copy of its own

``plants.toml`` lists them. In each copy ``python -m tests.budgets`` must then fail for the paths
concerned, and for a neighbour that has no plant it must not. Ends with 1 where one isn't noticed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.budgets.sandbox import Sandbox, Workshop

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
PACKAGE = "kclient"
AT_ONCE = 2
SECONDS = 1800.0
"""Time limit of a build or a run."""
NEIGHBOUR = "crc"
"""A path without a plant."""
PLANTED = """

def _planted() -> None:
    pass
"""
_BUILD = ("setup.py", "README.md", "LICENSE")
_KEYS = {"about": str, "paths": list, "file": str, "find": str, "replace": str}
_OPTIONAL = {"build": str, "compile": bool, "quick": bool, "append": str}


class BadPlant(ValueError):
    """An entry that can't be tried."""


@dataclass(frozen=True, slots=True)
class Plant:
    """A slow-down.

    Attributes:
        about: What it does, in a line.
        paths: Hot paths that it concerns; each of them must be over its budget then.
        file: Where, from the project's root.
        find: Text that is in there once.
        replace: What takes its place.
        build: On which build it shows.
        compile: Whether the file is compiled again.
        quick: Whether it is planted without ``--all``.
        append: Goes to the end of the file.
    """

    about: str
    paths: tuple[str, ...]
    file: str
    find: str
    replace: str
    build: str = "compiled"
    compile: bool = False
    quick: bool = False
    append: str = PLANTED

    def into(self, text: str) -> str:
        """``text`` of the file, with it.

        Raises:
            BadPlant: ``find`` isn't in there exactly once.
        """
        count = text.count(self.find)
        if count != 1:
            raise BadPlant(f"{self.about}: the text to find is {count} times in {self.file}")
        text = text.replace(self.find, self.replace)
        return text if self.append in text else text + self.append


def read(path: Path) -> list[Plant]:
    """The plants of a file.

    Raises:
        BadPlant: An entry isn't as it should be.
    """
    found = []
    for entry in tomllib.loads(path.read_text())["plant"]:
        kinds = {**_KEYS, **{key: kind for key, kind in _OPTIONAL.items() if key in entry}}
        wrong = [key for key, kind in kinds.items() if not isinstance(entry.get(key), kind)]
        wrong += entry.keys() - kinds.keys()
        if wrong or not entry["paths"]:
            raise BadPlant(f"{path.name}: {entry.get('about', '?')}: {', '.join(wrong)}")
        found.append(Plant(**{**entry, "paths": tuple(entry["paths"])}))
    return found


def together(plants: Sequence[Plant]) -> list[list[Plant]]:
    """The quick ones, those of a build in one group.

    Raises:
        BadPlant: Two of a group concern the same path, so one could hide the other.
    """
    groups: dict[str, list[Plant]] = {}
    for plant in plants:
        if plant.quick:
            groups.setdefault(plant.build, []).append(plant)
    for build, group in groups.items():
        paths = [path for plant in group for path in plant.paths]
        if len(paths) != len(set(paths)):
            raise BadPlant(f"quick plants of the {build} build share a path")
    return list(groups.values())


def run(command: Sequence[str], sandbox: Sandbox) -> tuple[int, str]:
    """Exit status and output of a command in a copy."""
    done = subprocess.run(
        command,
        cwd=sandbox.root,
        env=sandbox.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return done.returncode, done.stdout


def compile_anew(sandbox: Sandbox, files: Sequence[str]) -> None:
    """Compile these files, and no others, in a copy.

    Raises:
        BadPlant: It can't be done.
    """
    for name in _BUILD:
        shutil.copy2(PROJECT / name, sandbox.root / name)
    setup = sandbox.root / "setup.py"
    head, _, rest = setup.read_text().partition("COMPILED = [")
    modules = [file.removesuffix(".py").replace("/", ".") for file in files]
    setup.write_text(f"{head}COMPILED = {modules!r}\n{rest.partition(']')[2]}")
    status, said = run([sys.executable, "setup.py", "build_ext", "--inplace"], sandbox)
    if status != 0 or "pure-Python build" in said:
        raise BadPlant(f"compiling {', '.join(files)} failed:\n{said[-2000:]}")


@dataclass(frozen=True, slots=True)
class Tried:
    """The result of a group.

    Attributes:
        wrong: What shouldn't be so, a line each.
        over: What was over its budget, a line each.
    """

    wrong: Sequence[str]
    over: Sequence[str] = ()


def attempt(workshop: Workshop, group: Sequence[Plant]) -> Tried:
    """Plant these in one copy and count there."""
    sandbox = workshop.sandbox()
    try:
        for plant in group:
            file = sandbox.root / plant.file
            sandbox.rewrite(plant.file, plant.into(file.read_text()))
        if compiled := sorted({plant.file for plant in group if plant.compile}):
            compile_anew(sandbox, compiled)
        command = [sys.executable, "-m", "tests.budgets", "--jobs", "1", "--build", group[0].build]
        for path in [*sorted(concerned(group)), NEIGHBOUR]:
            command += ["--only", path]
        status, said = run(command, sandbox)
    except (BadPlant, subprocess.TimeoutExpired) as error:
        return Tried([str(error)])
    finally:
        sandbox.remove()
    over = [line for line in said.splitlines() if line.startswith("EXCEEDED")]
    if status != 1 or not over:
        return Tried([f"counting ended with {status} in a copy with plants:\n{said[-2000:]}"])
    return Tried(judge(group, {line.split()[2].rstrip(":") for line in over}), over)


def concerned(group: Sequence[Plant]) -> set[str]:
    """The hot paths that are slower now."""
    return {path for plant in group for path in plant.paths}


def judge(group: Sequence[Plant], over: set[str]) -> list[str]:
    """What is wrong where these paths were over their budgets, a line each."""
    wrong = [
        f"{path} is within its budget: {plant.about}"
        for plant in group
        for path in plant.paths
        if path not in over
    ]
    return wrong + [f"{path} has no plant and is over" for path in sorted(over - concerned(group))]


def emit(group: Sequence[Plant], tried: Tried) -> None:
    """Print the result of a group."""
    for plant in group:
        print(f"{'FAILED' if tried.wrong else 'noticed':8}  {plant.build:8}  {plant.about}")  # noqa: T201
    for line in [*tried.over, *(f"WRONG  {line}" for line in tried.wrong)]:
        print(f"{'':10}{line}", flush=True)  # noqa: T201


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from a command line; gives the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.budgets.plants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--all", action="store_true", help="each plant in a copy of its own")
    parser.add_argument("--jobs", type=int, default=AT_ONCE, help="copies beside each other")
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    try:
        plants = read(HERE / "plants.toml")
        groups = [[plant] for plant in plants] if options.all else together(plants)
    except BadPlant as error:
        print(f"broken: {error}", file=sys.stderr)  # noqa: T201
        return 2
    with tempfile.TemporaryDirectory(prefix="plants-") as folder:
        workshop = Workshop(PROJECT, PACKAGE, Path(folder))

        def one(group: Sequence[Plant]) -> Tried:
            tried = attempt(workshop, group)
            emit(group, tried)
            return tried

        with ThreadPoolExecutor(options.jobs) as pool:
            outcomes = list(pool.map(one, groups))
    count, failed = sum(map(len, groups)), sum(bool(tried.wrong) for tried in outcomes)
    seconds = time.monotonic() - begun
    print(f"{count} plants in {len(groups)} copies, {failed} failed, in {seconds:.0f} s")  # noqa: T201
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main())

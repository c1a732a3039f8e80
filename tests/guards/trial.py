"""Runs tests in a sandbox and says what became of a guard's removal.

Only an ordinary failure of a test counts as noticed: a package that doesn't import, a test that
can't be collected or set up, or a run that ends without a report shows nothing about the guard.
"""

from __future__ import annotations

import enum
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from tests.guards.guard import BadGuard, Guard
from tests.guards.sandbox import Sandbox, Workshop

TEST_SECONDS = 60
"""For one test; a removed guard may well make it hang, which is a failure too."""
_FLAGS = ("-q", "-p", "no:randomly", "-p", "no:cacheprovider", "--timeout", str(TEST_SECONDS))


class Verdict(enum.Enum):
    """What a trial showed."""

    NOTICED = "a test fails without the guard"
    UNNOTICED = "all tests pass without the guard"
    BROKEN = "the entry can't be tried"


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome for one guard.

    Attributes:
        guard: Which.
        verdict: What it showed.
        why: The first line of the failure, or what is wrong with the entry.
        seconds: What it took.
    """

    guard: Guard
    verdict: Verdict
    why: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Run:
    """What pytest said about some tests.

    Attributes:
        passed: How many passed.
        failures: Ordinary failures: test, and first line of the reason.
        errors: Tests that could not be collected or set up, and runs without a report.
    """

    passed: int
    failures: Sequence[str]
    errors: Sequence[str]

    @property
    def all_passed(self) -> bool:
        """Something ran, and all of it passed."""
        return bool(self.passed) and not self.failures and not self.errors


def run_tests(sandbox: Sandbox, tests: Sequence[str], *, pure: bool, first_only: bool) -> Run:
    """Run these tests in a sandbox."""
    report = sandbox.root / "report.xml"
    command = [sys.executable, "-m", "pytest", *_FLAGS, "--junitxml", str(report)]
    try:
        done = subprocess.run(
            [*command, *(["-x"] if first_only else []), *tests],
            cwd=sandbox.root,
            env=sandbox.environment(pure=pure),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TEST_SECONDS * (len(tests) + 1),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Run(0, (), ["the run did not end in time"])
    said = done.stdout.strip().splitlines()
    if not report.exists():
        return Run(0, (), [f"pytest wrote no report: {said[-1] if said else 'it said nothing'}"])
    run = _read_report(report.read_text())
    if done.returncode not in (0, 1) and not run.errors:
        last = said[-1] if said else "it said nothing"
        return Run(run.passed, run.failures, [f"pytest ended with {done.returncode}: {last}"])
    return run


def _read_report(text: str) -> Run:
    passed = 0
    failures: list[str] = []
    errors: list[str] = []
    for case in ElementTree.fromstring(text).iter("testcase"):
        name = case.get("name") or case.get("classname") or "?"
        ordinary = [_reason(name, found) for found in case.findall("failure")]
        for found in case.findall("error"):
            # The leak watcher speaks at tear-down, and what it says is about the test.
            told = "failed on teardown" in (found.get("message") or "")
            (ordinary if told else errors).append(_reason(name, found))
        failures += ordinary
        skipped = case.find("skipped") is not None
        if skipped:
            errors.append(f"{name} was skipped")
        passed += not ordinary and not skipped and case.find("error") is None
    return Run(passed, failures, errors)


def _reason(name: str, found: ElementTree.Element) -> str:
    lines = (found.get("message") or found.text or "").strip().splitlines()
    return f"{name}: {lines[0].strip() if lines else 'no reason given'}"


def try_guard(workshop: Workshop, guard: Guard) -> Trial:
    """Remove one guard and run its tests, which are known to pass with it."""
    try:
        sandbox = workshop.sandbox(guard)
    except BadGuard as error:
        return Trial(guard, Verdict.BROKEN, str(error))
    try:
        broken = sandbox.import_error(guard.file, pure=guard.pure)
        if broken is not None:
            return Trial(guard, Verdict.BROKEN, f"without it the package doesn't import: {broken}")
        run = run_tests(sandbox, guard.tests, pure=guard.pure, first_only=True)
    finally:
        sandbox.remove()
    if run.failures:
        return Trial(guard, Verdict.NOTICED, run.failures[0])
    if run.errors:
        return Trial(guard, Verdict.BROKEN, run.errors[0])
    if not run.passed:
        return Trial(guard, Verdict.BROKEN, "no test ran")
    return Trial(guard, Verdict.UNNOTICED, f"{run.passed} tests pass without it")


def failing_unmutated(workshop: Workshop, guards: Sequence[Guard]) -> dict[Guard, str]:
    """The guards whose tests don't pass as things are, each with the reason."""
    bad: dict[Guard, str] = {}
    for pure in (False, True):
        group = [guard for guard in guards if guard.pure is pure]
        tests = list(dict.fromkeys(test for guard in group for test in guard.tests))
        if not tests:
            continue
        sandbox = workshop.sandbox()
        try:
            if run_tests(sandbox, tests, pure=pure, first_only=False).all_passed:
                continue
            for guard in group:  # which of them is it?
                run = run_tests(sandbox, guard.tests, pure=pure, first_only=False)
                if not run.all_passed:
                    bad[guard] = next(iter([*run.errors, *run.failures]), "no test ran")
        finally:
            sandbox.remove()
    return bad

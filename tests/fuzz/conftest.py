"""Keeps and prints the outcomes of all mutants; ``--fuzz-report PATH`` writes the counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.tally import Tally

TALLY = pytest.StashKey[Tally]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the file of the counts."""
    group = parser.getgroup("kclient")
    group.addoption("--fuzz-report", type=Path, help="write the fuzzer's counts to this file")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count."""
    config.stash[TALLY] = Tally()


@pytest.fixture
def tally(pytestconfig: pytest.Config) -> Tally:
    """The counts of the whole run."""
    return pytestconfig.stash[TALLY]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """The table, for the log."""
    tally = config.stash[TALLY]
    if not tally.total():
        return
    terminalreporter.write_line(tally.table())
    report: Path | None = config.getoption("--fuzz-report")
    if report is not None:
        report.write_text(tally.to_json() + "\n")

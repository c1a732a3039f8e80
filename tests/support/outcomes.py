"""A pytest plugin: `--outcomes FILE` writes each test's outcome. Loaded by tests/conftest.py.

`tests.support.behaviour_table` makes the table of docs/behaviours.md out of several such files.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

_WORSE = {"passed": 0, "skipped": 1, "failed": 2}


class OutcomeWriter:
    """Collects the outcome of every test of a session, over its set-up, call and tear-down."""

    def __init__(self, path: Path, run: dict[str, str]) -> None:
        self._path = path
        self._run = run
        self._outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the worst outcome of the phases of a test."""
        known = self._outcomes.get(report.nodeid, "passed")
        self._outcomes[report.nodeid] = max(known, report.outcome, key=_WORSE.__getitem__)

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        content = {"run": self._run, "outcomes": dict(sorted(self._outcomes.items()))}
        self._path.write_text(json.dumps(content, indent=1) + "\n")

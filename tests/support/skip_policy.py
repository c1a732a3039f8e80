"""A pytest plugin: a skip that is not listed is a failure. Loaded by tests/conftest.py.

A skipped test proves nothing and looks like a passed one, so each must stand, with its reason, in
tests/behaviours/skips.toml:

    [[skip]]
    test = "tests/behaviours/test_admin_topics.py::test_that_cannot_run_there"
    brokers = ["1.0.2"]
    reason = "what makes it impossible on these brokers"

Expected failures (xfail) count as skips.
"""

from __future__ import annotations

import tomllib
from collections.abc import Generator
from pathlib import Path

import pytest

LISTING = Path(__file__).parents[1] / "behaviours" / "skips.toml"


def listed_skips() -> dict[tuple[str, str], str]:
    """Return the listed skips: (test without parameters, broker) -> reason."""
    entries = tomllib.loads(LISTING.read_text()).get("skip", [])
    return {(one["test"], broker): one["reason"] for one in entries for broker in one["brokers"]}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Make a skip that is not listed a failure."""
    report = yield
    if report.skipped:
        test = report.nodeid.partition("[")[0]
        if (test, item.config.getoption("--broker")) not in listed_skips():
            report.outcome = "failed"
            report.longrepr = f"a skip that is not listed in {LISTING.name}: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Make a skip of a whole module a failure: there is no list for those."""
    report = yield
    if report.outcome == "skipped":
        report.outcome = "failed"
        report.longrepr = f"a module must not be skipped: {report.longrepr}"
    return report

"""The pytest plugin that does a worker's part in a copy with switches: ``-p tests.mutants.worker``.

Either notes which tests run the code of which mutants, or tries mutants: each in a process forked
once all tests were collected, so that a trial costs no more than the tests it runs. The task is in
the file that ``KCLIENT_MUTANTS`` names; the result is written to the one beside it.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from kclient import _mutant as switch

LIMIT = 20.0
"""Seconds more than six times what its tests took, after which a trial counts as hung."""

NONE = "-"


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Do this instead of running the tests one after the other."""
    path = Path(os.environ["KCLIENT_MUTANTS"])
    work = json.loads(path.read_text())
    if work["do"] == "map":
        done: Any = _map(session.items)
    else:
        done = _try_all(session.items, work["plans"], work["seconds"])
    path.with_suffix(".out").write_text(json.dumps(done))
    return True


def _map(items: Sequence[pytest.Item]) -> dict[str, Any]:
    """Of each test that passes: its seconds, and the mutants whose code it runs."""
    found = {}
    for item, following in zip(items, [*items[1:], None], strict=True):
        switch.passed.clear()
        begun = time.monotonic()
        if _passes(item, following) and switch.passed:
            found[item.nodeid] = [time.monotonic() - begun, sorted(switch.passed)]
    return found


def _passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    reports = runtestprotocol(item, log=False, nextitem=following)
    return not any(report.failed for report in reports)


def _try_all(
    items: Sequence[pytest.Item], plans: dict[str, list[str]], seconds: dict[str, float]
) -> dict[str, str]:
    """By which test each mutant was noticed; empty: by none."""
    by_id = {item.nodeid: item for item in items}
    noticed = {}
    for number, names in plans.items():
        noticed[number] = _noticed_by(int(number), [by_id[name] for name in names], seconds)
    return noticed


def _noticed_by(number: int, items: list[pytest.Item], seconds: dict[str, float]) -> str:
    while items:
        limit = LIMIT + 6 * sum(seconds[item.nodeid] for item in items)
        name = _in_fork(number, items, limit)
        if name in ("", "hung"):
            return name
        place = next(index for index, item in enumerate(items) if item.nodeid == name)
        # It must be the mutant that fails it, and not that it runs by itself here.
        if not _in_fork(-1, [items[place]], limit):
            return name
        items = items[place + 1 :]
    return ""


def _in_fork(number: int, items: Sequence[pytest.Item], limit: float) -> str:
    """The first of the tests that fails with this mutant on; "hung", or empty for none."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        _run_child(number, items, writing)
    os.close(writing)
    deadline = time.monotonic() + limit
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(reading)
            return "hung"
        time.sleep(0.005)
    with os.fdopen(reading) as answer:
        name = answer.read() or "hung"  # a process that died wrote nothing
    return "" if name == NONE else name


def _run_child(number: int, items: Sequence[pytest.Item], writing: int) -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    switch.active = number
    name = NONE
    try:
        for item, following in zip(items, [*items[1:], None], strict=True):
            if not _passes(item, following):
                name = item.nodeid
                break
    finally:
        os.write(writing, name.encode())
        os._exit(0)

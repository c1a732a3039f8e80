"""A pytest plugin: an async test must leave nothing behind. Loaded by tests/conftest.py.

After every async test, once its fixtures are torn down, the loop may hold no task, no timer and no
open socket that was not there before, and nothing may have reached the loop's exception handler
("task exception was never retrieved" and its kin). Timers are looked at on asyncio's own loop only:
uvloop does not show them. It must not clean up: a leak is a failure of the test that made it.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import itertools
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

GRACE = 1.0
"""Seconds for closed transports to finish; their last callbacks run an iteration later."""
HIDINGS = 500
"""After so many a full collection is made, so that garbage of the meantime is freed."""

_hidings = itertools.count(1)


def hide_from_collector() -> None:
    """Let the collector look only at what is made from now on: a run behind each test is cheap."""
    if next(_hidings) % HIDINGS == 0:
        gc.unfreeze()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Hide all that was imported."""
    hide_from_collector()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Let the collector see everything again, for hooks that look for garbage at the end."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def leaves_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Watch the loop of each async test."""
    if inspect.iscoroutinefunction(request.function):
        hide_from_collector()
        request.getfixturevalue("watched_loop")
    yield


@pytest_asyncio.fixture
async def watched_loop() -> AsyncIterator[None]:
    """Compare the loop and the sockets of the process before and after a test."""
    loop = asyncio.get_running_loop()
    reported: list[str] = []
    loop.set_exception_handler(lambda _, context: reported.append(_describe(context)))
    before = _open_sockets()
    yield
    deadline = loop.time() + GRACE
    # Nothing announces that the last transport has closed, so time passes until it has.
    while (left := _left_behind(loop, before)) and loop.time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    gc.collect()
    await asyncio.sleep(0)
    if left or reported:
        pytest.fail("left behind by this test: " + "; ".join([*left, *reported]), pytrace=False)


def _left_behind(loop: asyncio.AbstractEventLoop, before: set[str]) -> list[str]:
    tasks = [task for task in asyncio.all_tasks(loop) if task is not asyncio.current_task()]
    scheduled = vars(loop).get("_scheduled", ()) if isinstance(loop, asyncio.BaseEventLoop) else ()
    timers = [handle for handle in scheduled if not handle.cancelled()]
    now = _open_sockets()
    # Counted, not compared: uvloop opens a new pair of sockets for itself in every run of the loop.
    sockets = now - before if len(now) > len(before) else ()
    return [
        *(f"task {task!r}" for task in tasks),
        *(f"timer {timer!r}" for timer in timers),
        *(f"open {socket}" for socket in sorted(sockets)),
    ]


def _describe(context: dict[str, Any]) -> str:
    error = context.get("exception")
    return context["message"] if error is None else f"{context['message']}: {error!r}"


def _open_sockets() -> set[str]:
    found: set[str] = set()
    try:
        descriptors = os.listdir("/proc/self/fd")
    except FileNotFoundError:
        return found
    for descriptor in descriptors:
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:  # the descriptor of the listing itself
            continue
        if target.startswith("socket:"):
            found.add(target)
    return found

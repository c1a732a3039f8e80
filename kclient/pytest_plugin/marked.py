"""What the markers of a test say about its cluster, and in which loop that has to be.

Imported by the fixtures when one is used. A marker that can't be is a failure of the test with one
line of text.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any, NoReturn

import pytest

from kclient.errors import InvalidArgument, InvalidConfig
from kclient.pytest_plugin import MARKER, default_brokers
from kclient.testing import Cluster


def new_cluster(item: pytest.Item) -> Cluster:
    """A cluster as the markers say, not started."""
    wanted = _wanted(item)
    wanted.pop("thread", None)
    known = inspect.signature(Cluster).parameters
    for name in wanted:
        if name not in known:
            _refuse(f"knows no {name!r}, only {', '.join((*known, 'thread'))}")
    brokers = wanted.setdefault("brokers", default_brokers(item.config))
    if not isinstance(brokers, int) or isinstance(brokers, bool) or brokers < 1:
        _refuse(f"brokers={brokers!r} must be a count of at least 1")
    try:
        return Cluster(**wanted)
    except (InvalidArgument, InvalidConfig) as error:
        why = str(error)
    _refuse(why)


def loop_scope(item: pytest.Item) -> str | None:
    """The scope of the loop that a test runs in with its cluster.

    Returns:
        None where pytest-asyncio doesn't run the test, or where the marker asks for a thread.
    """
    plugin = sys.modules.get("pytest_asyncio")
    if plugin is None or not plugin.is_async_test(item) or _wanted(item).get("thread"):
        return None
    mark = item.get_closest_marker("asyncio")
    assert mark is not None  # else it were no async test
    named = mark.kwargs.get("loop_scope") or mark.kwargs.get("scope")
    return str(named or item.config.getini("asyncio_default_test_loop_scope"))


def _wanted(item: pytest.Item) -> dict[str, Any]:
    """The arguments of all markers; those of a closer one win."""
    wanted: dict[str, Any] = {}
    for mark in reversed(list(item.iter_markers(MARKER))):
        if mark.args:
            _refuse(f"takes keyword arguments only: what is {mark.args[0]!r}?")
        wanted |= mark.kwargs
    return wanted


def _refuse(why: str) -> NoReturn:
    pytest.fail(f"@pytest.mark.{MARKER}: {why}", pytrace=False)

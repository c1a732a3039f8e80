"""Each public coroutine's docstring states what remains after a cancellation.

tests/virtual/test_cancellation.py checks these statements against the code.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

import kclient
import kclient.testing
from kclient.cluster.core import ClientCore

SAYS = re.compile(r"^(.*\. )?Cancellation: \S", re.MULTILINE)
PROTOCOL = {"__aenter__", "__aexit__", "__anext__"}
WHOLE_CLASS = [kclient.Delivery]
"""Classes that are awaited themselves: the class docstring has the statement."""


def public_classes() -> Iterator[type]:
    for module in (kclient, kclient.testing):
        for name in module.__all__:
            value = getattr(module, name)
            # A loop's own methods are asyncio's, with asyncio's guarantees.
            if isinstance(value, type) and not issubclass(value, asyncio.AbstractEventLoop):
                yield value
    yield ClientCore  # the base of all clients: the docstrings refer to it


def public_coroutines() -> Iterator[tuple[str, Any]]:
    for owner in public_classes():
        for name, member in inspect.getmembers(owner, inspect.isfunction):
            if name.startswith("_") and name not in PROTOCOL:
                continue
            if inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member):
                yield f"{owner.__name__}.{name}", member


COROUTINES = dict(public_coroutines())


@pytest.mark.parametrize("name", COROUTINES)
def test_a_coroutine_documents_what_remains_when_it_is_cancelled(name: str) -> None:
    text = inspect.getdoc(COROUTINES[name]) or ""
    assert SAYS.search(text), f"the docstring of {name} has no 'Cancellation:'"


@pytest.mark.parametrize("owner", WHOLE_CLASS, ids=lambda owner: owner.__name__)
def test_an_awaitable_documents_it_too(owner: type) -> None:
    assert SAYS.search(inspect.getdoc(owner) or "")


def test_the_walk_finds_the_public_coroutines() -> None:
    expected = {
        *("Producer.enqueue", "Producer.__aexit__", "Consumer.poll", "Consumer.poll_arrow"),
        *("Admin.create_topics", "Admin.list_offsets", "Cluster.restart", "ClientCore.close"),
    }
    assert expected <= COROUTINES.keys()
    assert len(COROUTINES) > 40

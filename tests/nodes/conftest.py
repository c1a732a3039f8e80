"""The three nodes that all tests of this folder share, whole at the beginning of each test."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.support.nodes import Nodes, three_nodes


@pytest.fixture(scope="session")
def three() -> Iterator[Nodes]:
    """Three nodes; a failure to start them is an error of whatever needs them."""
    with three_nodes(purpose="tests") as started:
        yield started


@pytest.fixture
def nodes(three: Nodes) -> Iterator[Nodes]:
    """The three nodes: all run, and all replicas are in sync. So they are again afterwards."""
    three.wait_full_isr()
    yield three
    for node in three.ids:
        if not three.alive(node):
            three.launch(node)
        elif node not in three.running():
            three.resume(node)
    for node in three.ids:
        three.wait_ready(node)
    three.wait_full_isr()


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"nodes-{secrets.token_hex(4)}"

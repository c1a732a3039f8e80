"""The real side: one broker for the session, and three nodes where a scenario needs them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.conformance import places
from tests.conformance.places import OF_THREE, RELEASE, OneNode, ThreeNodes
from tests.support import kafka
from tests.support.nodes import three_nodes


def _demand_release(config: pytest.Config) -> None:
    """The embedded cluster is one release on the wire, so it is only compared with that."""
    if config.getoption("--broker") != RELEASE or "KCLIENT_TEST_BOOTSTRAP" in os.environ:
        pytest.fail(f"conformance is agreement with a broker of ours: run with --broker {RELEASE}")


@pytest.fixture(scope="session")
def one_node(request: pytest.FixtureRequest) -> Iterator[OneNode]:
    """The real broker of the session."""
    _demand_release(request.config)
    running = kafka.acquire(RELEASE)
    try:
        yield places.one_node(running.bootstrap)
    finally:
        kafka.release(RELEASE)


@pytest.fixture(scope="session")
def real_nodes(request: pytest.FixtureRequest) -> Iterator[ThreeNodes]:
    """Three real nodes for the session."""
    _demand_release(request.config)
    with three_nodes(RELEASE, purpose="conformance", settings=OF_THREE) as nodes:
        yield ThreeNodes(nodes)

"""Foreign clients play on what `--broker` names; each plays once a session, in a process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.foreign.run import Report, run
from tests.foreign.target import Target, target


@pytest.fixture(scope="session")
def place(request: pytest.FixtureRequest) -> Iterator[Target]:
    """The broker or cluster."""
    address = os.environ.get("KCLIENT_TEST_BOOTSTRAP")
    named: str = request.config.getoption("--broker")
    with target(address if address and named != "embedded" else named) as found:
        yield found


@pytest.fixture(scope="session")
def report(place: Target) -> Callable[[str], Report]:
    """The outcomes of a client, which plays when it is first asked for."""
    played: dict[str, Report] = {}

    def of(client: str) -> Report:
        if client not in played:
            played[client] = run(client, place)
        return played[client]

    return of

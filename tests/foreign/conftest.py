"""Foreign clients play on what `--broker` names; each plays once a session, in a process."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.foreign.features import TRANSACTIONS
from tests.foreign.run import SECURED_FEATURES, Report, run
from tests.foreign.target import EMBEDDED, SECURED, Target, target

OF_EMBEDDED = ("test_secured.py", "test_security_tools.py", "test_transaction_versions.py")


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
    return functools.cache(functools.partial(run, target=place))


@pytest.fixture(scope="session")
def report_secured() -> Iterator[Callable[[str], Report]]:
    """Those of some features on a cluster with TLS where clients must log in."""
    with target(SECURED) as found:
        yield functools.cache(functools.partial(run, target=found, only=SECURED_FEATURES))


@pytest.fixture(scope="session")
def report_v1() -> Iterator[Callable[[str], Report]]:
    """Those of its transactions on a cluster with version 1 of the transaction protocol."""
    with target("embedded-v1") as found:
        yield functools.cache(functools.partial(run, target=found, only=TRANSACTIONS))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Tests of versions and of logins are of the embedded cluster, whatever others play on."""
    embedded = config.getoption("--broker") in EMBEDDED
    if collection_path.name in OF_EMBEDDED:
        return not embedded or "KCLIENT_TEST_BOOTSTRAP" in os.environ
    return None

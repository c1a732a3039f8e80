"""One secured broker for the session, and users for all mechanisms."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import kclient
from kclient import ScramUpsertion
from tests.support import kafka
from tests.support.broker_settings import USERS


@pytest.fixture(scope="session")
def secured(request: pytest.FixtureRequest) -> Iterator[kafka.RunningBroker]:
    """The broker, with the same users for SCRAM as for PLAIN."""
    version = request.config.getoption("--broker")
    if version == "embedded":
        version = kafka.RELEASES[0]
    with kafka.private(version, "security", secured=True) as broker:
        asyncio.run(set_scram_passwords(broker.bootstrap, USERS))
        yield broker


@pytest.fixture
async def admin(secured: kafka.RunningBroker) -> AsyncIterator[kclient.Admin]:
    """A super user."""
    async with kclient.Admin(secured.bootstrap) as client:
        yield client


async def set_scram_passwords(bootstrap: str, users: dict[str, str]) -> None:
    """Make users of SCRAM, by both mechanisms, or change their passwords."""
    async with kclient.Admin(bootstrap) as client:
        await client.alter_user_scram_credentials(
            ScramUpsertion(username, password, mechanism, 4_096)
            for username, password in users.items()
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the agreement of ACLs on other releases: the embedded cluster is the newest one."""
    newest = config.getoption("--broker") in ("embedded", kafka.RELEASES[0])
    return True if collection_path.name == "test_acl_agreement.py" and not newest else None

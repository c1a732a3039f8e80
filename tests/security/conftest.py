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
from tests.support.class_path import parse_version

FROM_4 = {"test_oidc.py"}
"""Tests of what Kafka has had since 4.0."""
OF_NEWEST = {"test_acl_agreement.py"}
"""Agreement with the embedded cluster, which is of that release."""


def release(config: pytest.Config) -> str:
    """The one that tests run on."""
    version = str(config.getoption("--broker"))
    return kafka.RELEASES[0] if version == "embedded" else version


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what isn't of the release."""
    name, version = collection_path.name, release(config)
    too_old = name in FROM_4 and parse_version(version) < (4, 0, 0)
    return True if too_old or (name in OF_NEWEST and version != kafka.RELEASES[0]) else None


@pytest.fixture(scope="session")
def secured(request: pytest.FixtureRequest) -> Iterator[kafka.RunningBroker]:
    """The broker, with the same users for SCRAM as for PLAIN."""
    version = release(request.config)
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

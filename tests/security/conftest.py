"""One secured broker for the session, and users for all mechanisms."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator

import pytest

from kclient.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from tests.support import kafka
from tests.support.broker_settings import USERS
from tests.support.raw_admin import split_address
from tests.support.raw_connection import ask_once

MECHANISMS = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
ITERATIONS = 4096


@pytest.fixture(scope="session")
def secured(request: pytest.FixtureRequest) -> Iterator[kafka.RunningBroker]:
    """The broker, with the same users for SCRAM as for PLAIN."""
    version = request.config.getoption("--broker")
    if version == "embedded":
        version = kafka.RELEASES[0]
    with kafka.private(version, "security", secured=True) as broker:
        for username, password in USERS.items():
            set_scram_password(broker.bootstrap, username, password)
        yield broker


def set_scram_password(bootstrap: str, username: str, password: str) -> None:
    """Make a user of SCRAM, or change its password."""
    for number, name in MECHANISMS.values():  # a request may have a user only once
        salt = secrets.token_bytes(16)
        salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, ITERATIONS)
        upsertion = ScramCredentialUpsertion(username, number, ITERATIONS, salt, salted)
        response = ask_once(
            split_address(bootstrap),
            AlterUserScramCredentialsRequest([], [upsertion]),
            0,
            AlterUserScramCredentialsResponse,
            timeout=10.0,
        )
        assert [one.error_code for one in response.results] == [0], response

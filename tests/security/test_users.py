"""Users of SCRAM by Admin, on a real broker, with Kafka's own tools on the other side."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import kclient
from kclient import ScramDeletion, ScramUpsertion, Security
from kclient.errors import BootstrapFailed, ClusterAuthorizationFailed, ResourceNotFound
from kclient.security import ScramMechanism
from tests.foreign.clients.java_tools import Tools
from tests.security.people import eventually, eventually_raises, log_in, user
from tests.support import tls
from tests.support.broker_settings import USERS, write_properties
from tests.support.kafka import RunningBroker

PASSWORD = 'größe; =,пароль"'
BOTH: tuple[ScramMechanism, ...] = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def tools(secured: RunningBroker) -> Iterator[Tools]:
    """Kafka's own; who they log in as is in a file of settings."""
    made = Tools(secured.sasl_bootstrap)
    yield made
    made.close()


def by(username: str, mechanism: ScramMechanism, password: str = PASSWORD) -> Security:
    return Security.sasl_scram(username, password, mechanism=mechanism, ca_file=tls.certificate())


def login_of_java(
    folder: Path, username: str, mechanism: ScramMechanism, password: str = PASSWORD
) -> tuple[str, str]:
    """The option by which Kafka's tools log in so."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    # A file of properties takes a backslash away, and the language of JAAS the other.
    quoted = password.replace('"', '\\\\"')
    path = folder / f"{username}-{mechanism}.properties"
    write_properties(
        path,
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{module} username="{username}" password="{quoted}";',
        },
    )
    return "--command-config", str(path)


async def test_a_user_that_was_made_here_logs_in_here_and_by_java(
    secured: RunningBroker, admin: kclient.Admin, tools: Tools, tmp_path: Path
) -> None:
    iterations = {"SCRAM-SHA-256": 4_096, "SCRAM-SHA-512": 16_384}
    upsertions = [ScramUpsertion("ours", PASSWORD, one, iterations[one]) for one in BOTH]
    assert await admin.alter_user_scram_credentials(upsertions) == dict.fromkeys(upsertions)
    for mechanism in BOTH:
        found = by("ours", mechanism)
        await eventually(functools.partial(log_in, secured.sasl_tls_bootstrap, found))
        tools.run("TopicCommand", "--list", *login_of_java(tmp_path, "ours", mechanism))
    assert await admin.describe_user_scram_credentials(["ours"]) == {"ours": iterations}


async def test_a_user_that_was_made_by_kafkas_tool_logs_in_here(
    secured: RunningBroker, admin: kclient.Admin, tools: Tools, tmp_path: Path
) -> None:
    config = f"SCRAM-SHA-256=[iterations=8192,password={PASSWORD}]"
    what = ("--add-config", config, "--entity-type", "users", "--entity-name", "theirs")
    alice = login_of_java(tmp_path, "alice", "SCRAM-SHA-512", USERS["alice"])
    tools.run("ConfigCommand", "--alter", *what, *alice)
    await eventually(lambda: log_in(secured.sasl_tls_bootstrap, by("theirs", "SCRAM-SHA-256")))
    described = await admin.describe_user_scram_credentials()
    assert described["theirs"] == {"SCRAM-SHA-256": 8_192}


async def test_a_deleted_user_can_not_log_in(secured: RunningBroker, admin: kclient.Admin) -> None:
    await user(admin, secured, "brief")
    await admin.alter_user_scram_credentials([ScramDeletion("brief")])
    security = by("brief", "SCRAM-SHA-512", "a password")
    await eventually_raises(BootstrapFailed, lambda: log_in(secured.sasl_tls_bootstrap, security))
    with pytest.raises(ResourceNotFound, match="brief"):
        await admin.describe_user_scram_credentials(["brief"])


async def test_an_unknown_user_is_an_error_of_its_own(admin: kclient.Admin) -> None:
    known = ScramUpsertion("known", PASSWORD)
    unknown = [ScramDeletion("nobody"), ScramDeletion("known", "SCRAM-SHA-256")]
    outcomes = await admin.alter_user_scram_credentials([known, *unknown], return_errors=True)
    assert outcomes.pop(known) is None
    assert {type(error) for error in outcomes.values()} == {ResourceNotFound}
    described = await eventually(lambda: admin.describe_user_scram_credentials(["known"]))
    assert described == {"known": {"SCRAM-SHA-512": 16_384}}
    both = await admin.describe_user_scram_credentials(["nobody", "known"], return_errors=True)
    assert isinstance(both["nobody"], ResourceNotFound)
    assert both["known"] == described["known"]


async def test_an_ordinary_user_administers_no_users(
    secured: RunningBroker, admin: kclient.Admin, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    security = await user(admin, secured, "climber")
    upsertion = ScramUpsertion("alice", PASSWORD)
    async with kclient.Admin(secured.sasl_tls_bootstrap, security=security) as climber:
        with pytest.raises(ClusterAuthorizationFailed) as caught:
            await climber.alter_user_scram_credentials([upsertion])
        with pytest.raises(ClusterAuthorizationFailed):
            await climber.describe_user_scram_credentials()
        with pytest.raises(ClusterAuthorizationFailed):
            await climber.describe_user_scram_credentials(["alice"])
    text = f"{caught.value!r} {caught.value} {upsertion!r} {caplog.text}"
    assert PASSWORD not in text

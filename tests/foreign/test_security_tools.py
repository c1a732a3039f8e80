"""Kafka's own tools administer the security of an embedded cluster, over TLS with a login."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import kclient
from kclient import NewTopic, Security
from kclient.testing import Cluster, ClusterSecurity, ThreadedCluster
from tests.foreign.clients.java_tools import Said, Tools
from tests.foreign.login import PASSWORD, USERNAME, Login

TOPIC = "guarded"
WRITE = ("--allow-principal", "User:dora", "--operation", "Write", "--topic", "guard",
         "--resource-pattern-type", "prefixed")  # fmt: skip


@pytest.fixture(scope="module")
def security() -> ClusterSecurity:
    return ClusterSecurity({USERNAME: PASSWORD}, tls=True, super_users=[USERNAME])


@pytest.fixture(scope="module")
def bootstrap(security: ClusterSecurity) -> Iterator[str]:
    with ThreadedCluster(Cluster(brokers=1, security=security)) as cluster:
        yield cluster.bootstrap


@pytest.fixture(scope="module")
def tools(
    bootstrap: str, security: ClusterSecurity, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tools]:
    ca_file = tmp_path_factory.mktemp("tools") / "ca.pem"
    ca_file.write_text(security.authority or "")
    made = Tools(bootstrap, Login(str(ca_file), "SCRAM-SHA-512"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def dora(tools: Tools, security: ClusterSecurity) -> Security:
    """A user that kafka-configs has made."""
    of_dora("--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=x]", tools=tools)
    return Security.sasl_scram("dora", "x", mechanism="SCRAM-SHA-256", ca=security.authority)


def of_dora(*arguments: str, tools: Tools) -> Said:
    return tools.run("ConfigCommand", *arguments, "--entity-type", "users", "--entity-name", "dora")


async def test_kafka_configs_makes_describes_and_deletes_users(
    tools: Tools, bootstrap: str, dora: Security
) -> None:
    async with kclient.Admin(bootstrap, security=dora) as admin:
        await admin.describe_cluster()
    assert "SCRAM-SHA-256=iterations=8192" in of_dora("--describe", tools=tools).out
    of_dora("--alter", "--add-config", "SCRAM-SHA-512=[password=y]", tools=tools)
    of_dora("--alter", "--delete-config", "SCRAM-SHA-512", tools=tools)
    assert "SCRAM-SHA-512" not in of_dora("--describe", tools=tools).out


async def test_kafka_acls_lets_a_user_write_and_takes_it_back(
    tools: Tools, bootstrap: str, security: ClusterSecurity, dora: Security
) -> None:
    async with kclient.Admin(bootstrap, security=security.client(USERNAME)) as admin:
        await admin.create_topics([NewTopic(TOPIC)])
    async with kclient.Producer(bootstrap, security=dora, idempotence=False) as producer:
        tools.run("AclCommand", "--add", *WRITE)
        await producer.send(TOPIC, b"allowed")
        listed = tools.run("AclCommand", "--list", "--principal", "User:dora").out
        assert "patternType=PREFIXED" in listed
        assert "operation=WRITE, permissionType=ALLOW" in listed
        tools.run("AclCommand", "--remove", "--force", *WRITE)
        with pytest.raises(kclient.TopicAuthorizationFailed):
            await producer.send(TOPIC, b"denied")


def test_kafka_configs_sets_and_describes_quotas(tools: Tools, dora: Security) -> None:
    of_dora("--alter", "--add-config", "producer_byte_rate=1234", tools=tools)
    assert "producer_byte_rate=1234.0" in of_dora("--describe", tools=tools).out
    of_dora("--alter", "--delete-config", "producer_byte_rate", tools=tools)
    assert "producer_byte_rate" not in of_dora("--describe", tools=tools).out


async def test_kafka_delegation_tokens_makes_a_login(
    tools: Tools, bootstrap: str, security: ClusterSecurity
) -> None:
    made = tools.run("DelegationTokenCommand", "--create", "--max-life-time-period", "-1",
                     "--renewer-principal", "User:dora").out  # fmt: skip
    token_id, hmac = made.splitlines()[-1].split()[:2]
    token = Security.sasl_scram(token_id, hmac, delegation_token=True, ca=security.authority)
    async with kclient.Admin(bootstrap, security=token) as admin:
        await admin.describe_cluster()
    describe = ("--describe", "--owner-principal", f"User:{USERNAME}")
    assert token_id in tools.run("DelegationTokenCommand", *describe).out
    tools.run("DelegationTokenCommand", "--expire", "--hmac", hmac, "--expiry-time-period", "-1")
    assert token_id not in tools.run("DelegationTokenCommand", *describe).out

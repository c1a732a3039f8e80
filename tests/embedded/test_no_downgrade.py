"""No server, and nobody on the way, talks a client into less than its ``security=`` says.

What went over the wire is kept by taps and scripted servers: of password and token it is nothing,
and of Kafka's protocol neither, where TLS was asked for.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

import pytest

import kclient
from kclient import BootstrapFailed, Security
from kclient.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from kclient.testing import Cluster, ClusterSecurity
from tests.embedded.hostile_servers import Tap, secured_answer
from tests.unit.network.scripted_broker import METADATA, Received, ScriptedBroker, Session

CANARY = "canary-51d0"
USERS = {"alice": CANARY}
ENCRYPTED = ClusterSecurity(USERS, tls=True)
MADE: dict[str, Callable[..., Security]] = {
    "no login": Security.tls,
    "PLAIN": lambda **tls: Security.sasl_plain("alice", CANARY, **tls),
    "SCRAM": lambda **tls: Security.sasl_scram("alice", CANARY, **tls),
    "OAUTHBEARER": lambda **tls: Security.oauth(lambda: f"a.{CANARY}.c", **tls),
}


def address_of(cluster: Cluster) -> tuple[str, int]:
    host, port = cluster.bootstrap.split(",")[0].rsplit(":", 1)
    return host, int(port)


async def start(port: int, security: Security) -> str:
    """The error of a client that isn't let in, or doesn't want to be."""
    with pytest.raises(BootstrapFailed) as caught:
        async with kclient.Admin(f"127.0.0.1:{port}", security=security, bootstrap_timeout=5.0):
            pass
    return str(caught.value)


def unsaid(tap: Tap) -> None:
    """Nothing but TLS's handshake was said."""
    assert tap.received
    assert tap.beyond_handshake == b""


@pytest.mark.parametrize("login", MADE)
async def test_a_plaintext_listener_gets_no_login(login: str) -> None:
    async with Cluster(brokers=1, security=ClusterSecurity(USERS)) as cluster:
        async with Tap(address_of(cluster)) as tap:
            text = await start(tap.port, MADE[login](ca=ENCRYPTED.authority))
            unsaid(tap)
            assert "plaintext" in text


@pytest.mark.parametrize("login", MADE)
async def test_tls_that_is_stripped_on_the_way_is_missed(login: str) -> None:
    trusting = ssl.create_default_context(cadata=ENCRYPTED.authority)
    async with Cluster(brokers=1, security=ENCRYPTED) as cluster:
        async with Tap(address_of(cluster), trusting) as tap:
            await start(tap.port, MADE[login](ca=ENCRYPTED.authority))
            unsaid(tap)


@pytest.mark.parametrize("login", ["no login", "PLAIN"])
async def test_a_cluster_cant_name_a_plaintext_listener_as_a_broker(login: str) -> None:
    plain = ClusterSecurity(USERS if login == "PLAIN" else None)
    async with Cluster(brokers=1, security=plain) as cluster:
        async with Tap(address_of(cluster)) as tap:

            def name_it(session: Session, request: Received) -> None:
                if request.api_key == METADATA:
                    brokers = [MetadataResponseBroker(1, "127.0.0.1", tap.port)]
                    session.reply(request, MetadataResponse(brokers=brokers, controller_id=1))
                else:
                    secured_answer(session, request)

            async with ScriptedBroker(name_it, ssl_context=ENCRYPTED.server_context) as good:
                security = MADE[login](ca=ENCRYPTED.authority)
                async with kclient.Admin(
                    f"127.0.0.1:{good.port}", security=security, request_timeout=1.0
                ) as admin:
                    with pytest.raises(kclient.KafkaError):
                        await admin.list_topics(timeout=1.0)
                unsaid(tap)


@pytest.mark.parametrize("login", ["SCRAM", "OAUTHBEARER"])
async def test_a_server_of_plain_only_gets_no_password(login: str) -> None:
    security = ClusterSecurity(USERS, mechanisms=["PLAIN"])
    async with Cluster(brokers=1, security=security) as cluster:
        async with Tap(address_of(cluster)) as tap:
            text = await start(tap.port, MADE[login](unencrypted=True))
            assert "it offers PLAIN" in text
            assert CANARY.encode() not in tap.received


async def test_a_tap_sees_the_password_that_is_sent_unencrypted() -> None:
    async with Cluster(brokers=1, security=ClusterSecurity(USERS)) as cluster:
        async with Tap(address_of(cluster)) as tap:
            async with kclient.Admin(
                f"127.0.0.1:{tap.port}", security=MADE["PLAIN"](unencrypted=True)
            ):
                assert CANARY.encode() in tap.received

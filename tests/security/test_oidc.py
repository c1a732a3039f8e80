"""Tokens of an OpenID Connect server, on a listener of a real broker that verifies them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import confluent_kafka.admin
import pytest
from joserfc.jwk import RSAKey

import kclient
from kclient import ClientCredentials, Secret, Security, Token, TokenFile
from kclient.network.sasl.oauthbearer import OAuthBearer
from kclient.testing import Cluster, ClusterSecurity, ThreadedCluster
from tests.security.test_agreement import dialogue
from tests.security.test_logins import connections, jwt, round_trip
from tests.support.kafka import RunningBroker
from tests.support.token_server import CLIENT_ID, CLIENT_SECRET, TokenServer, issue, signed

CANARY = "canary-77c0"


def client(server: TokenServer, secret: str = CLIENT_SECRET) -> Security:
    return Security.oauth(ClientCredentials(server.url, CLIENT_ID, secret), unencrypted=True)


async def refusal(broker: RunningBroker, security: Security) -> str:
    """The error of a client that isn't let in, which doesn't wait for a time-out."""
    with pytest.raises(kclient.BootstrapFailed) as caught:
        async with asyncio.timeout(30.0):
            async with kclient.Admin(broker.oidc_bootstrap, security=security):
                pass
    assert isinstance(caught.value.__cause__, kclient.AuthenticationFailed)
    assert not caught.value.__cause__.retriable
    return str(caught.value)


async def test_every_client_works_by_client_credentials(secured: RunningBroker) -> None:
    async with TokenServer() as server:
        await round_trip(secured.oidc_bootstrap, client(server), "oidc")
        assert len(server.asked) == 4, "one token for each client"


async def test_every_client_works_by_a_file(secured: RunningBroker, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(signed())
    security = Security.oauth(TokenFile(file), unencrypted=True)
    async with kclient.Admin(secured.oidc_bootstrap, security=security) as admin:
        await admin.describe_cluster()


async def test_a_wrong_secret_is_one_error_that_says_so(secured: RunningBroker) -> None:
    async with TokenServer() as server:
        text = await refusal(secured, client(server, CANARY))
    assert "refuses (401): invalid_client: Invalid client credentials" in text
    assert "are client_id and client_secret right?" in text
    assert CANARY not in text


async def test_a_wrong_audience_is_one_error_that_says_so(secured: RunningBroker) -> None:
    async with TokenServer(partial(issue, aud="another")) as server:
        text = await refusal(secured, client(server))
    assert '{"status":"invalid_token"}' in text
    assert "check the token's issuer, audience and expiry" in text


async def test_an_expired_token_is_one_error_that_says_so(secured: RunningBroker) -> None:
    async with TokenServer(lambda asked: issue(asked, exp=int(time.time()) - 9)) as server:
        text = await refusal(secured, client(server))
    assert "a token that expired" in text
    assert "is this machine's clock right?" in text


async def test_the_next_token_comes_unseen(secured: RunningBroker) -> None:
    """Tokens of five seconds, and so sessions: requests go on over the same connections."""
    async with TokenServer(lambda asked: issue(asked, exp=int(time.time()) + 5)) as server:
        security = client(server)
        async with kclient.Admin(secured.oidc_bootstrap, security=security) as admin:
            await admin.create_topics([kclient.NewTopic("oidc-renewed")])
        async with kclient.Producer(secured.oidc_bootstrap, security=security) as producer:
            await producer.send("oidc-renewed", b"first")
            opened, end = connections(producer), time.monotonic() + 6.0
            while time.monotonic() < end:
                await producer.send("oidc-renewed", b"next")
                await asyncio.sleep(0.02)
            assert connections(producer) == opened
        assert 3 <= len(server.asked) <= 5


async def test_librdkafka_is_let_in_there_too(secured: RunningBroker) -> None:
    def topics(url: str) -> list[str]:
        settings = {
            "bootstrap.servers": secured.oidc_bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": CLIENT_ID,
            "sasl.oauthbearer.client.secret": "plain",
            "sasl.oauthbearer.token.endpoint.url": url,
        }
        admin = confluent_kafka.admin.AdminClient(settings)
        return list(admin.list_topics(timeout=20.0).topics)

    # It doesn't quote the secret as RFC 6749 has it.
    async with TokenServer(lambda asked: issue(asked, secret="plain")) as server:
        assert isinstance(await asyncio.to_thread(topics, server.url), list)
        assert server.asked


STRANGER = RSAKey.generate_key(2048)
SECURITY = ClusterSecurity(mechanisms=["OAUTHBEARER"], signed_tokens=True)


def of_cluster(*, lifetime: float = 3600.0) -> str:
    return Secret(SECURITY.token("alice", lifetime=lifetime).value).reveal()


TOKENS = {
    "a good one": (signed(exp=int(time.time()) + 3600), of_cluster()),
    "an expired one": (signed(exp=int(time.time()) - 60), of_cluster(lifetime=0.001)),
    "of another key": (signed(key=STRANGER), signed(key=STRANGER)),
    "an unsecured one": (jwt(), jwt()),
    "no token": ("a.b.c", "a.b.c"),
}


@pytest.fixture(scope="module")
def embedded() -> Iterator[str]:
    with ThreadedCluster(Cluster(brokers=1, security=SECURITY)) as cluster:
        yield cluster.bootstrap


@pytest.mark.parametrize("name", TOKENS)
async def test_a_login_has_the_same_words(secured: RunningBroker, embedded: str, name: str) -> None:
    theirs, ours = (OAuthBearer(Token(text)) for text in TOKENS[name])
    real = await asyncio.to_thread(dialogue, secured.oidc_bootstrap, theirs)
    assert await asyncio.to_thread(dialogue, embedded, ours) == real
    assert (real[-1] == "answered") is (name == "a good one")

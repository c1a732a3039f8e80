"""The embedded cluster's side of SASL, word by word beside that of a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from kclient.credentials import Token
from kclient.network.sasl import Mechanism
from kclient.network.sasl.oauthbearer import OAuthBearer
from kclient.network.sasl.plain import Plain
from kclient.network.sasl.scram import Scram
from kclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kclient.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from kclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kclient.secret import Secret
from kclient.testing import Cluster, ClusterSecurity, ThreadedCluster
from tests.security.test_logins import MECHANISMS, jwt
from tests.support.broker_settings import PLAIN_USERS
from tests.support.kafka import RunningBroker
from tests.support.raw_admin import split_address
from tests.support.raw_connection import RawConnection

Make = Callable[[], Mechanism]


def scram(name: str, username: str, password: str) -> Make:
    return lambda: Scram(name, username, Secret(password), nonce="a-nonce-of-the-test")


DIALOGUES: dict[str, Make] = {
    "plain": lambda: Plain("alice", Secret("alice-password")),
    "plain, wrong password": lambda: Plain("alice", Secret("wrong")),
    "plain, unknown user": lambda: Plain("nobody", Secret("wrong")),
    "scram-256": scram("SCRAM-SHA-256", "alice", "alice-password"),
    "scram-512": scram("SCRAM-SHA-512", "zoe", "größe; =,"),
    "scram, wrong password": scram("SCRAM-SHA-256", "alice", "wrong"),
    "scram, unknown user": scram("SCRAM-SHA-512", "nobody", "wrong"),
    "scram, a name that isn't ASCII": scram("SCRAM-SHA-256", "zoë", "пароль"),
    "token": lambda: OAuthBearer(Token(jwt())),
    "token, expired": lambda: OAuthBearer(Token(jwt(life=-5.0))),
    "token, none": lambda: OAuthBearer(Token("a.b.c")),
}


def dialogue(address: str, mechanism: Mechanism) -> list[object]:
    """Codes, texts and whether a challenge came, of each step; then whether it may ask."""
    said: list[object] = []
    with RawConnection(split_address(address)) as peer:
        shaken = peer.ask(SaslHandshakeRequest(mechanism.name), 1, SaslHandshakeResponse)
        said.append((shaken.error_code, sorted(shaken.mechanisms)))
        challenge: bytes | None = None
        while (words := mechanism.step(challenge)) is not None:
            response = peer.ask(SaslAuthenticateRequest(words), 1, SaslAuthenticateResponse)
            lives = response.session_lifetime_ms > 0
            text = response.error_message
            said.append((response.error_code, text, bool(response.auth_bytes), lives))
            if response.error_code:
                break
            challenge = response.auth_bytes
        said.append(outcome(peer))
    return said


def outcome(peer: RawConnection) -> str:
    try:
        peer.ask(MetadataRequest([]), 9, MetadataResponse)
    except OSError:
        return "closed"
    return "answered"


@pytest.fixture(scope="module")
def embedded() -> Iterator[str]:
    security = ClusterSecurity(PLAIN_USERS, mechanisms=MECHANISMS, session_lifetime=5.0)
    with ThreadedCluster(Cluster(brokers=1, security=security)) as cluster:
        yield cluster.bootstrap


@pytest.mark.parametrize("name", DIALOGUES)
async def test_a_login_has_the_same_words(secured: RunningBroker, embedded: str, name: str) -> None:
    real = await asyncio.to_thread(dialogue, secured.sasl_bootstrap, DIALOGUES[name]())
    ours = await asyncio.to_thread(dialogue, embedded, DIALOGUES[name]())
    assert ours == real


async def test_an_unknown_mechanism_has_the_same_answer(
    secured: RunningBroker, embedded: str
) -> None:
    def ask(address: str) -> tuple[int, list[str], str]:
        with RawConnection(split_address(address)) as peer:
            shaken = peer.ask(SaslHandshakeRequest("NONE"), 1, SaslHandshakeResponse)
            return shaken.error_code, sorted(shaken.mechanisms), outcome(peer)

    assert await asyncio.to_thread(ask, embedded) == await asyncio.to_thread(
        ask, secured.sasl_bootstrap
    )


async def test_nothing_is_served_before_a_login(secured: RunningBroker, embedded: str) -> None:
    def ask(address: str) -> str:
        with RawConnection(split_address(address)) as peer:
            return outcome(peer)

    assert await asyncio.to_thread(ask, embedded) == "closed"
    assert await asyncio.to_thread(ask, secured.sasl_bootstrap) == "closed"

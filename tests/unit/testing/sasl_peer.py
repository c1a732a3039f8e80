"""A raw peer that has logged in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kclient.network.sasl import Mechanism
from kclient.network.sasl.plain import Plain
from kclient.network.sasl.scram import Scram
from kclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kclient.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kclient.secret import Secret
from kclient.testing import Cluster
from tests.unit.testing.raw_peer import RawPeer

VERSION = 2
"""Of SaslAuthenticate."""


@asynccontextmanager
async def logged_in(
    at: Cluster | str,
    username: str,
    password: str,
    mechanism: str = "PLAIN",
    *,
    token: bool = False,
) -> AsyncIterator[RawPeer]:
    """A connection of a user, to a cluster's first broker or an address."""
    address = at if isinstance(at, str) else at.bootstrap
    secret = Secret(password)
    login: Mechanism = (
        Plain(username, secret)
        if mechanism == "PLAIN"
        else Scram(mechanism, username, secret, nonce="nonce", delegation_token=token)
    )
    async with RawPeer.to(address) as peer:
        await log_in(peer, login)
        yield peer


async def log_in(peer: RawPeer, login: Mechanism) -> int:
    """Speak a mechanism's steps; return the session's lifetime in milliseconds.

    Raises:
        PermissionError: The broker refuses.
    """
    await peer.call(SaslHandshakeRequest(login.name), 1)
    challenge: bytes | None = None
    lifetime = 0
    while (said := login.step(challenge)) is not None:
        response = await peer.call(SaslAuthenticateRequest(said), VERSION)
        if response.error_code:
            raise PermissionError(response.error_message)
        challenge, lifetime = response.auth_bytes, response.session_lifetime_ms
    return lifetime

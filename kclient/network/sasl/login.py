"""The credentials of one client, for all of its connections: who they are of, and until when.

``Login`` makes a ``Mechanism`` for each authentication. A token is fetched once for all connections
that want one, and again at about 80% of its life; while it is valid, a server that doesn't give the
next one is no error. Users' functions that aren't coroutines run in a thread, as they may block.
"""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kclient.credentials import SCRAM, StaticPassword, Token, checked_name, checked_password
from kclient.errors import AuthenticationFailed, KafkaError
from kclient.network.sasl.oauthbearer import OAuthBearer
from kclient.network.sasl.plain import Plain
from kclient.network.sasl.scram import Scram

if TYPE_CHECKING:
    import random

    from kclient.clock import Clock
    from kclient.credentials import Sasl, TokenSource
    from kclient.network.sasl import Mechanism
    from kclient.secret import Secret

REFRESH = (0.76, 0.84)
"""The part of a token's life after which there is another: 80%, give or take (as Java does)."""
UNKNOWN_LIFE = 60.0
"""Seconds for which a token is used that doesn't say until when it is valid."""
RETRY = 10.0
"""Seconds until a valid token's successor is asked for again, after that failed."""
RENEWAL = (0.85, 0.95)
"""The part of a session's life after which it is renewed (KIP-368)."""


class Login:
    """See the file's docstring. Has no task: whoever needs a token first fetches it for all.

    Args:
        sasl: Mechanism and credentials.
        clock: Reads the time.
        rng: Source of jitter.
    """

    def __init__(self, sasl: Sasl, clock: Clock, rng: random.Random) -> None:
        self._sasl = sasl
        self._rng = rng
        self._tokens = _Tokens(sasl.tokens, clock, rng) if sasl.tokens is not None else None

    async def mechanism(self) -> Mechanism:
        """The machine for one authentication.

        Raises:
            AuthenticationFailed: There are no credentials: the text says why.
        """
        if self._tokens is not None:
            return OAuthBearer(await self._tokens.token())
        username, secret = await self._password()
        name = self._sasl.mechanism
        if name in SCRAM:
            return Scram(
                name,
                username,
                secret,
                nonce=secrets.token_urlsafe(24),
                delegation_token=self._sasl.delegation_token,
            )
        return Plain(username, secret)

    async def _password(self) -> tuple[str, Secret]:
        source = self._sasl.passwords
        if isinstance(source, StaticPassword):
            return source()
        assert source is not None
        given = await _called(source, "credentials")
        try:
            username, password = given
            return checked_name(username), checked_password(password)
        except (TypeError, ValueError) as error:
            text = str(error) if isinstance(error, KafkaError) else "(username, password) is wanted"
            raise AuthenticationFailed(f"what credentials gave can't be used: {text}") from None

    def renewal(self, lifetime: float) -> float:
        """Seconds after which a session that lasts ``lifetime`` is to be renewed."""
        return lifetime * self._rng.uniform(*RENEWAL)


class _Tokens:
    """The token of a client."""

    def __init__(self, source: TokenSource, clock: Clock, rng: random.Random) -> None:
        self._source = source
        self._clock = clock
        self._rng = rng
        self._token: Token | None = None
        self._expires_at = 0.0
        self._refresh_at = 0.0
        self._fetching = asyncio.Lock()

    async def token(self) -> Token:
        """One that is valid."""
        if self._token is None or self._now() >= self._refresh_at:
            async with self._fetching:
                if self._token is None or self._now() >= self._refresh_at:
                    await self._refresh()
        assert self._token is not None
        return self._token

    async def _refresh(self) -> None:
        try:
            token = await self._fetched()
        except AuthenticationFailed:
            if self._token is None or self._now() >= self._expires_at:
                self._token = None
                raise
            self._refresh_at = min(self._now() + RETRY, self._expires_at)
            return
        now = self._now()
        expires_at = token.expires_at if token.expires_at is not None else now + UNKNOWN_LIFE
        self._token = token
        self._expires_at = expires_at
        self._refresh_at = now + (expires_at - now) * self._rng.uniform(*REFRESH)

    async def _fetched(self) -> Token:
        given = await _called(self._source, "the token callback")
        try:
            token = given if isinstance(given, Token) else Token(given)
        except KafkaError as error:
            raise AuthenticationFailed(
                f"what the token callback gave can't be used: {error}"
            ) from None
        if token.expires_at is not None and token.expires_at <= self._now():
            late = self._now() - token.expires_at
            raise AuthenticationFailed(
                f"the token callback gave a token that expired {late:.0f} s ago",
                hint="is this machine's clock right?",
            )
        return token

    def _now(self) -> float:
        return self._clock.wall_ms() / 1000


async def _called(function: Callable[[], Any], name: str) -> Any:
    """What a user's function gives; one that isn't a coroutine function runs in a thread."""
    try:
        if inspect.iscoroutinefunction(function):
            return await function()
        given = await asyncio.to_thread(function)
        return await given if inspect.isawaitable(given) else given
    except AuthenticationFailed:
        raise
    except Exception as error:
        raise AuthenticationFailed(f"{name} failed: {error or type(error).__name__}") from error

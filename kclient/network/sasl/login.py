"""The credentials of one client, for all of its connections: who they are of, and until when.

``Login`` makes a ``Mechanism`` for each authentication. A token is fetched once for all connections
that want one, and again at about 80% of its life; while it is valid, a server that doesn't give the
next one is no error. Users' functions that aren't coroutines run in a thread, as they may block.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias

from kclient.credentials import (
    SCRAM,
    StaticPassword,
    Token,
    checked_name,
    checked_password,
    jwt_claims,
    seconds_in,
)
from kclient.errors import AuthenticationFailed, KafkaError
from kclient.network.sasl.oauthbearer import OAuthBearer
from kclient.network.sasl.plain import Plain
from kclient.network.sasl.scram import Scram
from kclient.network.threads import in_thread
from kclient.secret import Secret

if TYPE_CHECKING:
    import random

    from kclient.clock import Clock
    from kclient.credentials import Sasl, TokenSource
    from kclient.network.sasl import Mechanism

Spawn: TypeAlias = "Callable[[Coroutine[Any, Any, Any], str], asyncio.Task[Any]]"

logger = logging.getLogger("kclient.network")

REFRESH = (0.76, 0.84)
"""The part of a token's life after which there is another: 80%, give or take (as Java does)."""
UNKNOWN_LIFE = 60.0
"""Seconds for which a token is used that doesn't say until when it is valid."""
RETRY = 10.0
"""Seconds until a valid token's successor is asked for again, after that failed."""
_MOMENT = 2.0
"""Seconds that a login waits for a token while the last one is valid."""
PATIENCE = 30.0
"""Seconds that the source of tokens has."""
CLOCK_SKEW = 60.0
"""Seconds by which the clock that says from when a token is valid may be ahead of ours."""
RENEWAL = (0.85, 0.95)
"""The part of a session's life after which it is renewed (KIP-368)."""
LEAST_RENEWAL = 1.1
"""Seconds between two renewals at least: Kafka refuses a second one within a second."""


class Login:
    """See the file's docstring. Tasks: one while a token is fetched, of the supervisor.

    Args:
        sasl: Mechanism and credentials.
        clock: Reads the time.
        rng: Source of jitter.
        spawn: Starts a task of that name.
    """

    def __init__(self, sasl: Sasl, clock: Clock, rng: random.Random, spawn: Spawn) -> None:
        self._sasl = sasl
        self._rng = rng
        self._tokens = None
        if sasl.tokens is not None:
            self._tokens = _Tokens(sasl.tokens, clock, rng, spawn)

    def close(self) -> None:
        """Fetch no token any more."""
        if self._tokens is not None:
            self._tokens.close()

    async def mechanism(self, host: str) -> Mechanism:
        """The machine for one authentication.

        Args:
            host: The broker's name, as it is dialed.

        Raises:
            AuthenticationFailed: There are no credentials: the text says why.
        """
        if self._tokens is not None:
            return OAuthBearer(await self._tokens.token())
        if self._sasl.kerberos is not None:
            from kclient.network.sasl.gssapi import begin

            kerberos = self._sasl.kerberos
            return await in_thread(lambda: begin(kerberos, host), "kclient-kerberos")
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
        return max(lifetime * self._rng.uniform(*RENEWAL), LEAST_RENEWAL)


class _Tokens:
    """The token of a client."""

    def __init__(self, source: TokenSource, clock: Clock, rng: random.Random, spawn: Spawn) -> None:
        self._source = source
        self._clock = clock
        self._rng = rng
        self._spawn = spawn
        self._token: Token | None = None
        self._expires_at = 0.0
        self._refresh_at = 0.0
        self._fetching: asyncio.Task[Token] | None = None

    def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()

    async def token(self) -> Token:
        """One that is valid. Cancellation: the next one is fetched all the same, for others."""
        if self._token is not None and self._now() < self._refresh_at:
            return self._token
        if self._fetching is None:
            self._fetching = self._spawn(self._fetched(), "token")
            self._fetching.add_done_callback(self._keep)
        task = self._fetching
        if self._token is not None and self._now() < self._expires_at:
            # The last one is good enough if the next takes long, or can't be had.
            await asyncio.wait({task}, timeout=_MOMENT)
            if not task.done() or task.cancelled() or task.exception() is not None:
                return self._token
        return await asyncio.shield(task)

    def _keep(self, task: asyncio.Task[Token]) -> None:
        self._fetching = None
        now = self._now()
        failure = None if task.cancelled() else task.exception()
        if task.cancelled() or failure is not None:
            if now < self._expires_at:
                logger.warning(
                    "the token is used until it expires, as there is no other: %s", failure
                )
            self._refresh_at = min(now + RETRY, self._expires_at)
            return
        self._token = token = task.result()
        self._expires_at = now + UNKNOWN_LIFE if token.expires_at is None else token.expires_at
        self._refresh_at = now + (self._expires_at - now) * self._rng.uniform(*REFRESH)

    async def _fetched(self) -> Token:
        try:
            async with asyncio.timeout(PATIENCE):
                given = await _called(self._source, "the token callback")
        except TimeoutError:
            error = AuthenticationFailed(f"the token callback gave no token in {PATIENCE:g} s")
            error.retriable = True
            raise error from None
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
        begins = seconds_in(jwt_claims(Secret(token.value).reveal()).get("nbf"))
        if begins is not None and begins > self._now() + CLOCK_SKEW:
            early = begins - self._now()
            raise AuthenticationFailed(
                f"the token callback gave a token that isn't valid for another {early:.0f} s",
                hint="is this machine's clock right?",
            )
        return token

    def _now(self) -> float:
        return self._clock.wall_ms() / 1000


async def _called(function: Callable[[], Any], name: str) -> Any:
    """What a user's function gives; one that isn't a coroutine function runs in a thread."""
    try:
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            type(function).__call__
        ):
            return await function()
        given = await asyncio.to_thread(function)
        return await given if inspect.isawaitable(given) else given
    except AuthenticationFailed:
        raise
    except Exception as cause:
        error = AuthenticationFailed(f"{name} failed: {cause or type(cause).__name__}")
        error.retriable = True  # the broker hasn't refused us: it may be had the next time
        raise error from cause

"""A token endpoint of OpenID Connect on loopback, and the key by which its tokens are signed.

A secured broker of tests trusts that key: `jwks_file` is in its settings.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import ssl
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from joserfc import jwk, jwt

from tests.support.class_path import cache_directory

CLIENT_ID, CLIENT_SECRET = "alice", "alice secret/ö"
AUDIENCE = "kafka"


@functools.cache
def signing_key() -> jwk.RSAKey:
    """The key, made on first use and kept, as brokers have it in their settings."""
    path = cache_directory() / "oidc" / "key.pem"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        made = jwk.RSAKey.generate_key(2048, {"kid": "tests"})
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_bytes(made.as_pem(private=True))
        with contextlib.suppress(FileExistsError):  # another process was first
            os.link(fresh, path)
        fresh.unlink()
    return jwk.RSAKey.import_key(path.read_bytes(), {"kid": "tests"})


def jwks_file() -> Path:
    """The file of public keys."""
    path = cache_directory() / "oidc" / "jwks.json"
    keys = [signing_key().as_dict(private=False)]
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_text(json.dumps({"keys": keys}))
    fresh.replace(path)
    return path


def signed(subject: str = CLIENT_ID, *, key: jwk.RSAKey | None = None, **claims: object) -> str:
    """A token for ``subject``, valid for five minutes."""
    now = int(time.time())
    given = {"sub": subject, "iat": now - 5, "exp": now + 300, "aud": AUDIENCE, **claims}
    return jwt.encode({"alg": "RS256", "kid": "tests"}, given, key or signing_key())


class Asked:
    """A request that came."""

    def __init__(self, request: web.Request, body: str) -> None:
        self.path = request.raw_path
        self.headers = request.headers
        self.form = dict(urllib.parse.parse_qsl(body))

    @property
    def credentials(self) -> tuple[str, str]:
        """Id and secret of HTTP's Basic authentication."""
        both = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        name, _, secret = both.partition(":")
        return urllib.parse.unquote_plus(name), urllib.parse.unquote_plus(secret)


Answer = Callable[[Asked], web.StreamResponse]


def issue(asked: Asked, *, secret: str = CLIENT_SECRET, **claims: Any) -> web.StreamResponse:
    """A token for the right client; `invalid_client` for others."""
    if asked.form.get("grant_type") == "client_credentials":
        if asked.credentials != (CLIENT_ID, secret):
            wrong = {"error": "invalid_client", "error_description": "Invalid client credentials"}
            return web.json_response(wrong, status=401)
    return web.json_response({"access_token": signed(**claims), "expires_in": 300})


class TokenServer:
    """The server, for the running loop; an async context manager.

    Attributes:
        answer: Makes the response to a request.
        asked: All requests, whatever their path.
        url: Of the endpoint.
    """

    def __init__(
        self, answer: Answer = issue, *, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        self.answer = answer
        self._ssl = ssl_context
        self.asked: list[Asked] = []
        self.url = ""
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        asked = Asked(request, await request.text())
        self.asked.append(asked)
        return self.answer(asked)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._ssl).start()
        self.url = (
            f"http{'s' if self._ssl else ''}://127.0.0.1:{self._runner.addresses[0][1]}/token"
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._runner.cleanup()

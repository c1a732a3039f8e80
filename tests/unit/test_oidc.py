"""Sources of tokens: what they send, what they take, and the one error of each thing that fails."""

from __future__ import annotations

import asyncio
import base64
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from joserfc import jwk, jwt

import kclient
from kclient import (
    AuthenticationFailed,
    ClientCredentials,
    InvalidConfig,
    JwtBearer,
    Secret,
    Token,
    TokenFile,
)
from tests.support.token_server import (
    CLIENT_ID,
    CLIENT_SECRET,
    Asked,
    TokenServer,
    signed,
    signing_key,
)

CANARY = "canary-51d2"
RSA_PEM = signing_key().as_pem(private=True).decode()
WHO = {"issuer": "orders", "audience": "https://idp.example"}


def source(server: TokenServer, **more: Any) -> ClientCredentials:
    return ClientCredentials(server.url, CLIENT_ID, CLIENT_SECRET, **more)


def answering(body: object, status: int = 200) -> TokenServer:
    return TokenServer(lambda _: web.json_response(body, status=status))


async def failure(tokens: ClientCredentials | JwtBearer) -> AuthenticationFailed:
    with pytest.raises(AuthenticationFailed) as caught:
        await tokens()
    assert CANARY not in str(caught.value)
    return caught.value


def local_variables(found: BaseException) -> list[str]:
    """Those of all frames of this project and of libraries, as tracebacks may show them."""
    shown: Any = traceback.TracebackException.from_exception(found, capture_locals=True)
    seen = []
    while shown is not None:
        seen += [str(frame.locals) for frame in shown.stack if "tests" not in frame.filename]
        shown = shown.__cause__ or shown.__context__
    return seen


class TestClientCredentials:
    async def test_id_and_secret_are_sent_and_a_token_comes(self) -> None:
        async with TokenServer() as server:
            token = await source(server, scope="read write", audience="kafka")()
            (asked,) = server.asked
        assert asked.credentials == (CLIENT_ID, CLIENT_SECRET)
        grant = {"grant_type": "client_credentials"}
        assert asked.form == grant | {"scope": "read write", "audience": "kafka"}
        assert token.expires_at is not None
        assert abs(token.expires_at - time.time() - 300) < 60

    @pytest.mark.parametrize(
        ("urlencode", "sent"), [(True, b"a%2Bb:c%2F+d%C3%B6"), (False, "a+b:c/ dö".encode())]
    )
    async def test_id_and_secret_are_quoted_unless_the_server_takes_them_as_they_are(
        self, urlencode: bool, sent: bytes
    ) -> None:
        async with TokenServer(lambda _: web.json_response({"access_token": "x"})) as server:
            await ClientCredentials(server.url, "a+b", "c/ dö", urlencode=urlencode)()
            authorization = server.asked[0].headers["Authorization"]
        assert base64.b64decode(authorization.removeprefix("Basic ")) == sent

    async def test_one_value_serves_several_loops(self) -> None:
        async with TokenServer() as server:
            tokens = source(server)

            async def fetch() -> Token:
                return await tokens()

            await tokens()
            await asyncio.to_thread(asyncio.run, fetch())
            assert len(server.asked) == 2

    async def test_extensions_go_with_the_token(self) -> None:
        async with TokenServer() as server:
            token = await source(server, extensions={"logicalCluster": "lkc-1"})()
        assert token.extensions == {"logicalCluster": "lkc-1"}

    @pytest.mark.parametrize(
        ("claimed", "life", "expected"),
        [
            (None, 120, 120),
            (None, "120", 120),
            (None, None, None),
            (None, "soon", None),
            (200, 3600, 200),
            (3600, 200, 200),
            (200, None, 200),
        ],
    )
    async def test_a_token_ends_when_it_or_the_server_says_so(
        self, claimed: int | None, life: object, expected: float | None
    ) -> None:
        text = "opaque" if claimed is None else signed(exp=int(time.time()) + claimed)
        async with answering({"access_token": text, "expires_in": life}) as server:
            token = await source(server)()
        if expected is None:
            assert token.expires_at is None
        else:
            assert token.expires_at is not None
            assert abs(token.expires_at - time.time() - expected) < 60

    @pytest.mark.parametrize(
        ("status", "body", "words", "retriable"),
        [
            (401, {"error": "invalid_client"}, "refuses (401): invalid_client (are client", False),
            (401, "go away", 'refuses (401): "go away" (are client_id and client_sec', False),
            (
                400,
                {"error": "invalid_scope", "error_description": "no"},
                "invalid_scope: no",
                False,
            ),
            (403, {}, "refuses (403): {}", False),
            (429, {"error": "slow_down"}, "refuses (429): slow_down", True),
            (503, [], "refuses (503): []", True),
            (200, [CANARY], "gave 6 bytes, no JSON object", False),
            (200, {"token": CANARY, "b": 1}, "no access_token, but b, token", False),
            (200, {}, "no access_token, but nothing", False),
            (200, {"access_token": 7}, "no access_token", False),
            (200, {"access_token": ""}, "no access_token", False),
        ],
    )
    async def test_each_failure_says_what_it_is(
        self, status: int, body: object, words: str, retriable: bool
    ) -> None:
        async with answering(body, status) as server:
            if body == [CANARY]:
                server.answer = lambda _: web.Response(text="<html>")
            found = await failure(source(server))
        assert words in str(found)
        assert found.retriable is retriable

    async def test_a_wrong_secret_is_in_no_text_and_no_local_variable(self) -> None:
        async with TokenServer() as server:
            tokens = ClientCredentials(server.url, CLIENT_ID, CANARY)
            found = await failure(tokens)
            assert "Invalid client credentials" in str(found)
            assert CANARY not in repr(tokens) + repr(kclient.Security.oauth(tokens))
        seen = local_variables(found)
        assert seen
        assert not [text for text in seen if CANARY in text or "Basic" in text]

    @pytest.mark.parametrize(
        "answer",
        [
            {"access_token": "tok en", "refresh_token": CANARY},
            {"token": CANARY, "\x1b[31m\n" * 600: 1},
            {"access_token": f"{CANARY} x"},
        ],
    )
    async def test_a_response_without_a_token_that_can_be_sent_shows_nothing(
        self, answer: dict[str, Any]
    ) -> None:
        async with TokenServer(lambda _: web.json_response(answer)) as server:
            found = await failure(ClientCredentials(server.url, CLIENT_ID, CLIENT_SECRET))
        assert isinstance(found, AuthenticationFailed)
        assert CANARY not in str(found)
        assert str(found).isprintable()
        assert len(str(found)) < 1_000
        assert not [text for text in local_variables(found) if CANARY in text]

    async def test_a_secret_that_is_echoed_in_base64_isnt_shown(self) -> None:
        def refuse(asked: Asked) -> web.Response:
            text = asked.headers["Authorization"].removeprefix("Basic ")
            return web.json_response({"error": "x", "error_description": text}, status=401)

        async with TokenServer(refuse) as server:
            found = await failure(ClientCredentials(server.url, CLIENT_ID, CANARY))
        assert base64.b64encode(f"{CLIENT_ID}:{CANARY}".encode()).decode() not in str(found)
        assert "<secret>" in str(found)

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"client_id": ""}, "client_id=''"),
            ({"client_secret": ""}, "client_secret is missing"),
            ({"client_secret": None}, "client_secret is missing"),
            ({"scope": ""}, "scope=''"),
            ({"token_url": None}, "token_url can't be used"),
            ({"token_url": "https://idp.example/", "ca_file": "/missing.pem"}, "missing.pem"),
        ],
    )
    def test_what_cant_be_used_is_refused_when_it_is_made(
        self, given: Mapping[str, Any], words: str
    ) -> None:
        usual = {"token_url": "http://localhost/", "client_id": "a", "client_secret": CANARY}
        with pytest.raises(InvalidConfig, match=words) as caught:
            ClientCredentials(**(usual | given))
        assert CANARY not in str(caught.value)

    def test_extensions_that_cant_be_sent_are_refused_when_it_is_made(self) -> None:
        for extensions in ({"auth": "x"}, {"a": 1}):
            with pytest.raises(InvalidConfig, match="extension"):
                ClientCredentials("http://localhost/", "a", "b", extensions=extensions)  # type: ignore[arg-type]


class TestJwtBearer:
    @pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256"])
    async def test_a_signed_assertion_is_sent(self, algorithm: Any, tmp_path: Path) -> None:
        key = jwk.ECKey.generate_key("P-256") if algorithm == "ES256" else signing_key()
        file = tmp_path / "key.pem"
        file.write_bytes(key.as_pem(private=True, password="key-password"))
        async with TokenServer() as server:
            tokens = JwtBearer(
                server.url,
                private_key_file=file,
                private_key_password="key-password",
                algorithm=algorithm,
                key_id="k1",
                claims={"tenant": "t"},
                scope="read",
                **WHO,
            )
            await tokens()
            (asked,) = server.asked
        assertion = jwt.decode(asked.form.pop("assertion"), key, algorithms=[algorithm])
        grant = "urn:ietf:params:oauth:grant-type:jwt-bearer"
        assert asked.form == {"grant_type": grant, "scope": "read"}
        assert "Authorization" not in asked.headers
        assert assertion.header == {"alg": algorithm, "kid": "k1", "typ": "JWT"}
        claims = assertion.claims
        assert claims.pop("exp") - claims.pop("iat") == 300
        assert len(claims.pop("jti")) > 20
        assert claims == {
            **{"iss": "orders", "sub": "orders", "aud": WHO["audience"], "tenant": "t"}
        }

    async def test_an_assertion_of_a_file_is_read_each_time(self, tmp_path: Path) -> None:
        file = tmp_path / "assertion"
        async with TokenServer() as server:
            tokens = JwtBearer(server.url, assertion_file=file)
            assert "No such file" in str(await failure(tokens))
            for text in ("a.b.c", "d.e.f"):
                file.write_text(f"{text}\n")
                await tokens()
            assert [asked.form["assertion"] for asked in server.asked] == ["a.b.c", "d.e.f"]

    async def test_a_refused_assertion_isnt_shown(self, tmp_path: Path) -> None:
        file = tmp_path / "assertion"
        file.write_text(CANARY)

        def echo(asked: Asked) -> web.StreamResponse:
            said = {"error": "invalid_grant", "error_description": asked.form["assertion"]}
            return web.json_response(said, status=400)

        async with TokenServer(echo) as server:
            text = str(await failure(JwtBearer(server.url, assertion_file=file)))
        assert "invalid_grant: <secret> (does the server know the key" in text

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({}, "give one of"),
            ({"private_key": RSA_PEM, "assertion_file": "x"}, "give one of"),
            ({"private_key": RSA_PEM}, "issuer=None"),
            ({"private_key": RSA_PEM, "issuer": "a"}, "audience=None"),
            ({"private_key": CANARY, **WHO}, "can't be used for RS256"),
            ({"private_key": Secret(RSA_PEM), "algorithm": "ES256", **WHO}, "for ES256"),
            ({"private_key": RSA_PEM, "algorithm": "HS256", **WHO}, "allowed are RS256"),
            ({"private_key": RSA_PEM, "life": 0, **WHO}, "life=0"),
        ],
    )
    def test_what_cant_be_used_is_refused_when_it_is_made(
        self, given: Mapping[str, Any], words: str
    ) -> None:
        with pytest.raises(InvalidConfig, match=words) as caught:
            JwtBearer("http://localhost/", **given)
        assert CANARY not in str(caught.value)


class TestTokenFile:
    def test_it_is_read_each_time(self, tmp_path: Path) -> None:
        file = tmp_path / "token"
        tokens = TokenFile(file, extensions={"a": "b"})
        for text in ("one", "two"):
            file.write_text(f"{text}\n")
            assert tokens() == Token(text, None, {"a": "b"})
        assert "two" not in repr(tokens)

    @pytest.mark.parametrize(
        ("content", "words"), [(None, "No such file"), (b"", "empty"), (b"\xff", "isn't text")]
    )
    def test_what_isnt_a_token_is_said(
        self, content: bytes | None, words: str, tmp_path: Path
    ) -> None:
        file = tmp_path / "token"
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(AuthenticationFailed, match=words) as caught:
            TokenFile(file)()
        assert str(file) in str(caught.value)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(InvalidConfig, match=r"pip install 'kclient\[oauth\]'"):
        JwtBearer("http://localhost/", private_key=RSA_PEM, **WHO)

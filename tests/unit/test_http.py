"""Requests over HTTP go to the one URL that was given, and what comes back is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from pathlib import Path

import pytest
import trustme
from aiohttp import web

from kclient import AuthenticationFailed, ClientCredentials, InvalidConfig
from tests.support.token_server import Asked, TokenServer

CANARY = "canary secret/7"
HOSTILE = (
    # Schemes.
    *(
        "file:///etc/passwd",
        "file://localhost/etc/passwd",
        "FILE:///etc/passwd",
        "file:/etc/passwd",
    ),
    *("ftp://127.0.0.1:{port}/x", "gopher://127.0.0.1:{port}/x", "dict://127.0.0.1:{port}/x"),
    *("ldap://127.0.0.1:{port}/x", "ws://127.0.0.1:{port}/x", "http+unix://%2Fvar%2Frun%2Fx/x"),
    *("jar:http://127.0.0.1:{port}/x!/y", "data:application/json,x", "javascript:alert(1)"),
    *("//127.0.0.1:{port}/x", "/x", "x", "", "127.0.0.1:{port}/x", "http:127.0.0.1:{port}/x"),
    *("http:/127.0.0.1:{port}/x", "http:///127.0.0.1:{port}/x", "ht\ntp://127.0.0.1:{port}/x"),
    # Users and what looks like them.
    *("http://user@127.0.0.1:{port}/x", "http://user:pw@127.0.0.1:{port}/x"),
    *("http://@127.0.0.1:{port}/x", "https://idp.example:443@127.0.0.1:{port}/x"),
    *("http://127.0.0.1:{port}\\@idp.example/x", "http://127.0.0.1:{port}@127.0.0.1:{port}/x"),
    # Unencrypted, to what isn't this machine's plain name: forms that resolvers take for it, too.
    *("http://0.0.0.0:{port}/x", "http://0:{port}/x", "http://127.1:{port}/x"),
    *("http://2130706433:{port}/x", "http://0x7f000001:{port}/x", "http://0177.0.0.1:{port}/x"),
    *("http://127.000.000.001:{port}/x", "http://[::]:{port}/x", "http://[0::1]:{port}/x"),
    *("http://[::ffff:127.0.0.1]:{port}/x", "http://[::ffff:7f00:1]:{port}/x"),
    *("http://localhost.:{port}/x", "http://localhost.localdomain:{port}/x"),
    *("http://127.0.0.1.idp.example:{port}/x", "http://localhost.idp.example:{port}/x"),
    *(
        "http://\uff11\uff12\uff17.0.0.1:{port}/x",
        "http://127。0。0。1:{port}/x",
        "http://ⓛocalhost:{port}/x",
    ),
    *("http://169.254.169.254/latest/meta-data", "http://[fd00:ec2::254]/x", "http://10.0.0.1/x"),
    *("http://metadata.google.internal/x", "http://idp.example/x"),
    # Syntax that two readers may read differently.
    *("http://127.0.0.1:{port}/x#y", "http://127.0.0.1:{port}/a b", "http://127.0.0.1:{port}/x\n"),
    *("http://127.0.0.1:{port}/x\r\nX: y", " http://127.0.0.1:{port}/x", "http://[::1/x"),
    *("http://127.0.0.1:{port}/%zz", "http://127.0.0.1:99999/x", "http://127.0.0.1:{port}/ü"),
    *("http://127.0.0.1:{port}/x\x00", "http://127.0.0.1:{port}\\x", "http://127.0.0.1:{port}:1/x"),
)
REDIRECTS = (301, 302, 303, 307, 308)


def source(url: str) -> ClientCredentials:
    return ClientCredentials(url, "me", CANARY)


async def failure(url: str) -> AuthenticationFailed:
    with pytest.raises(AuthenticationFailed) as caught:
        await source(url)()
    assert CANARY not in str(caught.value)
    return caught.value


async def test_hostile_urls_are_never_fetched() -> None:
    """Neither when they are given, nor when a server redirects to them."""
    assert len(set(HOSTILE)) >= 60
    async with TokenServer() as server:
        port = server.url.split(":")[2].removesuffix("/token")
        urls = [url.replace("{port}", port) for url in HOSTILE]
        for url in urls:
            with pytest.raises(InvalidConfig, match="token_url") as caught:
                source(url)
            assert "pw" not in str(caught.value)
        good = source(server.url)
        targets = iter([*urls, server.url + "2", server.url.replace("127.0.0.1", "localhost")])

        def redirect(asked: Asked) -> web.StreamResponse:
            status = REDIRECTS[len(server.asked) % len(REDIRECTS)]
            target = next(targets).encode("unicode_escape").decode()
            return web.Response(status=status, headers={"Location": target})

        server.answer = redirect
        for _ in range(len(urls) + 2):
            with pytest.raises(AuthenticationFailed, match="isn't followed") as refused:
                await good()
            assert not refused.value.retriable
        assert [one.path for one in server.asked] == ["/token"] * (len(urls) + 2)


@pytest.mark.parametrize(
    "url",
    [
        "https://idp.example/token",
        "https://idp.example:8443/realms/my%20realm/token?policy=a&b=c",
        "https://[2001:db8::1]/token",
        "http://localhost:8080/token",
        "http://127.0.0.2/token",
        "http://[::1]:1/token",
    ],
)
def test_a_plain_url_is_taken(url: str) -> None:
    assert url.partition("?")[0] in repr(source(url))


def test_http_to_another_machine_must_be_allowed_by_name() -> None:
    ClientCredentials("http://idp.example/token", "me", CANARY, unencrypted=True)
    with pytest.raises(InvalidConfig, match="without encryption"):
        source("http://idp.example/token")


async def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with TokenServer() as proxy, TokenServer() as server:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        await failure(server.url)
        assert len(server.asked) == 1
        assert not proxy.asked


async def test_a_response_without_end_isnt_read_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kclient.http.PATIENCE", 5.0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while not writer.is_closing():
                writer.write(bytes(100_000))
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        text = str(await failure(f"http://127.0.0.1:{port}/token"))
    assert "more than 1,048,576 bytes" in text


async def test_a_response_that_isnt_http_isnt_shown() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 2zz echoed-secret\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        text = str(await failure(f"http://127.0.0.1:{port}/token?key=in-the-query"))
    assert "gave what isn't HTTP" in text
    assert "echoed-secret" not in text
    assert "in-the-query" not in text


async def test_a_compressed_response_isnt_expanded() -> None:
    def answer(_: Asked) -> web.StreamResponse:
        response = web.json_response({"access_token": "x" * 100_000})
        response.headers["Content-Encoding"] = "gzip"
        response.enable_compression(web.ContentCoding.gzip)
        return response

    async with TokenServer(answer) as server:
        assert "no JSON object" in str(await failure(server.url))


async def test_a_server_that_is_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kclient.http.PATIENCE", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = await failure(f"http://127.0.0.1:{silent.getsockname()[1]}/token")
    assert "no response in 0.05 s" in str(found)
    assert found.retriable


async def test_a_server_that_is_down_may_be_back_later() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        found = await failure(f"http://127.0.0.1:{closed.getsockname()[1]}/token")
    assert "can't be reached" in str(found)
    assert found.retriable


@pytest.mark.parametrize(
    "echo",
    [
        CANARY,
        "canary+secret%2F7",
        "canary%20secret%2F7",
        "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.c2ln",
    ],
)
@pytest.mark.parametrize("form", ["text", "description"])
async def test_what_a_server_says_is_short_and_without_secrets(echo: str, form: str) -> None:
    def answer(_: Asked) -> web.StreamResponse:
        text = f"no\x1b[31m\n{'x' * 480} <{echo}> <{echo}> " + "y" * 10_000
        if form == "text":
            return web.Response(status=400, text=text)
        said = {"error": "invalid_request", "error_description": text}
        return web.json_response(said, status=400)

    async with TokenServer(answer) as server:
        text = str(await failure(server.url))
    assert "no [31m" in text
    assert len(text) < 512 + 100
    assert not [part for part in ("canary", "eyJ", "\x1b", "\n") if part in text]


async def test_the_servers_certificate_is_verified(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    async with TokenServer(ssl_context=context) as server:
        found = await failure(server.url)
        assert "isn't trusted" in str(found)
        assert not found.retriable
        assert not server.asked
        with pytest.raises(AuthenticationFailed, match="invalid_client"):
            await ClientCredentials(server.url, "me", CANARY, ca_file=ca_file)()

"""Bootstrap addresses that aren't Kafka brokers, on real sockets: each named with its reason.

The leak watcher of tests/conftest.py checks that no task, socket or timer is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from kclient.cluster.core import ClientCore
from kclient.config import CommonConfig
from kclient.errors import BootstrapFailed, BrokerUnreachable, ClientClosed

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(behaviour: Behaviour) -> AsyncIterator[str]:
    """A server that handles each connection with ``behaviour``; yields its address."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await behaviour(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.close()
        for writer in writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        await server.wait_closed()


async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(100)
    writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    await writer.drain()


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(100)


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def noise(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(100)
    writer.write(bytes(range(256)) * 10)
    await writer.drain()


def client(bootstrap: str, **settings: float) -> ClientCore:
    return ClientCore(CommonConfig.of(None, {"bootstrap": bootstrap, **settings}))


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def failure_of(bootstrap: str, timeout: float = 0.8) -> str:
    """The text of the failure to start, after checks of its duration and of the client's state."""
    core = client(bootstrap, bootstrap_timeout=timeout)
    started = time.monotonic()
    with pytest.raises(BootstrapFailed) as error:
        await core.start()
    assert time.monotonic() - started < timeout + 4.0
    assert isinstance(error.value, BrokerUnreachable)
    assert isinstance(error.value, ConnectionError)
    assert core.health().state == "closed"
    with pytest.raises(ClientClosed):
        core.check_usable()
    await core.close()
    return str(error.value)


async def test_a_refused_address_is_named() -> None:
    address = f"127.0.0.1:{unused_port()}"
    text = await failure_of(address)
    assert address in text
    assert "refused" in text.lower()
    assert "0.8 s" in text


async def test_an_unresolvable_name_is_named() -> None:
    text = await failure_of("no-such-host.invalid:9092")
    assert "no-such-host.invalid:9092" in text


async def test_http_is_recognised() -> None:
    async with listening(http) as address:
        text = await failure_of(address)
    assert address in text
    assert "HTTP" in text


@pytest.mark.parametrize("behaviour", [hang_up, noise, silence])
async def test_any_other_response_is_a_typed_error_in_time(behaviour: Behaviour) -> None:
    async with listening(behaviour) as address:
        assert address in await failure_of(address)


async def test_each_address_has_its_own_reason() -> None:
    refused = f"127.0.0.1:{unused_port()}"
    async with listening(http) as web, listening(silence) as mute:
        text = await failure_of(f"{refused},{web},{mute}", timeout=2.0)
    parts = text.partition("2 s: ")[2].split("; ")
    reasons = {where: part for part in parts for where in (refused, web, mute) if where in part}
    assert (len(parts), len(reasons)) == (3, 3)
    assert "refused" in reasons[refused].lower()
    assert "HTTP" in reasons[web]


async def test_starting_can_be_cancelled() -> None:
    async with listening(silence) as address:
        core = client(address)
        starting = asyncio.create_task(core.start())
        await asyncio.sleep(0.05)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert core.health().state == "closed"


async def test_closing_while_it_starts_ends_the_start() -> None:
    async with listening(silence) as address:
        core = client(address)
        starting = asyncio.create_task(core.start())
        await asyncio.sleep(0.05)
        await core.close()
        with pytest.raises(ClientClosed):
            await starting


async def test_a_client_that_was_never_started_closes() -> None:
    core = client("127.0.0.1:1")
    with pytest.raises(ClientClosed, match="not started"):
        core.check_usable()
    await core.close()
    await core.close()
    with pytest.raises(ClientClosed):
        await core.start()

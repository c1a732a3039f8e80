"""Servers that a client with TLS and a password meets, and that keep every byte they get.

``HostileServer`` listens on loopback with a TLS context, or with a behaviour in place of TLS.
``secured_answer`` is the script of a good broker that wants a login by PLAIN.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Self, cast

from kclient.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kclient.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from kclient.protocol.messages.sasl_handshake import SaslHandshakeResponse
from tests.unit.network.scripted_broker import (
    API_VERSIONS,
    SPOKEN,
    Received,
    Session,
    good_answer,
)

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
_ALERT, _HANDSHAKE = 21, 22
_RECORD_HEADER = 5

Behaviour = Callable[[asyncio.Transport, bytes], None]
"""What a server that speaks no TLS does with what it gets."""


def secured_answer(session: Session, request: Received) -> None:
    """Respond like a good broker that takes any password."""
    if request.api_key == SASL_HANDSHAKE:
        session.reply(request, SaslHandshakeResponse(0, ["PLAIN"]))
    elif request.api_key == SASL_AUTHENTICATE:
        session.reply(request, SaslAuthenticateResponse())
    elif request.api_key == API_VERSIONS:
        sasl = (ApiVersion(SASL_HANDSHAKE, 0, 1), ApiVersion(SASL_AUTHENTICATE, 0, 2))
        session.reply(request, ApiVersionsResponse(0, [*SPOKEN, *sasl]))
    else:
        good_answer(session, request)


def keep_silent(transport: asyncio.Transport, data: bytes) -> None:
    """Never shake hands."""


def hang_up(transport: asyncio.Transport, data: bytes) -> None:
    """Close amid the handshake."""
    transport.close()


def reset(transport: asyncio.Transport, data: bytes) -> None:
    """Break the connection amid the handshake."""
    transport.abort()


def speak_http(transport: asyncio.Transport, data: bytes) -> None:
    """Send bytes that are no TLS."""
    transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def echo(transport: asyncio.Transport, data: bytes) -> None:
    """Send back what the client said."""
    transport.write(data)


def agree_on(minor: int) -> Behaviour:
    """Greet as a server that knows nothing newer than TLS 1.``minor``."""

    def greet(transport: asyncio.Transport, data: bytes) -> None:
        if data[0] == _HANDSHAKE:
            version = bytes((3, minor + 1))
            hello = version + bytes(32) + b"\0" + b"\0\x2f" + b"\0"  # AES128-SHA, uncompressed
            message = b"\x02" + len(hello).to_bytes(3, "big") + hello
            transport.write(b"\x16" + version + len(message).to_bytes(2, "big") + message)

    return greet


BEHAVIOURS: dict[str, Behaviour] = {
    "stalls": keep_silent,
    "hangs up": hang_up,
    "resets": reset,
    "speaks HTTP": speak_http,
    "echoes": echo,
    "TLS 1.0": agree_on(0),
    "TLS 1.1": agree_on(1),
}


class HostileServer:
    """Listens on 127.0.0.1.

    Args:
        tls: For TLS.
        behaviour: What there is without TLS.

    Attributes:
        port: Where; it may be set before the start, else the system chooses it.
    """

    def __init__(
        self, tls: ssl.SSLContext | None = None, behaviour: Behaviour | None = None
    ) -> None:
        self.port = 0
        self._tls = tls
        self._behaviour = behaviour
        self._received: list[bytearray] = []
        self._transports: list[asyncio.Transport] = []
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self), "127.0.0.1", self.port, ssl=self._tls
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for transport in self._transports:
            transport.abort()

    @property
    def received(self) -> bytes:
        """All that was sent to it: the plaintext of TLS, or the raw bytes where it speaks none."""
        return b"".join(self._received)

    @property
    def beyond_handshake(self) -> bytes:
        """What was sent to it in or without TLS, after handshake and alerts of the client."""
        if self._tls is not None:
            return self.received
        return b"".join(map(_beyond_handshake, self._received))

    def connected(self, transport: asyncio.Transport) -> bytearray:
        """Take a connection; gives the buffer for its bytes."""
        self._transports.append(transport)
        self._received.append(bytearray())
        return self._received[-1]

    def got(self, transport: asyncio.Transport, data: bytes) -> None:
        """Behave."""
        if self._behaviour is not None:
            self._behaviour(transport, data)


class _Connection(asyncio.Protocol):
    def __init__(self, server: HostileServer) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._received = self._server.connected(self._transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._server.got(self._transport, data)


def _beyond_handshake(data: bytes | bytearray) -> bytes:
    """What is left of a client's bytes without its unencrypted records of handshake and alerts."""
    at = 0
    while at < len(data) and data[at] in (_ALERT, _HANDSHAKE):
        at += _RECORD_HEADER + int.from_bytes(data[at + 3 : at + 5], "big")
    return bytes(data[at:])


class Tap:
    """Passes bytes on to a broker, and keeps those of clients. For clients it speaks no TLS.

    Args:
        upstream: The broker's address.
        tls: For TLS to the broker: TLS is stripped.
    """

    def __init__(self, upstream: tuple[str, int], tls: ssl.SSLContext | None = None) -> None:
        self.port = 0
        self._received: list[bytearray] = []
        self._upstream = upstream
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1")
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def received(self) -> bytes:
        """All that clients sent."""
        return b"".join(self._received)

    @property
    def beyond_handshake(self) -> bytes:
        """What they sent beside TLS's handshake and alerts."""
        return b"".join(map(_beyond_handshake, self._received))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        received = bytearray()
        self._received.append(received)
        other_reader, other_writer = await asyncio.open_connection(*self._upstream, ssl=self._tls)
        # A stream's own callback would report a handler that was cancelled, or failed.
        with contextlib.suppress(asyncio.CancelledError, ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass_on(reader, other_writer, received))
                group.create_task(self._pass_on(other_reader, writer, bytearray()))
        writer.transport.abort()
        other_writer.transport.abort()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray
    ) -> None:
        while data := await reader.read(2**16):
            kept += data
            writer.write(data)
        writer.close()

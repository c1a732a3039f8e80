"""A plain connection that sends and receives frames, so that tests see each byte that passes.

Unlike a client it has no timers, sends nothing by itself and never connects again.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from typing import Any, Self

from kclient.protocol.headers import decode_response_header, encode_request
from kclient.protocol.message import Request
from kclient.protocol.messages.api_versions import ApiVersionsRequest

TIMEOUT = 20.0
QUIET = 0.1
"""Seconds in which nothing may come."""


class Raw:
    """One connection; ``async with`` opens and closes it."""

    def __init__(self, bootstrap: str, *, tls: ssl.SSLContext | None = None) -> None:
        host, _, port = bootstrap.split(",")[0].rpartition(":")
        self._address = host, int(port)
        self._tls = tls
        self._sent = 0
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        host, port = self._address
        async with asyncio.timeout(TIMEOUT):
            self._reader, self._writer = await asyncio.open_connection(host, port, ssl=self._tls)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()

    def close(self) -> None:
        """Close it in good order, as a client does that has sent all."""
        self._writer.close()

    def say(self, request: Request | None = None, version: int = 0) -> bytes:
        """Send a request, by default one for ApiVersions; gives its frame."""
        self._sent += 1
        frame = encode_request(request or ApiVersionsRequest(), version, self._sent, "raw")
        self._writer.write(frame)
        return frame

    async def drain(self) -> None:
        """Wait until the other side takes what was sent."""
        await self._writer.drain()

    async def frame(self) -> bytes:
        """The next response, its size included."""
        async with asyncio.timeout(TIMEOUT):
            size = await self._reader.readexactly(4)
            return size + await self._reader.readexactly(int.from_bytes(size, "big"))

    async def ask(self, request: Request, version: int) -> Any:
        """Send a request and return its response, decoded."""
        self.say(request, version)
        body = (await self.frame())[4:]
        _, start = decode_response_header(body, request.API_KEY, version)
        return request.RESPONSE.decode(body, version, start)

    async def rest(self) -> bytes:
        """All that comes until the other side closes."""
        async with asyncio.timeout(TIMEOUT):
            return await self._reader.read()

    async def before_silence(self, count: int) -> bytes:
        """So many bytes, behind which nothing comes and nothing is closed."""
        async with asyncio.timeout(TIMEOUT):
            found = await self._reader.readexactly(count)
        try:
            async with asyncio.timeout(QUIET):
                more = await self._reader.read(1)
        except TimeoutError:
            return found
        raise AssertionError(f"no silence: {more!r} came" if more else "it was closed")


def correlation_id(frame: bytes) -> int:
    """The number of the request that a frame responds to; a connection's first one is 1."""
    found: int = struct.unpack_from(">i", frame, 4)[0]
    return found

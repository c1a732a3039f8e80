"""A peer that sends single requests over a socket: no kclient client, retries or negotiation."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from kclient.protocol.headers import decode_response_header, encode_request
from kclient.protocol.message import Request

_SIZE = struct.Struct(">i")


class RawPeer:
    """One connection to a broker."""

    def __init__(self, host: str, port: int, client_id: str | None = "raw") -> None:
        self._host = host
        self._port = port
        self._client_id = client_id
        self._correlation = 0
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    @classmethod
    def to(cls, address: str, client_id: str | None = "raw") -> RawPeer:
        """Make a peer of ``host:port``, the first address of a bootstrap string."""
        host, _, port = address.split(",")[0].rpartition(":")
        return cls(host, int(port), client_id)

    async def __aenter__(self) -> RawPeer:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            pass  # the broker closed first

    def write(self, request: Request, version: int) -> int:
        """Send a request without reading a response; return its correlation id."""
        self._correlation += 1
        self.write_bytes(encode_request(request, version, self._correlation, self._client_id))
        return self._correlation

    def write_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)

    def write_eof(self) -> None:
        """Close the sending side."""
        self._writer.write_eof()

    def abort(self) -> None:
        """Abort the connection."""
        self._writer.transport.abort()

    async def read_frame(self) -> bytes:
        """Return the next frame without its size; IncompleteReadError at the end of the stream."""
        (size,) = _SIZE.unpack(await self._reader.readexactly(4))
        return await self._reader.readexactly(size)

    async def read(self, request_class: type[Request], version: int, correlation: int) -> Any:
        """Read the next frame as the response to a request."""
        frame = await self.read_frame()
        came, offset = decode_response_header(frame, request_class.API_KEY, version)
        assert came == correlation
        return request_class.RESPONSE.decode(frame, version, offset)

    async def call(self, request: Request, version: int) -> Any:
        """Send a request and read its response."""
        return await self.read(type(request), version, self.write(request, version))

    async def read_end(self) -> bytes:
        """Return the bytes up to the connection's end."""
        try:
            return await self._reader.read()
        except ConnectionResetError:
            return b""

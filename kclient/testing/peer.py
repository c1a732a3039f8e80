"""``Peer``: a broker's connection to another broker, to fetch from it. Shares nothing with clients.

One request at a time, as a follower needs no more; responses come in callbacks, so that a broker
needs no task. Used by ``replication.py`` alone; it must not depend on the kinds of requests.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import TypeVar, cast

from kclient.errors import ProtocolError
from kclient.protocol.headers import decode_response_header, encode_request
from kclient.protocol.message import Request, Response
from kclient.testing.refused import Refused

R = TypeVar("R", bound=Response)

_SIZE = struct.Struct(">i")


class Peer(asyncio.Protocol):
    """One connection.

    Args:
        client_id: The client id that it sends.
        lost: Called once with the reason when the connection is lost, unless ``close`` ended it.
    """

    def __init__(self, client_id: str, lost: Callable[[str], None]) -> None:
        self._client_id = client_id
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._closed = False
        self._buffer = bytearray()
        self._correlation = 0
        self._waiting: Callable[[memoryview], None] | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether a request has no response yet."""
        return self._waiting is not None

    def call(
        self, request: Request, version: int, answer: type[R], done: Callable[[R], None]
    ) -> None:
        """Send a request; ``done`` gets the response, unless the connection is lost before."""
        self._correlation += 1

        def decode(frame: memoryview) -> None:
            correlation, start = decode_response_header(frame, answer.API_KEY, version)
            if correlation != self._correlation:
                raise ProtocolError(f"answer {correlation} to request {self._correlation}")
            done(answer.decode(frame, version, start))

        self._waiting = decode
        if self._transport is not None:
            self._transport.write(
                encode_request(request, version, self._correlation, self._client_id)
            )

    def close(self) -> None:
        """Abort the connection; ``lost`` is not called."""
        self._closed = True
        self._waiting = None
        if self._transport is not None:
            self._transport.abort()

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) < _SIZE.size:
            return
        (size,) = _SIZE.unpack_from(self._buffer)
        if len(self._buffer) < _SIZE.size + size:
            return
        frame = bytes(memoryview(self._buffer)[_SIZE.size : _SIZE.size + size])
        del self._buffer[: _SIZE.size + size]
        decode, self._waiting = self._waiting, None
        if decode is None or self._closed:
            return
        try:
            decode(memoryview(frame))
        except (ProtocolError, Refused) as error:  # a test may have made this response
            self.close()
            self._lost(str(error))

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if not self._closed:
            self._closed = True
            self._waiting = None
            self._lost(str(error or "the connection ended"))

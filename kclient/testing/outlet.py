"""``Outlet``: the way out of a broker's connection; what its transport doesn't take yet waits here.

``connection.Channel`` has one. While it is ``clogged`` no further request is served, as in Kafka: a
client that asks and doesn't read holds one answer here, and not all of them.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque

_WRITE_BYTES = 256 << 10
"""Handed to the transport at once: what it can't send it copies, so not all of a large answer."""
_NO_LINGER = struct.pack("ii", 1, 0)
"""SO_LINGER of a socket that is reset when it is closed."""


class Outlet:
    """Bytes that leave, in order.

    Attributes:
        clogged: The transport, or this, holds more than it should.
    """

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._queue: deque[memoryview] = deque()
        self._paused = False
        self._ending = False
        self.clogged = False

    def open(self, transport: asyncio.Transport) -> None:
        """Begin."""
        self._transport = transport

    def lost(self) -> None:
        """The connection is gone."""
        self._transport = None
        self._queue.clear()

    def write(self, data: bytes | bytearray) -> None:
        """Send, now or later."""
        if self._transport is None or self._ending:
            return
        if not self.clogged and len(data) <= _WRITE_BYTES:
            self._transport.write(data)
            return
        self._queue.append(memoryview(data))
        self._write_on()

    def pause(self) -> None:
        """The transport has enough."""
        self._paused = self.clogged = True

    def resume(self) -> None:
        """The transport takes more."""
        self._paused = False
        self._write_on()

    def finish(self) -> None:
        """Close when all that was written is sent."""
        self._ending = True
        if not self._queue and self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        """End the connection with a reset; what was written may be lost."""
        if self._transport is None:
            return
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._transport.abort()

    def _write_on(self) -> None:
        queue = self._queue
        while queue and not self._paused and self._transport is not None:
            data = queue.popleft()
            if len(data) > _WRITE_BYTES:
                queue.appendleft(data[_WRITE_BYTES:])
            self._transport.write(data[:_WRITE_BYTES])
        self.clogged = self._paused or bool(queue)
        if self._ending and not queue and self._transport is not None:
            self._transport.close()

"""A blocking connection to a real broker that speaks the generated messages.

The three nodes of `tests.support.nodes` are administered and watched through it, from threads of
their own. It must not use kclient's network or its clients: what a test measures of them is
compared with what is seen here.
"""

from __future__ import annotations

import socket
import struct
from typing import Self, TypeVar

from kclient.protocol import api_versions
from kclient.protocol.headers import decode_response_header, encode_request
from kclient.protocol.message import Request, Response

ANSWER = TypeVar("ANSWER", bound=Response)
CLIENT_ID = "kclient-tests"


class RawConnection:
    """One connection; every failure of it is an OSError.

    Args:
        address: Host and port.
        timeout: Seconds for the connection, and for each response.
    """

    def __init__(self, address: tuple[str, int], timeout: float = 5.0) -> None:
        self._socket = socket.create_connection(address, timeout=timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._asked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def ask(self, request: Request, version: int, kind: type[ANSWER]) -> ANSWER:
        """Send a request and wait for its response, which is of the class ``kind``."""
        if api_versions.request_class(request.API_KEY).RESPONSE is not kind:
            raise TypeError(f"{type(request).__name__} isn't answered by {kind.__name__}")
        self._asked += 1
        self._socket.sendall(encode_request(request, version, self._asked, CLIENT_ID))
        (size,) = struct.unpack(">i", self._read(4))
        frame = self._read(size)
        answers, start = decode_response_header(frame, request.API_KEY, version)
        if answers != self._asked:
            raise ConnectionError(f"answer {answers} came where {self._asked} was due")
        return kind.decode(frame, version, start)

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise ConnectionError("the broker closed the connection before it answered")
            parts += part
        return bytes(parts)


def ask_once(
    address: tuple[str, int], request: Request, version: int, kind: type[ANSWER], timeout: float
) -> ANSWER:
    """Ask over a connection of its own."""
    with RawConnection(address, timeout) as connection:
        return connection.ask(request, version, kind)

"""Single connections to one address, without retries: TCP, TLS, and requests one after the other.

Nothing here knows what an error means. Attempts that run side by side, and further connections have
time-outs of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import kclient
from kclient.doctor.causes import Peer
from kclient.doctor.certificate import Certificate, certificate_of
from kclient.errors import InvalidFrame, KafkaError, ProtocolError
from kclient.network.dialer import certified_name
from kclient.network.handshake import ClientInformation, Handshake
from kclient.protocol.headers import decode_response_header, encode_request

if TYPE_CHECKING:
    from kclient.network.dialer import SocketAddress
    from kclient.protocol.api_versions import NodeApiVersions
    from kclient.protocol.message import Request, Response

_SIZE = struct.Struct(">i")
_MAX_FRAME_BYTES = 16 * 1024 * 1024
"""More than the metadata of any cluster without its topics."""
_CLIENT_ID = "kclient-doctor"
_HTTP_REQUEST = b"GET / HTTP/1.0\r\n\r\n"
FAILURES = (OSError, EOFError, ValueError, KafkaError)
"""What connections and requests raise: TLS's errors and time-outs are OSErrors, and what is no host
name is a ValueError."""


class Wire:
    """One open connection. ``close`` it in any case.

    Args:
        where: The peer, for texts.
        client_id: Of the request headers.
        reader, writer: Its streams.

    Attributes:
        versions: What the broker supports; None before ``negotiate``.
    """

    def __init__(
        self,
        where: str,
        client_id: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.versions: NodeApiVersions | None = None
        self._where = where
        self._client_id = client_id
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0

    def close(self) -> None:
        """Drop the connection at once."""
        self._writer.transport.abort()

    @property
    def tls(self) -> ssl.SSLObject | None:
        """The state of TLS; None without it."""
        found: ssl.SSLObject | None = self._writer.get_extra_info("ssl_object")
        return found

    async def negotiate(self) -> NodeApiVersions:
        """Ask for the broker's versions, as the client does.

        Raises:
            KafkaError: The answer isn't Kafka's, or there is no common version.
            OSError, EOFError: The connection ended.
        """
        identity = ClientInformation(self._client_id, _CLIENT_ID, kclient.__version__)
        handshake = Handshake(identity, self._where, -1)
        step = handshake.begin()
        while True:
            frame = await self._exchange(*step)
            following = handshake.advance(memoryview(frame))
            if following is None:
                break
            step = following
        assert handshake.versions is not None
        self.versions = handshake.versions
        return self.versions

    async def ask(self, request: Request) -> Response:
        """Send a request in the highest version that both sides know; return its response.

        Raises:
            KafkaError: The answer isn't Kafka's, or there is no common version.
            OSError, EOFError: The connection ended.
        """
        assert self.versions is not None
        version = self.versions.usable[type(request), None]
        frame = await self._exchange(request, version)
        _, offset = decode_response_header(frame, request.API_KEY, version)
        response: Response = request.RESPONSE.decode(frame, version, offset)
        return response

    async def first_bytes(self, data: bytes) -> bytes:
        """Send ``data``; return what the peer sends first, empty if it closes."""
        self._writer.write(data)
        return await self._reader.read(64)

    async def _exchange(self, request: Request, version: int) -> bytes:
        self._correlation_id += 1
        self._writer.write(encode_request(request, version, self._correlation_id, self._client_id))
        start = await self._reader.readexactly(_SIZE.size)
        (size,) = _SIZE.unpack(start)
        if not _SIZE.size <= size <= _MAX_FRAME_BYTES:
            raise InvalidFrame(f"the answer begins with {start + await self._reader.read(28)!r}")
        frame = await self._reader.readexactly(size)
        if _SIZE.unpack_from(frame)[0] != self._correlation_id:
            raise ProtocolError("the answer is to another request")
        return frame


async def connect(
    addresses: Sequence[SocketAddress], timeout: float
) -> list[socket.socket | Exception]:
    """Connect to all addresses at once.

    Returns:
        For each address a socket, or the reason why there is none. Only the first socket is open.

    Cancellation: nothing stays open.
    """
    opened: list[socket.socket] = []
    kept: socket.socket | None = None
    try:
        outcomes = await asyncio.gather(*(_attempt(one, opened, timeout) for one in addresses))
        kept = next((one for one in outcomes if isinstance(one, socket.socket)), None)
    finally:
        for sock in opened:
            if sock is not kept:
                sock.close()
    return outcomes


async def _attempt(
    address: SocketAddress, opened: list[socket.socket], timeout: float
) -> socket.socket | Exception:
    try:
        async with asyncio.timeout(timeout):
            opened.append(sock := await _connected(address))
    except OSError as error:
        return error
    return sock


async def _connected(address: SocketAddress) -> socket.socket:
    family, where = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, where)
    except BaseException:
        sock.close()
        raise
    return sock


async def wire_over(
    sock: socket.socket, context: ssl.SSLContext | None, host: str, client_id: str
) -> Wire:
    """Speak over a connected socket, which is the wire's from now on; by TLS with a ``context``.

    Raises:
        OSError: TLS failed.

    Cancellation: the socket is closed.
    """
    name = certified_name(host) if context is not None else None
    reader, writer = await asyncio.open_connection(sock=sock, ssl=context, server_hostname=name)
    return Wire(host, client_id, reader, writer)


@contextlib.asynccontextmanager
async def further_wire(
    address: SocketAddress, context: ssl.SSLContext | None, host: str, timeout: float
) -> AsyncIterator[Wire]:
    """One more connection, for ``timeout`` seconds at most.

    Raises:
        OSError: It can't be opened, TLS failed, or the time is over.
    """
    async with asyncio.timeout(timeout):
        wire = await wire_over(await _connected(address), context, host, _CLIENT_ID)
        try:
            yield wire
        finally:
            wire.close()


def certificate_on(wire: Wire) -> Certificate | None:
    """The peer's certificate."""
    if wire.tls is None:
        return None
    return certificate_of(wire.tls.getpeercert(binary_form=True), wire.tls.getpeercert())


async def unverified_certificate(
    address: SocketAddress, host: str, timeout: float
) -> tuple[bool, Certificate | None]:
    """Whether the peer speaks TLS, and its certificate; nothing is sent over that connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with contextlib.suppress(*FAILURES):
        async with further_wire(address, context, host, timeout) as wire:
            return True, certificate_on(wire)
    return False, None


async def late_alert(
    address: SocketAddress, context: ssl.SSLContext, host: str, timeout: float
) -> ssl.SSLError | None:
    """What the peer has against us in TLS 1.3, where that comes after the handshake.

    Nothing is sent: the peer would close the connection with unread bytes, and so reset it, by
    which the alert can get lost.
    """
    try:
        async with further_wire(address, context, host, timeout) as wire:
            await wire.first_bytes(b"")
    except ssl.SSLError as error:
        return error
    except FAILURES:
        pass
    return None


async def identify(
    address: SocketAddress, host: str, context: ssl.SSLContext | None, timeout: float
) -> Peer:
    """What listens there, after a client with that ``context`` had no answer of Kafka's."""
    (tls, _), kafka, http = await asyncio.gather(
        unverified_certificate(address, host, timeout),
        _speaks_kafka(address, host, timeout),
        asyncio.gather(*(_speaks_http(address, host, one, timeout) for one in {context, None})),
    )
    if any(http):
        return Peer.HTTP
    if kafka:
        return Peer.KAFKA
    return Peer.TLS if tls else Peer.UNKNOWN


async def _speaks_kafka(address: SocketAddress, host: str, timeout: float) -> bool:
    with contextlib.suppress(*FAILURES):
        async with further_wire(address, None, host, timeout) as wire:
            await wire.negotiate()
            return True
    return False


async def _speaks_http(
    address: SocketAddress, host: str, context: ssl.SSLContext | None, timeout: float
) -> bool:
    with contextlib.suppress(*FAILURES):
        async with further_wire(address, context, host, timeout) as wire:
            return (await wire.first_bytes(_HTTP_REQUEST)).startswith(b"HTTP/")
    return False

"""Opens TCP and TLS connections: name lookup, every address in turn, socket options, time-outs.

``TcpDialer`` is the real network behind ``hooks.Dialer``; the selector calls it, once per
connection. It must not decide when to dial or whether to try again.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from kclient.errors import BrokerUnreachable
from kclient.network.channel import Channel
from kclient.network.threads import in_thread

if TYPE_CHECKING:
    from kclient.clock import Clock
    from kclient.hooks import DialTarget

TLS_SHUTDOWN_TIMEOUT = 2.0
"""Seconds for a peer to answer our goodbye; Python's own default of 30 would hold up close()."""

PROBE_TIME = 0.25
"""Seconds for which a connection without any bytes must stay open to show a plaintext listener."""

NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"})
"""OpenSSL's words for bytes that are no TLS at all."""

SocketAddress: TypeAlias = tuple[int, Any]
"""Address family, and what ``socket.connect`` takes for it."""
Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[SocketAddress]]]
"""Gives all addresses of a host, in the order to try them; raises OSError."""


async def resolve(host: str, port: int) -> Sequence[SocketAddress]:
    """All stream addresses of ``host``, looked up in a thread that ends with the look-up.

    A slow name server so holds up neither the loop, nor others that use the loop's own threads,
    nor the end of the process. An address in digits needs no thread.
    """
    try:
        return _addresses(host, port, socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass
    return await in_thread(lambda: _addresses(host, port, 0), "kclient-dns")


def _addresses(host: str, port: int, flags: int) -> Sequence[SocketAddress]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return list(dict.fromkeys((int(family), address) for family, _, _, _, address in found))


class TcpDialer:
    """Dials over TCP, with TLS where the target has a context. Has no task of its own.

    Each dial looks the name up again and tries every address in turn; an address may use its share
    of the time that is left, for the handshake of a ``Channel``, too. The address of the last
    connection is first as long as the target has no failures, else the one tried longest ago.

    Args:
        clock: For the time that is left.
        send_buffer: SO_SNDBUF in bytes; None leaves the system's.
        receive_buffer: SO_RCVBUF in bytes; None leaves the system's.
        resolver: Looks names up.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        send_buffer: int | None = None,
        receive_buffer: int | None = None,
        resolver: Resolver = resolve,
    ) -> None:
        self._clock = clock
        self._send_buffer = send_buffer
        self._receive_buffer = receive_buffer
        self._resolver = resolver
        self._hang_ups: dict[tuple[str, int], int] = {}  # dials in a row that TLS ended like that
        self._spoke_tls: set[tuple[str, int]] = set()
        self._tried: dict[tuple[str, int], list[SocketAddress]] = {}  # latest last

    async def dial(
        self, target: DialTarget, protocol_factory: Callable[[], asyncio.BaseProtocol]
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect, TLS included.

        Args:
            target: Where to, and in how many seconds.
            protocol_factory: Called once TCP is connected.

        Returns:
            The open transport and its protocol.

        Raises:
            BrokerUnreachable: Not resolvable, refused, not in time, or TLS failed. The text has
                each address and its reason; ``__cause__`` is the last reason.

        Cancellation: nothing stays open.
        """
        deadline = self._clock.now() + target.setup_timeout
        addresses = await self._resolve(target, target.setup_timeout)
        reasons: list[str] = []
        hang_ups = 0
        last: Exception | None = None
        tried = self._tried[target.host, target.port]
        for index, address in enumerate(addresses):
            share = (deadline - self._clock.now()) / (len(addresses) - index)
            if address in tried:
                tried.remove(address)
            tried.append(address)
            until = self._clock.now() + share
            made = protocol_factory if len(addresses) == 1 else _limited(protocol_factory, until)
            try:
                async with asyncio.timeout(share):
                    opened = await self._open(target, address, made)
            except TimeoutError as error:
                reasons.append(f"{_text(address)}: {_timed_out(error, share)}")
                last = error
            except (OSError, ssl.SSLError) as error:
                reasons.append(f"{_text(address)}: {reason_of(error)}")
                hang_ups += _hung_up(error)
                last = error
            else:
                if target.ssl_context is not None:
                    self._spoke_tls.add((target.host, target.port))
                return opened
        unreachable = _unreachable(target, "; ".join(reasons), last)
        if hang_ups == len(addresses) and target.ssl_context is not None:
            if await self._is_plaintext(target, addresses[-1], deadline):
                unreachable.retriable = False  # it would be the same again
        else:
            self._hang_ups.pop((target.host, target.port), None)
        raise unreachable

    async def _is_plaintext(
        self, target: DialTarget, address: SocketAddress, deadline: float
    ) -> bool:
        """Whether a listener that hung up on TLS twice in a row is a plaintext one.

        Such a one keeps a connection on which nothing is sent. A broker that stops, or a balancer
        without a back end, closes it or refuses it.
        """
        key = target.host, target.port
        self._hang_ups[key] = count = self._hang_ups.get(key, 0) + 1
        if count < 2 or key in self._spoke_tls:
            return False
        loop = asyncio.get_running_loop()
        connected = False
        with socket.socket(address[0], socket.SOCK_STREAM) as sock:
            sock.setblocking(False)
            try:
                async with asyncio.timeout(min(PROBE_TIME, deadline - self._clock.now())):
                    await loop.sock_connect(sock, address[1])
                    connected = True
                    await loop.sock_recv(sock, 1)
            except TimeoutError:
                return connected
            except OSError:
                return False
        return False

    async def _resolve(self, target: DialTarget, timeout: float) -> Sequence[SocketAddress]:
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._resolver(target.host, target.port)
        except TimeoutError as error:
            raise _unreachable(
                target, f"the name server gave no answer in {timeout:.3g} s", error
            ) from error
        except (OSError, UnicodeError) as error:
            unreachable = _unreachable(target, f"it can't be resolved: {reason_of(error)}", error)
            unreachable.hint = "check the name: a client's first argument is its bootstrap address"
            raise unreachable from error
        if not addresses:
            raise _unreachable(target, "it resolves to no address", None)
        return self._in_order(target, addresses)

    def _in_order(
        self, target: DialTarget, addresses: Sequence[SocketAddress]
    ) -> Sequence[SocketAddress]:
        key = target.host, target.port
        tried = self._tried[key] = [each for each in self._tried.get(key, ()) if each in addresses]
        if not target.failures:
            return sorted(addresses, key=lambda address: address not in tried[-1:])
        return sorted(addresses, key=lambda each: tried.index(each) if each in tried else -1)

    async def _open(
        self,
        target: DialTarget,
        address: SocketAddress,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        loop = asyncio.get_running_loop()
        family, where = address
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            self._set_options(sock)
            await loop.sock_connect(sock, where)
            protocol = protocol_factory()
        except BaseException:
            sock.close()
            raise
        # From here on the socket is the loop's, which closes it however this ends.
        context = target.ssl_context
        if context is None:
            return await loop.create_connection(lambda: protocol, sock=sock)
        return await loop.create_connection(
            lambda: protocol,
            sock=sock,
            ssl=context,
            server_hostname=certified_name(target.host),
            ssl_handshake_timeout=target.setup_timeout,
            ssl_shutdown_timeout=TLS_SHUTDOWN_TIMEOUT,
        )

    def _set_options(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._send_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer)
        if self._receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)


def certified_name(host: str) -> str:
    """``host`` as certificates have it: without the root's dot, and the zone of IPv6."""
    return host.rstrip(".").partition("%")[0]


def _limited(
    protocol_factory: Callable[[], asyncio.BaseProtocol], until: float
) -> Callable[[], asyncio.BaseProtocol]:
    def make() -> asyncio.BaseProtocol:
        protocol = protocol_factory()
        if isinstance(protocol, Channel):
            protocol.limit_setup(until)
        return protocol

    return make


def _unreachable(target: DialTarget, why: str, cause: Exception | None) -> BrokerUnreachable:
    host = f"[{target.host}]" if ":" in target.host else target.host
    error = BrokerUnreachable(
        f"{host}:{target.port} can't be reached: {why}", hint=_hint(target, cause)
    )
    if isinstance(cause, ssl.SSLCertVerificationError) or _speaks_no_tls(cause):
        error.retriable = False  # it would be the same again
    error.__cause__ = cause
    return error


def _speaks_no_tls(cause: Exception | None) -> bool:
    """The peer answered our TLS greeting with something else."""
    return isinstance(cause, ssl.SSLError) and cause.reason in NO_TLS


def _hung_up(cause: Exception | None) -> bool:
    return isinstance(cause, (ConnectionResetError, ConnectionAbortedError, BrokenPipeError))


def _timed_out(error: Exception, share: float) -> str:
    return f"no connection within {max(share, 0.0):.3g} s" if not str(error) else str(error)


def reason_of(error: Exception) -> str:
    """Why there is no connection: in the words of the system, or of OpenSSL."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    if isinstance(error, OSError) and error.errno:
        # The loops put the address in front of the system's words, and the text has it already.
        return os.strerror(error.errno) if error.errno > 0 else str(error.strerror)
    if isinstance(error, ConnectionResetError):
        return str(error) or "the peer hung up"
    return str(error) or type(error).__name__


def _hint(target: DialTarget, cause: Exception | None) -> str | None:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return "trust its authority with security=Security.tls(ca_file=...), or check the host name"
    if isinstance(cause, ssl.SSLError) or (_hung_up(cause) and target.ssl_context is not None):
        return "is that listener plaintext, or does it want a client certificate?"
    if isinstance(cause, ConnectionRefusedError):
        return "is a broker running there?"
    return None


def _text(address: SocketAddress) -> str:
    family, where = address
    if family == socket.AF_INET6:
        return f"[{where[0]}]:{where[1]}"
    return f"{where[0]}:{where[1]}" if family == socket.AF_INET else str(where)

"""Listeners of brokers, for clients and for each other: loopback sockets, or a ``MemoryNet``.

``check_address`` is called by ``Cluster`` before it opens any: hosts must be addresses that clients
can connect to, with ports in a row. Whether a port is free shows only at the start: the operating
system's error then gets a note on the broker's state and on what to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kclient.errors import InvalidArgument

if TYPE_CHECKING:
    import ssl

    from kclient.testing.memory_net import Listener, MemoryNet

MAX_PORT = 65_535
WILDCARDS = frozenset(("", "*", "0.0.0.0", "::", "[::]"))

Server: TypeAlias = "asyncio.Server | Listener"
Factory: TypeAlias = Callable[[], asyncio.BaseProtocol]

INNER = 0
"""Connection number of all connections from other brokers; those of clients count from 1."""


def check_address(host: str, port: int, brokers: int) -> None:
    """Check that the host is an address and that all ports are valid.

    Raises:
        InvalidArgument: One is not; the text names what is allowed.
    """
    if not isinstance(host, str) or host in WILDCARDS:
        raise InvalidArgument(
            f"host={host!r} must be an address that clients connect to, as metadata has it"
        )
    most = MAX_PORT + 1 - brokers
    if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= most:
        raise InvalidArgument(
            f"port={port!r} must be 0 (any that is free) or 1 to {most}: "
            f"the {brokers} brokers have ports in a row"
        )


def address_of(host: str, port: int) -> str:
    """``host:port`` as a bootstrap list takes it: an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@contextlib.contextmanager
def noted(note: str) -> Iterator[None]:
    """Add a note to the OSError of an address that can't be bound."""
    try:
        yield
    except OSError as error:
        error.add_note(note)
        raise


def not_started(node_id: int, at: str) -> str:
    """The note when a broker can't listen and so its cluster doesn't start."""
    return (
        f"broker {node_id} can't listen at {at}, so the cluster isn't started: "
        "port=0 finds free ports, and host= must be of this machine"
    )


def stays_down(node_id: int, wanted: str, address: str) -> str:
    """The note when a broker can't be restarted."""
    return (
        f"broker {node_id} can't listen at {wanted}; it is down, and its address is still "
        f"{address}: restart({node_id}) brings it back there, move({node_id}) elsewhere"
    )


class Address(NamedTuple):
    """Where a broker listens.

    Attributes:
        network: None for sockets.
    """

    host: str
    port: int
    network: MemoryNet | None = None


async def listen(
    address: Address, factory: Factory, context: ssl.SSLContext | None = None
) -> tuple[Server, int]:
    """Open a listener; return it and its port, a free one if 0 was given.

    With a ``context`` it speaks TLS, which sockets do only.

    Raises:
        OSError: It can't be opened.

    Cancellation: nothing stays open.
    """
    if address.network is None:
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                factory, address.host, address.port, ssl=context, start_serving=False
            )
        except socket.gaierror as error:
            why = f"{address.host!r} is no address of this machine: {error.strerror}"
            raise OSError(error.errno, why) from error
        try:
            await server.start_serving()
        except BaseException:  # a cancelled create_server would leave it open
            accept_no_more(server)
            loop.call_soon(server.close)  # once connections of this iteration are attached
            raise
        return server, int(server.sockets[0].getsockname()[1])
    listener = address.network.listen(factory, address.host, address.port)
    return listener, listener.port


def accept_no_more(server: Server) -> None:
    """Accept no more connections, so that none is being set up when the server is closed.

    asyncio fails silently on such a connection and leaves its socket open (``Server._attach``).
    """
    if isinstance(server, asyncio.Server):
        for one in server.sockets:
            with contextlib.suppress(NotImplementedError):
                asyncio.get_running_loop().remove_reader(one.fileno())


async def shut(servers: Sequence[Server]) -> None:
    """Close listeners. Cancellation: they are closed."""
    for one in servers:
        accept_no_more(one)
    try:
        if any(isinstance(one, asyncio.Server) for one in servers):
            await asyncio.sleep(0)  # for a connection accepted in this loop iteration
    finally:
        for one in servers:
            one.close()

"""Where brokers listen, for clients and for each other: loopback sockets, or a ``MemoryNet``."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from kclient.testing.memory_net import Listener, MemoryNet

Server: TypeAlias = "asyncio.Server | Listener"
Factory: TypeAlias = Callable[[], asyncio.BaseProtocol]

INNER = 0
"""Connection number of all connections from other brokers; those of clients count from 1."""


class Address(NamedTuple):
    """Where a broker listens.

    Attributes:
        network: None for sockets.
    """

    host: str
    port: int
    network: MemoryNet | None = None


async def listen(address: Address, factory: Factory) -> tuple[Server, int]:
    """Open a listener; return it and its port, a free one if 0 was given.

    Raises:
        OSError: It can't be opened.

    Cancellation: nothing stays open.
    """
    if address.network is None:
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                factory, address.host, address.port, start_serving=False
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

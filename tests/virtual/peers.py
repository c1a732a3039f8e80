"""Both ends of a connection in memory, for tests of the network itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from kclient.hooks import DialTarget
from kclient.testing import MemoryNet, VirtualLoop


class Peer(asyncio.Protocol):
    """Notes what happens to it."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.pieces: list[int] = []
        self.events: list[str] = []
        self.error: Exception | None = None
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.events.append("made")
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.got += data
        self.pieces.append(len(data))

    def eof_received(self) -> bool:
        self.events.append("eof")
        return False

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")
        self.error = exc


def network() -> MemoryNet:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.network


async def pair(
    net: MemoryNet, make: Callable[[], Peer] = Peer, host: str = "b"
) -> tuple[Peer, Peer]:
    servers: list[Peer] = []

    def accept() -> Peer:
        servers.append(make())
        return servers[-1]

    listener = net.listen(accept, host, 1)
    _, client = await net.dial(DialTarget(host, 1), make)
    await asyncio.sleep(1)
    listener.close()
    return cast(Peer, client), servers[0]


async def ends(*peers: Peer) -> None:
    """Nothing stays open after a test."""
    for peer in peers:
        peer.transport.abort()
    await asyncio.sleep(5)

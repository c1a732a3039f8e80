"""Common parts of the network's tests on virtual time: a relay that tampers with frames.

A ``Relay`` takes the place of a broker under its name: clients connect to it, and it passes their
bytes on to the broker and back, frame by frame, through the functions of a test. ``Watcher`` keeps
what clients report to their observers.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, cast

import kclient
from kclient.cluster.core import ClientCore
from kclient.cluster.view import Cluster as Cluster_
from kclient.config import CommonConfig
from kclient.hooks import ConnectionClosed, ConnectionOpened, Event, RequestCompleted
from kclient.protocol.headers import decode_request_header
from kclient.testing import Cluster, MemoryNet, VirtualLoop

_SIZE = struct.Struct(">i")

READ: dict[str, Any] = {"auto_offset_reset": "earliest", "fetch_max_wait": 0.05}
"""Settings of a consumer that reads all there is, quickly."""


def network() -> MemoryNet:
    """The network of the loop that the test runs on."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.network


def now() -> float:
    """Virtual seconds."""
    return asyncio.get_running_loop().time()


class Watcher:
    """An observer that keeps what was reported to it, with the time."""

    def __init__(self) -> None:
        self.reported: list[tuple[float, Event]] = []

    def observe(self, event: Event, /) -> None:
        self.reported.append((now(), event))

    @property
    def opened(self) -> list[ConnectionOpened]:
        """Connections that became usable."""
        return [event for _, event in self.reported if isinstance(event, ConnectionOpened)]

    @property
    def closed(self) -> list[ConnectionClosed]:
        """Connections that ended."""
        return [event for _, event in self.reported if isinstance(event, ConnectionClosed)]

    def completed(self, api: str) -> list[tuple[float, RequestCompleted]]:
        """Requests of one API that came to an end, and when."""
        return [
            (at, e) for at, e in self.reported if isinstance(e, RequestCompleted) and e.api == api
        ]


class Asked(NamedTuple):
    """One request that passed a relay."""

    api_key: int
    version: int
    correlation_id: int
    frame: bytes


class Frames:
    """Cuts bytes into frames."""

    def __init__(self) -> None:
        self._held = bytearray()

    def take(self, data: bytes) -> Iterable[bytes]:
        """The frames that are complete with ``data``, without their sizes."""
        self._held += data
        while len(self._held) >= 4:
            (size,) = _SIZE.unpack_from(self._held)
            if len(self._held) < 4 + size:
                return
            frame = bytes(self._held[4 : 4 + size])
            del self._held[: 4 + size]
            yield frame


class Session(asyncio.Protocol):
    """One client's connection to a relay, and the one that it has to the broker.

    Attributes:
        asked: Requests that passed, oldest first.
        at: When it was opened.
    """

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._frames = Frames()
        self._waiting: deque[Asked] = deque()
        self._back: asyncio.Transport
        self._front: asyncio.Transport
        self.asked: list[Asked] = []
        self.at = now()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._front = cast(asyncio.Transport, transport)
        back, _ = network().connect(self._relay.broker, self._relay.port, lambda: _Back(self))
        self._back = cast(asyncio.Transport, back)
        self._relay.sessions.append(self)

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.take(data):
            header = decode_request_header(frame)
            asked = Asked(header.api_key, header.api_version, header.correlation_id, frame)
            self.asked.append(asked)
            self._waiting.append(asked)
            for passed in self._relay.on_request(self, asked):
                self._back.write(_SIZE.pack(len(passed)) + passed)

    def answered(self, frame: bytes) -> None:
        """Take the broker's response to the oldest request."""
        for passed in self._relay.on_answer(self, self._waiting.popleft(), frame):
            self.say(passed)

    def say(self, frame: bytes) -> None:
        """Send a frame to the client."""
        self._front.write(_SIZE.pack(len(frame)) + frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self._back.abort()

    def close(self) -> None:
        """Close it in good order, as a broker closes an idle connection."""
        self._front.close()

    def broker_gone(self) -> None:
        """Note that the broker ended the connection."""
        self._front.close()


class _Back(asyncio.Protocol):
    """The relay's own connection to the broker."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._frames = Frames()

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.take(data):
            self._session.answered(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self._session.broker_gone()


class Relay:
    """Stands in for a broker.

    Args:
        broker: Its host on the network.
        port: Its port.
        name: What clients call it; the broker's host by default, so that all go through here.

    Attributes:
        on_request: Given session and request; gives the frames that are passed on.
        on_answer: Given session, request and the frame of its response; the same.
        sessions: Connections of clients, oldest first.
    """

    def __init__(self, broker: str = "broker-1", port: int = 9092, name: str | None = None) -> None:
        self.broker = broker
        self.port = port
        self.sessions: list[Session] = []
        self.on_request: Callable[[Session, Asked], Iterable[bytes]] = lambda _, asked: [
            asked.frame
        ]
        self.on_answer: Callable[[Session, Asked, bytes], Iterable[bytes]] = lambda _, __, frame: [
            frame
        ]
        host = f"relay-of-{broker}"
        network().set_name(broker if name is None else name, host)
        self.listener = network().listen(lambda: Session(self), host, port)

    def asked(self, api_key: int) -> list[Asked]:
        """The requests of one API, over all connections."""
        return [one for session in self.sessions for one in session.asked if one.api_key == api_key]


def core_of(cluster: Cluster, **settings: Any) -> AbstractAsyncContextManager[ClientCore]:
    """What all clients have in common, started."""
    return _Running(ClientCore(CommonConfig.of(None, {"bootstrap": cluster.bootstrap, **settings})))


class _Running(AbstractAsyncContextManager[ClientCore]):
    def __init__(self, core: ClientCore) -> None:
        self._core = core

    async def __aenter__(self) -> ClientCore:
        await self._core.start()
        return self._core

    async def __aexit__(self, *_: object) -> None:
        await self._core.close()


def core_inside(client: Any) -> ClientCore:
    """What a producer, a consumer or an admin has in common with the others."""
    if isinstance(client, ClientCore):
        return client
    inside = client._engine.core if isinstance(client, kclient.Consumer) else client._core
    return cast(ClientCore, inside)


async def refresh(client: Any) -> Cluster_:
    """Have a client request metadata once; return the new view."""
    core = core_inside(client)
    seen = core.metadata.view.version
    core.metadata.request_update()
    return await core.metadata.wait_newer(seen, 30.0)


def values(cluster: Cluster, topic: str = "t", partition: int = 0) -> list[bytes]:
    """What is in a log."""
    return [record.value or b"" for record in cluster.records(topic, partition)]


async def sent_in_order(
    producer: kclient.Producer[Any, Any], count: int, *, partition: int = 0, first: int = 0
) -> None:
    """Send numbers one after the other, each when the one before is acknowledged."""
    for number in range(first, first + count):
        await producer.send("t", b"%d" % number, partition=partition)


def numbers(count: int) -> list[bytes]:
    """What ``sent_in_order`` leaves in a log."""
    return [b"%d" % number for number in range(count)]


async def read(consumer: Any, count: int) -> list[bytes]:
    """Poll until ``count`` values came."""
    found: list[bytes] = []
    async with asyncio.timeout(300.0):
        while len(found) < count:
            found += [record.value for record in await consumer.poll(timeout=1.0)]
    return found

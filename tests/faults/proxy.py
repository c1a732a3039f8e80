"""The entry point: ``FaultProxy`` listens for clients in the place of each broker of a cluster.

A ``ProxyListener`` is one listener before one broker; the first ones stand before the bootstrap
addresses, others are opened as responses name brokers, and every address that passes is replaced by
that of its listener. ``session.py`` handles a connection, rules define the faults. Everything runs
on the loop that entered the context, and is closed when it is left.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from typing import Self, TypeVar

from kclient.protocol.headers import decode_response_header, encode_request
from kclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kclient.testing.api_versions import ApiName, api_key_of
from tests.faults.answers import Address
from tests.faults.passage import METADATA, Ending, Passage
from tests.faults.rule import Rule
from tests.faults.session import Session

LOOPBACK = "127.0.0.1"
LEARN_TIMEOUT = 10.0
UNTIL_TIMEOUT = 30.0
_METADATA_VERSION = 1
"""The oldest that asks for no topic; every broker speaks it."""

R = TypeVar("R", bound=Rule)


class ProxyListener:
    """A port of the proxy, and the broker behind it.

    Attributes:
        upstream: Where the broker is.
        address: Where clients find it.
        node: Its node id, once a response named it.
    """

    def __init__(self, upstream: Address) -> None:
        self.upstream = upstream
        self.node: int | None = None
        self.listening = socket.create_server((LOOPBACK, 0), backlog=128)
        self.listening.setblocking(False)
        self.address: Address = self.listening.getsockname()


class FaultProxy:
    """A proxy before the brokers of a cluster; ``async with`` starts and ends it.

    One task for each listener, until it listens.

    Args:
        bootstrap: Of the cluster, ``"host:port,host:port"``.
        opaque: The bytes are not Kafka's, such as those of TLS: nothing is decoded, addresses
            in responses stay, and rules see TLS records instead of frames.
        learn: Ask the cluster for its nodes first, so that all are known from the beginning.

    Attributes:
        requests: How many passed on to brokers, by number of the API.
        answers: How many passed back to clients, by number of the API.
        connections: How many clients' connections were accepted.
        cuts: How many of them rules and tests cut.
        rules: Those that act, in order.
        closing: It is about to end, or has.
        topic_names: By topic id, from Metadata responses.
    """

    def __init__(self, bootstrap: str, *, opaque: bool = False, learn: bool = True) -> None:
        self.opaque = opaque
        self.requests: Counter[int] = Counter()
        self.answers: Counter[int] = Counter()
        self.connections = 0
        self.cuts = 0
        self.rules: list[Rule] = []
        self.topic_names: dict[bytes, str] = {}
        self.loop: asyncio.AbstractEventLoop
        self._learn = learn and not opaque
        self._upstream = [_address(one) for one in bootstrap.split(",")]
        self._listeners: dict[Address, ProxyListener] = {}
        self._nodes: dict[int, ProxyListener] = {}
        self._opening: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._live: dict[Session, None] = {}
        self._all: set[Session] = set()
        self.closing = False
        self._watchers: list[asyncio.Future[None]] = []
        self._none_left = asyncio.Event()

    async def __aenter__(self) -> Self:
        self.loop = asyncio.get_running_loop()
        try:
            if self._learn:
                await self._learn_nodes()
            for address in self._upstream:
                self._listener(address)
            await asyncio.gather(*self._opening)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections and listeners, and wait for that; held frames are lost."""
        self.closing = True
        self.rules = []
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        for server in self._servers:
            server.close()
        for listener in self._listeners.values():
            listener.listening.close()
        for session in tuple(self._all):
            session.abort()
        if self._all:
            await self._none_left.wait()

    # For tests.

    @property
    def bootstrap(self) -> str:
        """The proxy's addresses in the place of the cluster's."""
        listeners = [self._listeners[address] for address in self._upstream]
        return ",".join(f"{listener.address[0]}:{listener.address[1]}" for listener in listeners)

    def address(self, node: int) -> Address:
        """Where clients find a node."""
        return self._nodes[node].address

    def add(self, rule: R) -> R:
        """Let a rule act from now on; those added first act first."""
        self.rules = [one for one in self.rules if not one.spent]
        self.rules.append(rule)
        return rule

    def remove(self, rule: Rule) -> None:
        """Remove a rule, and release what it holds."""
        self.rules = [one for one in self.rules if one is not rule]
        rule.release()

    def clear(self) -> None:
        """Remove all rules, and release what they hold."""
        for rule in tuple(self.rules):
            self.remove(rule)

    def sessions(self, node: int | None = None) -> list[Session]:
        """Connections that clients have open, oldest first; those to one node, if it is given."""
        return [one for one in self._live if node is None or one.node == node]

    def in_flight(self, api: ApiName, node: int | None = None) -> int:
        """Requests that were passed on and whose response has not passed back, of all sessions."""
        key = api_key_of(api)
        return sum(session.in_flight(key) for session in self.sessions(node))

    async def until(
        self, condition: Callable[[], object], *, timeout: float = UNTIL_TIMEOUT
    ) -> None:
        """Wait until a condition holds; checked at each frame, rule action, connect and close.

        Raises:
            TimeoutError: It wasn't in ``timeout`` seconds.
        """
        async with asyncio.timeout(timeout):
            while not condition():
                waiter = self.loop.create_future()
                self._watchers.append(waiter)
                await waiter

    # For sessions.

    def changed(self) -> None:
        """Something happened that ``until`` may wait for."""
        watchers, self._watchers = self._watchers, []
        for waiter in watchers:
            if not waiter.done():
                waiter.set_result(None)

    def judge(self, passage: Passage) -> None:
        """Ask all rules about a frame."""
        for rule in self.rules:
            if rule.wants(passage):
                rule.use()
                rule.act(passage)
                self.changed()
                if not passage.data:
                    return

    def fate_of(self, session: Session) -> Ending | None:
        """What happens to a connection that was just accepted; None: it is served."""
        for rule in self.rules:
            if rule.wants_new(session):
                rule.use()
                return rule.fate
        return None

    def moved(self, node: int, upstream: Address) -> Address:
        """Where clients shall find a broker that a response names."""
        listener = self._listener(upstream)
        if node >= 0:
            listener.node = node
            self._nodes[node] = listener
        return listener.address

    def opened(self, session: Session) -> None:
        """A client connected."""
        self.connections += 1
        self._live[session] = None
        self._all.add(session)
        self._none_left.clear()
        self.changed()

    def ended(self, session: Session) -> None:
        """A client's connection is of no more use."""
        self._live.pop(session, None)
        self.changed()

    def gone(self, session: Session) -> None:
        """Both sides of a session are closed."""
        self._all.discard(session)
        if not self._all:
            self._none_left.set()

    # Listeners.

    def _listener(self, upstream: Address) -> ProxyListener:
        upstream = (LOOPBACK, upstream[1]) if upstream[0] == "localhost" else upstream
        listener = self._listeners.get(upstream)
        if listener is None:
            listener = self._listeners[upstream] = ProxyListener(upstream)
            # Its port is open already: until the server runs, connections wait in the backlog.
            task = self.loop.create_task(self._open(listener))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
        return listener

    async def _open(self, listener: ProxyListener) -> None:
        server = await self.loop.create_server(
            lambda: Session(self, listener), sock=listener.listening
        )
        self._servers.append(server)

    async def _learn_nodes(self) -> None:
        problems: list[str] = []
        for host, port in self._upstream:
            try:
                async with asyncio.timeout(LEARN_TIMEOUT):
                    answer = await _metadata(host, port)
            except OSError as problem:
                problems.append(f"{host}:{port}: {problem!r}")
                continue
            for broker in answer.brokers:
                self.moved(broker.node_id, (broker.host, broker.port))
            return
        raise ConnectionError(f"no broker answers the proxy: {'; '.join(problems)}")


def _address(text: str) -> Address:
    host, _, port = text.strip().rpartition(":")
    return (LOOPBACK if host == "localhost" else host), int(port)


async def _metadata(host: str, port: int) -> MetadataResponse:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(encode_request(MetadataRequest(topics=[]), _METADATA_VERSION, 1, "proxy"))
        size = int.from_bytes(await reader.readexactly(4), "big")
        frame = await reader.readexactly(size)
    finally:
        writer.close()
        await writer.wait_closed()
    _, start = decode_response_header(frame, METADATA, _METADATA_VERSION)
    return MetadataResponse.decode(frame, _METADATA_VERSION, start)

"""``MemoryNet``: a network in memory, with names, delays, splits and faults, all seeded.

It is a ``hooks.Dialer`` for clients (``dialer=net``) and listens for ``Cluster(network=net)``; on
a ``VirtualLoop`` both find it by themselves. Works on any loop. TLS is not supported: its bytes
would be as opaque as on a socket. It must not inspect the bytes that it carries.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kclient.errors import BrokerUnreachable, InvalidArgument
from kclient.testing.arguments import is_number
from kclient.testing.listeners import address_of
from kclient.testing.memory_link import Direction, Link, Signal
from kclient.testing.memory_net_faults import RETRY, NetFaults

if TYPE_CHECKING:
    from kclient.hooks import DialTarget

_FIRST_PORT = 9092
_THIS_MACHINE = frozenset({"", "0.0.0.0", "::", "127.0.0.1", "::1"})
"""Other names of ``localhost``."""
_PIECES = 4
"""Maximum number of pieces that a write is split into."""


@dataclass(slots=True)
class NetStats:
    """Counts of what happened on a network so far.

    Attributes:
        connects: Connections opened.
        refused: Attempts that failed.
        cuts: Connections reset by a fault.
        splits: Writes that arrived in pieces.
        chunks: Pieces delivered.
        bytes: Bytes delivered.
    """

    connects: int = 0
    refused: int = 0
    cuts: int = 0
    splits: int = 0
    chunks: int = 0
    bytes: int = 0


class Listener(asyncio.AbstractServer):
    """A listening address, until ``close``; like the result of ``asyncio.start_server``.

    Attributes:
        host, port: The address.
        factory: Makes the protocol of each connection.
    """

    def __init__(
        self, net: MemoryNet, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self._net = net
        self._loop = asyncio.get_running_loop()
        self._serving: asyncio.Future[None] | None = None
        self._closed = False
        self.host = host
        self.port = port
        self.factory = factory

    @property
    def sockets(self) -> tuple[BoundAddress, ...]:
        """Stand-ins for its sockets, with ``getsockname()``; none once it is closed."""
        return () if self._closed else (BoundAddress(self.host, self.port),)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop that it was made on."""
        return self._loop

    def is_serving(self) -> bool:
        """Whether it is open."""
        return not self._closed

    async def start_serving(self) -> None:
        """Does nothing: it serves from the start."""

    async def serve_forever(self) -> None:
        """Wait for ``close``, which cancels this.

        Cancellation: closes it.
        """
        if self._serving is not None or self._closed:
            raise RuntimeError("it is closed, or somebody waits here already")
        self._serving = self._loop.create_future()
        try:
            await self._serving
        finally:
            self._serving = None
            self.close()

    def close(self) -> None:
        """Accept no more; open connections stay, those not accepted yet are reset."""
        if self._closed:
            return
        self._closed = True
        self._net.unlisten(self)
        if self._serving is not None:
            self._serving.cancel()

    async def wait_closed(self) -> None:
        """Returns at once: there is nothing to wait for."""


class BoundAddress:
    """Stands for the socket of a ``Listener``."""

    def __init__(self, host: str, port: int) -> None:
        self._name = host, port

    def getsockname(self) -> tuple[str, int]:
        """Host and port."""
        return self._name


class MemoryNet(NetFaults):
    """A network between clients and listeners of this process.

    Args:
        seed: Seed of all randomness in it.
        latency: Minimum and maximum seconds that a piece travels, drawn for each piece; order
            within one direction of a connection is kept.
        split: Probability that a write arrives in pieces, split at random bytes.
        cut: Probability that a connection is reset at a random byte of a write.

    Attributes:
        stats: Counts of what happened so far.
        dials: Time and address of every attempt to connect.
        events: A list to which every event is added as text; None, the default, keeps none.

    Example::

        net = kclient.testing.MemoryNet(seed=7)
        async with kclient.testing.Cluster(network=net) as cluster:
            cluster.create_topic("flights")
            async with kclient.Producer(cluster.bootstrap, dialer=net) as producer:
                net.cut_at("broker-1", byte=1000)
                await producer.send("flights", b"UA 1545")
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        latency: tuple[float, float] = (0.0002, 0.001),
        split: float = 0.0,
        cut: float = 0.0,
    ) -> None:
        super().__init__()
        self.latency = latency
        self.split = split
        self.cut_probability = _probability("cut", cut)
        self.stats = NetStats()
        self.dials: list[tuple[float, str]] = []
        self.events: list[str] | None = None
        self._rng = random.Random(checked_seed(seed))
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._opened = 0
        self._hash = hashlib.blake2b(digest_size=16)

    @property
    def latency(self) -> tuple[float, float]:
        """Minimum and maximum seconds for which a piece travels; may be set at any time."""
        return self._latency

    @latency.setter
    def latency(self, value: tuple[float, float]) -> None:
        if (
            not isinstance(value, tuple | list)
            or len(value) != 2
            or not all(map(is_number, value))
            or not 0 <= value[0] <= value[1] < math.inf
        ):
            raise InvalidArgument(f"latency={value!r} must be two durations, the lower one first")
        self._latency = value

    @property
    def split(self) -> float:
        """Probability that a write arrives in pieces; may be set at any time."""
        return self._split

    @split.setter
    def split(self, value: float) -> None:
        self._split = _probability("split", value)

    @property
    def cut_probability(self) -> float:
        """Probability that a write ends in a reset; may be set at any time."""
        return self._cut_probability

    @cut_probability.setter
    def cut_probability(self, value: float) -> None:
        self._cut_probability = _probability("cut_probability", value)

    # Entry points

    async def dial(
        self, target: DialTarget, protocol_factory: Callable[[], asyncio.BaseProtocol]
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect to a listener of this network; see ``hooks.Dialer``.

        Raises:
            BrokerUnreachable: Refused, not in time, no such name; or TLS was requested.

        Cancellation: nothing stays open.
        """
        where = address_of(target.host, target.port)
        if target.ssl_context is not None:
            raise BrokerUnreachable(f"{where} can't be reached: a MemoryNet doesn't speak TLS")
        now = asyncio.get_running_loop().time()
        self.dials.append((now, where))
        self.note("dial", where)
        try:
            async with asyncio.timeout(target.setup_timeout):
                host = await self._find(target.host, target.port, target.failures)
        except TimeoutError as error:
            raise self._unreachable(
                where, f"no connection within {target.setup_timeout:.3g} s", error
            ) from error
        except OSError as error:
            raise self._unreachable(where, error.strerror or str(error), error) from error
        return self.connect(host, target.port, protocol_factory)

    def connect(
        self, host: str, port: int, protocol_factory: Callable[[], asyncio.BaseProtocol]
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Open a connection to a listener, which the caller knows to exist."""
        loop = asyncio.get_running_loop()
        self._opened += 1
        self.stats.connects += 1
        link = self._links[self._opened] = Link(self, self._opened, host, port, loop.time())
        self.note("open", link.number, link.address)
        link.open(self._listeners[_own_name(host), port])
        protocol = protocol_factory()
        link.client.begin(protocol)
        return link.client, protocol

    def listen(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int = 0
    ) -> Listener:
        """Accept connections.

        Args:
            protocol_factory: Makes the protocol of each connection.
            host: Name to listen at. The names of this machine, such as ``localhost`` and
                ``0.0.0.0``, are equivalent.
            port: 0 for a free one.

        Raises:
            OSError: Something listens there already.
        """
        if not port:
            port = _FIRST_PORT
            while (_own_name(host), port) in self._listeners:
                port += 1
        key = _own_name(host), port
        if key in self._listeners:
            raise OSError(errno.EADDRINUSE, f"{address_of(host, port)} is listened at already")
        self.note("listen", address_of(host, port))
        self._listened |= {(host, str(port)), (host, "")}
        listener = self._listeners[key] = Listener(self, host, port, protocol_factory)
        return listener

    def unlisten(self, listener: Listener) -> None:
        """Remove a listener, as ``Listener.close`` does."""
        key = _own_name(listener.host), listener.port
        if self._listeners.get(key) is listener:
            del self._listeners[key]
            self.note("unlisten", address_of(listener.host, listener.port))

    def digest(self) -> str:
        """A hash of all events: their time, address and bytes. Equal runs have equal hashes."""
        return self._hash.hexdigest()

    # Name resolution

    async def _find(self, name: str, port: int, failures: int) -> str:
        """The host to connect to, after the latency of a round trip."""
        error = OSError(errno.EHOSTUNREACH, "it resolves to no address")
        hosts = await self.resolve(name)
        first = failures % len(hosts) if hosts else 0
        for host in (*hosts[first:], *hosts[:first]):
            await asyncio.sleep(2 * self.draw_latency())
            address = address_of(host, port)
            while self.is_blackholed(address):  # noqa: ASYNC110
                await asyncio.sleep(RETRY)
            if (_own_name(host), port) in self._listeners and not self.is_refused(address):
                return host
            error = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        raise error

    def _unreachable(self, where: str, why: str, cause: Exception) -> BrokerUnreachable:
        self.stats.refused += 1
        self.note("unreachable", where, why)
        hint = "is a broker running there?" if isinstance(cause, ConnectionRefusedError) else None
        return BrokerUnreachable(f"{where} can't be reached: {why}", hint=hint)

    # Called by links

    def draw_latency(self) -> float:
        """Seconds until the next piece arrives."""
        return self._rng.uniform(*self.latency)

    def draw_kept(self, size: int) -> int:
        """How many of the bytes in flight still arrive when their writer aborts."""
        return size if not size or self._rng.random() < 0.5 else self._rng.randrange(size)

    def draw_cut(self, size: int) -> int | None:
        """The byte of a write at which its connection is reset, None if it isn't."""
        if self.cut_probability and self._rng.random() < self.cut_probability:
            return self._rng.randrange(size + 1)
        return None

    def draw_pieces(self, address: str, data: bytes) -> list[bytes]:
        """Split written bytes into the pieces in which they arrive."""
        size = len(data)
        if not size:
            return []
        step = self.trickle_step(address)
        if step is not None:
            return [data[at : at + step] for at in range(0, size, step)]
        if size > 1 and self.split and self._rng.random() < self.split:
            self.stats.splits += 1
            cuts = sorted(
                self._rng.randrange(1, size) for _ in range(self._rng.randrange(1, _PIECES))
            )
            return [data[a:b] for a, b in zip([0, *cuts], [*cuts, size], strict=True) if a < b]
        return [data]

    def link_gone(self, link: Link) -> None:
        """Both sides of a link are closed."""
        self._links.pop(link.number, None)

    def note(self, *event: object) -> None:
        """Add an event to the digest, and, as text, to ``events`` if that is a list."""
        now = asyncio.get_running_loop().time()
        self._hash.update(f"{now!r} {event!r}\n".encode())
        if self.events is not None:
            self.events.append(f"{now:.6f} {' '.join(map(str, event))}")

    def note_data(self, link: int, direction: Direction, data: bytes) -> None:
        """Add the bytes of a delivery to the digest."""
        self.note("data", link, direction, len(data))
        self._hash.update(data)


def _own_name(host: str) -> str:
    return "localhost" if host in _THIS_MACHINE else host


def checked_seed(seed: int) -> int:
    """The seed, which must be an int, so that it gives the same run each time."""
    if type(seed) is not int:
        raise InvalidArgument(f"seed={seed!r} must be an int")
    return seed


def _probability(name: str, value: float) -> float:
    if not is_number(value) or not 0 <= value <= 1:
        raise InvalidArgument(f"{name}={value!r} must be a probability, 0 to 1")
    return value


__all__ = ["Direction", "Link", "Listener", "MemoryNet", "NetStats", "Signal"]

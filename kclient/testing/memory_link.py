"""One connection of the memory network: two transports, and a flow of bytes each way.

Made by ``MemoryNet.dial``. A flow keeps order, delivers in pieces and with delays that the network
draws, holds back while the reader is paused or the direction is frozen, and may end in a reset.
Closing, aborting and resetting look to both sides as they do with sockets: bytes written before an
abort may arrive all the same, before its reset. No task; one timer per flow.
"""

from __future__ import annotations

import asyncio
import enum
import errno
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from kclient.testing.listeners import address_of

if TYPE_CHECKING:
    from kclient.testing.memory_net import Listener, MemoryNet

Direction: TypeAlias = Literal["to_client", "to_server"]

WINDOW = 128 << 10
"""Bytes in flight that don't count as the writer's buffer: both ends' socket buffers."""
HIGH_WATER = 64 << 10
"""Bytes beyond the window above which the writer is paused, asyncio's default."""


class Signal(enum.Enum):
    """Items of a flow other than bytes."""

    ACCEPT = enum.auto()
    """The connection reaches the server."""
    END = enum.auto()
    """The writer closed: no more bytes."""
    RESET = enum.auto()
    """The other side aborted."""
    CUT = enum.auto()
    """The network cuts the connection: both sides lose it."""


class MemoryTransport(asyncio.Transport):
    """One side of a connection, as a protocol sees it."""

    def __init__(self, link: Link, name: tuple[str, int], peer: tuple[str, int]) -> None:
        super().__init__({"sockname": name, "peername": peer, "socket": None})
        self._link = link
        self._protocol: asyncio.BaseProtocol | None = None
        self._high, self._low = HIGH_WATER, HIGH_WATER // 4
        self._writing_paused = False
        self._closing = False
        self._ended = False
        self.outgoing: Flow
        self.incoming: Flow
        self.reading = True
        self.gone = False

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """Attach the protocol to this side and call its ``connection_made``."""
        self._protocol = protocol
        protocol.connection_made(self)

    # Called by protocols

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast(asyncio.BaseProtocol, self._protocol)

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self.reading and not self._closing

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True
        self.incoming.schedule()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return max(0, self.outgoing.on_the_way - WINDOW)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self.gone or self._ended or not data:
            return
        self.outgoing.write(bytes(data))
        if not self._writing_paused and self.get_write_buffer_size() > self._high:
            self._writing_paused = True
            self._notify("pause_writing")

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._ended and not self.gone:
            self._ended = True
            self.outgoing.put(Signal.END)

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self.write_eof()
        self._finish_if_written()

    def abort(self) -> None:
        if not self.gone:
            self._closing = True
            self.lose(None)
            self._link.abandoned_by(self)

    # Called by the link

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for its buffer to drain, to resume its protocol or to be closed."""
        return not self.gone and (self._writing_paused or self._closing)

    def written(self) -> None:
        """Bytes were delivered to the other side."""
        if self._writing_paused and self.get_write_buffer_size() <= self._low:
            self._writing_paused = False
            self._notify("resume_writing")
        if self._closing:
            self._finish_if_written()

    def take(self, data: bytes) -> bytes:
        """Pass bytes to the protocol; return those that it doesn't read yet."""
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            cast(asyncio.Protocol, protocol).data_received(data)
            return b""
        rest = memoryview(data)
        while rest and self.reading and not self._closing:
            buffer = memoryview(protocol.get_buffer(len(rest)))
            if not buffer:
                raise RuntimeError("get_buffer() gave an empty buffer")
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            protocol.buffer_updated(count)
            rest = rest[count:]
        return b"" if self._closing else bytes(rest)

    def take_end(self) -> None:
        """The other side closed its writing end."""
        protocol = cast(asyncio.Protocol, self._protocol)
        try:
            keeps_open = protocol.eof_received()
        except Exception as error:
            self.fail(error)
        else:
            if not keeps_open:
                self.close()

    def fail(self, error: Exception) -> None:
        """The protocol raised: as on a socket, report it to the loop and close the connection."""
        self._report(error, "Fatal error: the protocol failed")
        if not self.gone:
            self.lose(error)
            self._link.abandoned_by(self)

    def lose(self, error: Exception | None) -> None:
        """This side is closed; its protocol is notified in a later callback."""
        if self.gone:
            return
        self.gone = self._closing = True
        self._link.side_gone()
        protocol = self._protocol
        if protocol is not None:
            asyncio.get_running_loop().call_soon(protocol.connection_lost, error)
        self.incoming.schedule()  # a writer on the other side has to notice the end

    def _finish_if_written(self) -> None:
        if not self.get_write_buffer_size():
            self.lose(None)

    def _notify(self, what: Literal["pause_writing", "resume_writing"]) -> None:
        if self._protocol is None or self.gone:
            return
        try:
            getattr(self._protocol, what)()
        except Exception as error:
            self._report(error, f"protocol.{what}() failed")

    def _report(self, error: Exception, message: str) -> None:
        asyncio.get_running_loop().call_exception_handler(
            {
                "message": message,
                "exception": error,
                "transport": self,
                "protocol": self._protocol,
            }
        )


class Flow:
    """Bytes from one side to the other, in order.

    Attributes:
        on_the_way: Number of bytes written and not delivered.
        passed: Number of bytes delivered.
        broken: Bytes were dropped, so that later ones can't be delivered any more.
    """

    def __init__(
        self, net: MemoryNet, link: Link, direction: Direction, source: MemoryTransport
    ) -> None:
        self._net = net
        self._link = link
        self._direction = direction
        self._source = source
        self._queue: deque[tuple[float, bytes | Signal]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._latest = 0.0
        self._delivering = False
        self.target: MemoryTransport
        self.on_the_way = 0
        self.passed = 0
        self.broken = False

    def write(self, data: bytes) -> None:
        """Queue bytes of the writer, under the rules that the network has now."""
        link, net = self._link, self._net
        if net.is_blackholed(link.address):
            self.broken = True
            net.note("vanish", link.number, self._direction, len(data))
            return
        if self.broken:
            link.tear()
            return
        cut_at = net.draw_cut(len(data))
        for piece in net.draw_pieces(link.address, data if cut_at is None else data[:cut_at]):
            self.put(piece)
        if cut_at is not None:
            self.put(Signal.CUT)

    def put(self, item: bytes | Signal) -> None:
        """Queue bytes or a signal for delivery."""
        if item in (Signal.END, Signal.RESET) and self._net.is_blackholed(self._link.address):
            self.broken = True
            return
        now = asyncio.get_running_loop().time()
        self._latest = max(
            now + self._net.draw_latency(),
            self._latest + self._net.trickle_seconds(self._link.address, item),
        )
        if isinstance(item, bytes):
            self.on_the_way += len(item)
        self._queue.append((self._latest, item))
        self.schedule()

    def schedule(self) -> None:
        """Schedule the delivery of the next piece, if it may be delivered."""
        if self._timer is not None or not self._queue or not self._may_deliver():
            return
        due = self._queue[0][0]
        self._timer = asyncio.get_running_loop().call_at(due, self._deliver)

    def stop(self) -> None:
        """Drop everything in flight."""
        self._queue.clear()
        self.on_the_way = 0
        self._latest = 0.0
        self._stop_timer()

    def reset(self) -> None:
        """Drop everything in flight, and send the reader a reset."""
        if not self._queue or self._queue[0][1] is not Signal.RESET:
            self.stop()
            self.put(Signal.RESET)

    def abandon(self) -> None:
        """The writer aborted: a random part of the bytes in flight arrives, and then a reset."""
        left = self._net.draw_kept(min(self.on_the_way, WINDOW))
        items = list(self._queue)
        self.stop()
        for due, item in items:
            if isinstance(item, bytes):
                item = item[: left - self.on_the_way]
                self.on_the_way += len(item)
                if not item:
                    break
            self._queue.append((due, item))
            self._latest = due
        self.put(Signal.RESET)

    def heal(self) -> None:
        """Rules were removed: continue with bytes that were held back, at the current rate."""
        if self.broken and self._source.is_waiting:
            self._link.tear()
        elif self._queue and self._net.trickle_step(self._link.address) is None:
            latest = asyncio.get_running_loop().time() + self._net.latency[1]
            self._queue = deque((min(due, latest), item) for due, item in self._queue)
            self._latest = self._queue[-1][0]
            self._stop_timer()
        self.schedule()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _may_deliver(self) -> bool:
        if self._delivering or self._net.is_frozen(self._link.address, self._direction):
            return False
        target = self.target
        return target.reading or target.is_closing() or not isinstance(self._queue[0][1], bytes)

    def _deliver(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        try:
            while self._queue and self._queue[0][0] <= now and self._may_deliver():
                item = self._queue.popleft()[1]
                self._delivering = True
                try:
                    self._hand_over(item)
                finally:
                    self._delivering = False
        finally:
            self.schedule()

    def _hand_over(self, item: bytes | Signal) -> None:
        link, net, target = self._link, self._net, self.target
        if item is Signal.CUT:
            link.cut()
        elif item is Signal.ACCEPT:
            link.accept()
        elif net.is_blackholed(link.address):
            self.broken = True
            self._drop(item)
        elif item is Signal.RESET:
            net.note("reset", link.number, self._direction)
            target.lose(_reset_by_peer())
        elif target.gone:
            if isinstance(item, bytes):
                link.refuse(self)  # as with bytes for a closed socket
        elif self.broken:
            link.tear()  # bytes before it were dropped
        elif target.is_closing():
            self._drop(item)  # the target doesn't read any more
            self._source.written()
        elif item is Signal.END:
            net.note("end", link.number, self._direction)
            target.take_end()
        elif isinstance(item, bytes):
            self._hand_over_bytes(item)

    def _drop(self, item: bytes | Signal) -> None:
        if isinstance(item, bytes):
            self.on_the_way -= len(item)

    def _hand_over_bytes(self, data: bytes) -> None:
        link, net = self._link, self._net
        cut_at = net.armed_cut(link.address, self._direction, self.passed, len(data))
        rest = b"" if cut_at is None else data[cut_at:]
        if cut_at is not None:
            data = data[:cut_at]
        self.on_the_way -= len(data) + len(rest)
        self.passed += len(data)
        net.stats.chunks += 1
        net.stats.bytes += len(data)
        net.note_data(link.number, self._direction, data)
        if data:
            try:
                unread = self.target.take(data)
            except Exception as error:
                self.target.fail(error)
            else:
                self._take_back(unread)
        if cut_at is not None:
            link.cut()
        elif not self._source.gone:
            self._source.written()

    def _take_back(self, unread: bytes) -> None:
        """The reader paused in the middle of a piece: queue the rest again."""
        if unread:
            self._queue.appendleft((0.0, unread))
            self.on_the_way += len(unread)
            self.passed -= len(unread)
            self._net.stats.bytes -= len(unread)


class Link:
    """One connection.

    Attributes:
        number: Counts from 1 in the order of opening.
        address: ``host:port`` that was dialed.
        opened_at: Loop time of the opening.
        client, server: The transports.
        to_client, to_server: The flows.
    """

    def __init__(self, net: MemoryNet, number: int, host: str, port: int, opened_at: float) -> None:
        self._net = net
        self._host = host
        self._listener: Listener | None = None
        self.number = number
        self.address = address_of(host, port)
        self.opened_at = opened_at
        client_name = ("client", 32768 + number % 28232)
        self.client = MemoryTransport(self, client_name, (host, port))
        self.server = MemoryTransport(self, (host, port), client_name)
        self.to_server = Flow(net, self, "to_server", self.client)
        self.to_client = Flow(net, self, "to_client", self.server)
        self.to_server.target, self.to_client.target = self.server, self.client
        self.client.outgoing = self.server.incoming = self.to_server
        self.client.incoming = self.server.outgoing = self.to_client

    def __repr__(self) -> str:
        return f"<Link {self.number} to {self.address}>"

    def open(self, listener: Listener) -> None:
        """Send the connection to the server, which accepts it after the latency."""
        self._listener = listener
        self.to_server.put(Signal.ACCEPT)

    def accept(self) -> None:
        """Accept it at the server, if that still listens."""
        listener = self._listener
        if listener is None or not listener.is_serving():
            self.server.abort()
            return
        self._net.note("accept", self.number, self.address)
        try:
            self.server.begin(listener.factory())
        except Exception as error:
            self.server.fail(error)

    def cut(self) -> None:
        """Reset both sides now; bytes that are in flight are lost."""
        self._net.stats.cuts += 1
        self._net.note("cut", self.number, self.address)
        self.to_server.stop()
        self.to_client.stop()
        for side in (self.client, self.server):
            side.lose(_reset_by_peer())

    def abandoned_by(self, side: MemoryTransport) -> None:
        """One side aborted: the other is notified later, unless nothing gets through."""
        side.incoming.stop()
        if not self._is_over:
            side.outgoing.abandon()

    def refuse(self, flow: Flow) -> None:
        """Bytes arrived at a side that is closed: send a reset to their writer."""
        flow.stop()
        answer = flow.target.outgoing
        if answer.target.reading:
            answer.put(Signal.RESET)
        else:
            answer.reset()  # the writer notices by writing, and doesn't read any more

    def tear(self) -> None:
        """Bytes of a stream were dropped and can't be recovered: both sides lose the connection."""
        for side in (self.client, self.server):
            if side.gone:
                side.incoming.stop()
            else:
                side.incoming.reset()

    @property
    def _is_over(self) -> bool:
        return self.client.gone and self.server.gone

    def side_gone(self) -> None:
        """One of the two transports was closed."""
        if self._is_over:
            self.to_server.stop()
            self.to_client.stop()
            self._net.link_gone(self)


def _reset_by_peer() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")

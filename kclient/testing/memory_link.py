"""One connection of the memory network: two transports, and a flow of bytes each way.

Made by ``MemoryNet.dial``. A flow keeps order, delivers in pieces and with delays that the network
draws, holds back while the reader is paused or the way is frozen, and may end in a reset. Closing,
aborting and resetting look to both sides as they do with sockets: what was written before an abort
may arrive all the same, before its reset. No task; one timer per flow.
"""

from __future__ import annotations

import asyncio
import enum
import errno
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from kclient.testing.addresses import address_of

if TYPE_CHECKING:
    from kclient.testing.memory_net import Listener, MemoryNet

Direction: TypeAlias = Literal["to_client", "to_server"]

WINDOW = 128 << 10
"""Bytes on their way that the writer need not keep: both ends' socket buffers."""
HIGH_WATER = 64 << 10
"""Bytes beyond the window at which the writer is paused, as asyncio has it."""


class Signal(enum.Enum):
    """What travels in a flow beside bytes."""

    ACCEPT = enum.auto()
    """The server side comes to life."""
    END = enum.auto()
    """The writer closed: no more bytes."""
    RESET = enum.auto()
    """The other side aborted."""
    CUT = enum.auto()
    """Something between cuts the connection: both sides lose it."""


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
        """Tie the protocol to this side and tell it."""
        self._protocol = protocol
        protocol.connection_made(self)

    # What protocols call

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
            self._tell("pause_writing")

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

    # What the link calls

    @property
    def is_waiting(self) -> bool:
        """It waits for room: to tell its protocol so, or to be closed."""
        return not self.gone and (self._writing_paused or self._closing)

    def written(self) -> None:
        """Bytes left for the other side."""
        if self._writing_paused and self.get_write_buffer_size() <= self._low:
            self._writing_paused = False
            self._tell("resume_writing")
        if self._closing:
            self._finish_if_written()

    def take(self, data: bytes) -> bytes:
        """Bytes from the other side; gives back those that the protocol doesn't want yet."""
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
        """The other side writes no more."""
        protocol = cast(asyncio.Protocol, self._protocol)
        try:
            keeps_open = protocol.eof_received()
        except Exception as error:
            self.fail(error)
        else:
            if not keeps_open:
                self.close()

    def fail(self, error: Exception) -> None:
        """The protocol raised: as on a socket, it loses its connection and the loop is told."""
        self._report(error, "Fatal error: the protocol failed")
        if not self.gone:
            self.lose(error)
            self._link.abandoned_by(self)

    def lose(self, error: Exception | None) -> None:
        """This side is over; its protocol hears of it in a later callback."""
        if self.gone:
            return
        self.gone = self._closing = True
        self._link.side_gone()
        protocol = self._protocol
        if protocol is not None:
            asyncio.get_running_loop().call_soon(protocol.connection_lost, error)
        self.incoming.schedule()  # whoever still writes to it has to hear of its end

    def _finish_if_written(self) -> None:
        if not self.get_write_buffer_size():
            self.lose(None)

    def _tell(self, what: Literal["pause_writing", "resume_writing"]) -> None:
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
        on_the_way: Bytes written and not delivered.
        passed: Bytes delivered.
        broken: Bytes of it vanished, so that what follows can't be delivered any more.
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
        """Take what the writer wrote, as the network has it now."""
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
        """Send bytes or a signal on its way."""
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
        """Have the next piece delivered when it is due and wanted."""
        if self._timer is not None or not self._queue or not self._may_deliver():
            return
        due = self._queue[0][0]
        self._timer = asyncio.get_running_loop().call_at(due, self._deliver)

    def stop(self) -> None:
        """Drop all that is on its way."""
        self._queue.clear()
        self.on_the_way = 0
        self._latest = 0.0
        self._stop_timer()

    def reset(self) -> None:
        """Drop all that is on its way, and tell the reader that no more comes."""
        if not self._queue or self._queue[0][1] is not Signal.RESET:
            self.stop()
            self.put(Signal.RESET)

    def abandon(self) -> None:
        """The writer aborted: a part of what left it arrives, by chance, and then a reset."""
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
        """Faults may be over: go on with what was held back, at the pace of now."""
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
                link.refuse(self)  # bytes for a socket that is closed are answered so
        elif self.broken:
            link.tear()  # what was before it vanished
        elif target.is_closing():
            self._drop(item)  # nobody reads any more
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
        """The reader paused in the middle of a piece."""
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
        opened_at: Time of the loop.
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
        """Let the server accept it when word has travelled there."""
        self._listener = listener
        self.to_server.put(Signal.ACCEPT)

    def accept(self) -> None:
        """The server takes it, if it still listens."""
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
        """Both sides lose it now; what is on its way is lost."""
        self._net.stats.cuts += 1
        self._net.note("cut", self.number, self.address)
        self.to_server.stop()
        self.to_client.stop()
        for side in (self.client, self.server):
            side.lose(_reset_by_peer())

    def abandoned_by(self, side: MemoryTransport) -> None:
        """One side aborted: the other hears of it later, unless nothing gets through."""
        side.incoming.stop()
        if not self._is_over:
            side.outgoing.abandon()

    def refuse(self, flow: Flow) -> None:
        """Bytes came for a side that is gone: whoever wrote them is told."""
        flow.stop()
        answer = flow.target.outgoing
        if answer.target.reading:
            answer.put(Signal.RESET)
        else:
            answer.reset()  # it finds out by writing, and will read no more

    def tear(self) -> None:
        """Bytes are missing in a stream, and nothing can bring them back: both sides lose it."""
        for side in (self.client, self.server):
            if side.gone:
                side.incoming.stop()
            else:
                side.incoming.reset()

    @property
    def _is_over(self) -> bool:
        return self.client.gone and self.server.gone

    def side_gone(self) -> None:
        """One of the two transports is over."""
        if self._is_over:
            self.to_server.stop()
            self.to_client.stop()
            self._net.link_gone(self)


def _reset_by_peer() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")

"""One transport and one Connection: bytes go from the loop into the machine and back.

Made by the selector's dial. As a BufferedProtocol it has the loop read a large response straight
into the buffer that it is decoded from. It holds no rules: those are in ``connection.py``, and
what follows from an answer or an end is its owner's business. It holds no timer either; its owner
calls ``expire``.
"""

from __future__ import annotations

import asyncio
import math
import socket
import sys
from typing import TYPE_CHECKING, Any, cast

from kclient.errors import ConnectionLost, KafkaError
from kclient.network.connection import ConnectionState

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient.network.connection import Connection
    from kclient.network.node_connection import NodeConnection
    from kclient.network.requests import RequestFuture
    from kclient.protocol.message import Request

_LARGE = 16 * 1024
_LOW_WATER_MARK = 256 * 1024
"""Bytes that the kernel receives, of a response that is long enough, before it wakes us."""
_TLS_MARGIN = 64 * 1024
"""More than TLS's own buffers hold, undecrypted, of what a response still lacks."""
_READY, _CLOSED = ConnectionState.READY, ConnectionState.CLOSED


class Channel(asyncio.BufferedProtocol):
    """Drives one Connection over one transport. Has no task and no timer.

    Args:
        connection: The machine.
        owner: The node connection, which is notified, on the loop, and must not raise.
        now: Reads the clock.
        setup_deadline: When the handshake must be over.

    Attributes:
        full_since: Since when the transport's buffer is full; None while it isn't.
        intentional: It was ended for a reason that says nothing about the node.
        dialed: The transport is open, TLS included.
        host: The peer's name or address, as it was dialed.
        renew_at: When its session is to be renewed by another authentication.
        session_ends_at: When the broker ends it.
        bytes_in: Received so far.
        bytes_out: Handed to the transport so far.
    """

    def __init__(
        self,
        connection: Connection,
        owner: NodeConnection,
        now: Callable[[], float],
        setup_deadline: float,
    ) -> None:
        self.connection = connection
        self.owner = owner
        self.setup_deadline = setup_deadline
        self.full_since: float | None = None
        self.bytes_in = 0
        self.bytes_out = 0
        self.intentional = False
        self.dialed = False
        self.host = ""
        self.renew_at = math.inf
        self.session_ends_at = math.inf
        # Made by the caller that waits, which is rare: an event takes 0.8 KiB.
        self._negotiated: asyncio.Event | None = None
        self._gone: asyncio.Event | None = None
        self._now = now
        self._transport: asyncio.Transport | None = None
        self._has_low_water_mark = False
        self._flush_is_due = False
        self._reported_ready = False
        self._reported_closed = False

    # What the owner calls

    @property
    def gone(self) -> bool:
        """There is no transport any more, or not yet."""
        return self._transport is None

    def limit_setup(self, deadline: float) -> None:
        """Move the handshake's deadline forward; to be called before the transport is open."""
        if deadline < self.setup_deadline:
            self.setup_deadline = deadline
            self.owner.channel_setup_limited(self)

    def flush(self) -> None:
        """Write what was submitted, in one piece, and hand over the answers that are there."""
        connection = self.connection
        if connection.output:
            output = connection.take_output()
            if self._transport is not None:
                size = len(output)
                self.bytes_out += size
                # What a socket doesn't take at once is sliced off: of bytes a copy (to 3.11).
                self._transport.write(output if size <= _LARGE else memoryview(output))
        if connection.outcomes:
            for request, outcome in connection.take_outcomes():
                self.owner.channel_completed(self, request, outcome)

    def flush_soon(self) -> None:
        """Write in the loop's next round, together with what is submitted until then."""
        if not self._flush_is_due:
            self._flush_is_due = True
            asyncio.get_running_loop().call_soon(self._flush_now_due)

    def expire(self, now: float) -> None:
        """Close if a request or the handshake is past its deadline."""
        self.connection.expire(now)
        self._settle()

    def retire(self) -> None:
        """Take no new requests and close once those under way are answered."""
        self.intentional = True
        self.connection.retire()
        self._settle(abort=False)

    def end(self, error: KafkaError, *, abort: bool = True, intentional: bool = False) -> None:
        """Close for the given reason; requests under way fail with it.

        Args:
            error: The reason.
            abort: Drop the transport at once. False lets it write what it holds first;
                ``abort_transport`` is there for when that takes too long.
            intentional: The reason says nothing about the node.
        """
        if not self.connection.is_closed:
            self.intentional = intentional
            self.connection.end(error)
            self._settle(abort=abort)

    async def negotiated(self) -> None:
        """Wait until the broker's versions are known; without end where the channel ends before."""
        if self.connection.versions is None:
            self._negotiated = self._negotiated or asyncio.Event()
            await self._negotiated.wait()

    def ask(self, message: Request, deadline: float) -> RequestFuture[Any]:
        """Write a request of an authentication, see ``Connection.ask``."""
        future = self.connection.ask(message, self._now(), deadline)
        self.flush()
        self.owner.channel_asked(deadline)
        return future

    def authenticated(self, renew_at: float) -> None:
        """An authentication succeeded; it is to be renewed at ``renew_at``."""
        self.renew_at = renew_at
        self.connection.authenticated()
        if self._reported_ready:
            self.owner.channel_renewed(self)
        else:
            self._settle()

    def close(self, why: str, *, abort: bool = True) -> None:
        """Close for a reason that says nothing about the node; ``abort`` as in ``end``."""
        where, node_id = self.connection.where, self.connection.key.node_id
        error = ConnectionLost(f"the connection to {where} was closed: {why}", node_id=node_id)
        self.end(error, abort=abort, intentional=True)

    async def wait_closed(self) -> None:
        """Wait until the transport is gone; at once if there is none."""
        if self._transport is not None:
            self._gone = self._gone or asyncio.Event()
            await self._gone.wait()

    def abort_transport(self) -> None:
        """Drop the transport at once, with whatever it still holds."""
        if self._transport is not None:
            self._transport.abort()

    def dial_failed(self) -> None:
        """The dial ended without success: whatever transport there was, the dial has closed it.

        uvloop doesn't call ``connection_lost`` for a connection whose opening was cancelled.
        """
        self._transport = None
        if self._gone is not None:
            self._gone.set()

    # What the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport is open: begin the handshake."""
        self._transport = cast("asyncio.Transport", transport)
        if self.connection.is_closed:
            self._transport.abort()  # ended while it was being dialed
            return
        self.connection.opened(self._now(), self.setup_deadline)
        self.flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the loop reads to."""
        return self.connection.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes arrived."""
        self.bytes_in += nbytes
        connection = self.connection
        if connection.state is _CLOSED:
            return
        inside = not connection.received(nbytes, self._now())
        lacking = connection.frames.lacking
        if lacking >= 2 * _TLS_MARGIN or self._has_low_water_mark:
            self._set_low_water_mark(lacking)
        if inside:
            return
        if self._reported_ready and connection.state is _READY:
            self.flush()
        else:
            self._settle()
        if connection.state is not _CLOSED:
            self.owner.channel_has_space(self)

    def _set_low_water_mark(self, lacking: int) -> None:
        """Have the kernel wake us for more than the next packet or TLS record (SO_RCVLOWAT).

        A peer that is slower than we are costs a loop iteration for each otherwise, which doubles
        the CPU of reading over TLS. The end of the connection wakes us in any case.
        """
        if sys.platform != "linux" or self._transport is None:
            return
        sock = self._transport.get_extra_info("socket")
        if sock is None:
            return
        self._has_low_water_mark = lacking >= 2 * _TLS_MARGIN
        mark = 1
        if self._has_low_water_mark:
            # Old kernels would wait for more than their buffer holds.
            room = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 4
            mark = max(1, min(lacking - _TLS_MARGIN, _LOW_WATER_MARK, room))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, mark)

    def eof_received(self) -> None:
        """The peer closes; ``connection_lost`` follows."""

    def pause_writing(self) -> None:
        """The transport's buffer is full: no more requests until it drained."""
        self.full_since = self._now()
        self.connection.writable = False
        if not self.connection.is_closed:
            self.owner.channel_is_full(self)

    def resume_writing(self) -> None:
        """The transport's buffer drained."""
        self.full_since = None
        self.connection.writable = True
        if not self.connection.is_closed:
            self.owner.channel_has_space(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone."""
        self._transport = None
        if self._gone is not None:
            self._gone.set()
        self.connection.lost(exc)
        self._settle()

    # Consequences

    def _settle(self, *, abort: bool = True) -> None:
        """Write, complete requests and notify the owner, after the machine may have moved."""
        connection = self.connection
        if connection.is_closed:
            if abort:
                connection.take_output()
                self.abort_transport()
            self.flush()
            if not abort and self._transport is not None:
                self._transport.close()
            if not self._reported_closed:
                self._reported_closed = True
                self.owner.channel_closed(self)
            return
        self.flush()
        if self._negotiated is not None and connection.versions is not None:
            self._negotiated.set()
            self._negotiated = None
        if not self._reported_ready and connection.state is _READY:
            self._reported_ready = True
            self.owner.channel_ready(self)

    def _flush_now_due(self) -> None:
        self._flush_is_due = False
        if not self.connection.is_closed:
            self.flush()

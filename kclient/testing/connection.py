"""One client's connection to a broker: frames in, responses out, in order.

A request is served once the response to the previous one was sent, as in Kafka: while a request
waits (a fetch without data, a fault, a client that doesn't read), bytes that follow are buffered,
up to a bound. No task and no timer per request; ``Channel`` owns its ``ReceiveBuffer``, its
``SendBuffer`` and at most two ``PendingResult``, which it cancels when the connection is lost.

``ReceiveBuffer`` returns frames as views: their bytes are not overwritten until the response to
them was sent; until then the channel passes ``busy``.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from kclient.errors import KafkaError
from kclient.protocol.message import Response
from kclient.testing.dispatch import UnsupportedRequest, open_call, serve
from kclient.testing.fault import Action, Fault, Stage
from kclient.testing.fault_list import Failed
from kclient.testing.handlers.produce import charge as charge_produce
from kclient.testing.request_context import RequestContext
from kclient.testing.request_info import facts_of_start
from kclient.testing.responses import Answer, CloseConnection, PendingResult, encode_answer
from kclient.testing.server_certificate import common_name

if TYPE_CHECKING:
    from kclient.testing.broker import Broker
    from kclient.testing.sasl import SaslSession

logger = logging.getLogger("kclient.testing")

_SIZE = struct.Struct(">i")
_PRODUCE = 0
_BUFFER_BYTES = 64 << 10
_KEPT_BUFFER_BYTES = 4 << 20
"""A larger buffer is freed once its frame was served."""
_PENDING_BYTES = 256 << 10
"""Limit for reading ahead while a request waits; it reads at all to notice a closed socket."""
_SIZE_FIELD = 4
_FRAMES_PER_CALLBACK = 64
"""Most requests served in one callback; other callbacks run before the next ones."""
_WRITE_BYTES = 256 << 10
"""Most bytes passed to the transport at once: it copies what it can't send of a large response."""
_NO_LINGER = struct.pack("ii", 1, 0)
"""SO_LINGER value with which closing a socket resets the connection."""


class ReceiveBuffer:
    """The read buffer of a connection.

    Attributes:
        held: Number of bytes that were read but not returned in a frame yet.
    """

    def __init__(self) -> None:
        self._buffer = bytearray(_BUFFER_BYTES)
        self._start = 0
        self._end = 0
        self.held = 0

    def space(self, busy: bool) -> memoryview:
        """The memory to read into; while ``busy`` bytes of returned frames are not overwritten."""
        if not self.held and not busy:
            self._start = self._end = 0
            if len(self._buffer) > _KEPT_BUFFER_BYTES:
                self._buffer = bytearray(_BUFFER_BYTES)
        elif self._end == len(self._buffer):
            self._make_space()
        return memoryview(self._buffer)[self._end :]

    def took(self, count: int) -> None:
        """``count`` bytes were read into that memory."""
        self._end += count
        self.held += count

    def _make_space(self) -> None:
        """Make space for more; it grows with the bytes read, not with the size field of a frame.

        Always a new buffer: a request that waits may have views of the old one.
        """
        size = len(self._buffer)
        if self.held > size // 2:
            size *= 2
        buffer = bytearray(size)
        buffer[: self.held] = memoryview(self._buffer)[self._start : self._end]
        self._buffer, self._start, self._end = buffer, 0, self.held

    def next_frame(self, most: int) -> memoryview | None:
        """Return the next frame, without its size field, if all of it was read.

        Raises:
            CloseConnection: Its size is negative, or more than ``most``.
        """
        if self.held < _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(self._buffer, self._start)
        if not 0 <= size <= most:
            raise CloseConnection(f"a frame of {size} bytes")
        taken = _SIZE.size + size
        if self.held < taken:
            return None
        begin = self._start + _SIZE.size
        self._start += taken
        self.held -= taken
        return memoryview(self._buffer)[begin : self._start]

    def partial_frame(self, most: int) -> tuple[memoryview, int] | None:
        """The part of the next frame that was read, and its size; None if the size is invalid."""
        if self.held < _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(self._buffer, self._start)
        if not 0 <= size <= most:
            return None
        begin = self._start + _SIZE.size
        return memoryview(self._buffer)[begin : min(begin + size, self._end)], size


class SendBuffer:
    """The write side of a connection: sends bytes in order.

    Attributes:
        is_full: The transport's buffer is full, or bytes are queued here.
    """

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._queue: deque[memoryview] = deque()
        self._paused = False
        self._ending = False
        self.is_full = False

    def open(self, transport: asyncio.Transport) -> None:
        """The connection is open: begin to send."""
        self._transport = transport

    def lost(self) -> None:
        """The connection is lost: drop queued bytes."""
        self._transport = None
        self._queue.clear()

    def write(self, data: bytes | bytearray) -> None:
        """Send, now or later."""
        if self._transport is None or self._ending:
            return
        if not self.is_full and len(data) <= _WRITE_BYTES:
            self._transport.write(data)
            return
        self._queue.append(memoryview(data))
        self._write_on()

    def pause(self) -> None:
        """The transport's buffer is full."""
        self._paused = self.is_full = True

    def resume(self) -> None:
        """The transport accepts more bytes."""
        self._paused = False
        self._write_on()

    def finish(self) -> None:
        """Close once all bytes written so far are sent."""
        self._ending = True
        if not self._queue and self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        """End the connection with a reset; what was written may be lost."""
        if self._transport is None:
            return
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._transport.abort()

    def _write_on(self) -> None:
        queue = self._queue
        while queue and not self._paused and self._transport is not None:
            data = queue.popleft()
            if len(data) > _WRITE_BYTES:
                queue.appendleft(data[_WRITE_BYTES:])
            self._transport.write(data[:_WRITE_BYTES])
        self.is_full = self._paused or bool(queue)
        if self._ending and not queue and self._transport is not None:
            self._transport.close()


class Channel(asyncio.BufferedProtocol):
    """The broker's end of one connection.

    Attributes:
        number: Counted through the cluster.
        session: Its authentication; None where none is needed.
    """

    def __init__(self, broker: Broker, number: int, session: SaslSession | None = None) -> None:
        self.number = number
        self.session = session
        self._broker = broker
        self._faults = broker.faults
        self._set_faults = broker.faults.listed
        self._transport: asyncio.Transport | None = None
        self._certified: str | None = None
        self._in = ReceiveBuffer()
        self._out = SendBuffer()
        self._call: RequestContext | None = None
        self._waiting: PendingResult[Any] | None = None
        self._outcome: PendingResult[Any] | None = None
        self._busy = False
        self._input_closed = False
        self._unread = False
        self._serving = False
        self._turn: asyncio.Handle | None = None

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's isn't a subclass
        self._certified = common_name(transport)
        self._out.open(self._transport)
        self._broker.channel_opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._input_closed = True
        self._out.lost()
        self._release()
        for fault in self._set_faults:
            fault.unhold(self)
        self._broker.channel_closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._in.space(self._busy)

    def buffer_updated(self, count: int) -> None:
        if self._input_closed:
            return
        self._in.took(count)
        self._serve_frames()
        if self._in.held >= _PENDING_BYTES and (
            self._busy or self._out.is_full or self._turn is not None
        ):
            self._pause()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._out.pause()

    def resume_writing(self) -> None:
        self._out.resume()
        self._go_on()

    # Called by the broker

    def abort(self) -> None:
        """Abort the connection, whatever is in flight."""
        self._input_closed = True
        self._release()
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Send pending responses, then close; a request that waits gets no response."""
        self._input_closed = True
        self._release()
        self._out.finish()

    # Called by faults

    def write(self, data: bytes | bytearray) -> None:
        """Send bytes after those sent before."""
        self._out.write(data)

    def cut(self, reset: bool) -> None:
        """Close the connection after the bytes written so far, or reset it."""
        if reset:
            self._input_closed = True
            self._release()
            self._out.reset()
        else:
            self.close()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Set a timer; return the function that cancels it."""
        return self._broker.call_later(seconds, callback).cancel

    # Reading

    def _serve_frames(self) -> None:
        transport = self._transport
        if self._serving or self._turn is not None or transport is None:
            return
        self._serving = True
        left = _FRAMES_PER_CALLBACK
        try:
            while not (
                self._busy or self._input_closed or self._out.is_full or transport.is_closing()
            ):
                frame = self._next_frame()
                if frame is None:
                    break
                self._serve_frame(frame)
                left -= 1
                if not left:
                    self._turn = asyncio.get_running_loop().call_soon(self._take_turn)
                    break
        finally:
            self._serving = False

    def _take_turn(self) -> None:
        self._turn = None
        self._go_on()

    def _next_frame(self) -> memoryview | None:
        most = self._broker.config.request_max_bytes
        try:
            if self.number and self._set_faults and self._is_cut(self._in.partial_frame(most)):
                return None
            return self._in.next_frame(most)
        except CloseConnection as hangup:
            self._refuse(str(hangup))
            return None

    def _is_cut(self, partial_frame: tuple[memoryview, int] | None) -> bool:
        """Whether a fault ends the connection after as many bytes of a request as were read."""
        if partial_frame is None:
            return False
        start, size = partial_frame
        known = facts_of_start(self._broker.node_id, self.number, start)
        for fault in self._faults.acting(Stage.ARRIVAL, None, known):
            if len(start) >= min(fault.byte - _SIZE_FIELD, size):
                fault.use()
                self.cut(fault.reset)
                return True
        return False

    def _serve_frame(self, frame: memoryview) -> None:
        try:
            call = open_call(self._broker, frame, self.number, self.session, self._certified)
        except UnsupportedRequest as unserved:
            if unserved.answer is None:
                self._refuse(str(unserved))
            else:
                self._out.write(unserved.answer)
            return
        except KafkaError as error:
            self._refuse(str(error))
            return
        self._call = call
        self._pass(call, Stage.BEFORE, None)

    def _refuse(self, why: str) -> None:
        logger.info("broker=%d closes connection %d: %s", self._broker.node_id, self.number, why)
        self.abort()

    # Serving

    def _serve(self, call: RequestContext) -> None:
        try:
            outcome = serve(call)
        except CloseConnection as hangup:
            self._refuse(str(hangup))
        except Exception:
            self._fail(call)
        else:
            self._pass(call, Stage.AFTER_APPEND, outcome)

    def _pass(
        self,
        call: RequestContext,
        stage: Stage,
        answer: PendingResult[Response] | Answer | None,
        *,
        gated: bool = True,
    ) -> None:
        """Apply the faults of a stage, if ``gated``, then continue with the next stage."""
        fault = None
        if gated and self._set_faults:
            fault = next(self._faults.acting(stage, call), None)
        if fault is not None:
            self._obey(fault, call, stage, answer)
        elif isinstance(answer, PendingResult):
            self._wait(answer, lambda came: self._pass(call, Stage.AFTER, came))
        elif stage is Stage.BEFORE and answer is None:
            self._serve(call)
        elif stage is Stage.AFTER_APPEND:
            self._pass(call, Stage.AFTER, answer)
        elif stage is Stage.AFTER_REPLY:
            self._mute(call, answer)
        else:
            self._reply(call, answer)

    def _obey(
        self,
        fault: Fault,
        call: RequestContext,
        stage: Stage,
        answer: PendingResult[Response] | Answer | None,
    ) -> None:
        fault.use(call)
        if fault.action is Action.CLOSE:
            self.abort()
        elif fault.action is Action.DROP:
            self._input_closed = True
            self._release()
        elif fault.action is Action.WAIT:
            self._wait(fault.gate(self.call_later), lambda _: self._pass(call, stage, answer))
        else:
            self._call_hook(fault, call, stage, answer)

    def _call_hook(
        self,
        fault: Fault,
        call: RequestContext,
        stage: Stage,
        answer: PendingResult[Response] | Answer | None,
    ) -> None:
        seen = answer.draft if isinstance(answer, PendingResult) else answer
        outcome = self._faults.run(fault, call, seen)

        def then(given: Answer | Failed | None) -> None:
            self._outcome = None
            if given is Failed.FAILED:
                self.abort()
            elif given is None or stage is Stage.AFTER_REPLY:
                self._pass(call, stage, answer)
            else:
                if isinstance(answer, PendingResult):
                    answer.cancel()
                self._pass(call, stage, given, gated=False)

        if self._input_closed:
            return
        if isinstance(outcome, PendingResult):
            self._outcome = answer if isinstance(answer, PendingResult) else None
            self._wait(outcome, then)
        else:
            then(outcome)

    def _timed(self, seconds: float) -> PendingResult[object]:
        timed: PendingResult[object] = PendingResult(lambda: timer.cancel())
        timer = self._broker.call_later(seconds, lambda: timed.complete(None))
        return timed

    def _fail(self, call: RequestContext) -> None:
        """Log a defect of the embedded cluster, and abort."""
        logger.exception(
            "broker=%d failed to serve api=%d v=%d", call.node_id, call.api_key, call.version
        )
        self.abort()

    def _wait(self, deferred: PendingResult[Any], listener: Callable[[Any], None]) -> None:
        def arrived(value: object) -> None:
            self._waiting = None
            if self._transport is None or self._input_closed:
                return
            self._busy = False
            listener(value)
            self._go_on()

        self._busy = True
        self._waiting = deferred
        deferred.then(arrived)

    def _go_on(self) -> None:
        """Serve the frames that came meanwhile, and continue reading."""
        if not self._busy and not self._input_closed and not self._out.is_full:
            self._resume()
            self._serve_frames()

    # Responding

    def _reply(self, call: RequestContext, answer: Answer | None) -> None:
        """Send the response, as changed by faults."""
        if self._broker.image.quotas and call.api_key == _PRODUCE:
            charge_produce(call, answer)
        changed: Answer | Failed | None = answer
        if answer is not None and self._set_faults:
            changed = self._faults.changed(call, answer)
        if isinstance(changed, Failed):
            self.abort()
            return
        fault = waits = None
        if changed is not None:
            frame = self._encode(call, changed)
            if frame is None:
                return
            if self._set_faults:
                fault = next(self._faults.acting(Stage.FRAME, call, {"channel": self}), None)
            if fault is None:
                self._out.write(frame)
            else:
                if not fault.holds(self):
                    fault.use(call)
                waits = fault.act(self, frame)
        if waits is None:
            self._replied(call, changed)
        else:
            self._wait(waits, lambda _: self._replied(call, changed))

    def _encode(self, call: RequestContext, answer: Answer) -> bytearray | None:
        broker, ours = self._broker, not self._set_faults
        try:
            frame = encode_answer(answer, call.version, call.correlation_id)
            broker.requests.answered(call.served, answer, broker.now(), len(frame), ours)
        except Exception as error:
            self._fail(call)
            if not ours:
                self._faults.failed(error)  # a test may have made this response
            return None
        return frame

    def _replied(self, call: RequestContext, answer: Answer | None) -> None:
        self._call = None
        self._broker.requests.over(call.served)
        if self.session is not None and self.session.refused:
            self.close()
        if not self._input_closed:
            self._pass(call, Stage.AFTER_REPLY, answer)

    def _mute(self, call: RequestContext, answer: Answer | None) -> None:
        """Read nothing for a while, as a broker does with a client over its quota (KIP-219)."""
        milliseconds = call.throttle_ms
        if isinstance(answer, Response) and "throttle_time_ms" in answer.__slots__:
            milliseconds = cast(Any, answer).throttle_time_ms
        if milliseconds > 0:
            self._wait(self._timed(milliseconds / 1000), lambda _: None)

    def _release(self) -> None:
        waiting, outcome, call = self._waiting, self._outcome, self._call
        self._waiting = self._outcome = self._call = None
        for deferred in (waiting, outcome, self._turn):
            if deferred is not None:
                deferred.cancel()
        if call is not None:
            self._broker.requests.over(call.served)

    def _pause(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._unread = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._unread and self._transport is not None and not self._transport.is_closing():
            self._unread = False
            self._transport.resume_reading()

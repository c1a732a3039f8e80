"""One client's connection to a broker: frames in, answers out, in order.

A request is served when the one before it was answered, as in Kafka: while one waits (a fetch
without data, a fault), what comes behind it is kept, up to a bound. No task and no timer per
request; ``Channel`` owns its buffer and at most one ``Deferred``, and lets go of both when it is
lost.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from kclient.errors import KafkaError
from kclient.protocol.message import Response
from kclient.testing.call import Call
from kclient.testing.deferred import Deferred
from kclient.testing.dispatch import Unserved, encode_frame, open_call, serve
from kclient.testing.fault import Action, Fault
from kclient.testing.refused import Hangup

if TYPE_CHECKING:
    from kclient.testing.broker import Broker

logger = logging.getLogger("kclient.testing")

_SIZE = struct.Struct(">i")
_BUFFER_BYTES = 64 << 10
_PENDING_BYTES = 256 << 10
"""Read ahead while a request waits; the socket is read at all so that its end is noticed."""
_KEPT_BUFFER_BYTES = 4 << 20
"""A larger buffer is given back when its frame was served."""
_WRITE_BYTES = 256 << 10
"""Handed to the transport at once: what it can't send it copies, so not all of a large answer."""


class Channel(asyncio.BufferedProtocol):
    """The broker's end of one connection."""

    def __init__(self, broker: Broker, number: int) -> None:
        self.number = number
        self._broker = broker
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(_BUFFER_BYTES)
        self._start = 0
        self._end = 0
        self._waiting: Deferred[object] | None = None
        self._busy = False
        self._deaf = False
        self._unread = False
        self._serving = False
        self._out: deque[memoryview] = deque()
        self._paused = False
        self._ending = False

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self._broker.channel_opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._deaf = True
        self._out.clear()
        self._let_go()
        self._broker.channel_closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._start == self._end and not self._busy:
            self._start = self._end = 0
            if len(self._buffer) > _KEPT_BUFFER_BYTES:
                self._buffer = bytearray(_BUFFER_BYTES)
        elif self._end == len(self._buffer):
            self._make_room()
        return memoryview(self._buffer)[self._end :]

    def buffer_updated(self, count: int) -> None:
        if self._deaf:
            return
        self._end += count
        self._serve_frames()
        if self._busy and self._end - self._start >= _PENDING_BYTES:
            self._pause()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._write_on()

    # What the broker calls

    def abort(self) -> None:
        """Cut the connection, whatever is in the air."""
        self._deaf = True
        self._let_go()
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Send what is answered already, then close; a request that waits gets no answer."""
        self._deaf = True
        self._let_go()
        if self._transport is None:
            return
        if self._out:
            self._ending = True
        else:
            self._transport.close()

    # Reading

    def _make_room(self) -> None:
        """Room grows with the bytes that came, not with the size that was announced.

        Always a new buffer: a request that waits may have views of the old one.
        """
        held = self._end - self._start
        size = len(self._buffer)
        if held > size // 2:
            size *= 2
        buffer = bytearray(size)
        buffer[:held] = memoryview(self._buffer)[self._start : self._end]
        self._buffer, self._start, self._end = buffer, 0, held

    def _serve_frames(self) -> None:
        if self._serving:
            return
        self._serving = True
        try:
            while not self._busy and not self._deaf:
                frame = self._next_frame()
                if frame is None:
                    break
                self._serve_frame(frame)
        finally:
            self._serving = False

    def _next_frame(self) -> memoryview | None:
        held = self._end - self._start
        if held < _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(self._buffer, self._start)
        if not 0 <= size <= self._broker.config.request_max_bytes:
            self._refuse(f"a frame of {size} bytes")
            return None
        if held < _SIZE.size + size:
            return None
        begin = self._start + _SIZE.size
        self._start = begin + size
        return memoryview(self._buffer)[begin : self._start]

    def _serve_frame(self, frame: memoryview) -> None:
        try:
            call = open_call(self._broker, frame, self.number)
        except Unserved as unserved:
            if unserved.answer is None:
                self._refuse(str(unserved))
            else:
                self._write(unserved.answer)
            return
        except KafkaError as error:
            self._refuse(str(error))
            return
        self._pass(call, None)

    def _refuse(self, why: str) -> None:
        logger.info("broker=%d closes connection %d: %s", self._broker.node_id, self.number, why)
        self.abort()

    # Serving

    def _pass(self, call: Call, response: Response | None, after: bool = False) -> None:
        """Take a request, or with ``after`` its answer, past the faults."""
        fault = self._broker.faults.next_gate(call, after=after) if self._broker.faults else None
        if fault is None:
            if after:
                self._reply(call, response)
            else:
                self._serve(call)
        elif fault.action is Action.CLOSE:
            self.abort()
        elif fault.action is Action.DROP:
            self._deaf = True
        else:
            self._wait(self._gate(fault), lambda _: self._pass(call, response, after))

    def _gate(self, fault: Fault) -> Deferred[object]:
        if fault.seconds is None:

            def resume() -> None:
                gate.complete(None)

            gate: Deferred[object] = Deferred(lambda: fault.unhold(resume))
            fault.hold(resume)
            return gate
        timed: Deferred[object] = Deferred(lambda: timer.cancel())
        timer = self._broker.call_later(fault.seconds, lambda: timed.complete(None))
        return timed

    def _serve(self, call: Call) -> None:
        try:
            outcome = serve(call)
        except Hangup as hangup:
            self._refuse(str(hangup))
        except Exception:
            self._fail(call)
        else:
            if isinstance(outcome, Deferred):
                self._wait(outcome, lambda answer: self._pass(call, answer, True))
            else:
                self._pass(call, outcome, True)

    def _fail(self, call: Call) -> None:
        """A defect of ours, or of a function given to ``faults.rewrite``."""
        logger.exception(
            "broker=%d failed to serve api=%d v=%d", call.node_id, call.api_key, call.version
        )
        self.abort()

    def _wait(self, deferred: Deferred[Any], listener: Callable[..., None]) -> None:
        def arrived(value: object) -> None:
            self._waiting = None
            if self._transport is None or self._deaf:
                return
            self._busy = False
            listener(value)
            if not self._busy and not self._deaf:
                self._resume()
                self._serve_frames()

        self._busy = True
        self._waiting = deferred
        deferred.then(arrived)

    def _reply(self, call: Call, response: Response | None) -> None:
        if response is None:
            return
        seconds = 0.0
        try:
            answer = self._broker.faults.change(call, response) if self._broker.faults else response
            if isinstance(answer, bytes):
                frame = bytearray(_SIZE.pack(len(answer)) + answer)
            else:
                frame = encode_frame(answer, call.version, call.correlation_id)
                seconds = _throttle_seconds(answer)
        except Exception:
            self._fail(call)
            return
        self._write(frame)
        if seconds > 0:
            self._mute(seconds)

    def _mute(self, seconds: float) -> None:
        """Read nothing for a while, as a broker does with a client over its quota (KIP-219)."""
        muted: Deferred[object] = Deferred(lambda: timer.cancel())
        timer = self._broker.call_later(seconds, lambda: muted.complete(None))
        self._wait(muted, lambda _: None)

    def _let_go(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _pause(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._unread = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._unread and self._transport is not None and not self._transport.is_closing():
            self._unread = False
            self._transport.resume_reading()

    # Writing

    def _write(self, data: bytes | bytearray) -> None:
        if self._transport is None:
            return
        if not self._out and not self._paused and len(data) <= _WRITE_BYTES:
            self._transport.write(data)
            return
        self._out.append(memoryview(data))
        self._write_on()

    def _write_on(self) -> None:
        while self._out and not self._paused and self._transport is not None:
            data = self._out.popleft()
            if len(data) > _WRITE_BYTES:
                self._out.appendleft(data[_WRITE_BYTES:])
            self._transport.write(data[:_WRITE_BYTES])
        if self._ending and not self._out and self._transport is not None:
            self._transport.close()


def _throttle_seconds(response: Any) -> float:
    """Every response that is served has the field."""
    return float(response.throttle_time_ms / 1000)

"""From bytes to frames: a size of four bytes, then that many bytes, again and again.

``FrameReader`` says where the next bytes are to be put, so that the transport reads a large
response straight into the buffer that it will be decoded from; ``FramePool`` reuses those buffers
(a fresh one costs 0.5 ms per MiB in page faults, a reused one 12 us). Called by ``connection.py``;
the pool is shared by all connections of a client. Sans-IO.

Three rules hold here. No size is believed before it was checked: ``InvalidFrame`` comes before any
allocation. Fresh memory grows with the bytes received, fourfold at a time, never to the size that
a peer merely announced. And no byte is overwritten while anybody can still see it: a buffer is
handed out again only when no view on it is left, which the pool checks itself.
"""

from __future__ import annotations

import struct

from kclient.errors import InvalidFrame
from kclient.protocol.api_versions import BEGIN_WITH_THROTTLE_TIME

CHUNK_BYTES = 16 * 1024
"""The smallest buffer; one holds many small responses."""
GROWTH = 4
"""A buffer for a frame under way may be this many times what has arrived of it."""
RETAINED_BYTES = 64 * 1024 * 1024
"""What a pool keeps for reuse at most; what lay unused is dropped by ``trim``."""
TLS_LISTENER = "this looks like a TLS listener: use security=Security.tls(...)"
"""What is said of a peer that answers with a record of TLS."""
MINIMUM_FRAME = 4
"""A response has at least its correlation id."""

_SIZE = struct.Struct(">i")
_SIZE_BYTES = 4


def _class_of(size: int) -> int:
    """The class of the smallest buffer that holds ``size``: four times the power, and quarters."""
    power = (size - 1).bit_length() - 1
    return 4 * power + (size - 1 >> power - 2) - 3


def _bytes_of(size_class: int) -> int:
    """What a buffer of that class has."""
    return (4 + (size_class & 3)) << (size_class >> 2) - 2


_CHUNK_CLASS = _class_of(CHUNK_BYTES)
_ABOVE_CHUNK = 4
"""Further classes that are looked through for a small frame: up to twice a chunk."""
_ABOVE = 6
"""The same for others: a buffer is at most three times as large as the fitting one, and so less
than ``GROWTH`` times as large as the frame, which then takes it along."""


class FramePool:
    """Reusable bytearrays in classes, four of them from each power of two to the next.

    Responses are often full, and a little larger than a power of two: by these alone half of such
    a buffer would be memory that is touched and never used.
    """

    def __init__(self, retained_limit: int = RETAINED_BYTES) -> None:
        self.retained_limit = retained_limit
        self.retained_bytes = 0
        self._stacks: dict[int, list[bytearray]] = {}
        self._idle_low: dict[int, int] = {}

    def take(self, wanted: int, allowed: int) -> bytearray:
        """A buffer of at least ``wanted`` bytes if one is at hand, else a fresh one.

        A fresh one has at least ``min(wanted, allowed)`` bytes. Its content is undefined.
        """
        fitting, above = _CHUNK_CLASS, _ABOVE_CHUNK
        if wanted > CHUNK_BYTES:
            fitting, above = _class_of(wanted), _ABOVE
        buffer = self._reuse(fitting)
        if buffer is not None:
            return buffer
        for size_class in range(fitting + 1, fitting + above + 1):
            if self._stacks.get(size_class):
                buffer = self._reuse(size_class)
                if buffer is not None:
                    return buffer
        if allowed < wanted:
            fitting = _CHUNK_CLASS if allowed <= CHUNK_BYTES else _class_of(allowed)
            buffer = self._reuse(fitting)
            if buffer is not None:
                return buffer
        return bytearray(_bytes_of(fitting))

    def _reuse(self, size_class: int) -> bytearray | None:
        stack = self._stacks.get(size_class)
        while stack:
            buffer = stack.pop()
            self.retained_bytes -= len(buffer)
            if len(stack) < self._idle_low[size_class]:
                self._idle_low[size_class] = len(stack)
            try:
                # Changing the length is refused as long as a view exists, and costs nothing.
                buffer.pop()
                buffer.append(0)
            except BufferError:
                continue  # it is still read: it belongs to its reader now
            return buffer
        return None

    def give(self, buffer: bytearray) -> None:
        """Take back a buffer that came from ``take``; views on it may still exist."""
        size = len(buffer)
        if self.retained_bytes + size > self.retained_limit:
            return
        self.retained_bytes += size
        key = _CHUNK_CLASS if size == CHUNK_BYTES else _class_of(size)
        stack = self._stacks.get(key)
        if stack is None:
            self._stacks[key] = [buffer]
            self._idle_low[key] = 0
        else:
            stack.append(buffer)

    def trim(self) -> None:
        """Drop what was not used since the last call."""
        for key, stack in self._stacks.items():
            unused = self._idle_low[key]
            for buffer in stack[:unused]:
                self.retained_bytes -= len(buffer)
            del stack[:unused]
            self._idle_low[key] = len(stack)


class Frame:
    """A received frame that belongs to its holder until ``release`` or ``detach``.

    Attributes:
        view: The bytes after the size.
    """

    __slots__ = ("_buffer", "_pool", "view")

    def __init__(self, view: memoryview, buffer: bytearray | None, pool: FramePool | None) -> None:
        self.view = view
        self._buffer = buffer
        self._pool = pool

    def release(self) -> None:
        """Give the buffer back to the pool; ``view`` can't be used any more. Twice is fine."""
        self.view.release()
        buffer, pool = self._buffer, self._pool
        self._buffer = self._pool = None
        if buffer is not None and pool is not None:
            pool.give(buffer)

    def detach(self) -> memoryview:
        """Keep the bytes out of the pool for good."""
        self._buffer = self._pool = None
        return self.view


class FrameReader:
    """Cuts one connection's bytes into frames.

    ``buffer()``, ``received(n)``, then ``next_frame()`` until None. A frame's view is good until
    the next call of ``buffer``; ``keep()`` makes the frame that came last its taker's own.

    Attributes:
        limit: Largest size that the next frame may announce.
    """

    def __init__(self, pool: FramePool, limit: int) -> None:
        self.limit = limit
        self.frames = 0
        self._pool = pool
        self._buffer: bytearray | None = None
        self._start = 0  # of the frame under way, at its size
        self._end = 0  # of the bytes received
        self._size = -1  # of the frame under way, once known
        self._frame_start = 0  # of the frame given last
        self._expected = CHUNK_BYTES  # the next read brings as much as the last frame had
        self.lacking = 0
        """Bytes that are still to come of the frame under way, where its size is known."""

    def buffer(self) -> memoryview:
        """Where the next bytes go; never empty."""
        buffer = self._buffer
        if buffer is None:
            buffer = self._buffer = self._pool.take(self._expected, self._expected)
            self._start = self._end = 0
        elif self._end == len(buffer) or (
            # It won't fit: move it now, while little of it is here. Once it stands at the
            # beginning it moves only when the buffer is full, or a drip would cost a copy a byte.
            self._start and self._start + _SIZE_BYTES + self._size > len(buffer)
        ):
            buffer = self._move(buffer)
        return memoryview(buffer)[self._end :]

    def received(self, count: int) -> bool:
        """``count`` bytes were put into what ``buffer`` gave. False: inside of a frame still."""
        self._end += count
        self.lacking -= count
        return self._size < 0 or self.lacking <= 0

    def next_frame(self) -> memoryview | None:
        """The bytes of the next complete frame, without its size; None if there is none.

        Raises:
            InvalidFrame: The announced size can't be right. The connection is of no more use.
        """
        buffer = self._buffer
        if buffer is None:
            return None
        start = self._start + _SIZE_BYTES
        if self._size < 0:
            if start > self._end:
                if self._start == self._end:
                    self._buffer = None
                    self._pool.give(buffer)
                return None
            (size,) = _SIZE.unpack_from(buffer, self._start)
            if self.frames == 0 or not MINIMUM_FRAME <= size <= self.limit:
                self._check(size)
            self._size = size
        end = start + self._size
        self.lacking = end - self._end
        if self.lacking > 0:
            return None
        self._frame_start = self._start
        self._start = end
        self._expected = max(CHUNK_BYTES, self._size + _SIZE_BYTES)
        self._size = -1
        self.frames += 1
        return memoryview(buffer)[start:end]

    def keep(self) -> Frame:
        """Make the frame that ``next_frame`` gave last the caller's own.

        A frame that fills a good part of its buffer takes the buffer along; a smaller one is
        copied.
        """
        buffer = self._buffer
        if buffer is None:
            raise ValueError("there is no frame to keep: next_frame() has given none")
        start, end = self._frame_start + _SIZE_BYTES, self._start
        if self._frame_start == 0 and end > CHUNK_BYTES // 2 and end * GROWTH >= len(buffer):
            rest = self._end - end
            self._buffer = None
            if rest:
                self._buffer = moved = self._pool.take(rest + 1, rest + 1)
                memoryview(moved)[:rest] = memoryview(buffer)[end : self._end]
                self._start, self._end = 0, rest
            return Frame(memoryview(buffer)[start:end], buffer, self._pool)
        return Frame(memoryview(bytearray(memoryview(buffer)[start:end])), None, None)

    @property
    def received_of_frame(self) -> int:
        """Bytes of an incomplete frame that are here, its size included."""
        return 0 if self._buffer is None else self._end - self._start

    def close(self) -> None:
        """Give the buffer back."""
        if self._buffer is not None:
            self._pool.give(self._buffer)
            self._buffer = None
        self._start = self._end = self.lacking = 0
        self._size = -1

    def _move(self, buffer: bytearray) -> bytearray:
        """Go on in another buffer, with the incomplete frame at its beginning."""
        have = self._end - self._start
        wanted = max(self._size + _SIZE_BYTES, have + 1)
        moved = self._pool.take(wanted, max(CHUNK_BYTES, GROWTH * have))
        # A bytearray's own slice would first make another bytearray of the bytes.
        memoryview(moved)[:have] = memoryview(buffer)[self._start : self._end]
        self._pool.give(buffer)
        self._buffer = moved
        self._start, self._end = 0, have
        return moved

    def _check(self, size: int) -> None:
        """Raise InvalidFrame for a size that can't be right."""
        if self.frames == 0:
            hint = not_kafka(_SIZE.pack(size))
            if hint is not None:
                raise InvalidFrame(
                    "the peer does not speak Kafka", struct="Frame", field="size", hint=hint
                )
        if size < MINIMUM_FRAME or size > self.limit:
            raise InvalidFrame(
                f"a frame announces {size} bytes, allowed are {MINIMUM_FRAME} to {self.limit}",
                struct="Frame",
                field="size",
                hint="the peer does not speak Kafka, or receive_frame_limit is too low",
            )


def not_kafka(head: bytes) -> str | None:
    """What a peer that begins with these four bytes seems to be; None if it may be Kafka."""
    if head[0] in (0x15, 0x16) and head[1] == 3 and head[2] <= 4:
        return TLS_LISTENER
    if head == b"HTTP":
        return "this looks like an HTTP server: check the port"
    if head in (b"SSH-", b"220 ", b"+OK ", b"* OK"):
        return f"this looks like another service, it greets with {head.decode()!r}: check the port"
    return None


class RawResponse:
    """The bytes of a response, unread, in a frame that came from the pool.

    Attributes:
        api_key: Of the request that it answers.
        version: In which it is written.
        body: What follows the response header. Not to be used after ``release()``.
    """

    __slots__ = ("_frame", "api_key", "body", "version")

    def __init__(self, api_key: int, version: int, frame: Frame, body_offset: int) -> None:
        self.api_key = api_key
        self.version = version
        self.body = frame.view[body_offset:]
        self._frame: Frame | None = frame

    @property
    def throttle_time_ms(self) -> int:
        """That field, if the response begins with it, else 0. Not after ``release()``."""
        if self.api_key in BEGIN_WITH_THROTTLE_TIME and self.body.nbytes >= _SIZE.size:
            return max(0, int(_SIZE.unpack_from(self.body)[0]))
        return 0

    def release(self) -> None:
        """Give the frame back for reuse; ``body`` can't be used any more. Twice is fine.

        Slices of ``body`` that are still held stay valid: the pool doesn't reuse a frame as long
        as anybody looks at it.
        """
        if self._frame is not None:
            self.body.release()
            self._frame.release()
            self._frame = None

    def detach(self) -> memoryview:
        """Take the bytes for good: they are never pooled, and live as long as the view does."""
        if self._frame is not None:
            self._frame.detach()
            self._frame = None
        return self.body

    def __repr__(self) -> str:
        state = "released" if self._frame is None else f"{self.body.nbytes} bytes"
        return f"<RawResponse api_key={self.api_key} v{self.version} {state}>"

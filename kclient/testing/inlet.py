"""``Inlet``: the buffer that a broker's connection reads into, and the frames in it.

``connection.Channel`` has one. A frame is returned as a view: its bytes are not overwritten until
the response to it was sent; until then the channel passes ``busy`` to ``room``.
"""

from __future__ import annotations

import struct

from kclient.testing.refused import Hangup

_SIZE = struct.Struct(">i")
_BUFFER_BYTES = 64 << 10
_KEPT_BUFFER_BYTES = 4 << 20
"""A larger buffer is freed once its frame was served."""


class Inlet:
    """The read buffer of a connection.

    Attributes:
        held: Number of bytes that were read but not returned in a frame yet.
    """

    def __init__(self) -> None:
        self._buffer = bytearray(_BUFFER_BYTES)
        self._start = 0
        self._end = 0
        self.held = 0

    def room(self, busy: bool) -> memoryview:
        """The memory to read into; while ``busy`` bytes of returned frames are not overwritten."""
        if not self.held and not busy:
            self._start = self._end = 0
            if len(self._buffer) > _KEPT_BUFFER_BYTES:
                self._buffer = bytearray(_BUFFER_BYTES)
        elif self._end == len(self._buffer):
            self._make_room()
        return memoryview(self._buffer)[self._end :]

    def took(self, count: int) -> None:
        """``count`` bytes were read into that memory."""
        self._end += count
        self.held += count

    def _make_room(self) -> None:
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
            Hangup: Its size is negative, or more than ``most``.
        """
        if self.held < _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(self._buffer, self._start)
        if not 0 <= size <= most:
            raise Hangup(f"a frame of {size} bytes")
        taken = _SIZE.size + size
        if self.held < taken:
            return None
        begin = self._start + _SIZE.size
        self._start += taken
        self.held -= taken
        return memoryview(self._buffer)[begin : self._start]

    def begun(self, most: int) -> tuple[memoryview, int] | None:
        """The part of the next frame that was read, and its size; None if the size is invalid."""
        if self.held < _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(self._buffer, self._start)
        if not 0 <= size <= most:
            return None
        begin = self._start + _SIZE.size
        return memoryview(self._buffer)[begin : min(begin + size, self._end)], size

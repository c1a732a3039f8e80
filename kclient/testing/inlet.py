"""``Inlet``: the buffer that a broker's connection reads into, and the frames in it.

``connection.Channel`` has one. A frame is given out as a view: its bytes stay as they are until
the request was answered, which ``room`` is told by ``busy``.
"""

from __future__ import annotations

import struct

from kclient.testing.refused import Hangup

_SIZE = struct.Struct(">i")
_BUFFER_BYTES = 64 << 10
_KEPT_BUFFER_BYTES = 4 << 20
"""A larger buffer is given back when its frame was served."""


class Inlet:
    """Bytes that came.

    Attributes:
        held: How many of them are not given out.
    """

    def __init__(self) -> None:
        self._buffer = bytearray(_BUFFER_BYTES)
        self._start = 0
        self._end = 0
        self.held = 0

    def room(self, busy: bool) -> memoryview:
        """Where to read into; while ``busy`` no byte that was given out is written over."""
        if not self.held and not busy:
            self._start = self._end = 0
            if len(self._buffer) > _KEPT_BUFFER_BYTES:
                self._buffer = bytearray(_BUFFER_BYTES)
        elif self._end == len(self._buffer):
            self._make_room()
        return memoryview(self._buffer)[self._end :]

    def took(self, count: int) -> None:
        """So many bytes were read into the room."""
        self._end += count
        self.held += count

    def _make_room(self) -> None:
        """Room grows with the bytes that came, not with the size that was announced.

        Always a new buffer: a request that waits may have views of the old one.
        """
        size = len(self._buffer)
        if self.held > size // 2:
            size *= 2
        buffer = bytearray(size)
        buffer[: self.held] = memoryview(self._buffer)[self._start : self._end]
        self._buffer, self._start, self._end = buffer, 0, self.held

    def next_frame(self, most: int) -> memoryview | None:
        """Give out the next frame, without its size field, if it is there as a whole.

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
        """What is there of the next frame, and its size; None if that is no size."""
        if self.held < _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(self._buffer, self._start)
        if not 0 <= size <= most:
            return None
        begin = self._start + _SIZE.size
        return memoryview(self._buffer)[begin : min(begin + size, self._end)], size

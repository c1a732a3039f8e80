"""Cuts a stream of bytes into what rules act on: Kafka's frames, or records of TLS.

A unit keeps its size field or record header, so that joining all units gives the stream again.
Used by ``session.py``, one of them for each direction. Must not decode anything.
"""

from __future__ import annotations

import struct
from typing import Protocol

MAX_FRAME = 200 * 1024 * 1024
"""A size above this is no size of a frame: a TLS hello reads as 369 MB."""

_SIZE = struct.Struct(">i")
_RECORD = struct.Struct(">BHH")
_TLS_TYPES = range(20, 25)


class Cutter(Protocol):
    """What cuts a stream."""

    def take(self, data: bytes) -> list[bytes]:
        """The units that are complete with ``data``."""
        ...


class Frames:
    """Frames of the Kafka protocol: a size of four bytes, then that many bytes."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._need = 0

    def take(self, data: bytes) -> list[bytes]:
        """The frames that are complete with ``data``; a partial one waits for the rest."""
        if self._held:
            self._held += data
            if len(self._held) < self._need:
                return []
            data = bytes(self._held)
            self._held.clear()
        found, pos, end = [], 0, len(data)
        self._need = 4
        while end - pos >= 4:
            (size,) = _SIZE.unpack_from(data, pos)
            if not 0 <= size <= MAX_FRAME:
                raise ValueError(f"no frame of Kafka has {size} bytes; is this TLS? (opaque=True)")
            if pos + 4 + size > end:
                self._need = 4 + size
                break
            found.append(data[pos : pos + 4 + size])
            pos += 4 + size
        if pos < end:
            self._held += data[pos:]
        return found


class Opaque:
    """Records of TLS where the stream is that, and otherwise the pieces as they come."""

    def __init__(self) -> None:
        self._held = b""

    def take(self, data: bytes) -> list[bytes]:
        """The records that are complete with ``data``."""
        data = self._held + data
        found, pos, end = [], 0, len(data)
        while end - pos >= _RECORD.size:
            kind, version, size = _RECORD.unpack_from(data, pos)
            if kind not in _TLS_TYPES or version >> 8 != 3:
                found.append(data[pos:])
                pos = end
                break
            if pos + _RECORD.size + size > end:
                break
            found.append(data[pos : pos + _RECORD.size + size])
            pos += _RECORD.size + size
        self._held = data[pos:]
        return found

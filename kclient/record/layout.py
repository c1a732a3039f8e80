"""The 61 bytes before the records of a v2 batch: layout, attribute bits, CRC-32C, encode; and the
size estimate of a record.

Used by ``builder.py`` (write), ``message_set.py`` and ``record_batch.py`` (read). ``length`` does
not count the first 12 bytes (base offset and length); the CRC covers everything from the attributes
on, so that a broker can set base offset and leader epoch without computing it again. A table-driven
CRC in plain Python costs 6 to 9 us per record, so the ``crc32c`` package (C, with the CPU's own
instruction) is a dependency of both builds.
"""

from __future__ import annotations

import struct
import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

BATCH_HEADER_BYTES = 61
"""Size of a v2 batch header, base offset and length included."""
LOG_OVERHEAD = 12
"""Base offset and length: the bytes that ``length`` does not count."""
CRC_START = 21
"""Start of the bytes that the CRC-32C covers."""

RECORD_OVERHEAD = 21
"""Estimated bytes of a record in addition to key, value and headers."""
HEADER_OVERHEAD = 10
"""Most bytes of a header in addition to name and value: two lengths of up to five bytes."""

NO_HEADERS = b"\x00"
"""The encoded headers of a record without any: their count, a varint."""
MAGIC_POSITION = 16
"""Position of the magic byte, the same in message sets v0 and v1."""

CODEC_MASK = 0x07
LOG_APPEND_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20

PREFIX = struct.Struct(">qi")
"""Base offset and length."""
HEAD = struct.Struct(">qiibI")
"""Base offset, length, leader epoch, magic, CRC."""
REST = struct.Struct(">hiqqqhii")
"""Attributes, last offset delta, base and max timestamp, producer id, epoch, sequence, count."""


def batch_head(
    body: bytes | bytearray | memoryview,
    attributes: int,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """Return the header of a v2 batch with ``body``, with its CRC."""
    rest = REST.pack(
        attributes,
        record_count - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    length = BATCH_HEADER_BYTES - LOG_OVERHEAD + len(body)
    return HEAD.pack(base_offset, length, leader_epoch, 2, crc32c(body, crc32c(rest))) + rest


def _package() -> Any:
    """Return the C module of the ``crc32c`` package alone, else the whole package.

    The package's ``__init__`` looks up its version in installed metadata and loads a command line:
    a sixth of the import time of a client.
    """
    package = None if "crc32c" in sys.modules else find_spec("crc32c")
    if package is not None:
        inside = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
        if inside is not None and inside.loader is not None:
            module = module_from_spec(inside)
            inside.loader.exec_module(module)
            if hasattr(module, "crc32c"):
                return module
    import crc32c

    return crc32c


_crc32c = _package().crc32c


def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """Return the CRC-32C (Castagnoli) of ``data``, continuing from ``value``, as unsigned int."""
    checksum: int = _crc32c(data, value)
    return checksum

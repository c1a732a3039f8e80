"""The 61 bytes before the records of a v2 batch: layout, attribute bits, CRC-32C, encode; and how
much a record is said to take.

Used by ``builder.py`` (write), ``reader.py`` and ``record_batch.py`` (read). The first 12 bytes
(base offset and length) lie outside of what ``length`` counts; the CRC covers everything from the
attributes on, so that a broker can set base offset and leader epoch without computing it again.
Table code in plain Python costs 6 to 9 us per record, so the ``crc32c`` package (C, with the CPU's
own instruction) is a dependency of both builds.
"""

from __future__ import annotations

import struct
import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

BATCH_HEADER_BYTES = 61
"""Of a v2 batch, base offset and length included."""
LOG_OVERHEAD = 12
"""Base offset and length: the bytes that ``length`` does not count."""
CRC_START = 21
"""Where the bytes begin that the CRC-32C covers."""

RECORD_OVERHEAD = 21
"""Bytes that a record is said to take beyond key, value and headers, about."""
HEADER_OVERHEAD = 10
"""Bytes that one of its headers takes beyond name and value at most: two lengths of up to five."""

MAGIC_POSITION = 16
"""The same in message sets v0 and v1."""

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
    """The header of a v2 batch around ``body``, with its CRC."""
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
    """The package's C module alone; the package, where that can't be had.

    The package's ``__init__`` looks up its version in installed metadata and loads a command line:
    a sixth of what importing a client costs.
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
    """CRC-32C (Castagnoli) of ``data``, continuing from ``value``, as an unsigned int."""
    checksum: int = _crc32c(data, value)
    return checksum

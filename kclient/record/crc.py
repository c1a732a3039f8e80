"""CRC-32C, as batches v2 carry it. The one place that knows the ``crc32c`` package.

Table code in plain Python costs 6 to 9 us per record, so the package (C, with the CPU's own
instruction) is a dependency of both builds.
"""

from __future__ import annotations

from crc32c import crc32c as _crc32c


def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """CRC-32C (Castagnoli) of ``data``, continuing from ``value``, as an unsigned int."""
    return _crc32c(data, value)

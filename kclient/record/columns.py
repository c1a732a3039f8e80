"""``ColumnStore``: records of v2 payloads as columns, without an object for each. One source, two
builds.

Compiled a second time as ``kclient.record._columns_c``. ``columnar.py`` fills it batch by batch and
exports its buffers in Arrow's layout. It shares ``parse_record`` with the decoder of records, so
that both accept and refuse the same bytes; it must not know about topics or about Arrow's structs.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import cython  # type: ignore[import-untyped]
    from cython.cimports.cpython.bytearray import (  # type: ignore[import-untyped]
        PyByteArray_Resize,
    )
    from cython.cimports.libc.string import memcpy  # type: ignore[import-untyped]

    from kclient.types import Headers
else:
    from kclient.record import _cython as cython

if not cython.compiled:
    # The compiled build has them as C functions, by its .pxd.
    from kclient.record.batch import (
        check_end,
        decode_headers,
        offset_of,
        parse_record,
        timestamp_of,
    )

_INT32_MAX = 0x7FFFFFFF
_INT64_BYTES = 8
_INT32_BYTES = 4


@cython.final
@cython.cclass
class BytesColumn:
    """One column of bytes: the data end to end, where each ends, and which are null."""

    __slots__ = ("_data", "_ends", "_nulls", "_present", "_used")

    def __init__(self) -> None:
        self._data = bytearray()
        self._ends = array("i", (0,))
        self._present = bytearray()
        self._used = 0
        self._nulls = 0

    @property
    def nulls(self) -> int:
        """How many are null."""
        return self._nulls

    @property
    def data(self) -> bytearray:
        """The bytes, end to end, and room behind them."""
        return self._data

    @property
    def ends(self) -> Any:
        """An array of int32: 0, then where each row ends."""
        return self._ends

    @property
    def present(self) -> bytearray:
        """A byte per row: 1, or 0 for null."""
        return self._present

    def reserve(self, rows: int, size_bytes: int) -> None:
        """Make room for so many rows in all, and so many more bytes."""
        missing = rows + 1 - len(self._ends)
        if missing > 0:
            self._ends.frombytes(bytes(_INT32_BYTES * max(missing, len(self._ends))))
        missing = rows - len(self._present)
        if missing > 0:
            self._present.extend(bytes(max(missing, len(self._present))))
        wanted = self._used + size_bytes
        if wanted > len(self._data):
            grow(self._data, max(wanted, 2 * len(self._data)))


@cython.final
@cython.cclass
class ColumnStore:
    """Rows of offset, timestamp, key, value and headers."""

    __slots__ = (
        "_header_ends",
        "_header_names",
        "_header_values",
        "_headers",
        "_keys",
        "_offsets",
        "_rows",
        "_timestamps",
        "_values",
    )

    def __init__(self) -> None:
        self._offsets = array("q")
        self._timestamps = array("q")
        self._header_ends = array("i", (0,))
        self._keys = BytesColumn()
        self._values = BytesColumn()
        self._header_names: list[str] = []
        self._header_values: list[bytes | None] = []
        self._headers = 0
        self._rows = 0

    @property
    def rows(self) -> int:
        """How many rows are in it."""
        return self._rows

    @property
    def size_bytes(self) -> int:
        """Bytes of keys and values."""
        return self._keys._used + self._values._used

    @property
    def offsets(self) -> Any:
        """An array of int64, as long as there are rows or longer."""
        return self._offsets

    @property
    def timestamps(self) -> Any:
        """An array of int64: milliseconds."""
        return self._timestamps

    @property
    def keys(self) -> BytesColumn:
        """The column of keys."""
        return self._keys

    @property
    def values(self) -> BytesColumn:
        """The column of values."""
        return self._values

    @property
    def header_ends(self) -> Any:
        """An array of int32: 0, then how many headers there are up to the end of each row."""
        return self._header_ends

    @property
    def header_names(self) -> list[str]:
        """Names of all headers."""
        return self._header_names[: self._headers]

    @property
    def header_values(self) -> list[bytes | None]:
        """Values of all headers."""
        return self._header_values[: self._headers]

    def _reserve(self, rows: int, size_bytes: int) -> None:
        """Room for ``rows`` more with ``size_bytes`` of keys and values between them."""
        rows += self._rows
        missing = rows - len(self._offsets)
        if missing > 0:
            more = bytes(_INT64_BYTES * max(missing, len(self._offsets)))
            self._offsets.frombytes(more)
            self._timestamps.frombytes(more)
        missing = rows + 1 - len(self._header_ends)
        if missing > 0:
            self._header_ends.frombytes(bytes(_INT32_BYTES * max(missing, len(self._header_ends))))
        self._keys.reserve(rows, size_bytes)
        self._values.reserve(rows, size_bytes)
        # What a batch that turned out to be corrupt may have left.
        del self._header_names[self._headers :]
        del self._header_values[self._headers :]

    def _add_headers(self, headers: Headers) -> int:
        for name, value in headers:
            self._header_names.append(name)
            self._header_values.append(value)
        return len(self._header_names)

    def append(
        self, offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> bool:
        """Add one row from values; False if the columns are full."""
        size = (0 if key is None else len(key)) + (0 if value is None else len(value))
        if size > _INT32_MAX - self.size_bytes:
            return False
        row = self._rows
        self._reserve(1, size)
        self._offsets[row] = offset
        self._timestamps[row] = timestamp
        for column, item in ((self._keys, key), (self._values, value)):
            if item is None:
                column._nulls += 1
            else:
                column._data[column._used : column._used + len(item)] = item
                column._used += len(item)
            column._present[row] = 0 if item is None else 1
            column._ends[row + 1] = column._used
        self._headers = self._add_headers(headers)
        self._header_ends[row + 1] = self._headers
        self._rows = row + 1
        return True

    def fill(
        self,
        data: bytes,
        pos: int,
        left: int,
        base_offset: int,
        last_delta: int,
        base_timestamp: int,
        append_timestamp: int | None,
        start_offset: int,
        limit: int,
    ) -> tuple[int, int]:
        """Add up to ``limit`` records of a v2 payload; arguments as ``decode_records`` has them.

        Nothing is added if it raises. It stops early where Arrow's 32-bit offsets end.

        Returns:
            The new ``pos`` and the new ``left``.

        Raises:
            CorruptRecord: The payload is not what it should be.
        """
        data_cstr = data
        end = len(data)
        if end - pos > _INT32_MAX - self.size_bytes:
            return pos, left
        self._reserve(min(left, limit), end - pos)
        offsets = self._offsets
        timestamps = self._timestamps
        header_ends = self._header_ends
        keys = self._keys
        values = self._values
        key_ends = keys._ends
        value_ends = values._ends
        key_data: Any = keys._data
        value_data: Any = values._data
        key_present: Any = keys._present
        value_present: Any = values._present
        key_used = keys._used
        value_used = values._used
        key_nulls = 0
        value_nulls = 0
        headers = self._headers
        first = self._rows
        row = first
        last = row + min(left, limit)
        fixed_time = append_timestamp is not None
        fixed_timestamp = append_timestamp if append_timestamp is not None else 0
        while left > 0 and row < last:
            (time_delta, delta, key_pos, key_size, value_pos, value_size, headers_pos, stop) = (
                parse_record(data_cstr, pos, end)
            )
            offset = offset_of(base_offset, delta, last_delta, pos)
            timestamp = timestamp_of(base_timestamp, time_delta, pos)
            if offset >= start_offset:
                offsets[row] = offset
                timestamps[row] = fixed_timestamp if fixed_time else timestamp
                if key_size < 0:
                    key_present[row] = 0
                    key_nulls += 1
                else:
                    key_present[row] = 1
                    copy_bytes(key_data, key_used, data_cstr, key_pos, key_size)
                    key_used += key_size
                if value_size < 0:
                    value_present[row] = 0
                    value_nulls += 1
                else:
                    value_present[row] = 1
                    copy_bytes(value_data, value_used, data_cstr, value_pos, value_size)
                    value_used += value_size
                if headers_pos + 1 != stop:
                    headers = self._add_headers(decode_headers(data[headers_pos:stop]))
                row += 1
                key_ends[row] = key_used
                value_ends[row] = value_used
                header_ends[row] = headers
            pos = stop
            left -= 1
        check_end(pos, left, end)
        keys._used = key_used
        values._used = value_used
        keys._nulls += key_nulls
        values._nulls += value_nulls
        self._headers = headers
        self._rows = row
        return pos, left


def grow(data: bytearray, size: int) -> None:
    """Make ``data`` longer; what the new bytes are does not matter, so C does not clear them."""
    if cython.compiled:
        PyByteArray_Resize(data, size)
    else:
        data.extend(bytes(size - len(data)))


def copy_bytes(out: Any, at: int, data: bytes, pos: int, size: int) -> None:
    """Copy ``size`` bytes of ``data`` from ``pos`` to ``at``; both are known to have them."""
    if cython.compiled:
        target: Any = out
        source: Any = data
        memcpy(target + at, source + pos, size)
    else:
        out[at : at + size] = data[pos : pos + size]


def bitmap(present: bytearray, rows: int) -> bytearray:
    """A byte per row to Arrow's bit per row, least significant first."""
    present_cstr: Any = present
    bits = bytearray((rows + 7) // 8)
    bits_cstr: Any = bits
    row = 0
    while row < rows:
        if present_cstr[row]:
            bits_cstr[row >> 3] |= 1 << (row & 7)
        row += 1
    return bits

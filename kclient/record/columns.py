"""``ColumnStore``: records of v2 payloads as columns, without an object for each. One source, two
builds.

Compiled a second time as ``kclient.record._columns_c``. ``columnar.py`` fills it batch by batch and
exports its buffers in Arrow's layout. It shares ``parse_record`` with the decoder of records, so
that both accept and reject the same bytes; it must not know about topics or about Arrow's structs.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import cython  # type: ignore[import-untyped]
    from cython.cimports.cpython.array import (  # type: ignore[import-untyped]
        resize as resize_array,
    )
    from cython.cimports.cpython.bytearray import (  # type: ignore[import-untyped]
        PyByteArray_Resize,
    )
    from cython.cimports.libc.string import memcpy  # type: ignore[import-untyped]

    from kclient.types import Headers
else:
    from kclient.record import _cython as cython

if not cython.compiled:
    # The compiled build imports them as C functions in its .pxd.
    from kclient.record.record import (
        check_end,
        decode_headers,
        offset_of,
        parse_record,
        start_of,
        timestamp_of,
    )

_INT32_MAX = 0x7FFFFFFF
_INT64_MAX = 0x7FFFFFFFFFFFFFFF
_EXPECTED_SHARE = 64
"""The expected size is allocated once this fraction of it (1/64) is needed."""


@cython.final
@cython.cclass
class BytesColumn:
    """One column of bytes: the concatenated data, the end of each row, and which rows are null.

    Args:
        rows: Rows to allocate for when the first row is added.
        size_bytes: Bytes of data to allocate likewise.

    Attributes:
        data: The bytes of all rows, and spare space behind them.
        ends: An array of int32: 0, then the end of each row in ``data``.
        present: A byte per row: 1, or 0 for null.
    """

    def __init__(self, rows: int = 0, size_bytes: int = 0) -> None:
        self._expected_rows = rows
        self._expected_bytes = size_bytes
        self._asked = 0  # the largest size of data that was requested
        self.data = bytearray()
        self.ends = array("i", (0,))
        self.present = bytearray()
        self.reserve(0, 0, 0)

    def reserve(self, rows: int, more: int, size_bytes: int) -> None:
        """Allocate for ``more`` rows behind ``rows``, with ``size_bytes`` bytes of data in them."""
        self._ends_view: Any = None  # an array with an exported view can't grow
        wanted = rows + more + 1
        try:
            if wanted > len(self.ends):
                resize_items(self.ends, space_for(wanted, len(self.ends), self._expected_rows + 1))
        finally:
            self._ends_view = self.ends
        wanted = rows + more
        if wanted > len(self.present):
            resize(self.present, space_for(wanted, len(self.present), self._expected_rows))
        self._present_cstr: Any = self.present
        wanted = self._ends_view[rows] + size_bytes
        self._asked = max(self._asked, wanted)
        if wanted > len(self.data):
            resize(self.data, space_for(wanted, len(self.data), self._expected_bytes))
        self._data_cstr: Any = self.data

    def trim(self, rows: int) -> None:
        """Free the space behind ``rows`` rows if it is larger than the rows themselves."""
        used = self.ends[rows]
        if len(self.data) > 2 * used:
            resize(self.data, used)
        if len(self.present) > 2 * rows:
            resize(self.present, rows)
        if len(self.ends) > 2 * (rows + 1):
            self._ends_view = None
            resize_items(self.ends, rows + 1)
        self.reserve(rows, 0, 0)  # renew the views, as the memory has moved

    def put(self, row: int, data: bytes, pos: int, size: int) -> int:
        """Set a row within the reserved space; a negative size is null. Return 1 for null, else 0.

        Setting a row again overwrites it: data behind the last counted row is not in use.
        """
        used = self._ends_view[row]
        if size < 0:
            self._present_cstr[row] = 0
            self._ends_view[row + 1] = used
            return 1
        self._present_cstr[row] = 1
        self._ends_view[row + 1] = used + size
        if cython.compiled:
            target: Any = self._data_cstr
            source: Any = data
            memcpy(target + used, source + pos, size)
        else:
            self._data_cstr[used : used + size] = data[pos : pos + size]
        return 0


@cython.final
@cython.cclass
class ColumnStore:
    """Rows of offset, timestamp, key, value and headers.

    Args:
        rows: Rows to allocate for when the first row is added.
        key_bytes: Bytes of keys to allocate likewise.
        value_bytes: Bytes of values. All three come from earlier stores, never from batch headers.
        with_keys: Whether keys are stored, else they are null; likewise ``with_values`` and
            ``with_headers``. Headers that aren't stored aren't decoded either.

    Attributes:
        rows: Number of rows.
        offsets: An array of int64 with at least as many items as rows.
        timestamps: An array of int64: milliseconds.
        keys: The column of keys.
        values: The column of values.
        key_nulls: Number of null keys.
        value_nulls: Number of null values.
        header_ends: An array of int32: 0, then the number of headers up to the end of each row.
        stopped: The latest ``fill`` has come to its ``stop_offset``.
    """

    def __init__(
        self,
        rows: int = 0,
        key_bytes: int = 0,
        value_bytes: int = 0,
        with_keys: bool = True,
        with_values: bool = True,
        with_headers: bool = True,
    ) -> None:
        self._with_keys = with_keys
        self._with_values = with_values
        self._with_headers = with_headers
        self._expected_rows = rows
        self.offsets = array("q")
        self.timestamps = array("q")
        self.header_ends = array("i", (0,))
        self.keys = BytesColumn(rows, key_bytes)
        self.values = BytesColumn(rows, value_bytes)
        self._header_names: list[str] = []
        self._header_values: list[bytes | None] = []
        self.key_nulls = 0
        self.value_nulls = 0
        self._headers = 0
        self.rows = 0
        self.stopped = False

    @property
    def size_bytes(self) -> int:
        """Bytes of the keys and values that are stored."""
        return int(self.keys.ends[self.rows] + self.values.ends[self.rows])

    @property
    def asked(self) -> tuple[int, int, int]:
        """Rows, and the largest sizes of keys and values that were reserved for complete payloads:
        the expectation for the next store.
        """
        return self.rows, self.keys._asked, self.values._asked

    @property
    def last_offset(self) -> int:
        """Offset of the last row, -1 without one."""
        return int(self.offsets[self.rows - 1]) if self.rows > 0 else -1

    @property
    def header_names(self) -> list[str]:
        """Names of all headers."""
        return self._header_names[: self._headers]

    @property
    def header_values(self) -> list[bytes | None]:
        """Values of all headers."""
        return self._header_values[: self._headers]

    def reserve(self, more: int, size_bytes: int) -> None:
        """Allocate for ``more`` rows, with ``size_bytes`` bytes of keys and values in total."""
        wanted = self.rows + more
        if wanted > len(self.offsets):
            size = space_for(wanted, len(self.offsets), self._expected_rows)
            resize_items(self.timestamps, size)
            resize_items(self.header_ends, size + 1)
            # Last, as its length shows that all are allocated; the others may raise MemoryError.
            resize_items(self.offsets, size)
        self.keys.reserve(self.rows, more, size_bytes if self._with_keys else 0)
        self.values.reserve(self.rows, more, size_bytes if self._with_values else 0)
        # Remove headers that a corrupt batch may have left.
        del self._header_names[self._headers :]
        del self._header_values[self._headers :]

    def trim(self) -> None:
        """Free spare space that exceeds the rows' own: the buffers may be kept for long."""
        rows = self.rows
        if len(self.offsets) > 2 * rows:
            resize_items(self.offsets, rows)
            resize_items(self.timestamps, rows)
            resize_items(self.header_ends, rows + 1)
        self.keys.trim(rows)
        self.values.trim(rows)

    def _add_headers(self, headers: Headers) -> int:
        for name, value in headers:
            self._header_names.append(name)
            self._header_values.append(value)
        return len(self._header_names)

    def append(
        self, offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> bool:
        """Add one row from values; return False if the columns are full."""
        key_size = -1 if key is None or not self._with_keys else len(key)
        value_size = -1 if value is None or not self._with_values else len(value)
        size = max(key_size, 0) + max(value_size, 0)
        if size > _INT32_MAX - self.size_bytes:
            return False
        row = self.rows
        self.reserve(1, size)
        self.offsets[row] = offset
        self.timestamps[row] = timestamp
        self.key_nulls += self.keys.put(row, key or b"", 0, key_size)
        self.value_nulls += self.values.put(row, value or b"", 0, value_size)
        self._headers = self._add_headers(headers)
        self.header_ends[row + 1] = self._headers
        self.rows = row + 1
        return True

    def fill(
        self,
        data: bytes | memoryview,
        pos: int,
        left: int,
        base_offset: int,
        last_delta: int,
        base_timestamp: int,
        append_timestamp: int | None,
        start_offset: int,
        limit: int,
        stop_offset: int = _INT64_MAX,
    ) -> tuple[int, int]:
        """Add up to ``limit`` records of a v2 payload; arguments as in ``decode_records``.

        It stops in front of the first one at ``stop_offset`` or behind. Nothing is added if it
        raises, or if the rest of the payload might exceed Arrow's 32-bit offsets.

        Returns:
            The new ``pos`` and the new ``left``.

        Raises:
            CorruptRecord: The payload is malformed.
        """
        data_view: Any = data
        data_cstr: Any = start_of(data_view)
        end = len(data)
        self.stopped = False
        if end - pos > _INT32_MAX - self.size_bytes:
            return pos, left
        self.reserve(min(left, limit), end - pos)
        offsets = self.offsets
        timestamps = self.timestamps
        header_ends = self.header_ends
        keys = self.keys
        values = self.values
        with_keys, with_values = self._with_keys, self._with_values
        key_nulls = value_nulls = 0
        headers = self._headers
        row = self.rows
        last = row + min(left, limit)
        fixed_time = append_timestamp is not None
        fixed_timestamp = append_timestamp if append_timestamp is not None else 0
        while left > 0 and row < last:
            (time_delta, delta, key_pos, key_size, value_pos, value_size, headers_pos, stop) = (
                parse_record(data_cstr, pos, end)
            )
            offset = offset_of(base_offset, delta, last_delta, pos)
            timestamp = timestamp_of(base_timestamp, time_delta, pos)
            if offset >= stop_offset:
                self.stopped = True
                break
            if offset >= start_offset:
                offsets[row] = offset
                timestamps[row] = fixed_timestamp if fixed_time else timestamp
                key_nulls += keys.put(row, data_cstr, key_pos, key_size if with_keys else -1)
                value_nulls += values.put(
                    row, data_cstr, value_pos, value_size if with_values else -1
                )
                if headers_pos + 1 != stop and self._with_headers:
                    headers = self._add_headers(decode_headers(data_cstr[headers_pos:stop]))
                row += 1
                header_ends[row] = headers
            pos = stop
            left -= 1
        check_end(pos, left, end)
        self.key_nulls += key_nulls
        self.value_nulls += value_nulls
        self._headers = headers
        self.rows = row
        return pos, left


def space_for(wanted: int, space: int, expected: int) -> int:
    """Return a new size for a buffer of size ``space`` that needs ``wanted``; it grows seldom.

    In C, expected space costs nothing until it is used; in Python it would have to be cleared. If
    little is needed, a large allocation is not worth its system calls.
    """
    if not cython.compiled or wanted * _EXPECTED_SHARE < expected:
        expected = 0
    return max(wanted, 2 * space, expected)


def resize(data: bytearray, size: int) -> None:
    """Change the size; the new bytes need no defined content, so C does not clear them."""
    if cython.compiled:
        PyByteArray_Resize(data, size)
    elif size > len(data):
        data.extend(bytes(size - len(data)))
    else:
        del data[size:]


def resize_items(data: Any, size: int) -> None:
    """The same for an array, which must have no exported views: C does not check that."""
    if cython.compiled:
        resize_array(data, size)
    elif size > len(data):
        data.frombytes(bytes(data.itemsize * (size - len(data))))
    else:
        del data[size:]


def bitmap(present: bytearray, rows: int) -> bytearray:
    """Convert a byte per row to Arrow's bit per row, least significant bit first."""
    present_cstr: Any = present
    bits = bytearray((rows + 7) // 8)
    bits_cstr: Any = bits
    row = 0
    while row < rows:
        if present_cstr[row]:
            bits_cstr[row >> 3] |= 1 << (row & 7)
        row += 1
    return bits

"""``ArrowRows``: rows of Arrow columns as records, without an object for each. One source, two
builds.

Compiled a second time as ``kclient.record._arrow_rows_c``. ``producer.arrow_source`` wraps the
buffers of a slice of columns; ``send_arrow`` has the rows checked, assigned to partitions, and put
into batches. Every position in a buffer is checked before it is read, since offsets are untrusted.
It must not know about pyarrow, topics or the sender.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kclient.errors import InvalidArgument
from kclient.record.layout import HEADER_OVERHEAD, NO_HEADERS, RECORD_OVERHEAD

if TYPE_CHECKING:
    import cython  # type: ignore[import-untyped]
    from cython.cimports.libc.string import memcpy  # type: ignore[import-untyped]

    from kclient.record import builder as _builder
else:
    from kclient.record import _cython as cython

if not cython.compiled:
    # The compiled build imports them as C functions in its .pxd.
    from kclient.record.builder import put_varint, zigzag
    from kclient.record.murmur import partition_of

TOO_LARGE = 1
BAD_PARTITION = 2
BAD_TIMESTAMP = 3
BAD_HEADER = 4
BAD_NAME = 5
"""The faults of a row that ``ArrowRows.check`` reports."""

_LAST_TIMESTAMP = 0x7FFFFFFFFFFFFFFE
MOST_PARTITIONS = 0x80000000
"""Most partitions of a topic, by the range of partition indexes."""
_NO_HEADERS = NO_HEADERS  # a name of C in the compiled build

# Amounts of work that take a few milliseconds in each build.
_CELLS_AT_ONCE = 65_536 if cython.compiled else 1_024
"""Rows and headers that are checked or encoded before the caller may yield to the loop."""
_HASHED_AT_ONCE = 4 * 1024 * 1024 if cython.compiled else 64 * 1024
"""Bytes of keys that are hashed before the caller may yield to the loop."""


@cython.final
@cython.cclass
class ArrowBits:
    """The validity bitmap of a column: which rows are not null.

    Args:
        start: Index of the first row's bit.
        rows: Number of rows.
        bits: A bit per row, least significant first; None if no row is null.
    """

    def __init__(self, start: int, rows: int, bits: Any) -> None:
        self._any = bits is not None
        self._start = start
        self._bits: Any = view_of(b"" if bits is None else bits, 1, (start + rows + 7) // 8, "B")

    def is_null(self, row: int) -> bool:
        """Return whether ``row`` is null."""
        if not self._any:
            return False
        at = self._start + row
        return not self._bits[at >> 3] >> (at & 7) & 1


@cython.final
@cython.cclass
class ArrowBytes:
    """A column of bytes or texts.

    Args:
        rows: Number of rows.
        start: Index of the first row in the buffers.
        bits: Validity bitmap, or None if no row is null.
        width: Bytes of an offset: 4 or 8; 0 if all values have the same size.
        ends: Offsets into ``data``, one more than rows.
        size: Bytes of each value if all have the same size; -1 for a column of nulls only.
        data: The values, concatenated.

    Attributes:
        pos: Position in ``data`` of the value that ``locate`` found.
    """

    def __init__(
        self, rows: int, start: int, bits: Any, width: int, ends: Any, size: int, data: Any
    ) -> None:
        self.pos = 0
        self._nulls = ArrowBits(start, rows, bits)
        self._start = start
        self._width = width
        self._size = size
        count = start + rows + 1 if rows else 0
        self._narrow: Any = view_of(ends if width == 4 else b"", 4, count, "i")
        self._wide: Any = view_of(ends if width == 8 else b"", 8, count, "q")
        self._data: Any = view_of(data, 1, 0, "B")
        if cython.compiled:
            self._data_cstr: Any = cython.address(self._data[0])
        else:
            self._data_cstr = self._data

    def locate(self, row: int) -> int:
        """Find the value of a row: return its size, -1 for null, and set ``pos``.

        Raises:
            InvalidArgument: It is not within the data.
        """
        if self._nulls.is_null(row) or self._size < 0:
            return -1
        at = self._start + row
        if self._width == 4:
            first = self._narrow[at]
            last = self._narrow[at + 1]
        elif self._width == 8:
            first = self._wide[at]
            last = self._wide[at + 1]
        else:
            first = at * self._size
            last = first + self._size
        if not 0 <= first <= last <= len(self._data):
            raise broken(row)
        self.pos = first
        return last - first  # type: ignore[no-any-return]

    def get(self, row: int) -> bytes | None:
        """Return the value of a row as an object."""
        size = self.locate(row)
        return None if size < 0 else bytes(self._data[self.pos : self.pos + size])

    def is_text(self, row: int) -> bool:
        """Return whether the value of a row, which isn't null, is UTF-8."""
        if cython.compiled:
            size = self.locate(row)
            pos = self.pos
            last = pos + size
            while pos < last and self._data[pos] < 0x80:
                pos += 1
            if pos == last:
                return True
        try:
            (self.get(row) or b"").decode()
        except UnicodeDecodeError:
            return False
        return True


@cython.final
@cython.cclass
class ArrowInts:
    """A column of numbers, each multiplied or divided to convert its unit.

    Args:
        rows: Number of rows.
        start: Index of the first row in the buffers.
        bits: Validity bitmap, or None if no row is null.
        numbers: Ints of 64 bits.
        times: Factor to multiply by.
        over: Divisor.
    """

    def __init__(
        self, rows: int, start: int, bits: Any, numbers: Any, times: int = 1, over: int = 1
    ) -> None:
        self._nulls = ArrowBits(start, rows, bits)
        self._start = start
        self._numbers: Any = view_of(numbers, 8, start + rows, "q")
        self._times = times
        self._over = over
        self._most = _LAST_TIMESTAMP // times

    def is_null(self, row: int) -> bool:
        """Return whether ``row`` is null."""
        return self._nulls.is_null(row)

    def get(self, row: int) -> int:
        """Return the number in a row, -2 if it is out of range or below -1."""
        number = self._numbers[self._start + row]
        if number < -1 or number > self._most:
            return -2
        if number < 0:
            # poll_arrow returns -1 milliseconds for a record without a timestamp.
            return -1 if self._times == 1 and self._over == 1 else -2
        if self._over == 1:
            return number * self._times  # type: ignore[no-any-return]
        return number // self._over  # type: ignore[no-any-return]


@cython.final
@cython.cclass
class ArrowHeaders:
    """A column of lists of (name, value).

    Args:
        rows: Number of rows.
        start: Index of the first row in the buffers.
        bits: Validity bitmap, or None if no row is null; null means no headers.
        width: Bytes of an offset: 4 or 8.
        ends: Offsets into names and values, one more than rows.
        first: The offset that stands for the first of names and values.
        items: Number of names and values.
        item_bits: Validity bitmap of the pairs.
        names: Names of the pairs.
        values: Values of the pairs.
    """

    def __init__(
        self,
        rows: int,
        start: int,
        bits: Any,
        width: int,
        ends: Any,
        first: int,
        items: int,
        item_bits: ArrowBits,
        names: ArrowBytes,
        values: ArrowBytes,
    ) -> None:
        self._nulls = ArrowBits(start, rows, bits)
        self._start = start
        self._width = width
        count = start + rows + 1 if rows else 0
        self._narrow: Any = view_of(ends if width == 4 else b"", 4, count, "i")
        self._wide: Any = view_of(ends if width == 8 else b"", 8, count, "q")
        self._first = first
        self._items = items
        self._item_nulls = item_bits
        self._names = names
        self._values = values
        self.from_item = 0
        self.to_item = 0
        self._scratch = bytearray(64)
        self._scratch_cstr: Any = self._scratch

    def locate(self, row: int) -> int:
        """Find the headers of a row: return how many, and set ``from_item`` and ``to_item``.

        Raises:
            InvalidArgument: They are not within the pairs of the column.
        """
        self.from_item = self.to_item = 0
        if self._nulls.is_null(row):
            return 0
        at = self._start + row
        if self._width == 4:
            first = self._narrow[at] - self._first
            last = self._narrow[at + 1] - self._first
        else:
            first = self._wide[at] - self._first
            last = self._wide[at + 1] - self._first
        if not 0 <= first <= last <= self._items:
            raise broken(row)
        self.from_item = first
        self.to_item = last
        return last - first  # type: ignore[no-any-return]

    def size(self, row: int) -> int:
        """Return the estimated bytes of a row's headers; -1 if a pair or a name is null."""
        self.locate(row)
        size = 0
        item = self.from_item
        while item < self.to_item:
            name_size = self._names.locate(item)
            if name_size < 0 or self._item_nulls.is_null(item):
                return -1
            size += HEADER_OVERHEAD + name_size
            value_size = self._values.locate(item)
            if value_size > 0:
                size += value_size
            item += 1
        return size

    def fault(self, row: int) -> int:
        """Return the fault of a row's headers, except for their size; 0 if they are valid."""
        self.locate(row)
        item = self.from_item
        while item < self.to_item:
            if self._names.locate(item) < 0 or self._item_nulls.is_null(item):
                return BAD_HEADER
            if not self._names.is_text(item):
                return BAD_NAME
            item += 1
        return 0

    def bad_name(self, row: int) -> bytes | None:
        """Return the first header name of a row that is not UTF-8, None without one."""
        self.locate(row)
        span = range(self.from_item, self.to_item)
        return next((self._names.get(item) for item in span if not self._names.is_text(item)), None)

    def encode(self, row: int) -> int:
        """Encode the headers of a row into the scratch buffer; return the bytes written."""
        wanted = HEADER_OVERHEAD + self.size(row)
        if wanted > len(self._scratch):
            self._scratch = bytearray(2 * wanted)
            self._scratch_cstr = self._scratch
        pos = put_varint(self._scratch_cstr, 0, zigzag(self.to_item - self.from_item))
        item = self.from_item
        while item < self.to_item:
            pos = self._put(pos, self._names, item)
            pos = self._put(pos, self._values, item)
            item += 1
        return pos

    def _put(self, pos: int, column: ArrowBytes, item: int) -> int:
        size = column.locate(item)
        out_cstr: Any = self._scratch_cstr
        pos = put_varint(out_cstr, pos, zigzag(size))
        if size > 0:
            if cython.compiled:
                memcpy(out_cstr + pos, column._data_cstr + column.pos, size)
            else:
                out_cstr[pos : pos + size] = column._data[column.pos : column.pos + size]
            pos += size
        return pos

    def get(self, row: int) -> tuple[tuple[str, bytes | None], ...]:
        """Return the headers of a row as objects."""
        self.locate(row)
        span = range(self.from_item, self.to_item)
        return tuple(
            ((self._names.get(i) or b"").decode("utf-8", "replace"), self._values.get(i))
            for i in span
        )


@cython.final
@cython.cclass
class ArrowRows:
    """The columns of one slice of rows.

    Args:
        count: Number of rows.
        value: The column of values.
        key: The column of keys, if there is one.
        headers: The column of headers, if there is one.
        partition: The column of partitions, if there is one.
        timestamp: The column of timestamps in milliseconds, if there is one.
    """

    def __init__(
        self,
        count: int,
        value: ArrowBytes,
        key: ArrowBytes | None = None,
        headers: ArrowHeaders | None = None,
        partition: ArrowInts | None = None,
        timestamp: ArrowInts | None = None,
    ) -> None:
        self.count = count
        self._value = value
        self._key = key
        self._headers = headers
        self._partition = partition
        self._timestamp = timestamp
        self._key_size = -1
        self._value_size = -1
        self._at_once = _CELLS_AT_ONCE
        if self._headers is not None and count:
            self._at_once = max(1, _CELLS_AT_ONCE // (1 + self._headers._items // count))

    def piece(self, row: int) -> int:
        """Return where a piece of work that begins at ``row`` should end, to yield to the loop."""
        last = row + self._at_once
        return last if last < self.count else self.count

    def check(
        self, row: int, last: int, largest: int, keep: int, partitions: int = MOST_PARTITIONS
    ) -> tuple[int, list[tuple[int, int]], int]:
        """Check the rows from ``row`` to before ``last``, before any is sent.

        Args:
            row: The first to check.
            last: The end.
            largest: Most bytes that a record may take.
            keep: Most faulty rows to report.
            partitions: Number of partitions of the topic.

        Returns:
            How many are faulty; the first of them, each with its fault (``TOO_LARGE`` ...); and
            the highest partition in the rows, -1 without one.
        """
        self._refuse_beyond(row, last)
        wrong = 0
        highest = -1
        reported: list[tuple[int, int]] = []
        while row < last:
            fault = self._fault(row, largest, partitions)
            if fault:
                wrong += 1
                if len(reported) < keep:
                    reported.append((row, fault))
            elif self._partition is not None and not self._partition.is_null(row):
                partition = self._partition.get(row)
                if partition > highest:
                    highest = partition
            row += 1
        return wrong, reported, highest

    def _fault(self, row: int, largest: int, partitions: int) -> int:
        if self._headers is not None:
            fault = self._headers.fault(row)
            if fault:
                return fault
        if self.stage(row) > largest:
            return TOO_LARGE
        if self._partition is not None and not self._partition.is_null(row):
            partition = self._partition.get(row)
            if partition < 0 or partition >= partitions:
                return BAD_PARTITION
        if (
            self._timestamp is not None
            and not self._timestamp.is_null(row)
            and self._timestamp.get(row) < -1
        ):
            return BAD_TIMESTAMP
        return 0

    def partition(self, row: int) -> int:
        """Return the partition in a row, -1 for none."""
        if self._partition is None or self._partition.is_null(row):
            return -1
        return self._partition.get(row)

    def route(self, targets: Any, row: int, last: int, partitions: int) -> int:
        """Choose partitions for rows from ``row`` to before ``last`` as Java does, -1 for any.

        Args:
            targets: An array of 32-bit ints, one for each row, to be filled in.
            row: The first to choose for.
            last: The end.
            partitions: Number of partitions of the topic.

        Returns:
            The first row without a choice: it may end early after much hashing, but after ``row``.
        """
        targets_view: Any = targets
        self._refuse_beyond(row, last)
        if last > len(targets_view) or partitions < 1:
            raise InvalidArgument(
                "targets must have space for all rows, and partitions be positive"
            )
        left = _HASHED_AT_ONCE
        while row < last and left > 0:
            target = self.partition(row)
            if target < 0 and self._key is not None:
                size = self._key.locate(row)
                if size >= 0:
                    target = self._partition_of_key(size, partitions)
                    left -= size
            targets_view[row] = target
            row += 1
        return row

    def _partition_of_key(self, size: int, partitions: int) -> int:
        key: Any = self._key
        if cython.compiled:
            return partition_of(key._data_cstr + key.pos, size, partitions)
        return partition_of(key._data[key.pos : key.pos + size], size, partitions)

    def key(self, row: int) -> bytes | None:
        """Return the key of a row as an object."""
        return None if self._key is None else self._key.get(row)

    def bad_name(self, row: int) -> bytes | None:
        """Return the first header name of a row that is not UTF-8, None without one or headers."""
        return None if self._headers is None else self._headers.bad_name(row)

    def stage(self, row: int) -> int:
        """Locate a row's key and value; return the estimated size of the record in bytes."""
        size = RECORD_OVERHEAD
        self._value_size = self._value.locate(row)
        if self._value_size > 0:
            size += self._value_size
        if self._key is not None:
            self._key_size = self._key.locate(row)
            if self._key_size > 0:
                size += self._key_size
        if self._headers is not None:
            size += self._headers.size(row)
        return size

    def timestamp(self, row: int, now: int) -> int:
        """Return a row's timestamp in milliseconds, ``now`` if it has none."""
        if self._timestamp is None or self._timestamp.is_null(row):
            return now
        stamp = self._timestamp.get(row)
        return stamp if stamp >= 0 else now

    def put(self, builder: _builder.BatchBuilder, row: int, now: int) -> int:
        """Add the staged row; return its index in the batch, or -1 if it doesn't fit."""
        stamp = self.timestamp(row, now)
        value = self._value
        key = value if self._key is None else self._key
        raw: Any = _NO_HEADERS
        raw_size = 1
        if self._headers is not None:
            raw_size = self._headers.encode(row)
            raw = self._headers._scratch_cstr
        if cython.compiled:
            index = builder._put_memory(
                stamp,
                key._data_cstr + key.pos,
                self._key_size,
                value._data_cstr + value.pos,
                self._value_size,
                raw,
                raw_size,
            )
        else:
            index = builder.put(stamp, self.key(row), value.get(row), bytes(raw[:raw_size]))
        return index

    def append(self, builder: _builder.BatchBuilder, row: int, last: int, now: int) -> int:
        """Add rows from ``row`` to before ``last`` to a batch; return the first that didn't fit."""
        self._refuse_beyond(row, last)
        while row < last:
            self.stage(row)
            if self.put(builder, row, now) < 0:
                break
            row += 1
        return row

    def record(
        self, row: int, now: int
    ) -> tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...] | None, int]:
        """Return a row as timestamp, key, value, headers, and the estimated size in bytes."""
        size = self.stage(row)
        headers = None if self._headers is None else self._headers.get(row) or None
        return self.timestamp(row, now), self.key(row), self._value.get(row), headers, size

    def _refuse_beyond(self, row: int, last: int) -> None:
        if not 0 <= row <= last <= self.count:
            raise InvalidArgument(f"rows {row} to {last} are not all among {self.count}")


def view_of(buffer: Any, width: int, count: int, code: Any) -> Any:
    """Return ``buffer`` as ``count`` numbers of ``width`` bytes; InvalidArgument if it is short."""
    raw = memoryview(buffer).cast("B")
    if buffer == b"":
        return raw.cast(code)
    if len(raw) < count * width:
        raise InvalidArgument(
            f"an Arrow buffer has {len(raw)} bytes where {count * width} are needed"
        )
    return raw[: len(raw) // width * width].cast(code)


def broken(row: int) -> InvalidArgument:
    """Return the error for offsets that are not within the data."""
    return InvalidArgument(f"the Arrow data is broken: row {row} lies outside of its buffers")

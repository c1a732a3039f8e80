"""The data of a ``send_arrow`` as slices of rows: no other module of the producer needs pyarrow.

``arrow_send`` walks the slices, twice if all rows are checked before the first is sent. Buffers are
read in place; columns in a layout that ``record.arrow_rows`` doesn't read (dictionaries, views and
the like) are cast slice by slice, so that nothing large is copied at once.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kclient.errors import InvalidArgument, InvalidConfig, SerializationFailed
from kclient.record.implementation import codec
from kclient.settings import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow

    from kclient.errors import KafkaError
    from kclient.record.arrow_rows import ArrowBytes, ArrowHeaders, ArrowInts, ArrowRows

COLUMNS = ("value", "key", "headers", "partition", "timestamp")
"""Columns that can be sent."""
IGNORED = ("topic", "offset", "timestamp_type")
"""Columns of ``poll_arrow`` with the origin of a record."""
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
_ANY_BYTES = (
    "binary, large_binary, binary_view, fixed_size_binary, string, large_string, string_view"
)
_TYPES = {
    "value": _ANY_BYTES,
    "key": _ANY_BYTES,
    "headers": "list<struct<name: string, value: binary>> or map<string, binary>",
    "partition": "an integer type",
    "timestamp": "timestamp of any unit, or int64 milliseconds",
}
_UNITS = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
FIRST_ROWS = 64
MOST_ROWS = 8_192
"""Rows of one slice, at first and at most."""
_CAST_BYTES = 1024 * 1024
"""Approximate bytes of one slice that may be copied."""


class ArrowSource:
    """The opened argument of ``send_arrow``.

    Raises:
        InvalidConfig: pyarrow is not installed.
        InvalidArgument, SerializationFailed: Its columns can't be sent.

    Attributes:
        batches: Its record batches, all available at once unless ``lazy``.
        lazy: It is a reader, which is read once, batch by batch.
    """

    def __init__(self, data: Any) -> None:
        try:
            import pyarrow
        except ImportError as error:
            raise InvalidConfig(
                "send_arrow() needs the package pyarrow, which is not installed",
                hint="pip install 'kclient[arrow]'",
            ) from error
        self.lazy = isinstance(data, pyarrow.RecordBatchReader)
        self.batches: Any
        opened: Any = data
        if not self.lazy:
            opened = _table(data)
        self.batches = opened if self.lazy else opened.to_batches()
        self.columns = _columns(opened.schema)
        self._step = FIRST_ROWS

    def slices(self, batch: pyarrow.RecordBatch) -> Iterator[tuple[int, ArrowRows]]:
        """Yield the rows of ``batch`` in slices, each with the index of its first row.

        Raises:
            InvalidArgument, SerializationFailed: pyarrow can't decode a column.
        """
        columns: dict[str, Any] = {}
        for name, index in self.columns.items():
            with _naming(name, batch.column(index)) as column:
                columns[name] = _decodable(column)
        first = 0
        while first < batch.num_rows:
            count = min(self._step, batch.num_rows - first)
            rows, copied = self._rows(columns, first, count)
            yield first, rows
            first += count
            if copied > _CAST_BYTES:
                self._step = max(1, self._step * _CAST_BYTES // copied)
            elif 2 * copied <= _CAST_BYTES:
                self._step = min(2 * self._step, MOST_ROWS)

    def _rows(self, columns: dict[str, Any], first: int, count: int) -> tuple[ArrowRows, int]:
        """Return a slice for the codec, and how many bytes had to be copied for it."""
        made: dict[str, Any] = {}
        copied = 0
        for name, column in columns.items():
            with _naming(name, column.slice(first, count)) as given:
                array = _plain(given)
                if array is not given:
                    copied += array.nbytes
                made[name] = _MAKERS[name](array)
        return codec.ArrowRows(count, **made), copied

    def given(self, batch: pyarrow.RecordBatch, name: str, row: int) -> Any:
        """Return the value of one cell, for an error text."""
        column = batch.column(self.columns[name])
        try:
            return column[row].as_py()
        except Exception:  # any error from a time zone or time that Python can't represent
            import pyarrow

            cell = _plain(column.slice(row, 1))
            return f"{cell.cast(pyarrow.int64())[0].as_py()} {cell.type.unit}"


def _table(data: Any) -> Any:
    """Return ``data`` as a pyarrow Table or RecordBatch."""
    import pyarrow

    if isinstance(data, (pyarrow.Table, pyarrow.RecordBatch)):
        return data if isinstance(data, pyarrow.Table) else pyarrow.Table.from_batches([data])
    try:
        if hasattr(data, "__arrow_c_stream__"):
            return pyarrow.table(data)
        if hasattr(data, "__arrow_c_array__"):
            return pyarrow.Table.from_batches([pyarrow.record_batch(data)])
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        raise InvalidArgument(
            f"the {type(data).__name__} given to send_arrow is not a table with columns: {error}"
        ) from error
    raise InvalidArgument(
        "send_arrow takes a pyarrow Table, RecordBatch or RecordBatchReader, or an object with the "
        f"Arrow PyCapsule interface (polars, pandas, DuckDB ...), not a {type(data).__name__}",
        hint="await producer.send_many(...) takes other iterables",
    )


def _columns(schema: pyarrow.Schema) -> dict[str, int]:
    """Return the index of each column to send; raise for columns that can't be sent."""
    found: dict[str, int] = {}
    for index, field in enumerate(schema):
        name = field.name
        if name in IGNORED or _PANDAS_INDEX.fullmatch(name):
            continue
        if name not in COLUMNS:
            raise _unknown(name)
        if name in found:
            raise InvalidArgument(f"the data for send_arrow has two columns {name!r}")
        _check_type(name, field.type)
        found[name] = index
    if "value" not in found:
        there = ", ".join(repr(field.name) for field in schema) or "none"
        raise InvalidArgument(
            f"the data for send_arrow has no column 'value'; its columns: {there}",
            hint="rename one; a column of nulls writes tombstones",
        )
    return found


def _unknown(name: str) -> InvalidArgument:
    near = nearest(name.lower(), COLUMNS)
    return InvalidArgument(
        f"send_arrow knows no column {name!r}: allowed are {', '.join(COLUMNS)} "
        f"({', '.join(IGNORED)}, which poll_arrow gives, are ignored)",
        hint=f"did you mean {near!r}?" if near else "drop or rename it; what is sent is 'value'",
    )


def _check_type(name: str, given: pyarrow.DataType) -> None:
    if _fits(name, _plain_type(given)):
        return
    raise _refusal(name, f"is of type {given}: allowed is {_TYPES[name]}")


def _refusal(name: str, why: str) -> KafkaError:
    kind = InvalidArgument if name in ("partition", "timestamp") else SerializationFailed
    return kind(
        f"the column {name!r} given to send_arrow {why}",
        hint="cast or encode it first",
        maybe_written=False,
    )


@contextmanager
def _naming(name: str, array: Any) -> Iterator[Any]:
    """Convert pyarrow's errors about ``array`` into one that names its column."""
    import pyarrow

    try:
        yield array
    except (pyarrow.ArrowInvalid, pyarrow.ArrowIndexError, pyarrow.ArrowNotImplementedError) as why:
        raise _refusal(name, f"is of type {array.type}, and can't be decoded: {why}") from why


def _fits(name: str, plain: pyarrow.DataType) -> bool:
    from pyarrow import types

    if types.is_null(plain):
        return True
    if name == "partition":
        return bool(types.is_integer(plain))
    if name == "timestamp":
        return bool(types.is_int64(plain) or types.is_timestamp(plain))
    if name == "headers":
        return _is_pairs(plain)
    return _is_bytes(plain)


def _is_bytes(plain: pyarrow.DataType) -> bool:
    from pyarrow import types

    tests = (
        *(types.is_binary, types.is_large_binary, types.is_binary_view),
        *(types.is_string, types.is_large_string, types.is_string_view),
        types.is_fixed_size_binary,
    )
    return any(test(plain) for test in tests)


def _is_pairs(plain: pyarrow.DataType) -> bool:
    from pyarrow import types

    if not (types.is_list(plain) or types.is_large_list(plain) or types.is_map(plain)):
        return False
    item = _plain_type(plain.value_type) if not types.is_map(plain) else None
    if item is None:
        fields = [plain.key_type, plain.item_type]
    elif types.is_struct(item) and item.num_fields == 2:
        if item.field(0).name not in ("name", "key") or item.field(1).name != "value":
            return False
        fields = [item.field(0).type, item.field(1).type]
    else:
        return False
    name, value = (_plain_type(field) for field in fields)
    return _is_bytes(name) and (_is_bytes(value) or types.is_null(value))


def _plain_type(given: pyarrow.DataType) -> pyarrow.DataType:
    """Return the type without encoding."""
    import pyarrow
    from pyarrow import types

    while True:
        if isinstance(given, pyarrow.BaseExtensionType):
            given = given.storage_type
        elif types.is_dictionary(given) or types.is_run_end_encoded(given):
            given = given.value_type
        else:
            return given


def _decodable(array: Any) -> Any:
    """Convert a dictionary of views, which pyarrow can't decode; return others as they are."""
    import pyarrow
    from pyarrow import types

    kind = array.type
    if types.is_dictionary(kind) and (
        types.is_string_view(kind.value_type) or types.is_binary_view(kind.value_type)
    ):
        return pyarrow.DictionaryArray.from_arrays(array.indices, _plain(array.dictionary))
    return array


def _plain(array: Any) -> Any:
    """Return the array without encoding, in a layout that the codec can read."""
    import pyarrow
    from pyarrow import types

    while True:
        kind = array.type
        if isinstance(kind, pyarrow.BaseExtensionType):
            array = array.storage
        elif types.is_dictionary(kind):
            array = _decodable(array).dictionary_decode()
        elif types.is_run_end_encoded(kind):
            from pyarrow import compute  # not loaded by pyarrow itself

            array = compute.run_end_decode(array)
        elif types.is_binary_view(kind) or types.is_string_view(kind):
            array = array.cast(pyarrow.large_binary())
        elif types.is_integer(kind) and not types.is_int64(kind):
            array = array.cast(pyarrow.int64(), safe=False)
        else:
            return array


def _aligned(buffer: Any, width: int) -> Any:
    """Return ``buffer``, or a copy if its numbers are not aligned to ``width``."""
    if buffer is None:
        return b""
    return buffer if buffer.address % width == 0 else buffer.to_pybytes()


def _bits(array: Any) -> Any:
    return array.buffers()[0] if array.null_count else None


def _bytes(array: Any) -> ArrowBytes:
    from pyarrow import types

    kind, rows = array.type, len(array)
    if types.is_null(kind):
        return codec.ArrowBytes(rows, 0, None, 0, b"", -1, b"")
    buffers = array.buffers()
    if types.is_fixed_size_binary(kind):
        data = _aligned(buffers[1], 1)
        return codec.ArrowBytes(rows, array.offset, _bits(array), 0, b"", kind.byte_width, data)
    width = 8 if types.is_large_binary(kind) or types.is_large_string(kind) else 4
    ends, data = _aligned(buffers[1], width), _aligned(buffers[2], 1)
    return codec.ArrowBytes(rows, array.offset, _bits(array), width, ends, 0, data)


def _ints(array: Any) -> ArrowInts | None:
    from pyarrow import types

    if types.is_null(array.type):
        return None
    times, over = _UNITS[array.type.unit] if types.is_timestamp(array.type) else (1, 1)
    numbers = _aligned(array.buffers()[1], 8)
    return codec.ArrowInts(len(array), array.offset, _bits(array), numbers, times, over)


def _headers(array: Any) -> ArrowHeaders | None:
    from pyarrow import types

    kind, rows = array.type, len(array)
    if types.is_null(kind) or not rows:
        return None
    width = 8 if types.is_large_list(kind) else 4
    buffers, start = array.buffers(), array.offset
    ends = _aligned(buffers[1], width)
    numbers = memoryview(ends).cast("B").cast("q" if width == 8 else "i")
    first, last = numbers[start], numbers[start + rows]
    # Only the values of these rows, so that no others are cast.
    items = _plain(array.values.slice(first, max(last - first, 0)))
    item_bits = codec.ArrowBits(items.offset, len(items), _bits(items))
    names, values = (_bytes(_plain(items.field(index))) for index in range(2))
    return codec.ArrowHeaders(
        rows, start, _bits(array), width, ends, first, len(items), item_bits, names, values
    )


_MAKERS: dict[str, Any] = {
    "value": _bytes,
    "key": _bytes,
    "headers": _headers,
    "partition": _ints,
    "timestamp": _ints,
}

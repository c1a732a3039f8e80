"""``ColumnBuilder``: batches in, one Arrow record batch out; for ``Consumer.poll_arrow``.

It adds topic and partition to the columns that ``columns.py`` decodes, and passes the buffers to
pyarrow, which is imported on first use, without a copy of keys and values.
"""

from __future__ import annotations

import struct
from array import array
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from kclient.record.implementation import codec
from kclient.record.message_set import LegacyBatch

if TYPE_CHECKING:
    import pyarrow

    from kclient.record.columns import BytesColumn, ColumnStore
    from kclient.record.record_batch import Batch

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""The columns that a record batch has where none are chosen, in their order."""
CHOICES = (*COLUMNS[:4], "timestamp_type", *COLUMNS[4:])
"""Those that can be chosen."""
_INDEX = struct.Struct("i")


@cache
def _schema(columns: tuple[str, ...]) -> pyarrow.Schema:
    import pyarrow

    name = pyarrow.field("name", pyarrow.string(), nullable=False)
    header = pyarrow.struct([name, pyarrow.field("value", pyarrow.binary())])
    headers = pyarrow.list_(pyarrow.field("item", header, nullable=False))
    types = {
        "topic": pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
        "partition": pyarrow.int32(),
        "offset": pyarrow.int64(),
        "timestamp": pyarrow.timestamp("ms", "UTC"),
        "timestamp_type": pyarrow.int32(),
        "key": pyarrow.binary(),
        "value": pyarrow.binary(),
        "headers": headers,
    }
    return pyarrow.schema(
        [pyarrow.field(name, types[name], nullable=name in ("key", "value")) for name in columns]
    )


class ColumnBuilder:
    """Collects the records of batches into columns, again for each record batch.

    Args:
        expected: The ``expected`` of another builder: columns that are allocated in the size of
            earlier ones need not grow, which costs a copy and new memory each time.
        columns: Out of ``CHOICES``; keys, values and headers that aren't among them are not stored.

    Attributes:
        stopped: The latest ``add`` has come to its ``stop_offset``.
    """

    def __init__(
        self,
        expected: tuple[int, int, int] = (0, 0, 0),
        columns: tuple[str, ...] = COLUMNS,
    ) -> None:
        self.columns = columns
        self.stopped = False
        self.expected = expected
        """Rows, bytes of keys and bytes of values that the next record batch allocates for."""
        self._empty()

    def _empty(self) -> None:
        wanted = [name in self.columns for name in ("key", "value", "headers")]
        self._store: ColumnStore = codec.ColumnStore(*self.expected, *wanted)
        self._topics: dict[str, int] = {}
        self._runs: list[tuple[int, int, int, int]] = []

    @property
    def num_rows(self) -> int:
        """Number of records added so far."""
        return self._store.rows

    @property
    def size_bytes(self) -> int:
        """Bytes of keys and values stored so far."""
        return self._store.size_bytes

    @property
    def last_offset(self) -> int:
        """Offset of the last record that was added, -1 without one."""
        return self._store.last_offset

    def add(
        self,
        batch: Batch,
        topic: str,
        partition: int,
        *,
        start_offset: int = 0,
        limit: int | None = None,
        stop_offset: int | None = None,
    ) -> int:
        """Add the next records of ``batch``, which keeps its position as in ``Batch.records``.

        Args:
            batch: A batch from ``read_batches``.
            topic: Topic name.
            partition: Partition index.
            start_offset: Records before it are skipped.
            limit: How many to add at most; None for all that are left.
            stop_offset: Records there and behind aren't added, and ``stopped`` is True where there
                are any. A batch of before v2 loses them.

        Returns:
            How many were added. 0 with a batch that is neither exhausted nor stopped means that the
            columns are full (2 GiB of keys and values): call ``to_record_batch`` first.

        Raises:
            CorruptRecord: The payload is malformed; nothing was added by this call.
            DecompressionFailed: The payload had to be inflated and could not be.
        """
        before = self._store.rows
        try:
            if isinstance(batch, LegacyBatch):
                self._add_messages(batch, topic, partition, start_offset, limit, stop_offset)
            else:
                batch.fill(
                    self._store, start_offset=start_offset, limit=limit, stop_offset=stop_offset
                )
                self.stopped = self._store.stopped
        finally:
            added = self._store.rows - before
            if added:
                index = self._topics.setdefault(topic, len(self._topics))
                self._runs.append((index, partition, int(batch.timestamp_type), added))
        return added

    def _add_messages(
        self,
        batch: LegacyBatch,
        topic: str,
        partition: int,
        start_offset: int,
        limit: int | None,
        stop_offset: int | None,
    ) -> None:
        store = self._store
        self.stopped = False
        batch.inflate()
        # Records are decoded only once, so there must be space for all of them.
        store.reserve(batch.record_count, max(batch.held_bytes, batch.size_bytes))
        for record in batch.records(topic, partition, start_offset=start_offset, limit=limit):
            if stop_offset is not None and record.offset >= stop_offset:
                self.stopped = True
                break
            store.append(record.offset, record.timestamp, record.key, record.value, ())

    def to_record_batch(self) -> pyarrow.RecordBatch:
        """Return the records added so far as one record batch; the builder is empty afterwards.

        Columns: topic (dictionary of utf8), partition (int32), offset (int64), timestamp (ms, UTC;
        -1 where a record has none), timestamp_type (int32: 0 set by the producer, 1 by the broker),
        key and value (binary, nullable), headers (list of struct of name utf8 and value binary).
        """
        import pyarrow

        store = self._store
        store.trim()
        schema = _schema(self.columns)
        made = pyarrow.RecordBatch.from_arrays(
            [self._column(field.name, field.type) for field in schema], schema=schema
        )
        rows_before, keys_before, values_before = self.expected
        rows_now, keys_now, values_now = store.asked
        self.expected = (
            max(rows_now, _remembered(rows_before)),
            max(keys_now, _remembered(keys_before)),
            max(values_now, _remembered(values_before)),
        )
        self._empty()
        return made

    def _column(self, name: str, kind: pyarrow.DataType) -> pyarrow.Array:
        import pyarrow

        store = self._store
        rows = store.rows
        match name:
            case "topic":
                indices = self._runs_of(0) if len(self._topics) > 1 else bytes(_INDEX.size * rows)
                return pyarrow.DictionaryArray.from_arrays(
                    _array(kind.index_type, rows, indices),
                    _packed(kind.value_type, [topic.encode() for topic in self._topics]),
                )
            case "partition":
                return _array(kind, rows, self._runs_of(1))
            case "timestamp_type":
                return _array(kind, rows, self._runs_of(2))
            case "offset":
                return _array(kind, rows, store.offsets)
            case "timestamp":
                return _array(kind, rows, store.timestamps)
            case "key":
                return _stored(kind, store.keys, rows, store.key_nulls)
            case "value":
                return _stored(kind, store.values, rows, store.value_nulls)
        return _headers(kind, store)

    def _runs_of(self, index: int) -> bytes:
        """Return a column of int32 that is the same for all records of an ``add``."""
        return b"".join([_INDEX.pack(run[index]) * run[3] for run in self._runs])


def _remembered(size: int) -> int:
    """Return a slowly decaying expectation, as a small record batch may precede a usual one."""
    return size * 15 // 16


def _array(
    kind: pyarrow.DataType,
    rows: int,
    *buffers: Any,
    present: bytearray | None = None,
    nulls: int = 0,
    children: list[pyarrow.Array] | None = None,
) -> pyarrow.Array:
    """Return an array on ``buffers``, which must not move, with the validity bitmap ``present``."""
    import pyarrow

    given = [
        None if buffer is None else pyarrow.py_buffer(buffer) for buffer in (present, *buffers)
    ]
    return pyarrow.Array.from_buffers(kind, rows, given, null_count=nulls, children=children)


def _stored(kind: pyarrow.DataType, column: BytesColumn, rows: int, nulls: int) -> pyarrow.Array:
    present = codec.bitmap(column.present, rows) if nulls else None
    return _array(kind, rows, column.ends, column.data, present=present, nulls=nulls)


def _headers(kind: pyarrow.ListType, store: ColumnStore) -> pyarrow.Array:
    pair = kind.value_type
    names = _packed(pair[0].type, [name.encode("utf-8", "replace") for name in store.header_names])
    given = store.header_values
    present = bytearray(value is not None for value in given)
    bits = codec.bitmap(present, len(given))
    values = _packed(pair[1].type, [value or b"" for value in given], bits, present.count(0))
    items = _array(pair, len(given), children=[names, values])
    return _array(kind, store.rows, store.header_ends, children=[items])


def _packed(
    kind: pyarrow.DataType, items: list[bytes], present: bytearray | None = None, nulls: int = 0
) -> pyarrow.Array:
    """Return an array of ``items``. ``pyarrow.array`` would load pandas where it is installed."""
    ends = array("i", accumulate(map(len, items), initial=0))
    return _array(kind, len(items), ends, b"".join(items), present=present, nulls=nulls)

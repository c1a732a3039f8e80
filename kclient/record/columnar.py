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

_INDEX = struct.Struct("i")


@cache
def _schema() -> pyarrow.Schema:
    import pyarrow

    name = pyarrow.field("name", pyarrow.string(), nullable=False)
    header = pyarrow.struct([name, pyarrow.field("value", pyarrow.binary())])
    headers = pyarrow.list_(pyarrow.field("item", header, nullable=False))
    return pyarrow.schema(
        [
            pyarrow.field(
                "topic", pyarrow.dictionary(pyarrow.int32(), pyarrow.string()), nullable=False
            ),
            pyarrow.field("partition", pyarrow.int32(), nullable=False),
            pyarrow.field("offset", pyarrow.int64(), nullable=False),
            pyarrow.field("timestamp", pyarrow.timestamp("ms", "UTC"), nullable=False),
            pyarrow.field("key", pyarrow.binary()),
            pyarrow.field("value", pyarrow.binary()),
            pyarrow.field("headers", headers, nullable=False),
        ]
    )


class ColumnBuilder:
    """Collects the records of batches into columns, again for each record batch.

    Args:
        expected: The ``expected`` of another builder: columns that are allocated in the size of
            earlier ones need not grow, which costs a copy and new memory each time.
    """

    def __init__(self, expected: tuple[int, int, int] = (0, 0, 0)) -> None:
        self.expected = expected
        """Rows, bytes of keys and bytes of values that the next record batch allocates for."""
        self._empty()

    def _empty(self) -> None:
        self._store: ColumnStore = codec.ColumnStore(*self.expected)
        self._topics: dict[str, int] = {}
        self._runs: list[tuple[int, int, int]] = []

    @property
    def num_rows(self) -> int:
        """Number of records added so far."""
        return self._store.rows

    @property
    def size_bytes(self) -> int:
        """Bytes of keys and values added so far."""
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
    ) -> int:
        """Add the next records of ``batch``, which keeps its position as in ``Batch.records``.

        Args:
            batch: A batch from ``read_batches``.
            topic: Topic name.
            partition: Partition index.
            start_offset: Records before it are skipped.
            limit: How many to add at most; None for all that are left.

        Returns:
            How many were added. 0 with a batch that is not exhausted means that the columns are
            full (2 GiB of keys and values): call ``to_record_batch`` first.

        Raises:
            CorruptRecord: The payload is malformed; nothing was added by this call.
            DecompressionFailed: The payload had to be inflated and could not be.
        """
        before = self._store.rows
        try:
            if isinstance(batch, LegacyBatch):
                self._add_messages(batch, topic, partition, start_offset, limit)
            else:
                batch.fill(self._store, start_offset=start_offset, limit=limit)
        finally:
            added = self._store.rows - before
            if added:
                index = self._topics.setdefault(topic, len(self._topics))
                self._runs.append((index, partition, added))
        return added

    def _add_messages(
        self, batch: LegacyBatch, topic: str, partition: int, start_offset: int, limit: int | None
    ) -> None:
        store = self._store
        batch.inflate()
        # Records are decoded only once, so there must be space for all of them.
        store.reserve(batch.record_count, max(batch.held_bytes, batch.size_bytes))
        for record in batch.records(topic, partition, start_offset=start_offset, limit=limit):
            store.append(record.offset, record.timestamp, record.key, record.value, ())

    def to_record_batch(self) -> pyarrow.RecordBatch:
        """Return the records added so far as one record batch; the builder is empty afterwards.

        Columns: topic (dictionary of utf8), partition (int32), offset (int64), timestamp (ms, UTC;
        -1 where a record has none), key and value (binary, nullable), headers (list of struct of
        name utf8 and value binary).
        """
        import pyarrow

        store = self._store
        rows = store.rows
        if len(self._topics) > 1:
            topics = b"".join([_INDEX.pack(topic) * count for topic, _, count in self._runs])
        else:
            topics = bytes(_INDEX.size * rows)  # the first topic's index is 0
        partitions = b"".join([_INDEX.pack(number) * count for _, number, count in self._runs])
        store.trim()
        topic, partition, offset, timestamp, key, value, headers = _schema().types
        columns = [
            pyarrow.DictionaryArray.from_arrays(
                _array(topic.index_type, rows, topics),
                _packed(topic.value_type, [name.encode() for name in self._topics]),
            ),
            _array(partition, rows, partitions),
            _array(offset, rows, store.offsets),
            _array(timestamp, rows, store.timestamps),
            _stored(key, store.keys, rows, store.key_nulls),
            _stored(value, store.values, rows, store.value_nulls),
            _headers(headers, store),
        ]
        made = pyarrow.RecordBatch.from_arrays(columns, schema=_schema())
        rows_before, keys_before, values_before = self.expected
        rows_now, keys_now, values_now = store.asked
        self.expected = (
            max(rows_now, _remembered(rows_before)),
            max(keys_now, _remembered(keys_before)),
            max(values_now, _remembered(values_before)),
        )
        self._empty()
        return made


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

"""``ColumnBuilder``: batches in, one Arrow record batch out; for ``Consumer.poll_arrow``.

It adds topic and partition to what ``columns.py`` decodes, and lays it out as Arrow wants it.
The result offers the Arrow PyCapsule interface, so that ``pyarrow.record_batch(result)`` and its
like take the buffers over without a copy; pyarrow itself is needed by whoever asks for it only.
"""

from __future__ import annotations

import struct
from array import array
from itertools import accumulate
from typing import TYPE_CHECKING

from kclient.record.arrow_export import Column, export, export_schema
from kclient.record.implementation import codec
from kclient.record.legacy import LegacyBatch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kclient.record.columns import BytesColumn, ColumnStore
    from kclient.record.record_batch import Batch

_INT32 = b"i"
_INT64 = b"l"
_UTF8 = b"u"
_BINARY = b"z"
_LIST = b"+l"
_STRUCT = b"+s"
_INDEX = struct.Struct("i")
_TIMESTAMP = b"tsm:UTC"


class RecordColumns:
    """Records as columns. Give it to ``pyarrow.record_batch``, polars, DuckDB or pandas.

    Columns: topic (dictionary of utf8), partition (int32), offset (int64), timestamp (ms, UTC; -1
    where a record has none), key and value (binary, nullable), headers (list of struct of name
    utf8 and value binary).

    Attributes:
        num_rows: How many records.
    """

    __slots__ = ("_column", "num_rows")

    def __init__(self, column: Column) -> None:
        self._column = column
        self.num_rows = column.length

    def __len__(self) -> int:
        return self.num_rows

    def __arrow_c_schema__(self) -> object:
        """The schema as a PyCapsule."""
        return export_schema(self._column)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Schema and data as PyCapsules; a requested schema is not followed, as it may be."""
        return export(self._column)


class ColumnBuilder:
    """Collects the records of batches into columns, then starts anew.

    Args:
        expected: What another builder's ``expected`` was: columns that are as large as those
            before from the start need not grow, which costs a copy and fresh memory each time.
    """

    def __init__(self, expected: tuple[int, int, int] = (0, 0, 0)) -> None:
        self.expected = expected
        """Rows, bytes of keys and bytes of values that the next record batch has room for."""
        self._empty()

    def _empty(self) -> None:
        self._store: ColumnStore = codec.ColumnStore(*self.expected)
        self._topics: dict[str, int] = {}
        self._runs: list[tuple[int, int, int]] = []

    @property
    def num_rows(self) -> int:
        """How many records are in it."""
        return self._store.rows

    @property
    def size_bytes(self) -> int:
        """Bytes of keys and values in it."""
        return self._store.size_bytes

    @property
    def last_offset(self) -> int:
        """Offset of the record that was added last, -1 if there is none."""
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
        """Add the next records of ``batch``, which keeps its place as for ``Batch.records``.

        Args:
            batch: From ``read_batches``.
            topic: Topic name.
            partition: Partition index.
            start_offset: Records before it are skipped.
            limit: How many to add at most; None for all that are left.

        Returns:
            How many were added. 0 with a batch that is not exhausted: the columns are full (2 GiB
            of keys and values): make a record batch of them first.

        Raises:
            CorruptRecord: The payload is not what it should be; nothing of this call was added.
            DecompressionFailed: It had to be inflated and could not be.
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
        # What is decoded is not decoded again: there must be room for it.
        store.reserve(batch.record_count, max(batch.held_bytes, batch.size_bytes))
        for record in batch.records(topic, partition, start_offset=start_offset, limit=limit):
            store.append(record.offset, record.timestamp, record.key, record.value, ())

    def to_record_batch(self) -> RecordColumns:
        """What was added so far, as one record batch; the builder is empty after it."""
        store = self._store
        rows = store.rows
        if len(self._topics) > 1:
            topics = b"".join([_INDEX.pack(topic) * count for topic, _, count in self._runs])
        else:
            topics = bytes(_INDEX.size * rows)  # the first topic's index is 0
        partitions = b"".join([_INDEX.pack(number) * count for _, number, count in self._runs])
        store.trim()
        names = _texts(b"", tuple(self._topics))
        children = (
            Column(_INT32, b"topic", rows, (None, topics), dictionary=names),
            Column(_INT32, b"partition", rows, (None, partitions)),
            Column(_INT64, b"offset", rows, (None, store.offsets)),
            Column(_TIMESTAMP, b"timestamp", rows, (None, store.timestamps)),
            _stored(b"key", store.keys, rows, store.key_nulls),
            _stored(b"value", store.values, rows, store.value_nulls),
            _headers(store),
        )
        rows_before, keys_before, values_before = self.expected
        rows_now, keys_now, values_now = store.asked
        self.expected = (
            max(rows_now, _remembered(rows_before)),
            max(keys_now, _remembered(keys_before)),
            max(values_now, _remembered(values_before)),
        )
        self._empty()
        return RecordColumns(Column(_STRUCT, b"", rows, (None,), children=children))


def _remembered(size: int) -> int:
    """What is left of an expectation: a smaller record batch may be followed by a usual one."""
    return size * 15 // 16


def _stored(name: bytes, column: BytesColumn, rows: int, nulls: int) -> Column:
    present = codec.bitmap(column.present, rows) if nulls else None
    buffers = (present, column.ends, column.data)
    return Column(_BINARY, name, rows, buffers, nulls=nulls, nullable=True)


def _headers(store: ColumnStore) -> Column:
    names = _texts(b"name", store.header_names)
    given = store.header_values
    present = bytearray(value is not None for value in given)
    nulls = present.count(0)
    bits = codec.bitmap(present, len(given)) if nulls else None
    values = Column(
        _BINARY,
        b"value",
        len(given),
        (bits, *_packed(value or b"" for value in given)),
        nulls=nulls,
        nullable=True,
    )
    item = Column(_STRUCT, b"item", len(given), (None,), children=(names, values))
    return Column(_LIST, b"headers", store.rows, (None, store.header_ends), children=(item,))


def _texts(name: bytes, texts: Iterable[str]) -> Column:
    encoded = [text.encode("utf-8", "replace") for text in texts]
    return Column(_UTF8, name, len(encoded), (None, *_packed(encoded)))


def _packed(items: Iterable[bytes]) -> tuple[array[int], bytes]:
    """Where each ends, from 0 on, and all of them end to end."""
    listed = list(items)
    return array("i", accumulate(map(len, listed), initial=0)), b"".join(listed)

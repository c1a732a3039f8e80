"""Hot paths of the codec: records into a batch, batches to objects, batches to columns.

The same 100-byte records in batches of about 128 KiB as in the benchmarks, and a kind with key and
headers beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from kclient.record import BatchBuilder, read_batches
from kclient.record.columnar import ColumnBuilder
from kclient.types import Headers
from tests.budgets.hot_path import HotPath, Step

BATCH_BYTES = 131_072
VALUE = b"v" * 100
FIRST_MS = 1_767_225_600_000

Kind = tuple[bytes | None, Headers | None]
"""Key and headers."""
BARE: Kind = (None, None)
KEYED: Kind = (b"key-of-16-bytes.", (("trace", b"0123456789abcdef"), ("kind", b"order")))


def filled(count: int, kind: Kind) -> list[BatchBuilder]:
    """``count`` records, in as many batches as they need."""
    key, headers = kind
    builders = [BatchBuilder(BATCH_BYTES)]
    append = builders[-1].append
    for timestamp in range(FIRST_MS, FIRST_MS + count):
        if append(timestamp, key, VALUE, headers) < 0:
            builders.append(BatchBuilder(BATCH_BYTES))
            append = builders[-1].append
            append(timestamp, key, VALUE, headers)
    return builders


def encoded(count: int, kind: Kind = BARE) -> list[bytes]:
    """The same, as the wire has them."""
    return [builder.encode() for builder in filled(count, kind)]


def appending(kind: Kind) -> Callable[[int], AbstractContextManager[Step]]:
    """Records into batches."""

    @contextmanager
    def prepare(count: int) -> Iterator[Step]:
        yield lambda: filled(count, kind)

    return prepare


def decoding(kind: Kind) -> Callable[[int], AbstractContextManager[Step]]:
    """Batches to ``Record`` objects."""

    @contextmanager
    def prepare(count: int) -> Iterator[Step]:
        logs = encoded(count, kind)

        def step() -> object:
            return [batch.records("flights", 3) for log in logs for batch in read_batches(log)]

        yield step

    return prepare


@contextmanager
def reading_fields(count: int) -> Iterator[Step]:
    """What a user asks of records that are there."""
    kept = [
        record
        for log in encoded(count, KEYED)
        for batch in read_batches(log)
        for record in batch.records("flights", 3)
    ]

    def step() -> object:
        size = 0
        for record in kept:
            size += len(record.key or b"") + len(record.value or b"") + len(record.headers)
            size += record.offset
        return size

    yield step


def columns(kind: Kind) -> Callable[[int], AbstractContextManager[Step]]:
    """Batches to columns, up to what Arrow takes over."""

    @contextmanager
    def prepare(count: int) -> Iterator[Step]:
        logs = encoded(count, kind)

        def step() -> object:
            builder = ColumnBuilder()
            for log in logs:
                for batch in read_batches(log):
                    builder.add(batch, "flights", 3)
            return builder.to_record_batch()

        yield step

    return prepare


@contextmanager
def checking(count: int) -> Iterator[Step]:
    """The CRC of whole batches."""
    logs = encoded(count)

    def step() -> None:
        for log in logs:
            for batch in read_batches(log):
                batch.check_crc()

    yield step


PATHS = (
    HotPath("append", "BatchBuilder.append: value only", appending(BARE), 1200, pure=True),
    HotPath("append_keyed", "... with key and two headers", appending(KEYED), 1200),
    HotPath("decode", "Batch.records: to Record objects", decoding(BARE), 1200, pure=True),
    HotPath("decode_keyed", "... with key and two headers", decoding(KEYED), 1200),
    HotPath("fields", "key, value, headers, offset of a Record", reading_fields, 1200),
    HotPath("columns", "ColumnBuilder, to Arrow's buffers", columns(BARE), 1200, pure=True),
    HotPath("columns_keyed", "... with key and two headers", columns(KEYED), 1200),
    HotPath("crc", "Batch.check_crc", checking, 1200, pure=True),
)

"""Columns: Arrow data equals the Record objects of the same batches, and all memory is released."""

from __future__ import annotations

import gc
import itertools
import random
import subprocess
import sys
import threading
from typing import Any

import pyarrow
import pytest

from kclient.errors import CorruptRecord
from kclient.record import Compression, read_batches
from kclient.record.columnar import CHOICES, COLUMNS, ColumnBuilder
from kclient.record.implementation import Implementation

NOW = 1357016400000


def batch_bytes(
    build: Implementation, count: int, *, codec: Compression = Compression.NONE, seed: int = 1
) -> bytes:
    source = random.Random(seed)
    builder = build.BatchBuilder(1 << 24)
    for number in range(count):
        builder.append(
            NOW + source.randrange(-100, 100_000),
            None if number % 5 == 0 else b"k%d" % number,
            None if number % 7 == 0 else source.randbytes(source.randrange(300)),
            (("a", b"%d" % number), ("é", None)) if number % 3 == 0 else None,
        )
    builder.compress(codec)
    return bytes(builder.encode())


def columns_of(data: bytes, **options: Any) -> pyarrow.RecordBatch:
    builder = ColumnBuilder()
    for batch in read_batches(data):
        builder.add(batch, "flights", 3, **options)
    table = builder.to_record_batch()
    table.validate(full=True)
    return table


def as_rows(table: pyarrow.RecordBatch) -> list[tuple[Any, ...]]:
    columns = table.to_pydict()
    columns["timestamp"] = table.column("timestamp").cast("int64").to_pylist()
    headers = [
        tuple((header["name"], header["value"]) for header in row) for row in columns["headers"]
    ]
    names = ("topic", "partition", "offset", "timestamp", "key", "value")
    return list(zip(*(columns[name] for name in names), headers, strict=True))


def record_rows(data: bytes, **options: Any) -> list[tuple[Any, ...]]:
    return [
        (r.topic, r.partition, r.offset, r.timestamp, r.key, r.value, r.headers)
        for batch in read_batches(data)
        for r in batch.records("flights", 3, **options)
    ]


@pytest.mark.parametrize("codec", list(Compression))
def test_columns_equal_records(build: Implementation, codec: Compression) -> None:
    data = batch_bytes(build, 700, codec=codec) + batch_bytes(build, 9, codec=codec, seed=2)
    assert as_rows(columns_of(data)) == record_rows(data)


@pytest.mark.parametrize("options", [{"start_offset": 5}, {"limit": 3}, {"start_offset": 99}])
def test_a_start_and_a_limit(build: Implementation, options: dict[str, int]) -> None:
    data = batch_bytes(build, 20)
    assert as_rows(columns_of(data, **options)) == record_rows(data, **options)


@pytest.mark.parametrize("stop", range(-1, 22, 3))
def test_a_stop_leaves_what_is_behind_it_for_later(build: Implementation, stop: int) -> None:
    (batch,) = read_batches(batch_bytes(build, 20))
    builder = ColumnBuilder()
    below = max(0, min(stop, 20))
    assert builder.add(batch, "flights", 3, stop_offset=stop) == below
    assert (builder.stopped, batch.exhausted) == (below < 20, below == 20)
    assert builder.add(batch, "flights", 3) == 20 - below
    assert not builder.stopped
    assert as_rows(builder.to_record_batch()) == record_rows(batch_bytes(build, 20))


@pytest.mark.parametrize("size", [1, 2, 7])
def test_columns_that_are_not_chosen_are_not_stored(build: Implementation, size: int) -> None:
    data = batch_bytes(build, 50)
    whole = columns_of(data)
    for chosen in itertools.permutations(CHOICES, size) if size < 3 else [COLUMNS[::-1]]:
        builder = ColumnBuilder(columns=chosen)
        for batch in read_batches(data):
            builder.add(batch, "flights", 3, limit=30)
            builder.add(batch, "flights", 3)
        stored = builder.size_bytes
        table = builder.to_record_batch()
        table.validate(full=True)
        assert tuple(table.schema.names) == chosen
        for name in chosen:
            same = [0] * 50 if name == "timestamp_type" else whole.column(name).to_pylist()
            assert table.column(name).to_pylist() == same
        sizes = [
            len(one or b"")
            for name in ("key", "value")
            if name in chosen
            for one in whole.column(name).to_pylist()
        ]
        assert stored == sum(sizes)


def test_the_offset_that_was_added_last(build: Implementation) -> None:
    builder = ColumnBuilder()
    assert builder.last_offset == -1
    (batch,) = read_batches(batch_bytes(build, 20))
    builder.add(batch, "t", 0, start_offset=3, limit=5)
    assert builder.last_offset == 7
    builder.add(batch, "t", 0)
    assert builder.last_offset == 19
    builder.to_record_batch()
    assert builder.last_offset == -1


def test_types_and_nulls(build: Implementation) -> None:
    schema = columns_of(batch_bytes(build, 3)).schema
    header = pyarrow.struct(
        [
            pyarrow.field("name", pyarrow.string(), nullable=False),
            pyarrow.field("value", pyarrow.binary()),
        ]
    )
    expected = {
        "topic": (pyarrow.dictionary(pyarrow.int32(), pyarrow.string()), False),
        "partition": (pyarrow.int32(), False),
        "offset": (pyarrow.int64(), False),
        "timestamp": (pyarrow.timestamp("ms", "UTC"), False),
        "key": (pyarrow.binary(), True),
        "value": (pyarrow.binary(), True),
        "headers": (pyarrow.list_(pyarrow.field("item", header, nullable=False)), False),
    }
    assert {field.name: (field.type, field.nullable) for field in schema} == expected


def test_nothing_makes_an_empty_record_batch(build: Implementation) -> None:
    table = ColumnBuilder().to_record_batch()
    table.validate(full=True)
    assert table.num_rows == 0
    assert "offset" in table.schema.names


def test_topics_and_partitions_in_one_record_batch(build: Implementation) -> None:
    builder = ColumnBuilder()
    for topic, partition, count in (("a", 0, 3), ("b", 7, 2), ("a", 1, 1), ("b", 7, 1)):
        (batch,) = read_batches(batch_bytes(build, count))
        assert builder.add(batch, topic, partition) == count
    table = builder.to_record_batch()
    assert table.column("topic").to_pylist() == ["a", "a", "a", "b", "b", "a", "b"]
    assert table.column("partition").to_pylist() == [0, 0, 0, 7, 7, 1, 7]


def test_a_batch_in_portions_and_a_builder_used_again(build: Implementation) -> None:
    data = batch_bytes(build, 100)
    (batch,) = read_batches(data)
    builder = ColumnBuilder()
    rows: list[Any] = []
    while not batch.exhausted:
        assert builder.add(batch, "flights", 3, limit=13) > 0
        assert builder.num_rows <= 13
        rows += as_rows(builder.to_record_batch())
        assert builder.num_rows == 0
    assert rows == record_rows(data)
    assert builder.add(batch, "flights", 3) == 0


def test_space_that_was_expected_and_not_needed_is_freed(build: Implementation) -> None:
    store = build.ColumnStore(10_000, 1 << 20, 1 << 22)
    for number in range(40):
        store.append(number, NOW, b"key", b"v" * 100, (("a", b"1"),))
    before = (list(store.offsets[:40]), bytes(store.values.data[:4000]))
    for _ in range(2):
        store.trim()
        assert (store.rows, store.size_bytes) == (40, 4120)
        assert before == (list(store.offsets[:40]), bytes(store.values.data[:4000]))
        assert len(store.keys.data) <= 240 and len(store.values.data) <= 8000
        assert max(len(store.offsets), len(store.timestamps), len(store.keys.present)) <= 80
        assert max(len(store.header_ends), len(store.values.ends)) <= 82
    store.append(40, NOW, None, b"last", ())
    assert (store.rows, store.size_bytes, store.key_nulls) == (41, 4124, 1)
    assert bytes(store.values.data[3990:4004]) == b"v" * 10 + b"last"
    assert list(store.offsets[:41]) == list(range(41))


def test_expected_space_is_allocated_once_a_part_of_it_is_needed(build: Implementation) -> None:
    store = build.ColumnStore(10_000, 1 << 20, 1 << 22)
    for number in range(400):
        store.append(number, NOW, b"k" * 100, b"v" * 400, ())
    sizes = (len(store.offsets), len(store.keys.data), len(store.values.data))
    expected = (10_000, 1 << 20, 1 << 22)
    assert (sizes == expected) == (build.name == "cython"), "in Python it would have to be cleared"


def test_few_small_rows_do_not_allocate_for_a_giant(build: Implementation) -> None:
    store = build.ColumnStore(1 << 20, 1 << 26, 1 << 26)
    store.append(0, NOW, b"key", b"value", ())
    assert max(len(store.offsets), len(store.keys.data), len(store.values.data)) < 1000


def test_what_is_expected_follows_what_was_there(build: Implementation) -> None:
    builder = ColumnBuilder()
    data = batch_bytes(build, 100)
    (batch,) = read_batches(data)
    builder.add(batch, "flights", 3)
    rows, size = builder.num_rows, builder.size_bytes
    builder.to_record_batch()
    assert builder.expected[0] == rows
    assert size <= sum(builder.expected[1:]) <= 2 * len(data), "no more than was there"
    builder = ColumnBuilder(builder.expected)
    (batch,) = read_batches(data)
    builder.add(batch, "flights", 3, limit=2)
    table = builder.to_record_batch()
    assert as_rows(table) == record_rows(data)[:2]
    assert 2 < builder.expected[0] < rows
    for _ in range(200):
        builder.to_record_batch()
    assert max(builder.expected) < 16, "one large record batch is not remembered for ever"


def test_log_append_time(build: Implementation) -> None:
    builder = build.BatchBuilder(log_append_time=True)
    for number in range(3):
        builder.append(NOW + number, None, None, None)
    table = columns_of(builder.encode())
    assert table.column("timestamp").cast("int64").to_pylist() == [NOW + 2] * 3


def test_a_corrupt_batch_adds_nothing(build: Implementation) -> None:
    good = batch_bytes(build, 10)
    bad = bytearray(batch_bytes(build, 9))
    bad[-1] = 0x7E  # 63 headers in no bytes, in the last record
    builder = ColumnBuilder()
    (batch,) = read_batches(good)
    builder.add(batch, "flights", 3)
    (broken,) = read_batches(bytes(bad))
    for _ in range(2):
        with pytest.raises(CorruptRecord, match="the batch at offset 0: at byte"):
            builder.add(broken, "flights", 3)
    size = builder.size_bytes
    (batch,) = read_batches(good)
    builder.add(batch, "flights", 3)
    assert builder.size_bytes == 2 * size
    table = builder.to_record_batch()
    table.validate(full=True)
    assert as_rows(table) == record_rows(good) * 2


def test_what_was_handed_over_is_released(build: Implementation) -> None:
    builder = ColumnBuilder()
    (batch,) = read_batches(batch_bytes(build, 50))
    builder.add(batch, "flights", 3)
    store = builder._store
    table = builder.to_record_batch()
    column = table.column("value")
    del table
    gc.collect()
    assert len(column.to_pylist()) == 50, "a column outlives its record batch"
    with pytest.raises(BufferError):
        store.values.data.append(0)
    del column
    gc.collect()
    store.values.data.append(0)
    store.keys.data.append(0)


def test_columns_outlive_the_builder_and_may_be_released_elsewhere(build: Implementation) -> None:
    tables = [columns_of(batch_bytes(build, 20))]
    expected = as_rows(tables[0])
    gc.collect()
    assert as_rows(tables[0]) == expected
    thread = threading.Thread(target=tables.clear)
    thread.start()
    thread.join()
    assert tables == []


def test_arrays_that_live_until_the_interpreter_ends() -> None:
    code = "import kclient.record.columnar as c\nkept = c.ColumnBuilder().to_record_batch()\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60.0)
    assert (done.returncode, done.stderr) == (0, b"")

"""read_batches and Batch: views of the bytes of a fetch, read in portions."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import pytest
from crc32c import crc32c

from kclient.errors import CorruptRecord, DecompressionFailed
from kclient.record import Compression, read_batches
from kclient.record.implementation import Implementation
from kclient.types import TimestampType, TopicPartition

NOW = 1357016400000
WHERE = TopicPartition("flights", 3)

BASE_OFFSET, LENGTH, EPOCH, MAGIC, CRC = 0, 8, 12, 16, 17
ATTRIBUTES, LAST_DELTA, BASE_TIMESTAMP, MAX_TIMESTAMP, COUNT, BODY = 21, 23, 27, 35, 57, 61


def encoded(
    build: Implementation, count: int, codec: Compression = Compression.NONE, base_offset: int = 0
) -> bytearray:
    """Return a batch of ``count`` records at ``base_offset``."""
    builder = build.BatchBuilder(1 << 24)
    for number in range(count):
        builder.append(NOW + number, b"k%d" % number, b"v%d" % number, None)
    builder.compress(codec)
    data = bytearray(builder.encode(leader_epoch=7))
    struct.pack_into(">q", data, BASE_OFFSET, base_offset)
    return data


def patched(data: bytearray, at: int, layout: str, value: int) -> bytearray:
    """Return ``data`` with one header field replaced and the CRC corrected."""
    struct.pack_into(layout, data, at, value)
    struct.pack_into(">I", data, CRC, crc32c(bytes(data[ATTRIBUTES:])))
    return data


def only(data: bytes | bytearray, **options: Any) -> Any:
    (batch,) = read_batches(bytes(data), **options)
    return batch


def test_all_fields_of_the_header(build: Implementation) -> None:
    batch = only(encoded(build, 5, base_offset=1000))
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (1000, 1004, 1005)
    assert (batch.magic, batch.codec, batch.record_count) == (2, Compression.NONE, 5)
    assert (batch.partition_leader_epoch, batch.timestamp_type) == (7, TimestampType.CREATE_TIME)
    assert (batch.base_timestamp, batch.max_timestamp) == (NOW, NOW + 4)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert batch.size_bytes == len(encoded(build, 5))


def test_records_know_where_they_are_from(build: Implementation) -> None:
    (first, second) = only(encoded(build, 2, base_offset=40)).records("flights", 3)
    assert (first.topic, first.partition, first.offset) == ("flights", 3, 40)
    assert (second.offset, second.timestamp, second.key) == (41, NOW + 1, b"k1")
    assert first.leader_epoch == 7


def test_an_unknown_leader_epoch_is_none(build: Implementation) -> None:
    data = encoded(build, 1)
    struct.pack_into(">i", data, EPOCH, -1)
    assert only(data).records("t", 0)[0].leader_epoch is None


def test_batches_follow_each_other(build: Implementation) -> None:
    data = b"".join(encoded(build, 3, base_offset=offset) for offset in (0, 3, 10))
    assert [batch.base_offset for batch in read_batches(memoryview(data))] == [0, 3, 10]


@pytest.mark.parametrize("kept", [0, 1, 11, 12, 60, 61, 70, -1])
def test_a_batch_that_was_cut_off_is_silently_left(build: Implementation, kept: int) -> None:
    data = encoded(build, 3)
    cut = encoded(build, 3, base_offset=3)
    assert len(list(read_batches(bytes(data + cut[:kept])))) == 1


def test_nothing_in_nothing() -> None:
    assert list(read_batches(b"")) == []


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13])
def test_a_length_that_can_not_be(build: Implementation, length: int) -> None:
    data = encoded(build, 1, base_offset=9)
    struct.pack_into(">i", data, LENGTH, length)
    with pytest.raises(CorruptRecord, match=f"batch at offset 9 announces a length of {length}"):
        list(read_batches(bytes(data)))


def test_a_v2_batch_shorter_than_its_header(build: Implementation) -> None:
    data = encoded(build, 1, base_offset=9)[:60]
    struct.pack_into(">i", data, LENGTH, 48)
    with pytest.raises(CorruptRecord, match="batch at offset 9 has only 60 bytes") as caught:
        list(read_batches(bytes(data)))
    assert caught.value.offset == 9


@pytest.mark.parametrize("magic", [3, 127, 255])
def test_a_magic_of_the_future(build: Implementation, magic: int) -> None:
    data = encoded(build, 1)
    data[MAGIC] = magic
    with pytest.raises(CorruptRecord, match=f"has magic {magic}; this client reads 0, 1 and 2"):
        list(read_batches(bytes(data)))


@pytest.mark.parametrize(
    ("at", "layout", "value", "text"),
    [
        (ATTRIBUTES, ">h", 5, "unknown codec 5"),
        (ATTRIBUTES, ">h", 7, "unknown codec 7"),
        (LAST_DELTA, ">i", -1, "a last offset delta of -1"),
        (COUNT, ">i", -1, "has -1 records"),
        (BASE_OFFSET, ">q", -1, "batch at offset -1 has"),
        (BASE_OFFSET, ">q", 2**63 - 3, "ends past the last offset"),
    ],
)
def test_headers_that_can_not_be(
    build: Implementation, at: int, layout: str, value: int, text: str
) -> None:
    with pytest.raises(CorruptRecord, match=text):
        list(read_batches(bytes(patched(encoded(build, 3), at, layout, value))))


@pytest.mark.parametrize("bit", [ATTRIBUTES * 8, LAST_DELTA * 8 + 31, BODY * 8 + 3])
def test_a_flipped_bit_fails_the_crc(build: Implementation, bit: int) -> None:
    data = encoded(build, 3)
    only(data).check_crc()
    data[bit // 8] ^= 0x80 >> bit % 8
    (batch,) = read_batches(bytes(data), topic_partition=WHERE)
    with pytest.raises(CorruptRecord, match="in flights-3 the batch at offset 0 has CRC") as caught:
        batch.check_crc()
    assert caught.value.topic_partition == WHERE
    assert caught.value.offset == 0


def test_what_a_broker_sets_is_not_covered_by_the_crc(build: Implementation) -> None:
    data = encoded(build, 3)
    struct.pack_into(">q", data, BASE_OFFSET, 123456)
    struct.pack_into(">i", data, EPOCH, 99)
    only(data).check_crc()


@pytest.mark.parametrize("codec", list(Compression))
def test_records_in_portions(build: Implementation, codec: Compression) -> None:
    batch = only(encoded(build, 100, codec))
    taken = []
    while not batch.exhausted:
        portion = batch.records("t", 0, limit=7)
        assert 0 < len(portion) <= 7
        taken += [record.offset for record in portion]
    assert taken == list(range(100))
    assert batch.records("t", 0) == []


@pytest.mark.parametrize(
    ("start", "limit", "expected"),
    [
        (0, None, range(10, 20)),
        (10, None, range(10, 20)),
        (15, None, range(15, 20)),
        (15, 2, range(15, 17)),
        (19, None, range(19, 20)),
        (20, None, range(0)),
        (500, 1, range(0)),
        (0, 0, range(0)),
    ],
)
def test_records_before_the_start_are_skipped(
    build: Implementation, start: int, limit: int | None, expected: range
) -> None:
    batch = only(encoded(build, 10, base_offset=10))
    records = batch.records("t", 0, start_offset=start, limit=limit)
    assert [record.offset for record in records] == list(expected)


def test_a_compacted_batch_keeps_its_last_offset(build: Implementation) -> None:
    # The cleaner removes records but keeps the header's offsets: the position must move past them.
    data = patched(encoded(build, 3, base_offset=100), LAST_DELTA, ">i", 49)
    batch = only(data)
    assert [record.offset for record in batch.records("t", 0)] == [100, 101, 102]
    assert batch.next_offset == 150


def test_an_emptied_batch_has_no_records(build: Implementation) -> None:
    data = encoded(build, 1, base_offset=5)[:BODY]
    struct.pack_into(">i", data, LENGTH, BODY - 12)
    batch = only(patched(data, COUNT, ">i", 0))
    batch.check_crc()
    assert batch.exhausted
    assert batch.records("t", 0) == []
    assert batch.next_offset == 6


def test_log_append_time_gives_one_timestamp_to_all(build: Implementation) -> None:
    data = patched(encoded(build, 3), ATTRIBUTES, ">h", 0x08)
    batch = only(patched(data, MAX_TIMESTAMP, ">q", NOW + 777))
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    records = batch.records("t", 0)
    assert {record.timestamp for record in records} == {NOW + 777}
    assert {record.timestamp_type for record in records} == {TimestampType.LOG_APPEND_TIME}


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (4, "a record is missing"),
        (2, "bytes follow the last record"),
        (0, "announces no records in"),
        (2**31 - 1, "announces 2147483647 records in"),
    ],
)
def test_a_record_count_that_is_not_true(build: Implementation, count: int, text: str) -> None:
    batch = only(patched(encoded(build, 3), COUNT, ">i", count))
    with pytest.raises(CorruptRecord, match=text):
        batch.records("t", 0)


def test_an_error_names_the_place_and_takes_nothing(build: Implementation) -> None:
    data = encoded(build, 3, base_offset=70)
    data[-1] = 0x7E  # the count of headers of the last record
    (batch,) = read_batches(bytes(data), topic_partition=WHERE)
    with pytest.raises(CorruptRecord) as first:
        batch.records("flights", 3)
    assert str(first.value).startswith("in flights-3 the batch at offset 70: at byte ")
    assert (first.value.offset, first.value.topic_partition) == (70, WHERE)
    with pytest.raises(CorruptRecord) as again:
        batch.records("flights", 3)
    assert str(again.value) == str(first.value)
    assert [record.offset for record in batch.records("flights", 3, limit=2)] == [70, 71]


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_control_type_of_markers(build: Implementation, kind: int) -> None:
    builder = build.BatchBuilder(control=True)
    builder.append(NOW, struct.pack(">hh", 0, kind), b"\0" * 6, None)
    batch = only(builder.encode(1, 2))
    assert batch.is_control
    assert batch.control_types() == [kind]
    assert len(batch.records("t", 0)) == 1, "looking at the type takes nothing"


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
def test_a_marker_without_a_type(build: Implementation, key: bytes | None) -> None:
    builder = build.BatchBuilder(control=True)
    builder.append(NOW, key, None, None)
    with pytest.raises(CorruptRecord, match="is a control batch without a type"):
        only(builder.encode()).control_types()


def test_all_markers_of_a_control_batch_are_returned_up_to_a_limit(build: Implementation) -> None:
    builder = build.BatchBuilder(control=True)
    for kind in (1, 0, 1):
        builder.append(NOW, struct.pack(">hh", 0, kind), b"\0" * 6, None)
    data = builder.encode(1, 2)
    assert only(data).control_types() == [1, 0, 1]
    assert only(data).control_types(2) == [1, 0]
    assert only(encoded(build, 1)).control_types() == []


@pytest.mark.parametrize("codec", list(Compression))
def test_what_compaction_leaves_of_a_batch_is_read_whatever_its_codec(
    build: Implementation, codec: Compression
) -> None:
    data = patched(encoded(build, 4)[:BODY], LENGTH, ">i", BODY - MAGIC + 4)
    data = patched(patched(data, COUNT, ">i", 0), ATTRIBUTES, ">h", int(codec))
    batch = only(data)
    assert not batch.needs_thread()
    assert batch.records("t", 0) == []
    assert batch.next_offset == 4


def test_a_small_cap_is_kept_by_what_is_inflated_at_once(build: Implementation) -> None:
    data = encoded(build, 300, Compression.GZIP)
    assert not only(data).needs_thread(100_000)
    batch = only(data)
    assert batch.needs_thread(1000)
    with pytest.raises(DecompressionFailed):
        batch.inflate(1000)


def test_small_payloads_are_inflated_at_once_and_large_ones_left(build: Implementation) -> None:
    assert not only(encoded(build, 3)).needs_thread()
    small = only(encoded(build, 100, Compression.GZIP))
    assert not small.needs_thread()
    large = only(encoded(build, 100_000, Compression.GZIP))
    assert large.needs_thread()
    large.inflate()
    assert not large.needs_thread()


def test_a_small_payload_that_grows_large_belongs_in_a_thread(build: Implementation) -> None:
    builder = build.BatchBuilder(1)
    builder.append(NOW, None, bytes(4 << 20), None)
    builder.compress(Compression.ZSTD)
    data = builder.encode()
    assert len(data) < 1000
    batch = only(data)
    assert batch.needs_thread()
    batch.inflate()
    assert batch.records("t", 0)[0].size_bytes == 4 << 20


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_the_cap_names_the_batch_and_the_remedy(build: Implementation, codec: Compression) -> None:
    builder = build.BatchBuilder(1)
    builder.append(NOW, None, bytes(3 << 20), None)
    builder.compress(codec)
    (batch,) = read_batches(builder.encode(), topic_partition=WHERE)
    with pytest.raises(DecompressionFailed, match="in flights-3 the batch at offset 0") as caught:
        batch.inflate(2 << 20)
    assert "decompression_cap" in str(caught.value)
    assert caught.value.topic_partition == WHERE
    batch.inflate(4 << 20)
    assert len(batch.records("t", 0)) == 1


def test_a_payload_of_another_codec(build: Implementation) -> None:
    data = patched(encoded(build, 3, Compression.GZIP), ATTRIBUTES, ">h", Compression.ZSTD)
    with pytest.raises(DecompressionFailed, match="the payload is not zstd"):
        only(data).records("t", 0)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_payloads_are_read_from_whatever_holds_them(build: Implementation, kind: Any) -> None:
    builder = build.BatchBuilder(1 << 20)
    headers = (("name", b"value"), ("none", None))
    for number in range(5):
        builder.append(NOW + number, b"k%d" % number, b"v%d" % number, headers)
    payload = bytes(builder.encode())[BODY:]
    for start in range(2):
        origin = build.Origin("t", 0, TimestampType.CREATE_TIME, None)
        expected, *where = build.decode_records(payload, 0, 5, 0, 4, NOW, None, origin, start, 3)
        found, *also = build.decode_records(kind(payload), 0, 5, 0, 4, NOW, None, origin, start, 3)
        assert where == also
        assert [(r.key, r.value, r.headers) for r in found] == [
            (r.key, r.value, r.headers) for r in expected
        ]
        assert {type(r.value) for r in found} == {bytes}
        store, same = build.ColumnStore(), build.ColumnStore()
        ends = [
            s.fill(data, 0, 5, 0, 4, NOW, None, start, 3)
            for s, data in ((store, payload), (same, kind(payload)))
        ]
        assert ends[0] == ends[1]
        used = 2 * store.rows
        assert store.values.data[:used] == same.values.data[:used]
        assert store.header_names == same.header_names == ["name", "none"] * store.rows
        assert store.header_values == same.header_values == [b"value", None] * store.rows


def test_no_payload_at_all(build: Implementation) -> None:
    origin = build.Origin("t", 0, TimestampType.CREATE_TIME, None)
    for nothing in (b"", bytearray(), memoryview(b"")):
        assert build.decode_records(nothing, 0, 0, 0, 0, NOW, None, origin, 0, 5) == ([], 0, 0)
        with pytest.raises(CorruptRecord):
            build.decode_records(nothing, 0, 1, 0, 0, NOW, None, origin, 0, 5)


@pytest.mark.parametrize("layout", ["B", "b", "c"])
def test_views_of_any_layout_of_bytes_are_read(build: Implementation, layout: str) -> None:
    view = memoryview(encoded(build, 3)).cast(layout)
    (batch,) = read_batches(view)
    assert [record.value for record in batch.records("t", 0)] == [b"v0", b"v1", b"v2"]


def test_only_the_pure_build_copies_a_payload_that_is_not_compressed(
    build: Implementation,
) -> None:
    in_place = build.name == "cython"
    data = encoded(build, 20_000)
    (batch,) = read_batches(data)
    tracemalloc.start()
    try:
        assert len(batch.records("t", 0, limit=1)) == 1
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (kept < len(data) // 10) == in_place
    assert batch.held_bytes == 0
    with pytest.raises(BufferError):
        data.pop()  # in place or not, the batch still has a view of it
    assert [r.value for r in batch.records("t", 0)][-1] == b"v19999"
    assert batch.held_bytes == 0


def test_what_was_inflated_is_held_until_the_last_record(build: Implementation) -> None:
    batch = only(encoded(build, 10, Compression.GZIP))
    assert batch.held_bytes == 0
    batch.records("t", 0, limit=9)
    assert batch.held_bytes == len(encoded(build, 10)) - BODY
    batch.records("t", 0)
    assert batch.held_bytes == 0


def test_a_view_of_rows_is_read_as_its_bytes(build: Implementation) -> None:
    data = encoded(build, 3)
    rows = memoryview(data).cast("B", (1, len(data)))
    assert [b.record_count for b in read_batches(rows)] == [3]

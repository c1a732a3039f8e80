"""BatchBuilder: records in, one v2 batch out, as often as it is encoded."""

from __future__ import annotations

import struct
import sys
from typing import Any

import pytest
from crc32c import crc32c

from kclient.errors import InvalidArgument, SerializationFailed
from kclient.producer._compiled import BatchOutcome, ProducerBatch
from kclient.record import Compression, read_batches
from kclient.record.implementation import Implementation, codec, load
from tests.unit.record.captures import KAFKA_4_3_0, RECORDS
from tests.unit.record.conftest import BUILDS

NOW = 1357016400000


def filled(build: Implementation, count: int, **options: Any) -> Any:
    builder = build.BatchBuilder(1 << 20, **options)
    for number in range(count):
        builder.append(NOW + number, b"key%d" % number, b"value%d" % number, None)
    return builder


def read(data: bytes) -> list[tuple[Any, ...]]:
    """Offset, timestamp, key, value and headers of all records in ``data``."""
    found = []
    for batch in read_batches(data):
        batch.check_crc()
        found += [
            (record.offset, record.timestamp, record.key, record.value, record.headers)
            for record in batch.records("topic", 0)
        ]
    return found


def test_a_batch_is_byte_for_byte_what_a_real_broker_stored(build: Implementation) -> None:
    builder = build.BatchBuilder()
    for key, value, headers, timestamp in RECORDS:
        builder.append(timestamp, key, value, headers)
    ours, theirs = bytearray(builder.encode(leader_epoch=0)), bytearray(KAFKA_4_3_0["v2-none"])
    assert ours == theirs


def test_the_index_in_the_batch_is_returned(build: Implementation) -> None:
    builder = build.BatchBuilder()
    assert [builder.append(NOW, None, b"v", None) for _ in range(200)] == list(range(200))
    assert builder.record_count == 200


def test_size_is_exact_and_never_over_the_limit(build: Implementation) -> None:
    builder = build.BatchBuilder(3000)
    count = 0
    while builder.append(NOW + 70 * count, b"k" * (count % 90), b"v" * count, None) >= 0:
        count += 1
        assert builder.size_bytes <= 3000
    assert builder.record_count == count
    assert len(builder.encode()) == builder.size_bytes == builder.encoded_bytes
    assert builder.size_bytes + 200 > 3000


def test_a_batch_may_be_filled_to_the_last_byte(build: Implementation) -> None:
    builder = build.BatchBuilder(61 + 2 * 7)
    assert builder.append(0, None, None, None) == 0
    assert builder.append(0, None, None, None) == 1
    assert builder.append(0, None, None, None) == -1
    assert len(builder.encode()) == 61 + 2 * 7


@pytest.mark.parametrize("limit", [1, 61, 100])
def test_the_first_record_is_always_admitted(build: Implementation, limit: int) -> None:
    builder = build.BatchBuilder(limit)
    assert builder.append(NOW, b"k" * 500, b"v" * 5000, (("h", b"w" * 300),)) == 0
    assert builder.append(NOW, None, None, None) == -1
    assert read(builder.encode()) == [(0, NOW, b"k" * 500, b"v" * 5000, (("h", b"w" * 300),))]


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8191, 8192, 1 << 20, (1 << 21) + 1])
def test_sizes_at_the_edges_of_varints(build: Implementation, size: int) -> None:
    builder = build.BatchBuilder(1)
    builder.append(0, b"k" * size, b"v" * size, (("h" * size, b"w" * size),))
    assert read(builder.encode()) == [
        (0, 0, b"k" * size, b"v" * size, (("h" * size, b"w" * size),))
    ]


@pytest.mark.parametrize(
    "timestamps",
    [
        [NOW, NOW - 1, NOW + 5000, 0],
        [-1, -1],
        [0, 2**63 - 2, 0],
        [2**63 - 2, -1],
        [-1, 2**63 - 2],
        [NOW, NOW + 63, NOW + 64, NOW + 8191, NOW + 8192, NOW - 64, NOW - 65],
    ],
)
def test_timestamps_in_any_order(build: Implementation, timestamps: list[int]) -> None:
    builder = build.BatchBuilder()
    for timestamp in timestamps:
        builder.append(timestamp, None, None, None)
    assert builder.base_timestamp == timestamps[0]
    assert builder.max_timestamp == max(timestamps)
    data = builder.encode()
    assert [row[1] for row in read(data)] == timestamps
    (batch,) = read_batches(data)
    assert batch.base_timestamp == timestamps[0]
    assert batch.max_timestamp == max(timestamps)


@pytest.mark.parametrize("wrong", [-2, 2**63 - 1, 2**63, -(2**63) - 1, 1.5, "now", None, True])
def test_a_timestamp_that_no_batch_can_hold(build: Implementation, wrong: Any) -> None:
    builder = build.BatchBuilder()
    with pytest.raises(InvalidArgument, match=r"timestamp_ms must be an int of milliseconds"):
        builder.append(wrong, None, None, None)
    assert builder.record_count == 0


@pytest.mark.parametrize("wrong", ["text", 5, bytearray(b"x"), memoryview(b"x"), object()])
@pytest.mark.parametrize("what", ["key", "value"])
def test_key_and_value_of_a_wrong_type(build: Implementation, what: str, wrong: Any) -> None:
    builder = build.BatchBuilder()
    key, value = (wrong, None) if what == "key" else (None, wrong)
    with pytest.raises(SerializationFailed) as caught:
        builder.append(NOW, key, value, None)
    assert caught.value.message == (
        f"the {what} of a record must be bytes or None when it is appended, "
        f"not {type(wrong).__name__}"
    )
    assert builder.append(NOW, None, None, None) == 0


def test_a_record_with_bad_headers_leaves_the_batch_as_it_was(build: Implementation) -> None:
    builder = filled(build, 2)
    with pytest.raises(SerializationFailed):
        builder.append(NOW, None, None, (("a", b"1"), ("b", "text")))
    assert builder.append(NOW, None, None, None) == 2
    assert len(read(builder.encode())) == 3


@pytest.mark.parametrize("limit", [0, -1, 1 << 31])
def test_an_absurd_limit(build: Implementation, limit: int) -> None:
    with pytest.raises(InvalidArgument, match="limit must be 1 to 2147483647 bytes"):
        build.BatchBuilder(limit)


def test_encode_puts_the_ids_where_they_belong(build: Implementation) -> None:
    (batch,) = read_batches(filled(build, 3).encode(11, 12, 13, leader_epoch=14))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (11, 12, 13)
    assert batch.partition_leader_epoch == 14
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (0, 2, 3)
    assert not batch.is_transactional
    assert not batch.is_control


@pytest.mark.parametrize("codec", list(Compression))
def test_encode_again_with_other_ids_gives_the_same_records(
    build: Implementation, codec: Compression
) -> None:
    builder = filled(build, 100)
    builder.compress(codec)
    first, second = builder.encode(1, 2, 3), builder.encode(1, 3, 0, transactional=True)
    assert read(first) == read(second)
    (batch,) = read_batches(second)
    assert (batch.producer_epoch, batch.base_sequence, batch.is_transactional) == (3, 0, True)
    assert batch.codec == codec
    assert len(first) == builder.encoded_bytes


def test_the_crc_covers_all_from_the_attributes_on(build: Implementation) -> None:
    data = filled(build, 5).encode(1, 2, 3)
    assert struct.unpack_from(">I", data, 17) == (crc32c(data[21:]),)


def test_attributes_for_transactions_brokers_and_markers(build: Implementation) -> None:
    (plain,) = read_batches(filled(build, 1, transactional=True).encode())
    assert plain.is_transactional
    (appended,) = read_batches(filled(build, 2, log_append_time=True).encode())
    assert [record.timestamp for record in appended.records("t", 0)] == [NOW + 1, NOW + 1]
    builder = build.BatchBuilder(transactional=True, control=True)
    builder.append(NOW, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 9), None)
    (marker,) = read_batches(builder.encode(1, 2))
    assert (marker.is_control, marker.is_transactional, marker.control_types()) == (True, True, [1])


@pytest.mark.parametrize("close", ["compress", "encode", "split"])
def test_a_closed_batch_takes_nothing_more(build: Implementation, close: str) -> None:
    builder = filled(build, 1)
    if close == "compress":
        builder.compress(Compression.NONE)
    elif close == "encode":
        builder.encode()
    else:
        builder.split(100)
    assert builder.closed
    assert builder.append(NOW, None, None, None) == -1
    assert builder.record_count == 1


def test_what_makes_no_sense_is_refused(build: Implementation) -> None:
    with pytest.raises(InvalidArgument, match="without records"):
        build.BatchBuilder().encode()
    builder = filled(build, 1)
    builder.compress(Compression.GZIP)
    with pytest.raises(InvalidArgument, match="already compressed with GZIP"):
        builder.compress(Compression.GZIP)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_split_keeps_records_order_and_kind(build: Implementation, codec: Compression) -> None:
    builder = build.BatchBuilder(1 << 20, transactional=True)
    for number in range(300):
        headers = (("n", b"%d" % number),) if number % 3 else None
        builder.append(NOW - number, b"%d" % number, b"v" * (number % 50), headers)
    builder.compress(codec)
    whole = read(builder.encode())
    parts = builder.split(1000)
    assert len(parts) > 10
    assert sum(part.record_count for part in parts) == 300
    assert all(part.size_bytes <= 1000 for part in parts)
    rows = [row[1:] for part in parts for row in read(part.encode())]
    assert rows == [row[1:] for row in whole]
    assert all(next(read_batches(part.encode())).is_transactional for part in parts)


def test_split_leaves_a_record_over_the_limit_alone(build: Implementation) -> None:
    builder = build.BatchBuilder(1 << 20)
    for size in (10, 5000, 10, 10):
        builder.append(NOW, None, b"v" * size, None)
    assert [part.record_count for part in builder.split(500)] == [1, 1, 2]


def space_of(builder: Any) -> int:
    """Return the size of the buffer that holds its records."""
    _, body = builder.parts()
    return len(body.obj)


@pytest.mark.parametrize("count", [1, 100, 1000])
@pytest.mark.parametrize("expected", [0, 60_000])
def test_memory_for_records_that_did_not_come_is_freed(
    build: Implementation, count: int, expected: int
) -> None:
    builder, twin = (filled(build, count, expected=expected) for _ in range(2))
    builder.trim()
    used = builder.size_bytes - 61
    assert space_of(builder) <= max(used * 8 // 7 + 1, 1024)
    assert builder.encode() == twin.encode()
    assert builder.record_count == count


def test_memory_is_freed_when_a_batch_is_sealed() -> None:
    nothing: Any = None
    build = codec  # a batch has a builder of its own build
    builder = filled(build, 100, expected=60_000)
    if build.name == "cython":  # the pure build never allocates more than it needs
        assert space_of(filled(build, 100, expected=60_000)) == 60_000
    ProducerBatch(nothing, builder, BatchOutcome(nothing, "t", 0), 0.0, 1.0).seal()
    assert space_of(builder) == builder.size_bytes - 61


def test_memory_of_a_batch_that_is_over_serves_another(build: Implementation) -> None:
    over = filled(build, 300, expected=60_000)
    memory = over.give_back()
    assert (memory is not None) == (build.name == "cython")
    if memory is not None:
        assert over.append(NOW, None, b"late", None) == -1
    again = build.BatchBuilder(1 << 20, memory=memory)
    for number in range(3000):  # more than fit into the memory that it was given
        again.append(NOW + number, None, b"other%d" % number, None)
    fresh = build.BatchBuilder(1 << 20)
    for number in range(3000):
        fresh.append(NOW + number, None, b"other%d" % number, None)
    assert again.encode() == fresh.encode()


def test_the_memory_of_a_full_batch_fits_the_next_whatever_was_expected(
    build: Implementation,
) -> None:
    left = []
    for expected in range(50_000, 65_536, 500):
        builder = build.BatchBuilder(65_536, expected=expected)
        while builder.append(NOW, None, b"v" * (expected % 200), None) >= 0:
            pass
        left.append(builder.give_back())
    wanted = bytearray(65_536 - 61) if build.name == "cython" else None
    assert {sys.getsizeof(memory) for memory in left} == {sys.getsizeof(wanted)}


def test_memory_with_a_view_is_not_given_back(build: Implementation) -> None:
    builder = filled(build, 300)
    wanted = builder.encode()
    head, body = builder.parts()
    assert builder.give_back() is None
    assert head + bytes(body) == wanted == builder.encode()
    del body
    assert (builder.give_back() is not None) == (build.name == "cython")


def test_both_builds_write_the_same_bytes() -> None:
    written = []
    for name in BUILDS:
        builder = load(name).BatchBuilder(1 << 20)
        for number in range(2000):
            headers = ((f"h{number}", None), ("é", b"x" * (number % 200))) if number % 4 else None
            builder.append(
                NOW + number * number - 5000 * (number % 3),
                None if number % 5 == 0 else b"k" * (number % 130),
                None if number % 7 == 0 else b"v" * (number * 3 % 9000 if number % 11 == 0 else 9),
                headers,
            )
        written.append(builder.encode(1, 2, 3))
    assert len(set(written)) == 1

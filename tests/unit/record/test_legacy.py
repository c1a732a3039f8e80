"""Message sets v0 and v1: sets that no broker writes by itself, and malformed ones."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import lz4.frame
import pytest

from kclient.errors import CorruptRecord, DecompressionFailed
from kclient.record import Compression, compress, read_batches
from kclient.record.columnar import ColumnBuilder
from kclient.record.implementation import Implementation
from kclient.record.message_set import LegacyBatch, repaired_lz4_frame
from kclient.types import TimestampType

LOG_APPEND = 0x08


def message(
    offset: int,
    value: bytes | None,
    *,
    magic: int = 1,
    attributes: int = 0,
    timestamp: int = 1000,
    key: bytes | None = None,
) -> bytes:
    """Return one message with its CRC."""
    body = struct.pack(">bb", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp)
    for part in (key, value):
        body += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def wrapper(offset: int, inner: bytes, *, magic: int = 1, attributes: int = 1) -> bytes:
    """Return a wrapper around ``inner``; gzip unless the attributes have another codec."""
    payload = compress(Compression(attributes & 7), inner)
    return message(offset, payload, magic=magic, attributes=attributes, timestamp=5000)


def test_relative_offsets_count_back_from_the_wrapper(build: Implementation) -> None:
    inner = b"".join(message(number, b"v", timestamp=number) for number in range(4))
    (batch,) = read_batches(wrapper(103, inner))
    assert (batch.last_offset, batch.next_offset, batch.record_count) == (103, 104, -1)
    batch.check_crc()
    assert not batch.needs_thread()
    assert (batch.base_offset, batch.record_count) == (100, 4)
    records = batch.records("t", 2)
    assert [(record.offset, record.timestamp) for record in records] == [
        (100, 0),
        (101, 1),
        (102, 2),
        (103, 3),
    ]
    assert records[0].leader_epoch is None
    assert batch.exhausted


def test_messages_that_no_memory_could_be_had_for_come_again(
    build: Implementation, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = b"".join(message(number, b"v") for number in range(4))
    (batch,) = read_batches(wrapper(3, inner))
    made, record = 0, LegacyBatch._record

    def fail_once(*args: Any) -> Any:
        nonlocal made
        made += 1
        if made == 3:
            raise MemoryError
        return record(*args)

    monkeypatch.setattr(LegacyBatch, "_record", fail_once)
    with pytest.raises(MemoryError):
        batch.records("t", 0)
    assert [found.offset for found in batch.records("t", 0)] == [0, 1, 2, 3]


def test_space_for_messages_in_columns_is_reserved_before_they_are_decoded(
    build: Implementation,
) -> None:
    class NoSpace:
        rows = 0

        def reserve(self, more: int, size_bytes: int) -> None:
            raise MemoryError

    inner = b"".join(message(number, b"v" * 10, key=b"k") for number in range(4))
    (batch,) = read_batches(wrapper(3, inner))
    builder = ColumnBuilder()
    store: Any = builder._store
    builder._store = NoSpace()  # type: ignore[assignment]
    with pytest.raises(MemoryError):
        builder.add(batch, "t", 0)
    builder._store = store
    assert builder.add(batch, "t", 0) == 4 == builder.num_rows
    assert (builder.last_offset, builder.size_bytes) == (3, 44)


@pytest.mark.parametrize("appended", [False, True])
def test_columns_end_in_front_of_a_stop(build: Implementation, appended: bool) -> None:
    inner = b"".join(message(number, b"v") for number in range(4))
    (batch,) = read_batches(wrapper(3, inner, attributes=1 | (LOG_APPEND if appended else 0)))
    builder = ColumnBuilder(columns=("offset", "timestamp_type"))
    assert builder.add(batch, "t", 0, start_offset=1, stop_offset=3) == 2
    assert builder.stopped
    made = builder.to_record_batch().to_pydict()
    assert made == {"offset": [1, 2], "timestamp_type": [int(appended)] * 2}


def test_relative_offsets_of_a_compacted_wrapper(build: Implementation) -> None:
    inner = message(1, b"a") + message(5, b"b")
    (batch,) = read_batches(wrapper(105, inner))
    assert [record.offset for record in batch.records("t", 0)] == [101, 105]


def test_absolute_offsets_in_v0(build: Implementation) -> None:
    inner = message(40, b"a", magic=0) + message(42, b"b", magic=0)
    (batch,) = read_batches(wrapper(42, inner, magic=0))
    assert [record.offset for record in batch.records("t", 0)] == [40, 42]


def test_log_append_time_of_a_wrapper_is_that_of_all(build: Implementation) -> None:
    inner = message(0, b"a", timestamp=1) + message(1, b"b", timestamp=2)
    (batch,) = read_batches(wrapper(1, inner, attributes=1 | LOG_APPEND))
    records = batch.records("t", 0)
    assert [record.timestamp for record in records] == [5000, 5000]
    assert {record.timestamp_type for record in records} == {TimestampType.LOG_APPEND_TIME}


def test_records_in_portions_and_from_a_start(build: Implementation) -> None:
    inner = b"".join(message(number, b"%d" % number) for number in range(10))
    (batch,) = read_batches(wrapper(9, inner))
    first = batch.records("t", 0, start_offset=3, limit=2)
    rest = batch.records("t", 0, start_offset=3)
    assert [record.offset for record in first + rest] == [3, 4, 5, 6, 7, 8, 9]
    assert batch.records("t", 0) == []


def test_old_and_new_formats_in_one_log(build: Implementation) -> None:
    builder = build.BatchBuilder()
    builder.append(1, None, b"new", None)
    data = message(0, b"old", magic=0) + message(0, b"newer") + builder.encode()
    assert [batch.magic for batch in read_batches(data)] == [0, 1, 2]


def test_a_flipped_bit_fails_the_crc(build: Implementation) -> None:
    data = bytearray(message(7, b"value"))
    data[-1] ^= 1
    (batch,) = read_batches(bytes(data))
    with pytest.raises(CorruptRecord, match="batch at offset 7 has CRC"):
        batch.check_crc()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (message(0, b"v", attributes=5), "unknown codec 5"),
        (message(0, b"v", attributes=4), "unknown codec 4"),
        (message(-1, b"v"), "has a negative offset"),
        (message(0, b"v")[:-1] + b"v!", "truncated"),
        (struct.pack(">qiIbb", 0, 14, 0, 1, 0) + bytes(8), "a message with magic 1 in 14 bytes"),
        (struct.pack(">qiIbbii", 0, 14, 0, 0, 0, 9, 0), "9 bytes are announced"),
        (struct.pack(">qiIbbii", 0, 14, 0, 0, 0, -1, 9), "9 bytes are announced"),
        (struct.pack(">qiIbbiib", 0, 15, 0, 0, 0, -1, -1, 0), "has 1 bytes too many"),
    ],
)
def test_outer_messages_that_can_not_be(build: Implementation, data: bytes, text: str) -> None:
    if text == "truncated":
        assert len(list(read_batches(data))) == 1
        return
    with pytest.raises(CorruptRecord, match=text):
        list(read_batches(data))


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        (b"", "holds no message"),
        (b"\0" * 5, "ends in the middle"),
        (message(0, b"v")[:-1], "in a compressed set of"),
        (message(0, b"v") + b"\0" * 20, "a message of 0 bytes in a compressed set"),
        (message(0, b"v", magic=0), "holds a message with magic 0"),
        (wrapper(0, message(0, b"v")), "is compressed once more"),
        (message(2**40, b"v") + message(0, b"v"), "holds a message at offset"),
        (message(0, b"v") + message(50, b"v"), "holds a message at offset -"),
    ],
)
def test_inner_message_sets_that_can_not_be(build: Implementation, inner: bytes, text: str) -> None:
    (batch,) = read_batches(wrapper(20, inner))
    for _ in range(2):
        with pytest.raises(CorruptRecord, match=text):
            batch.records("t", 0)


def test_a_wrapper_without_a_value(build: Implementation) -> None:
    (batch,) = read_batches(message(0, None, attributes=1))
    with pytest.raises(CorruptRecord, match="is compressed and has no value"):
        batch.records("t", 0)


def test_a_payload_that_can_not_be_inflated(build: Implementation) -> None:
    (batch,) = read_batches(message(3, b"no gzip", attributes=1))
    assert batch.needs_thread(), "what can't be inflated at once is left to inflate()"
    with pytest.raises(DecompressionFailed, match="batch at offset 3: the payload is not gzip"):
        batch.inflate()


def test_the_cap_holds_for_wrappers(build: Implementation) -> None:
    (batch,) = read_batches(wrapper(0, message(0, bytes(1 << 20))))
    with pytest.raises(DecompressionFailed, match="inflates to more than the 1000 bytes"):
        batch.inflate(1000)


@pytest.mark.parametrize("store_size", [False, True])
def test_kafkas_wrong_lz4_header_checksum_is_mended_in_v0_only(
    build: Implementation, store_size: bool
) -> None:
    inner = message(0, b"value", magic=0)
    frame = bytearray(lz4.frame.compress(inner, store_size=store_size))
    at = 4 + 2 + (8 if store_size else 0)
    frame[at] ^= 0xFF
    assert lz4.frame.decompress(repaired_lz4_frame(frame)) == inner
    (batch,) = read_batches(message(0, bytes(frame), magic=0, attributes=3))
    assert batch.records("t", 0)[0].value == b"value"
    (batch,) = read_batches(message(0, bytes(frame), magic=1, attributes=3))
    with pytest.raises(DecompressionFailed, match="the payload is not lz4"):
        batch.records("t", 0)


@pytest.mark.parametrize("data", [b"", b"\x04\x22\x4d\x18", b"\x04\x22\x4d\x18\x7f\x40"])
def test_a_frame_too_short_to_mend_stays_as_it_is(data: bytes) -> None:
    assert repaired_lz4_frame(data) == data

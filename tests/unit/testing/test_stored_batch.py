"""Batches as the log stores them: which bytes a broker may change, and which it must not."""

from __future__ import annotations

import pytest

from kclient.error_codes import ErrorCode
from kclient.record.compression import Compression
from kclient.record.message_set import read_batches
from kclient.testing.responses import ApiError
from kclient.testing.stored_batch import StoredBatch, split_batches
from tests.unit.testing.batches import COMMIT, NOW, batch_bytes, marker, patched, stored


def test_the_header_is_read() -> None:
    batch = stored(3, producer=(7, 2, 40))
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (0, 2, 3)
    assert (batch.producer_id, batch.producer_epoch) == (7, 2)
    assert (batch.base_sequence, batch.last_sequence) == (40, 42)
    assert (batch.record_count, batch.max_timestamp) == (3, NOW + 2)
    assert not batch.is_control
    assert not batch.is_transactional
    assert batch.codec == Compression.NONE


def test_the_last_sequence_wraps() -> None:
    assert stored(3, producer=(7, 0, 2**31 - 2)).last_sequence == 0


def test_the_last_sequence_without_a_producer_is_none() -> None:
    assert stored(3).last_sequence == -1


def test_placing_patches_offset_and_epoch_and_leaves_the_crc_right() -> None:
    batch = stored(3)
    batch.place(100, 5)
    (read,) = read_batches(memoryview(batch.data))
    assert (read.base_offset, read.last_offset, read.partition_leader_epoch) == (100, 102, 5)
    read.check_crc()
    assert (batch.base_offset, batch.last_offset) == (100, 102)


def test_placing_twice_moves_it_again() -> None:
    batch = stored(3)
    batch.place(100, 5)
    batch.place(7, 6)
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch) == (7, 9, 6)


def test_log_append_time_rewrites_type_maximum_and_crc() -> None:
    batch = stored(2, codec=Compression.GZIP)
    batch.set_times(NOW + 500, log_append_time=True)
    (read,) = read_batches(memoryview(batch.data))
    read.check_crc()
    assert [record.timestamp for record in read.records("t", 0)] == [NOW + 500] * 2


def test_times_that_are_right_leave_the_bytes_alone() -> None:
    batch = stored(2)
    before = bytes(batch.data)
    batch.set_times(NOW + 1, log_append_time=False)
    assert bytes(batch.data) == before


def test_the_producers_bytes_are_copied() -> None:
    data = bytearray(batch_bytes())
    batch = StoredBatch(data)
    data[-1] ^= 0xFF
    assert batch.computed_crc() == batch.crc


def test_a_marker_is_a_transactional_control_batch() -> None:
    batch = StoredBatch(marker(COMMIT, 9))
    assert batch.is_control
    assert batch.is_transactional
    assert batch.computed_crc() == batch.crc


def test_batches_are_split() -> None:
    one, two = batch_bytes(1), batch_bytes(2)
    assert [bytes(view) for view in split_batches(one + two)] == [one, two]


@pytest.mark.parametrize("cut", [1, 30, 60])
def test_a_truncated_last_batch_is_left_out(cut: int) -> None:
    one = batch_bytes(1)
    assert [bytes(view) for view in split_batches(one + one[:cut])] == [one]
    assert split_batches(one[:-cut]) == []


@pytest.mark.parametrize(
    ("layout", "position", "value"), [(">i", 8, 13), (">i", 8, -1), (">b", 16, 3), (">i", 8, 40)]
)
def test_a_length_or_magic_that_cannot_be_is_corrupt(
    layout: str, position: int, value: int
) -> None:
    data = patched(batch_bytes(), layout, position, value)
    with pytest.raises(ApiError) as caught:
        split_batches(data)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE

"""One fetched piece: what is returned, what is skipped, where the offset is afterwards."""

from __future__ import annotations

import pytest

from kclient.consumer.completed_fetch import CompletedFetch, FrameLease
from kclient.consumer.fetch_response import measure
from kclient.consumer.partition_state import PartitionState
from kclient.errors import CorruptRecord, DecompressionFailed
from kclient.record import Compression, read_batches
from kclient.types import TopicPartition
from tests.unit.consumer.log_bytes import batch, control, corrupted, gapped

P = TopicPartition("flights", 3)


def piece(log: bytes, offset: int = 0, **options: object) -> CompletedFetch:
    """``log`` as fetched at ``offset``."""
    state = PartitionState(P)
    span = measure(memoryview(log), offset, P)
    batches = read_batches(log, topic_partition=P)
    size = len(log)
    return CompletedFetch(
        state, offset, batches, span.end_offset, clean=span.clean, size_bytes=size, **options
    )  # type: ignore[arg-type]


def drain(data: CompletedFetch, limit: int = 1000) -> list[int]:
    """Offsets of all records."""
    offsets = []
    while not data.done:
        offsets += [record.offset for record in data.take(limit)]
    return offsets


def test_records_come_in_portions_and_the_offset_follows() -> None:
    data = piece(batch(0, 5) + batch(5, 2))
    assert [r.offset for r in data.take(3)] == [0, 1, 2]
    assert data.offset == 3
    assert [r.offset for r in data.take(3)] == [3, 4]
    assert [r.offset for r in data.take(3)] == [5, 6]
    assert (data.done, data.offset, data.end_offset) == (True, 7, 7)


def test_records_before_the_offset_asked_for_are_skipped() -> None:
    assert drain(piece(batch(0, 10), offset=7)) == [7, 8, 9]


def test_whole_batches_before_the_offset_are_skipped_unchecked() -> None:
    assert drain(piece(corrupted(batch(0, 2)) + batch(2, 2), offset=2)) == [2, 3]


def test_compacted_gaps_end_behind_the_batch() -> None:
    data = piece(gapped(batch(0, 2), 9) + batch(15, 1))
    assert [r.offset for r in data.take(10)] == [0, 1]
    assert data.offset == 10
    assert [r.offset for r in data.take(10)] == [15]


def test_a_batch_that_compaction_emptied_moves_the_offset() -> None:
    log = batch(0, 1) + gapped(batch(1, 1), 4)
    data = piece(log, offset=3)  # nothing of it is left from there on
    assert drain(data) == []
    assert data.offset == 6


def test_control_batches_are_skipped_but_move_offset_and_epoch() -> None:
    data = piece(batch(0, 1, leader_epoch=4) + control(1, 1, 1, leader_epoch=5))
    assert drain(data) == [0]
    assert (data.offset, data.leader_epoch) == (2, 5)


def test_aborted_batches_are_skipped_but_move_the_offset() -> None:
    log = batch(0, 3, producer_id=1, transactional=True) + control(3, 1, 0)
    assert drain(piece(log, aborted=[(1, 0)])) == []
    assert drain(piece(log)) == [0, 1, 2]  # read_uncommitted


def test_a_wrong_crc_names_partition_and_offsets_and_leaves_the_offset() -> None:
    data = piece(batch(0, 2) + corrupted(batch(2, 3)))
    assert [r.offset for r in data.take(10)] == [0, 1]
    expected = r"flights-3.*offset 2.*CRC.*stays at 2.*seek to 5"
    with pytest.raises(CorruptRecord, match=expected) as e:
        data.take(10)
    assert (e.value.offset, e.value.topic_partition, data.offset) == (2, P, 2)


def test_crcs_are_not_checked_where_that_is_off() -> None:
    log = bytearray(batch(0, 1))
    log[17] ^= 1  # the CRC itself
    assert drain(piece(bytes(log), check_crcs=False)) == [0]


def test_a_broken_structure_raises_after_the_readable_batches() -> None:
    data = piece(batch(0, 2) + batch(2, 1)[:8] + b"\xff" * 60)
    assert [r.offset for r in data.take(10)] == [0, 1]
    assert not data.done
    for _ in range(2):
        with pytest.raises(CorruptRecord, match=r"flights-3.*length.*stays at 2") as e:
            data.take(10)
        assert e.value.offset == 2


def test_a_large_compressed_batch_waits_for_a_thread() -> None:
    data = piece(batch(0, 300, codec=Compression.GZIP, value_bytes=10_000) + batch(300, 1))
    assert data.take(10) == []
    assert data.blocked is not None
    data.blocked.inflate(2**30)
    data.blocked = None
    assert drain(data) == list(range(301))


def test_a_refused_batch_raises_at_the_next_look() -> None:
    data = piece(batch(0, 300, codec=Compression.GZIP, value_bytes=10_000) + batch(300, 1))
    assert data.take(10) == []
    large = data.blocked
    assert large is not None
    data.refuse(large, DecompressionFailed("over the cap"))
    with pytest.raises(DecompressionFailed, match=r"over the cap.*seek to 300"):
        data.take(10)
    assert data.offset == 0


def test_given_back_records_come_first_and_whole() -> None:
    records = piece(batch(4, 3)).take(10)
    data = CompletedFetch.given_back(PartitionState(P), records, 9)
    assert data.has_ready_records
    assert data.take(2) == records[:2]
    assert (data.offset, data.done) == (6, False)
    assert data.take(2) == records[2:]
    assert (data.offset, data.done) == (9, True)


def test_a_batch_can_be_shown_and_passed_in_steps() -> None:
    data = piece(control(0, 1, 1) + batch(1, 2))
    assert data.take_batch() is None
    shown = data.take_batch()
    assert shown is not None
    assert shown.base_offset == 1
    data.pass_to(2)
    assert (data.done, data.offset) == (False, 2)
    assert data.take_batch() is shown
    data.pass_to(3)
    assert (data.done, data.offset) == (True, 3)


def test_a_frame_is_released_with_its_last_holder() -> None:
    released = []
    lease = FrameLease(100, released.append)
    first = piece(batch(0, 1), lease=lease)
    second = piece(batch(0, 1), lease=lease)
    lease.drop()
    first.close()
    first.close()  # closing twice is closing once
    held = second.hold_frame()
    second.close()
    assert released == []
    assert held is lease
    lease.drop()
    assert released == [lease]


def test_a_piece_without_any_batch_is_done() -> None:
    data = piece(b"", offset=5)
    assert data.take(1) == []
    assert (data.done, data.offset) == (True, 5)

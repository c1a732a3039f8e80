"""The log of a partition: offsets, reads, lookups by time, deletion, truncation, transactions."""

from __future__ import annotations

import pytest

from kclient.error_codes import ErrorCode
from kclient.record.compression import Compression
from kclient.testing.log import ENDLESS_BYTES, FoundOffset, PartitionLog
from kclient.testing.log_state import AbortedTransaction
from kclient.testing.responses import ApiError
from kclient.testing.stored_batch import StoredBatch
from tests.unit.testing.batches import ABORT, COMMIT, NOW, marker, stored


def log_of(*counts: int) -> PartitionLog:
    log = PartitionLog()
    for count in counts:
        log.append(stored(count), 0, None)
    log.advance(log.end_offset)
    return log


def read(
    log: PartitionLog, offset: int, max_bytes: int = 1 << 20, *, at_least_one: bool = True
) -> list[int]:
    """Return the base offsets of the batches that are read."""
    found = log.read(offset, max_bytes, log.high_watermark, at_least_one=at_least_one)
    assert found.size_bytes == sum(batch.size_bytes for batch in found.batches)
    return [batch.base_offset for batch in found.batches]


def test_offsets_are_given_in_order() -> None:
    log = log_of(3, 1, 2)
    assert [(one.base_offset, one.last_offset) for one in log.batches] == [(0, 2), (3, 3), (4, 5)]
    assert (log.start_offset, log.end_offset, log.high_watermark) == (0, 6, 6)


def test_the_leader_epoch_is_stamped_and_noted() -> None:
    log = PartitionLog()
    log.append(stored(2), 3, None)
    log.append(stored(2), 4, None)
    assert [one.leader_epoch for one in log.batches] == [3, 4]
    assert log.epochs.entries() == [(3, 0), (4, 2)]


def test_log_append_time_is_returned_and_stored() -> None:
    log = PartitionLog()
    assert log.append(stored(2), 0, NOW + 9).timestamp == NOW + 9
    assert log.batches[0].max_timestamp == NOW + 9
    assert log.batches[0].is_log_append_time


@pytest.mark.parametrize(
    ("offset", "bases"), [(0, [0, 3, 4]), (2, [0, 3, 4]), (3, [3, 4]), (5, [4]), (6, [])]
)
def test_a_read_begins_with_the_batch_that_holds_the_offset(offset: int, bases: list[int]) -> None:
    assert read(log_of(3, 1, 2), offset) == bases


@pytest.mark.parametrize("offset", [-1, 7, 100])
def test_a_read_outside_is_out_of_range(offset: int) -> None:
    with pytest.raises(ApiError) as caught:
        read(log_of(3, 1, 2), offset)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_read_gives_whole_batches_up_to_the_limit() -> None:
    log = log_of(1, 1, 1)
    size = log.batches[0].size_bytes
    assert read(log, 0, size * 2) == [0, 1]
    assert read(log, 0, size * 3 - 1) == [0, 1]


def test_the_first_batch_comes_whatever_its_size_where_asked_for() -> None:
    log = log_of(1, 1)
    assert read(log, 0, 1) == [0]
    assert read(log, 0, 0) == [0]
    assert read(log, 0, 1, at_least_one=False) == []


def test_a_read_stops_at_its_end() -> None:
    log = log_of(2, 2, 2)
    found = log.read(0, 1 << 20, 4, at_least_one=True)
    assert [batch.base_offset for batch in found.batches] == [0, 2]
    assert log.read(0, 1 << 20, 1, at_least_one=True).batches == []


def test_a_read_in_a_gap_gives_what_follows() -> None:
    log = log_of(1)
    gapped = stored(1)
    gapped.place(10, 0)
    log.append_placed(gapped)
    log.advance(11)
    assert read(log, 5) == [10]
    assert log.end_offset == 11


def test_placed_batches_must_not_go_back() -> None:
    log = log_of(3)
    with pytest.raises(ValueError, match="below the end"):
        log.append_placed(stored(1))


def test_lookup_by_time_finds_the_first_record_that_is_late_enough() -> None:
    log = PartitionLog()
    log.append(stored(5, timestamp=NOW), 0, None)
    log.append(stored(5, timestamp=NOW + 100, codec=Compression.GZIP), 1, None)
    assert log.offset_for_time(0, 10) == FoundOffset(0, NOW, 0)
    assert log.offset_for_time(NOW + 3, 10) == FoundOffset(3, NOW + 3, 0)
    assert log.offset_for_time(NOW + 50, 10) == FoundOffset(5, NOW + 100, 1)
    assert log.offset_for_time(NOW + 105, 10) is None


def test_lookup_by_time_sees_nothing_past_its_end() -> None:
    log = log_of(2, 2)
    assert log.offset_for_time(NOW + 1, 1) is None
    assert log.offset_for_time(NOW, 1) == FoundOffset(0, NOW, 0)


def test_lookup_by_time_begins_at_the_log_start() -> None:
    log = log_of(4, 4)
    log.delete_before(2)
    assert log.offset_for_time(0, 8) == FoundOffset(2, NOW + 2, 0)


def test_the_greatest_time_is_the_first_record_that_has_it() -> None:
    log = PartitionLog()
    assert log.offset_of_max_time() is None
    log.append(stored(3, timestamp=NOW, step_ms=0), 0, None)
    log.append(stored(3, timestamp=NOW - 50), 0, None)
    assert log.offset_of_max_time() == FoundOffset(0, NOW, 0)


def test_the_greatest_time_is_of_a_record_that_is_left() -> None:
    log = PartitionLog()
    for time in (NOW, NOW - 50):
        log.append(stored(3, timestamp=time), 0, None)
    log.advance(6)
    log.delete_before(3)
    assert log.offset_of_max_time() == FoundOffset(5, NOW - 48, 0)
    log.delete_before(6)
    assert log.offset_of_max_time() is None


def test_deleting_records_moves_the_start_and_drops_whole_batches_only() -> None:
    log = log_of(3, 3)
    log.delete_before(4)
    assert log.start_offset == 4
    assert [one.base_offset for one in log.batches] == [3]
    with pytest.raises(ApiError):
        read(log, 3)
    assert read(log, 4) == [3]
    log.delete_before(6)
    assert log.batches == ()
    assert read(log, 6) == []


def test_deleting_backwards_changes_nothing() -> None:
    log = log_of(3, 3)
    log.delete_before(4)
    log.delete_before(1)
    assert log.start_offset == 4


def test_deleting_past_the_high_watermark_is_refused() -> None:
    with pytest.raises(ApiError) as caught:
        log_of(3).delete_before(4)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_truncation_drops_batches_producers_and_epochs() -> None:
    log = PartitionLog()
    log.append(stored(2, producer=(5, 0, 0)), 0, None)
    log.append(stored(2, producer=(5, 0, 2)), 1, None)
    log.advance(4)
    log.truncate(2)
    assert (log.end_offset, log.high_watermark) == (2, 2)
    assert log.epochs.entries() == [(0, 0)]
    assert log.append(stored(1, producer=(5, 0, 2)), 2, None).base_offset == 2


def test_truncation_within_a_batch_drops_all_of_it() -> None:
    log = log_of(3, 3)
    log.truncate(4)
    assert log.end_offset == 3


def test_readers_get_more_only_when_the_high_watermark_moves() -> None:
    log = log_of(2)
    log.append(stored(2), 0, None)
    assert (log.end_offset, log.high_watermark) == (4, 2)
    assert read(log, 0) == [0]
    log.advance(4)
    assert read(log, 0) == [0, 2]


def test_the_high_watermark_never_goes_back() -> None:
    log = log_of(2, 2)
    log.advance(1)
    assert log.high_watermark == 4


def test_listeners_get_the_count_of_new_bytes_until_they_are_removed() -> None:
    log = log_of(1)
    heard: list[int] = []
    log.listen(heard.append)
    one, two = stored(1), stored(3)
    log.append(one, 0, None)
    log.append(two, 0, None)
    assert heard == []
    log.advance(log.end_offset)
    log.disturb()
    log.unlisten(heard.append)
    log.append(stored(1), 0, None)
    log.advance(log.end_offset)
    assert heard == [one.size_bytes + two.size_bytes, ENDLESS_BYTES]
    assert log.listener_count == 0


def transactional(producer_id: int, sequence: int = 0) -> StoredBatch:
    return stored(2, producer=(producer_id, 0, sequence), transactional=True)


def end(log: PartitionLog, kind: int, producer_id: int) -> None:
    log.append_placed(StoredBatch(marker(kind, producer_id, base_offset=log.end_offset)))
    log.advance(log.end_offset)


def test_the_last_stable_offset_is_where_the_oldest_open_transaction_began() -> None:
    log = log_of(3)
    assert log.last_stable_offset == 3
    log.append(transactional(1), 0, None)
    log.append(transactional(2), 0, None)
    log.advance(log.end_offset)
    assert (log.last_stable_offset, log.high_watermark) == (3, 7)
    end(log, COMMIT, 1)
    assert log.last_stable_offset == 5
    end(log, ABORT, 2)
    assert log.last_stable_offset == log.high_watermark == 9


def test_aborted_transactions_are_listed_where_they_overlap() -> None:
    log = PartitionLog()
    log.append(transactional(1), 0, None)  # 0, 1
    end(log, ABORT, 1)  # 2
    log.append(transactional(2), 0, None)  # 3, 4
    end(log, COMMIT, 2)  # 5
    log.append(transactional(1, 2), 0, None)  # 6, 7
    end(log, ABORT, 1)  # 8
    first, second = AbortedTransaction(1, 0, 2), AbortedTransaction(1, 6, 8)
    listed = log.transactions.aborted_between
    assert listed(0, 9) == [first, second]
    assert listed(0, 6) == [first]
    assert listed(3, 6) == []
    assert listed(3, 7) == [second]
    log.delete_before(6)
    assert listed(0, 9) == [second]


def test_a_marker_without_a_transaction_changes_nothing() -> None:
    log = log_of(1)
    end(log, ABORT, 9)
    assert log.last_stable_offset == 2
    assert log.transactions.aborted_between(0, 9) == []


def test_a_marker_does_not_disturb_the_producers_sequence() -> None:
    log = PartitionLog()
    log.append(transactional(1), 0, None)
    end(log, COMMIT, 1)
    assert log.append(transactional(1, 2), 0, None).base_offset == 3


def test_the_last_stable_offset_waits_until_a_marker_is_committed() -> None:
    log = log_of(1)
    log.append(transactional(1), 0, None)
    log.advance(3)
    log.append_placed(StoredBatch(marker(COMMIT, 1, base_offset=3)))
    log.append(transactional(2), 0, None)
    assert log.last_stable_offset == 1  # the marker may still be lost
    log.advance(4)
    assert log.last_stable_offset == 4
    log.advance(6)
    assert log.last_stable_offset == 4


def test_a_marker_that_is_truncated_did_not_end_anything() -> None:
    log = PartitionLog()
    log.append(transactional(1), 0, None)
    log.advance(2)
    log.append_placed(StoredBatch(marker(ABORT, 1, base_offset=2)))
    log.truncate(2)
    assert log.last_stable_offset == 0
    assert log.transactions.open_offset(1) == 0
    assert log.transactions.aborted_between(0, 9) == []


def test_the_last_stable_offset_is_never_below_the_start_of_the_log() -> None:
    log = PartitionLog()
    log.append(transactional(1), 0, None)
    log.append(stored(3), 0, None)
    log.advance(5)
    log.delete_before(2)
    assert (log.start_offset, log.last_stable_offset) == (2, 2)
    end(log, COMMIT, 1)
    assert log.last_stable_offset == 6


def test_a_batch_without_transaction_is_refused_while_its_producer_has_one() -> None:
    log = PartitionLog()
    log.append(transactional(1), 0, None)
    for epoch, sequence in ((0, 2), (1, 0)):
        with pytest.raises(ApiError) as caught:
            log.append(stored(1, producer=(1, epoch, sequence)), 0, None)
        assert caught.value.code is ErrorCode.INVALID_TXN_STATE
    log.append(stored(1, producer=(2, 0, 0)), 0, None)  # another producer may
    end(log, COMMIT, 1)
    assert log.append(stored(1, producer=(1, 0, 2)), 0, None).base_offset == 4

"""Sequences of producers, markers of transactions, and batches that wait for their coordinator.

Beside what `tests/conformance` compares with Kafka.
"""

from __future__ import annotations

import pytest

from kclient.error_codes import ErrorCode
from kclient.testing.log import PartitionLog
from kclient.testing.log_state import BatchStart, Marker, Verification
from kclient.testing.responses import ApiError
from kclient.testing.stored_batch import StoredBatch
from tests.unit.testing.batches import NOW, stored

LAST_EPOCH = (1 << 15) - 1


def produce(log: PartitionLog, sequence: int, count: int = 1, epoch: int = 0) -> int:
    """Append as producer 5; return the base offset that is acknowledged."""
    return log.append(stored(count, producer=(5, epoch, sequence)), 0, None).base_offset


def refusal(log: PartitionLog, sequence: int, count: int = 1, epoch: int = 0) -> ErrorCode:
    end = log.end_offset
    with pytest.raises(ApiError) as caught:
        produce(log, sequence, count, epoch)
    assert log.end_offset == end
    return caught.value.code


def test_a_duplicate_returns_the_greatest_timestamp_of_the_first_copy() -> None:
    log = PartitionLog()
    first = log.append(stored(2, producer=(5, 0, 0)), 0, None)
    again = log.append(stored(2, producer=(5, 0, 0)), 0, None)
    assert (first.timestamp, again.timestamp) == (-1, NOW + 1)


def test_an_overlap_that_is_no_exact_copy_is_out_of_order() -> None:
    log = PartitionLog()
    produce(log, 0, 3)
    assert refusal(log, 0, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(log, 2, 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_duplicate_of_an_older_epoch_is_none() -> None:
    log = PartitionLog()
    produce(log, 0, 3)
    produce(log, 0, epoch=1)
    assert refusal(log, 0, 3) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_forgotten_producer_may_begin_anywhere() -> None:
    log = PartitionLog()
    produce(log, 0)
    log.producers.forget(5)
    assert produce(log, 40) == 1
    log.producers.forget()
    assert log.producers.get(5) is None


def test_producers_do_not_disturb_each_other() -> None:
    log = PartitionLog()
    log.append(stored(1, producer=(1, 0, 0)), 0, None)
    log.append(stored(1, producer=(2, 0, 0)), 0, None)
    log.append(stored(1, producer=(1, 0, 1)), 0, None)
    assert log.end_offset == 3


def test_a_batch_without_a_producer_is_never_a_duplicate() -> None:
    log = PartitionLog()
    log.append(stored(1), 0, None)
    assert log.append(stored(1), 0, None).base_offset == 1


# Markers


def write(log: PartitionLog, sequence: int, epoch: int = 0) -> int:
    """Append to a transaction of producer 5."""
    batch = stored(1, producer=(5, epoch, sequence), transactional=True)
    return log.append(batch, 0, None).base_offset


def mark(
    log: PartitionLog,
    epoch: int = 0,
    *,
    coordinator: int = 0,
    version: int = 0,
    committed: bool = True,
) -> ErrorCode:
    """Append a marker as a leader does, if it is accepted."""
    marker = Marker(5, epoch, coordinator, committed, version)
    try:
        log.check_marker(marker)
    except ApiError as refused:
        return refused.code
    batch = StoredBatch(marker.encode(NOW))
    batch.place(log.end_offset, 0)
    log.append_placed(batch)
    return ErrorCode.NONE


def refused_write(log: PartitionLog, sequence: int, epoch: int = 0) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        write(log, sequence, epoch)
    return caught.value.code


@pytest.mark.parametrize(
    ("version", "epoch", "code"),
    [
        (0, 3, ErrorCode.INVALID_PRODUCER_EPOCH),
        (0, 4, ErrorCode.NONE),
        (0, 5, ErrorCode.NONE),
        (1, 4, ErrorCode.NONE),
        (2, 3, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 4, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 5, ErrorCode.NONE),
    ],
)
def test_a_marker_of_an_open_transaction_must_have_its_epoch_and_in_version_2_a_higher_one(
    version: int, epoch: int, code: ErrorCode
) -> None:
    log = PartitionLog()
    write(log, 0, epoch=4)
    assert mark(log, epoch, version=version) is code
    assert log.has_transaction(5, 4) is (code is not ErrorCode.NONE)


def test_in_version_2_a_marker_may_be_repeated_and_does_not_end_the_next_transaction() -> None:
    log = PartitionLog()
    write(log, 0)
    assert mark(log, 1, version=2) is ErrorCode.NONE
    assert mark(log, 1, version=2) is ErrorCode.NONE  # its response was lost
    write(log, 0, epoch=1)
    assert mark(log, 1, version=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.has_transaction(5, 1)
    assert mark(log, 2, version=2) is ErrorCode.NONE


def test_in_version_1_a_late_marker_ends_whatever_is_open() -> None:
    log = PartitionLog()
    write(log, 0)
    assert mark(log) is ErrorCode.NONE
    write(log, 1)
    assert mark(log) is ErrorCode.NONE
    assert not log.has_transaction(5, 0)


def test_a_transaction_in_the_last_epoch_can_be_ended() -> None:
    log = PartitionLog()
    write(log, 0, epoch=LAST_EPOCH)
    assert mark(log, LAST_EPOCH, version=2) is ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 2])
def test_an_older_coordinator_is_fenced(version: int) -> None:
    log = PartitionLog()
    assert mark(log, 1, coordinator=7, version=version) is ErrorCode.NONE
    fenced = mark(log, 2, coordinator=6, version=version)
    assert fenced is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert mark(log, 2, coordinator=7, version=version) is ErrorCode.NONE
    assert mark(log, 3, coordinator=9, version=version) is ErrorCode.NONE
    old = mark(log, 1, coordinator=6, version=version)
    assert old is ErrorCode.INVALID_PRODUCER_EPOCH  # which is checked first


def test_an_unknown_producer_may_be_ended() -> None:
    log = PartitionLog()
    assert mark(log, 9, coordinator=3, version=2) is ErrorCode.NONE
    state = log.producers.get(5)
    assert state is not None
    assert (state.epoch, state.last_sequence, state.coordinator_epoch) == (9, -1, 3)
    assert state.last_timestamp == NOW


def test_sequences_begin_at_0_in_the_epoch_of_a_marker() -> None:
    log = PartitionLog()
    for sequence in range(3):
        write(log, sequence)
    mark(log, 1, version=2)
    assert refused_write(log, 3) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused_write(log, 3, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert write(log, 0, epoch=1) == 4
    assert write(log, 0, epoch=1) == 4  # a repetition


def test_in_version_1_sequences_go_on_after_a_marker() -> None:
    log = PartitionLog()
    write(log, 0)
    mark(log)
    assert write(log, 0) == 0  # still known
    assert write(log, 1) == 2


# Batches that wait for their coordinator


def wait(
    log: PartitionLog, sequence: int = 0, epoch: int = 0, *, adds: bool = False
) -> Verification:
    return log.producers.begin_verification(BatchStart(5, epoch, sequence), adds=adds)


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("committed", [False, True])
def test_a_marker_makes_void_what_waited(adds: bool, committed: bool) -> None:
    log = PartitionLog()
    waited = wait(log, adds=adds)
    assert log.producers.is_verified(5, waited)
    mark(log, 1 if adds else 0, version=2 if adds else 0, committed=committed)
    assert not log.producers.is_verified(5, waited)


def test_what_waits_anew_after_a_marker_is_another() -> None:
    log = PartitionLog()
    first = wait(log)
    mark(log)
    second = wait(log)
    assert log.producers.is_verified(5, second)
    assert not log.producers.is_verified(5, first)


def test_in_version_2_the_next_transaction_may_wait_before_the_marker_of_the_last_one() -> None:
    log = PartitionLog()
    write(log, 0)
    waited = wait(log, epoch=1, adds=True)
    mark(log, 1, version=2)
    assert log.producers.is_verified(5, waited)
    assert write(log, 0, epoch=1) == 2
    assert not log.producers.is_verified(5, waited)  # and not necessary any more


def test_in_version_1_a_marker_of_the_same_epoch_makes_it_void() -> None:
    log = PartitionLog()
    waited = wait(log, epoch=1)
    mark(log, 1)
    assert not log.producers.is_verified(5, waited)


def test_all_that_waits_in_one_epoch_shares_a_verification() -> None:
    log = PartitionLog()
    first = wait(log, 4)
    assert wait(log, 2) is first
    assert wait(log, 9) is first
    assert first.lowest_sequence == 2


@pytest.mark.parametrize("adds", [False, True])
def test_a_later_batch_does_not_overtake_the_first_that_waited(adds: bool) -> None:
    log = PartitionLog()
    wait(log, 1, adds=adds)
    wait(log, 0, adds=adds)
    assert refused_write(log, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert write(log, 0) == 0
    assert write(log, 1) == 1


def test_in_version_2_an_unknown_producer_begins_at_0() -> None:
    log = PartitionLog()
    wait(log, 3, adds=True)
    assert refused_write(log, 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    other = PartitionLog()
    wait(other, 3)
    assert write(other, 3) == 0  # in version 1 it may have been forgotten


def test_a_higher_epoch_begins_its_sequences_anew() -> None:
    log = PartitionLog()
    wait(log, 7)
    waited = wait(log, 3, epoch=1)
    assert (waited.epoch, waited.lowest_sequence) == (1, 3)


def test_an_older_producer_does_not_wait() -> None:
    log = PartitionLog()
    write(log, 0, epoch=2)
    with pytest.raises(ApiError) as caught:
        wait(log, epoch=1)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_old_epoch_is_told_so_whatever_waits() -> None:
    log = PartitionLog()
    write(log, 0, epoch=2)
    mark(log, 3, version=2)
    wait(log, 0, epoch=3, adds=True)
    assert refused_write(log, 9, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH

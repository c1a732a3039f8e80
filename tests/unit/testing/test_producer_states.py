"""Sequences of idempotent producers, beside what `tests/conformance` compares with Kafka."""

from __future__ import annotations

import pytest

from kclient.error_codes import ErrorCode
from kclient.testing.log import PartitionLog
from kclient.testing.responses import ApiError
from tests.unit.testing.batches import NOW, stored


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

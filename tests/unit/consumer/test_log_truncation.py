"""The request for the end of an epoch, and what its response means."""

from __future__ import annotations

import pytest

from kclient.broker_errors import FencedLeaderEpoch
from kclient.consumer.log_truncation import EpochEnd, EpochQuery
from kclient.errors import NoCommonVersion, ProtocolError
from kclient.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kclient.types import TopicPartition
from tests.unit.consumer.test_fetch_scheduler import cluster

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize("version", range(3, OffsetForLeaderEpochRequest.MAX_VERSION + 1))
def test_the_request_has_the_epoch_read_and_the_epoch_known(version: int) -> None:
    request = EpochQuery({A: 2, B: 3}).build([A, B], version, cluster(1, 1), 1.0)
    [topic] = OffsetForLeaderEpochRequest.decode(request.encode(version), version).topics
    asked = [(p.partition, p.leader_epoch, p.current_leader_epoch) for p in topic.partitions]
    assert asked == [(0, 2, 5), (1, 3, 5)]


def test_old_brokers_respond_to_brokers_only() -> None:
    with pytest.raises(NoCommonVersion, match="brokers only"):
        EpochQuery({A: 2}).build([A], 2, cluster(1), 1.0)


def test_results_and_errors_are_distinguished() -> None:
    response = OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic="t",
                partitions=[
                    EpochEndOffset(partition=0, leader_epoch=2, end_offset=50),
                    EpochEndOffset(partition=1, error_code=74),
                ],
            )
        ]
    )
    query = EpochQuery({A: 2, B: 3})
    found = query.read(response, [A, B])
    assert found[A] == EpochEnd(2, 50)
    assert isinstance(found[B], FencedLeaderEpoch)
    assert not query.is_final(FencedLeaderEpoch())


def test_a_log_that_ends_before_the_position_was_cut() -> None:
    assert EpochEnd(2, 50).cuts(51)
    assert not EpochEnd(2, 50).cuts(50)


@pytest.mark.parametrize("end", [EpochEnd(-1, 50), EpochEnd(2, -1), EpochEnd(-1, -1)])
def test_an_epoch_that_the_leader_does_not_know_is_no_data_loss(end: EpochEnd) -> None:
    assert not end.cuts(51)


def test_an_end_that_is_no_offset_is_an_error() -> None:
    said = EpochEndOffset(partition=0, leader_epoch=2, end_offset=-5)
    response = OffsetForLeaderEpochResponse(
        topics=[OffsetForLeaderTopicResult(topic="t", partitions=[said])]
    )
    error = EpochQuery({A: 2}).read(response, [A])[A]
    assert isinstance(error, ProtocolError)
    assert error.topic_partition == A

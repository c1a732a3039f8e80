"""What errors mean for a commit, and how those of several partitions become one."""

from __future__ import annotations

import pytest

from kclient.broker_errors import (
    BrokerTimedOut,
    CoordinatorLoadInProgress,
    FencedInstanceId,
    GroupAuthorizationFailed,
    GroupIdNotFound,
    IllegalGeneration,
    InvalidCommitOffsetSize,
    NotCoordinator,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    StaleMemberEpoch,
    TopicAuthorizationFailed,
    UnknownMemberId,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from kclient.errors import ClientClosed, ConnectionLost, KafkaError, ProtocolError, some_of
from kclient.group.commit_errors import CommitErrorAction, combined_error, commit_error_action
from kclient.types import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (CoordinatorLoadInProgress(), CommitErrorAction.RETRY),
        (NotCoordinator(), CommitErrorAction.RETRY),
        (UnknownTopicOrPartition(), CommitErrorAction.RETRY),
        (UnknownTopicId(), CommitErrorAction.RETRY),
        (BrokerTimedOut(), CommitErrorAction.RETRY),
        (ConnectionLost(), CommitErrorAction.RETRY),
        (RebalanceInProgress(), CommitErrorAction.REBALANCING),
        (IllegalGeneration(), CommitErrorAction.FENCED),
        (UnknownMemberId(), CommitErrorAction.FENCED),
        (FencedInstanceId(), CommitErrorAction.FENCED),
        (StaleMemberEpoch(), CommitErrorAction.FENCED),
        (GroupIdNotFound(), CommitErrorAction.FENCED),
        (OffsetMetadataTooLarge(), CommitErrorAction.REFUSED),
        (InvalidCommitOffsetSize(), CommitErrorAction.REFUSED),
        (GroupAuthorizationFailed(), CommitErrorAction.REFUSED),
        (TopicAuthorizationFailed(), CommitErrorAction.REFUSED),
        (ProtocolError(), CommitErrorAction.REFUSED),
        (ClientClosed(), CommitErrorAction.REFUSED),
    ],
)
def test_what_an_error_means_for_a_commit(error: KafkaError, expected: CommitErrorAction) -> None:
    assert commit_error_action(error) is expected


def test_one_error_names_all_partitions_that_have_the_like() -> None:
    errors: dict[TopicPartition, KafkaError] = {
        T0: TopicAuthorizationFailed("no", node_id=3),
        T1: TopicAuthorizationFailed("no"),
        U0: OffsetMetadataTooLarge("too long"),
    }
    error = combined_error(errors, "g")
    assert isinstance(error, TopicAuthorizationFailed)
    assert "commit of t-0, t-1 by group g" in str(error)
    assert (error.topic_partition, error.node_id) == (None, 3)
    assert ["OffsetMetadataTooLarge" in note for note in error.__notes__] == [True]
    assert combined_error({U0: errors[U0]}, "g").topic_partition == U0
    assert errors[T0].message == "no"  # it may be shared with other calls


def test_a_text_names_the_first_partitions_and_counts_the_others() -> None:
    partitions = [TopicPartition("t", index) for index in range(7)]
    assert some_of(partitions, 5) == "t-0, t-1, t-2, t-3, t-4 and 2 more"
    assert some_of(partitions[:5], 5) == "t-0, t-1, t-2, t-3, t-4"

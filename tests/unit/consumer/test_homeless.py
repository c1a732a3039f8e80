"""When a partition without a broker is an error."""

from __future__ import annotations

from kclient.broker_errors import (
    LeaderNotAvailable,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from kclient.cluster.view import Cluster
from kclient.consumer.stall_detection import UNKNOWN_GRACE
from kclient.consumer.stall_detection import unrouted_error as explain
from kclient.error_codes import ErrorCode
from kclient.types import TopicPartition
from tests.support.views import topic_of, view_of
from tests.unit.consumer.test_fetch_scheduler import cluster

P = TopicPartition("t", 0)
PATIENCE = 60.0


def refused(code: int) -> Cluster:
    return view_of([], [topic_of("t", error=code)], version=1)


def test_nothing_is_known_of_the_topic_yet() -> None:
    assert explain(view_of([], [], version=1), P, 59.0, PATIENCE, unknown=False) is None


def test_an_unknown_topic_may_take_a_moment_and_is_then_named() -> None:
    view = refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert explain(view, P, UNKNOWN_GRACE - 1, PATIENCE, unknown=True) is None
    assert explain(view, P, PATIENCE - 1, PATIENCE, unknown=False) is None  # one may lag behind
    error = explain(view, P, UNKNOWN_GRACE, PATIENCE, unknown=True)
    assert isinstance(error, UnknownTopicOrPartition)
    assert "don't know topic t" in str(error)
    assert error.topic_partition == P


def test_a_partition_that_does_not_exist_is_named_with_those_that_do() -> None:
    view = cluster(1, 1)
    error = explain(view, TopicPartition("t", 7), UNKNOWN_GRACE, PATIENCE, unknown=False)
    assert isinstance(error, UnknownTopicOrPartition)
    assert "2 partitions, 0 to 1" in str(error)


def test_a_topic_that_may_not_be_read_is_an_error_at_once() -> None:
    error = explain(refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED), P, 0.0, PATIENCE, unknown=False)
    assert isinstance(error, TopicAuthorizationFailed)


def test_a_partition_without_a_leader_is_waited_for() -> None:
    assert explain(cluster(None), P, 59.0, PATIENCE, unknown=False) is None
    assert (
        explain(refused(ErrorCode.LEADER_NOT_AVAILABLE), P, 59.0, PATIENCE, unknown=False) is None
    )


def test_what_may_pass_by_itself_is_raised_when_patience_ends() -> None:
    for view in (cluster(None), view_of([], [], version=1)):
        assert isinstance(explain(view, P, 60.0, PATIENCE, unknown=False), LeaderNotAvailable)

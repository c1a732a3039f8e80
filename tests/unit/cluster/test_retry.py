"""What the client does after a failure, and what the final error reports."""

from __future__ import annotations

import pytest

from kclient.broker_errors import UnknownTopicOrPartition
from kclient.cluster.retry import (
    MISSING_PARTITION_GRACE,
    UNKNOWN_TOPIC_GRACE,
    Attempts,
    NoSuchPartition,
    RetryAction,
    retry_action,
)
from kclient.errors import (
    BrokerUnreachable,
    ClientClosed,
    ConnectionLost,
    KafkaError,
    NoCommonVersion,
    ProtocolError,
    RequestTimedOut,
    broker_error,
)


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (broker_error(41), RetryAction.REFRESH),  # NOT_CONTROLLER
        (broker_error(6), RetryAction.REFRESH),  # NOT_LEADER_OR_FOLLOWER
        (broker_error(5), RetryAction.REFRESH),  # LEADER_NOT_AVAILABLE
        (broker_error(74), RetryAction.REFRESH),  # FENCED_LEADER_EPOCH
        (broker_error(7), RetryAction.BACK_OFF),  # REQUEST_TIMED_OUT
        (broker_error(89), RetryAction.BACK_OFF),  # THROTTLING_QUOTA_EXCEEDED
        (broker_error(36), RetryAction.RAISE),  # TOPIC_ALREADY_EXISTS
        (broker_error(29), RetryAction.RAISE),  # TOPIC_AUTHORIZATION_FAILED
        (broker_error(35), RetryAction.RAISE),  # UNSUPPORTED_VERSION
        (BrokerUnreachable("refused"), RetryAction.REFRESH_AND_BACK_OFF),
        (ConnectionLost("reset"), RetryAction.REFRESH_AND_BACK_OFF),
        (RequestTimedOut("slow"), RetryAction.BACK_OFF),
        (NoCommonVersion("old"), RetryAction.RAISE),
        (ProtocolError("bytes"), RetryAction.RAISE),
        (ClientClosed("closed"), RetryAction.RAISE),
    ],
)
def test_verdicts(error: KafkaError, verdict: RetryAction) -> None:
    assert retry_action(error, 0.0) is verdict


@pytest.mark.parametrize("code", [3, 100])
def test_an_unknown_topic_is_asked_for_again_but_not_for_long(code: int) -> None:
    assert retry_action(broker_error(code), 0.0) is RetryAction.REFRESH
    assert retry_action(broker_error(code), UNKNOWN_TOPIC_GRACE) is RetryAction.RAISE


def test_a_partition_that_a_known_topic_lacks_is_asked_for_even_shorter() -> None:
    error = NoSuchPartition("t-7: topic t has 3 partitions")
    assert retry_action(error, 0.0) is RetryAction.REFRESH
    assert retry_action(error, MISSING_PARTITION_GRACE) is RetryAction.RAISE
    assert "UNKNOWN_TOPIC_OR_PARTITION (3): t-7" in str(error)
    assert isinstance(broker_error(3), UnknownTopicOrPartition)
    assert not isinstance(broker_error(3), NoSuchPartition)


def attempts(*failures: tuple[str, KafkaError]) -> Attempts:
    made = Attempts("CreateTopics to the controller", 10.0)
    for where, error in failures:
        made.add(where, error)
    return made


def test_the_final_error_has_the_last_failure_what_where_and_what_to_do() -> None:
    made = attempts(
        ("broker 1 at a:9092", ConnectionLost("the connection broke")),
        ("broker 1 at a:9092", ConnectionLost("the connection broke")),
        ("broker 2 at b:9092", broker_error(41, "CreateTopics failed", hint="wait for it")),
    )
    error = made.timeout_error(40.0)
    text = str(error)
    assert isinstance(error, RequestTimedOut)
    assert "CreateTopics to the controller did not succeed in 30.0 s, 3 attempts" in text
    assert "last on broker 2 at b:9092: NOT_CONTROLLER (41)" in text
    assert "ConnectionLost on broker 1 at a:9092 (2 times)" in text
    assert text.count("wait for it") == 1
    assert text.endswith("(wait for it)")
    assert error.__cause__ is made.failures[-1][1]


def test_without_any_failure_there_was_no_response() -> None:
    assert "got no answer in 5.0 s" in str(attempts().timeout_error(15.0))


def test_many_different_failures_are_shortened() -> None:
    made = attempts(*[(f"broker {n}", ConnectionLost("x")) for n in range(50)])
    assert len(str(made.timeout_error(20.0))) < 400


def test_an_error_after_an_unclear_attempt_notes_that_it_may_have_taken_effect() -> None:
    made = attempts(
        ("broker 1", ConnectionLost("x", maybe_written=True)), ("broker 1", broker_error(36))
    )
    notes = made.explain(made.failures[-1][1]).__notes__
    assert "may have taken effect" in notes[0]
    assert "ConnectionLost on broker 1" in notes[0]


def test_an_attempt_that_certainly_had_no_effect_is_not_called_unclear() -> None:
    made = attempts(
        ("broker 1", ConnectionLost("x", maybe_written=False)), ("broker 1", broker_error(36))
    )
    assert "may have taken effect" not in made.explain(made.failures[-1][1]).__notes__[0]


def test_a_first_failure_has_no_notes() -> None:
    made = attempts(("broker 1", broker_error(36)))
    assert not hasattr(made.explain(made.failures[0][1]), "__notes__")

"""Stall detection: a wanted partition without responses is an error, in whatever state it is."""

from __future__ import annotations

import pytest

from kclient.consumer.fetch_scheduler import BrokerQueue
from kclient.consumer.fetch_session import PartitionFetch
from kclient.consumer.partition_state import PartitionState
from kclient.consumer.stall_detection import StallDetector
from kclient.errors import ConsumerStalled, KafkaError
from kclient.types import OffsetSpec, TopicPartition
from tests.unit.consumer.subscribing import new_subscription

A, B = (TopicPartition("flights", index) for index in range(2))
PATIENCE = 10.0


class Rig:
    """Two partitions of one broker, a stall detector, and a clock that is set by hand."""

    def __init__(self) -> None:
        self.subscription = new_subscription()
        self.subscription.assign([A, B])
        self.queue = BrokerQueue(1)
        for state in self.subscription:
            self.subscription.seek(state, 5)
            state.node_id = 1
            self.queue.session.want(state.topic_partition, PartitionFetch(5, 100, -1, None))
        self.queue.session.next_request(False)
        self.stall_detector = StallDetector(PATIENCE)

    def state(self, partition: TopicPartition) -> PartitionState:
        return self.subscription.require(partition)

    def check(self, now: float) -> None:
        self.stall_detector.check(self.subscription, {1: self.queue}, now)

    def run(self, until: float, *, answered: bool) -> None:
        for tick in range(int(until) + 1):
            if answered:
                self.queue.answered(float(tick))
            self.check(float(tick))


def test_responses_keep_it_quiet() -> None:
    Rig().run(100.0, answered=True)


def test_a_broker_that_never_responds_is_reported_after_the_patience() -> None:
    rig = Rig()
    rig.run(PATIENCE - 1, answered=False)
    with pytest.raises(ConsumerStalled, match=r"flights-0, flights-1 .*10\.0 s.*r 1") as caught:
        rig.check(PATIENCE)
    assert caught.value.topic_partition == A
    assert caught.value.retriable


def test_it_is_reported_again_after_as_long() -> None:
    rig = Rig()
    rig.check(0.0)
    reported = []
    for tick in range(1, 35):
        try:
            rig.check(float(tick))
        except ConsumerStalled:
            reported.append(tick)
    assert reported == [10, 20, 30]


def test_a_partition_that_is_not_requested_is_reported_though_its_broker_responds() -> None:
    rig = Rig()
    rig.queue.session.forget(B)
    rig.queue.session.next_request(False)
    with pytest.raises(ConsumerStalled, match="flights-1 was") as caught:
        rig.run(20.0, answered=True)
    assert caught.value.topic_partition == B


def test_a_partition_without_a_broker_is_reported() -> None:
    rig = Rig()
    rig.state(A).node_id = None
    with pytest.raises(ConsumerStalled, match="asked of no broker"):
        rig.run(20.0, answered=True)


@pytest.mark.parametrize("why", ["paused", "held", "buffered", "nobody said where"])
def test_what_is_not_wanted_now_is_not_missed(why: str) -> None:
    rig = Rig()
    for state in rig.subscription:
        if why == "paused":
            rig.subscription.pause(state)
        elif why == "held":
            rig.subscription.hold([state])
        elif why == "buffered":
            state.buffered_bytes = 1
        else:
            rig.subscription.lose_position(state)  # without a policy: poll raises that itself
    rig.run(100.0, answered=False)


def test_its_patience_begins_when_it_is_wanted_again() -> None:
    rig = Rig()
    for state in rig.subscription:
        rig.subscription.pause(state)
    rig.run(50.0, answered=False)
    for state in rig.subscription:
        rig.subscription.resume(state)
    rig.check(51.0)
    rig.check(60.0)
    with pytest.raises(ConsumerStalled):
        rig.check(61.0)


def test_one_check_after_a_standstill_reports_nothing() -> None:
    rig = Rig()
    rig.check(0.0)
    rig.check(500.0)
    rig.queue.answered(500.0)
    rig.check(501.0)


def test_two_looks_far_apart_are_enough() -> None:
    rig = Rig()
    rig.check(0.0)
    rig.check(500.0)
    with pytest.raises(ConsumerStalled, match=r"1000\.0 s"):
        rig.check(1000.0)


def test_a_position_that_is_never_found_is_reported() -> None:
    rig = Rig()
    state = rig.state(B)
    rig.subscription.ask_reset(state, OffsetSpec.LATEST)
    rig.queue.session.forget(B)
    rig.queue.session.next_request(False)
    with pytest.raises(ConsumerStalled, match=r"flights-1 .*AWAITING_RESET, broker 1") as caught:
        rig.run(20.0, answered=True)
    assert caught.value.topic_partition == B


def test_the_patience_starts_over_with_another_phase() -> None:
    rig = Rig()
    state = rig.state(B)
    rig.subscription.ask_reset(state, OffsetSpec.LATEST)
    rig.queue.session.forget(A)
    rig.queue.session.forget(B)
    rig.subscription.pause(rig.state(A))
    rig.check(0.0)
    rig.check(9.0)
    rig.subscription.seek(state, 3)
    rig.check(10.0)
    rig.check(18.0)
    rig.check(19.0)
    with pytest.raises(ConsumerStalled):
        rig.check(20.0)


def test_it_is_quiet_about_what_has_an_error_of_its_own() -> None:
    rig = Rig()
    for tick in range(40):
        for state in rig.subscription:
            rig.subscription.fail(state, KafkaError("told"))
        rig.check(float(tick))
        while rig.subscription.take_error() is not None:
            pass


def test_it_is_quiet_about_what_has_raised_an_error_between_two_checks() -> None:
    """One that backs off from unreadable responses is not being fetched when it is checked."""
    rig = Rig()
    for tick in range(40):
        rig.check(float(tick))
        for state in rig.subscription:
            rig.subscription.fail(state, KafkaError("told"))
        while rig.subscription.take_error() is not None:
            pass


def test_an_error_that_was_raised_once_hides_no_stall_after_it() -> None:
    rig = Rig()
    rig.check(0.0)
    for state in rig.subscription:
        rig.subscription.fail(state, KafkaError("told"))
    assert rig.subscription.take_error() is not None
    assert rig.subscription.take_error() is not None
    rig.run(PATIENCE, answered=False)
    with pytest.raises(ConsumerStalled, match="flights-0, flights-1"):
        rig.check(PATIENCE + 1.0)


@pytest.mark.parametrize("what", ["read on", "resumed"])
def test_a_partition_that_got_on_between_two_looks_is_not_accused(what: str) -> None:
    """No poll came for long: its data waited until now, or it was paused."""
    rig = Rig()
    rig.run(PATIENCE - 1, answered=False)
    for state in rig.subscription:
        if what == "read on":
            rig.subscription.fetched_to(state, 6)
        else:
            rig.subscription.pause(state)
            rig.subscription.resume(state)
    rig.check(100.0)
    rig.check(100.0 + PATIENCE - 1)
    with pytest.raises(ConsumerStalled):
        rig.check(100.0 + PATIENCE)


def test_a_partition_whose_leader_moved_is_accused_by_the_next_look_only() -> None:
    rig = Rig()
    rig.run(PATIENCE - 1, answered=False)
    for state in rig.subscription:
        state.node_id = 2
    rig.check(100.0)
    with pytest.raises(ConsumerStalled, match="broker 2"):
        rig.check(101.0)

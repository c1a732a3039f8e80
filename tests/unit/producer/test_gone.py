"""Batches of partitions that are gone since their topic was made anew: which fail, and when."""

from __future__ import annotations

import pytest

from kclient.broker_errors import UnknownTopicOrPartition
from kclient.cluster.topic import EMPTY_ROW, NO_TOPIC_ID, Topic
from kclient.error_codes import ErrorCode
from kclient.errors import RequestTimedOut
from kclient.producer.gone import SURE_AFTER
from kclient.producer.hot import Delivery

from .model_broker import ModelBroker
from .rig import Rig, make_topic
from .serving import queue_of, serve, values

FORMER, LATTER, THIRD = b"a" * 16, b"b" * 16, b"c" * 16


def tell(rig: Rig, count: int, topic_id: bytes) -> None:
    topic = make_topic("t", [1] * count, topic_id=topic_id)
    rig.metadata.publish(rig.metadata.view.with_topic(topic))


def tell_for_sure(rig: Rig, count: int, topic_id: bytes) -> None:
    tell(rig, count, topic_id)
    rig.metadata.made_anew.add("t")
    rig.step()


def waiting(partition: int = 2) -> tuple[Rig, Delivery]:
    """A record for a partition of a topic of three, whose broker takes nothing for now."""
    rig = Rig(3)
    tell(rig, 3, FORMER)
    rig.network.blocked.add(1)
    delivery = rig.send(b"v", partition=partition)
    rig.step()
    return rig, delivery


def delivered(rig: Rig) -> list[bytes]:
    """What the next request has for partition 2."""
    rig.network.blocked.clear()
    rig.step()
    return values(serve(rig, ModelBroker()))["t", 2]


def test_what_was_never_sent_fails_without_doubt() -> None:
    rig, delivery = waiting()
    tell_for_sure(rig, 1, LATTER)
    error = delivery.exception()
    assert isinstance(error, UnknownTopicOrPartition)
    assert error.maybe_written is False
    assert error.topic_partition == ("t", 2)
    assert "t-2 is gone: topic t was deleted and made anew with 1 partition" in str(error)
    rig.step()
    assert queue_of(rig, 2).idle
    assert not rig.accumulator.used and not rig.accumulator.gone and not rig.accumulator.busy


def test_a_partition_that_never_had_a_leader_can_be_gone_too() -> None:
    rig = Rig(topics={})
    leaders, epochs = [1, 1, -1], [0, 0, -1]
    without = Topic.of_columns("t", FORMER, False, 0, leaders, epochs, [EMPTY_ROW] * 3)
    rig.metadata.publish(rig.metadata.view.with_topic(without))
    delivery = rig.send(b"v", partition=2)
    rig.step()
    tell_for_sure(rig, 1, LATTER)
    assert isinstance(delivery.exception(), UnknownTopicOrPartition)


def test_partitions_that_are_there_are_sent_to() -> None:
    rig, delivery = waiting(partition=1)
    tell_for_sure(rig, 2, LATTER)
    rig.network.blocked.clear()
    rig.step()
    serve(rig, ModelBroker())
    assert delivery.exception() is None


def test_nothing_fails_before_it_is_sure_and_it_is_asked_since_when_it_was_seen() -> None:
    rig, delivery = waiting()
    rig.pass_time(7.0)
    tell(rig, 1, LATTER)
    first = rig.clock.now()
    rig.step()
    rig.pass_time(30.0)
    tell(rig, 1, LATTER)
    assert not delivery.done()
    assert len(rig.metadata.wondered) > 1
    assert set(rig.metadata.wondered) == {("t", 2, first, SURE_AFTER)}
    tell(rig, 3, FORMER)
    assert delivered(rig) == [b"v"] and delivery.exception() is None


@pytest.mark.parametrize("topic_id", [FORMER, NO_TOPIC_ID], ids=["same", "none"])
def test_fewer_partitions_of_what_may_be_the_same_topic_fail_nothing(topic_id: bytes) -> None:
    rig, delivery = waiting()
    tell(rig, 1, topic_id)
    rig.metadata.made_anew.add("t")
    rig.step()
    rig.metadata.made_anew.clear()
    assert not delivery.done()
    tell(rig, 3, FORMER)
    assert delivered(rig) == [b"v"] and delivery.exception() is None


def test_an_answer_under_way_is_waited_for_and_may_say_that_it_was_written() -> None:
    rig = Rig(3)
    tell(rig, 3, FORMER)
    delivery = rig.send(b"v", partition=2)
    rig.step()
    tell_for_sure(rig, 1, LATTER)
    assert not delivery.done()
    serve(rig, ModelBroker())
    assert delivery.exception() is None


@pytest.mark.parametrize(
    ("code", "doubt"),
    [(ErrorCode.NOT_ENOUGH_REPLICAS, False), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True)],
)
def test_what_was_refused_fails_as_its_refusal_says(code: ErrorCode, doubt: bool) -> None:
    rig = Rig(3)
    tell(rig, 3, FORMER)
    delivery = rig.send(b"v", partition=2)
    rig.step()
    tell_for_sure(rig, 1, LATTER)
    serve(rig, ModelBroker(), code)
    rig.step()
    error = delivery.exception()
    assert isinstance(error, UnknownTopicOrPartition) and error.maybe_written is doubt
    assert f"last problem: {code.name}" in str(error)


def test_an_attempt_without_an_answer_keeps_its_doubt() -> None:
    rig = Rig(3)
    tell(rig, 3, FORMER)
    delivery = rig.send(b"v", partition=2)
    rig.step()
    sent = rig.take_request()
    sent.message()
    rig.lose(sent, RequestTimedOut("late"))
    tell_for_sure(rig, 1, LATTER)
    error = delivery.exception()
    assert isinstance(error, UnknownTopicOrPartition) and error.maybe_written is True


def test_a_record_that_was_parked_for_a_gone_partition_fails_as_well() -> None:
    rig = Rig(3, buffer_memory=40_000, batch_size=8_000)
    tell(rig, 3, FORMER)
    rig.network.blocked.add(1)
    held = [rig.send(b"x" * 7_000, partition=0) for _ in range(5)]
    queue = rig.accumulator.queue(rig.accumulator.topics["t"], 2)
    parked = rig.send(b"y" * 7_000, partition=2)
    assert queue.idle
    tell_for_sure(rig, 1, LATTER)
    rig.network.blocked.clear()
    broker = ModelBroker()
    for _ in held:
        rig.step()
        while rig.network.pending:
            serve(rig, broker)
    assert [delivery.exception() for delivery in held] == [None] * 5
    tell_for_sure(rig, 1, LATTER)
    assert isinstance(parked.exception(), UnknownTopicOrPartition)


def test_very_many_fail_in_several_steps() -> None:
    rig = Rig(3)
    tell(rig, 3, FORMER)
    rig.network.blocked.add(1)
    deliveries = [rig.send(b"v" * 100, partition=2) for _ in range(20_000)]
    tell(rig, 1, LATTER)
    rig.metadata.made_anew.add("t")
    woken = []
    while not all(delivery.done() for delivery in deliveries):
        rig.sender._woken = False
        rig.step()
        woken.append(rig.sender._woken)
        assert len(woken) < 50
    assert len(woken) > 1
    assert all(woken[:-1])


def test_a_partition_that_comes_back_is_numbered_from_the_beginning() -> None:
    rig, delivery = waiting()
    tell_for_sure(rig, 1, LATTER)
    assert delivery.exception() is not None
    tell(rig, 3, THIRD)
    again = rig.send(b"w", partition=2)
    assert delivered(rig) == [b"w"] and again.exception() is None

"""Records for partitions that their topics don't have, not yet or not any more: they wait."""

from __future__ import annotations

import pytest

from kclient.errors import DeliveryTimedOut, MetadataTimedOut
from kclient.producer._compiled import Delivery
from kclient.producer.waiting_records import WaitingRecord

from .model_broker import ModelBroker
from .rig import Rig, Waiter, make_topic
from .serving import queue_of, serve, values
from .test_admission import parked_of, serve_all, unknown

FORMER, LATTER, THIRD = b"a" * 16, b"b" * 16, b"c" * 16


def notify(rig: Rig, partitions: int, topic_id: bytes = bytes(16)) -> None:
    """Have brokers report ``partitions`` partitions of topic t."""
    topic = make_topic("t", [1] * partitions, topic_id=topic_id)
    rig.metadata.publish_topic(topic)
    rig.step()


def test_a_partition_that_does_not_exist_fails_after_ten_seconds_and_is_named() -> None:
    rig = Rig(2, delivery_timeout=30.0)
    delivery = rig.send(b"v", partition=2)
    assert "t" in rig.metadata.asked
    for _ in range(5):
        rig.pass_time(1.9)
        asked = len(rig.metadata.asked)
        notify(rig, 2)
        assert len(rig.metadata.asked) > asked and not delivery.done()
    rig.pass_time(0.6)
    error = delivery.exception()
    assert isinstance(error, MetadataTimedOut) and error.maybe_written is False
    assert "partition 2 of topic t did not come to exist" in str(error)
    assert "within 10 s" in str(error) and "has 2, 0 to 1" in str(error)
    assert rig.accumulator.budget.waiting == 0 and rig.admission.waiting_records.claimed == 0


def test_a_deadline_that_comes_before_is_kept() -> None:
    rig = Rig(2, delivery_timeout=3.0, request_timeout=2.0)
    delivery = rig.send(b"v", partition=2)
    rig.pass_time(3.1)
    assert "delivery_timeout=3 s" in str(delivery.exception())


def test_without_any_limit_enqueue_waits_ten_seconds_for_a_partition() -> None:
    rig = Rig(2, max_block=None)
    waiting = parked_of(rig.send(b"v", partition=2, when_full=Waiter))
    rig.pass_time(9.9)
    assert waiting.error is None
    rig.pass_time(0.2)
    assert isinstance(waiting.error, MetadataTimedOut) and "within 10 s" in str(waiting.error)


def test_a_partition_that_came_leaves_its_record_all_of_delivery_timeout() -> None:
    rig = Rig(2, delivery_timeout=30.0)
    rig.network.blocked.add(1)
    delivery = rig.send(b"v", partition=2)
    rig.pass_time(9.0)
    notify(rig, 3)
    rig.pass_time(20.0)
    assert not delivery.done()
    rig.pass_time(1.1)
    assert isinstance(delivery.exception(), DeliveryTimedOut)


def test_enqueue_waits_for_a_partition_for_max_block() -> None:
    rig = Rig(2, max_block=3.0)
    waiting = parked_of(rig.send(b"v", partition=2, when_full=Waiter))
    rig.pass_time(2.9)
    assert waiting.error is None
    rig.pass_time(0.2)
    assert isinstance(waiting.error, MetadataTimedOut) and "max_block=3 s" in str(waiting.error)


def test_a_record_that_waited_for_its_topic_waits_on_for_its_partition() -> None:
    rig = unknown(delivery_timeout=60.0)
    delivery = rig.send(b"v", partition=2)
    rig.pass_time(20.0)
    notify(rig, 2)
    rig.pass_time(9.9)
    assert not delivery.done()
    rig.pass_time(0.2)
    with pytest.raises(MetadataTimedOut, match="has 2, 0 to 1"):
        delivery.result()


def test_records_that_wait_for_a_partition_do_not_block_others() -> None:
    rig = Rig(2)
    rig.send(b"v", partition=2)
    others = [rig.send(b"v", partition=1), rig.send(b"v"), rig.send(b"v", key=b"k")]
    broker = serve_all(rig)
    assert all(one.done() for one in others)
    assert sum(len(broker.log("t", index).values) for index in (0, 1)) == 3


def test_records_for_a_new_partition_go_there_in_their_order() -> None:
    rig = Rig(2)
    for number in range(20):
        rig.send(b"%d" % number, partition=2)
    notify(rig, 3)
    rig.send(b"20", partition=2)
    broker = serve_all(rig)
    assert broker.log("t", 2).values == [b"%d" % number for number in range(21)]
    assert rig.accumulator.budget.waiting == 0 and rig.admission.waiting_records.claimed == 0


def test_a_cancelled_record_leaves_the_queue_for_its_partition() -> None:
    rig = Rig(2)
    deliveries = [rig.send(b"%d" % number, partition=2) for number in range(2)]
    assert deliveries[0].cancel()
    notify(rig, 3)
    broker = serve_all(rig)
    assert broker.log("t", 2).values == [b"1"]
    last = rig.send(b"v", partition=3)
    assert last.cancel() and rig.accumulator.budget.waiting == 0


def test_a_partition_that_was_just_added_is_found() -> None:
    rig = Rig(2)
    delivery = rig.send(b"v", partition=2)
    rig.metadata.publish_topic(make_topic("t", [1, 1, 1]))
    assert delivery.partition == 2 and not isinstance(delivery._outcome, WaitingRecord)


# Topics that were recreated with fewer partitions


def deleted() -> tuple[Rig, Delivery]:
    """Return a record in a batch of a partition that is missing since its topic was recreated."""
    rig = Rig(3, delivery_timeout=30.0)
    notify(rig, 3, FORMER)
    rig.network.blocked.add(1)
    delivery = rig.send(b"v", partition=2)
    rig.step()
    notify(rig, 1, LATTER)
    return rig, delivery


def test_what_waits_for_a_deleted_partition_fails_at_its_deadline_without_doubt() -> None:
    rig, batched = deleted()
    waiting = rig.send(b"w", partition=2)
    rig.pass_time(29.9)
    assert not batched.done()
    rig.pass_time(0.2)
    error = batched.exception()
    assert isinstance(error, DeliveryTimedOut) and error.maybe_written is False
    assert error.topic_partition == ("t", 2) and "the partition has no leader" in str(error)
    assert isinstance(waiting.exception(), MetadataTimedOut)
    assert queue_of(rig, 2).idle and not rig.accumulator.budget.used and not rig.accumulator.busy


@pytest.mark.parametrize("seconds", [5.0, 30.1])
def test_a_partition_that_comes_back_is_numbered_from_the_beginning(seconds: float) -> None:
    rig, _ = deleted()
    rig.pass_time(seconds)
    notify(rig, 3, THIRD)
    rig.send(b"w", partition=2)
    rig.network.blocked.clear()
    broker = ModelBroker()
    written: list[bytes] = []
    rig.step()
    while rig.network.pending:
        written += values(serve(rig, broker))["t", 2]
        rig.step()
    assert written == ([b"v", b"w"] if seconds < 30.0 else [b"w"])
    assert broker.log("t", 2).values == written

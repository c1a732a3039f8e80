"""Admission: checks, batches, the queues of waiting records, and their limits."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.errors import (
    BrokerError,
    BufferFull,
    DeliveryTimedOut,
    InvalidArgument,
    KafkaError,
    MetadataTimedOut,
    RecordTooLarge,
    SerializationFailed,
)
from kclient.producer._compiled import Delivery
from kclient.producer.admission import WhenFull
from kclient.producer.waiting_records import WaitingRecord
from tests.support.views import with_brokers, with_topic, without_topic

from .model_broker import ModelBroker
from .rig import Rig, Waiter, make_topic

SPACE = 16 * (100 + 21) + 10
"""Memory for sixteen records of 100 bytes, and for no further one of any size."""


def small(**settings: Any) -> Rig:
    return Rig(**{"buffer_memory": SPACE, "batch_size": 512, **settings})


def fill(rig: Rig) -> list[Delivery]:
    """Send until memory is full; return the deliveries of records in batches."""
    placed = []
    while True:
        delivery = rig.send(b"x" * 100)
        if isinstance(delivery._outcome, WaitingRecord):
            delivery.cancel()
            assert rig.accumulator.budget.waiting == 0
            return placed
        placed.append(delivery)


def serve_all(rig: Rig, broker: ModelBroker | None = None) -> ModelBroker:
    broker = broker or ModelBroker()
    rig.step()
    while rig.network.pending:
        sent = rig.take_request()
        rig.answer(sent, broker.produce(sent.message()))
        rig.step()
    return broker


def parked_of(delivery: Delivery) -> WaitingRecord:
    assert isinstance(delivery._outcome, WaitingRecord)
    return delivery._outcome


# Checks.


@pytest.mark.parametrize("topic", ["", "a b", ".", "..", "x" * 250, "ä", None, 5, b"t", ["t"]])
def test_impossible_topic_names_are_refused(topic: Any) -> None:
    with pytest.raises(InvalidArgument, match="topic"):
        Rig().send(b"v", topic=topic)


@pytest.mark.parametrize("value", ["text", 1, object()])
def test_wrong_types_are_refused_at_once(value: Any) -> None:
    rig = Rig()
    with pytest.raises(SerializationFailed, match="value"):
        rig.send(value)
    with pytest.raises(SerializationFailed, match="key"):
        rig.send(b"v", key=value)
    assert rig.accumulator.budget.used == 0


def test_a_record_above_max_request_size_is_refused_with_both_sizes() -> None:
    rig = Rig(max_request_size=1000)
    rig.send(b"x" * (1000 - 61 - 21))
    with pytest.raises(RecordTooLarge, match=r"1,001 bytes.*allowed are 1,000"):
        rig.send(b"x" * (1000 - 61 - 20))


def test_a_record_above_all_memory_is_refused() -> None:
    with pytest.raises(RecordTooLarge):
        small().send(b"x" * SPACE)


def test_headers_count_for_the_size() -> None:
    rig = Rig(max_request_size=500)
    with pytest.raises(RecordTooLarge):
        rig.admission.put("t", b"v", None, [("h", b"x" * 500)], None, None, WhenFull.QUEUE)


def test_null_values_and_empty_keys_go_through() -> None:
    rig = Rig()
    rig.admission.put("t", None, b"", None, None, None, WhenFull.QUEUE)
    rig.step()
    assert len(rig.network.pending) == 1


# Partitions.


def test_explicit_partitions_are_taken() -> None:
    rig = Rig(3)
    assert [rig.send(b"v", partition=p).partition for p in (2, 0, 1)] == [2, 0, 1]


def test_stale_metadata_with_fewer_partitions_is_not_believed() -> None:
    rig = Rig(4)
    known = make_topic("t", [1] * 4, topic_id=b"i" * 16)
    rig.metadata.publish_topic(known)
    rig.send(b"v", partition=3)
    stale = make_topic("t", [1], topic_id=b"i" * 16)
    rig.metadata.publish_topic(stale)
    assert rig.accumulator.topics["t"].count == 4


def test_fewer_partitions_without_topic_ids_are_left_to_the_view_to_judge() -> None:
    rig = Rig(4)
    rig.send(b"v", partition=0)
    rig.metadata.publish_topic(make_topic("t", [1]))
    assert rig.accumulator.topics["t"].count == 1


def test_a_new_topic_id_may_bring_fewer_partitions() -> None:
    rig = Rig(4)
    rig.send(b"v", partition=3)
    rig.metadata.publish_topic(make_topic("t", [1], topic_id=b"i" * 16))
    assert rig.accumulator.topics["t"].count == 1


def test_growing_topics_leave_batches_where_they_are() -> None:
    rig = Rig(1)
    early = rig.send(b"v", key=b"k")
    rig.metadata.publish_topic(make_topic("t", [1] * 50))
    late = rig.send(b"v", key=b"k")
    assert early.partition == 0
    assert late.partition is not None
    broker = serve_all(rig)
    assert broker.log("t", 0).values[0] == b"v"


def test_a_view_moves_the_queues_of_those_topics_only_that_it_has_news_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(topics={"t": [1, 1], "u": [1]})
    for name in ("t", "u"):
        rig.send(b"v", topic=name)
    rig.metadata.publish(rig.metadata.view)
    moved: list[str] = []
    monkeypatch.setattr(rig.accumulator, "update_leaders", lambda topic: moved.append(topic.name))
    view = rig.metadata.view
    rig.metadata.publish(with_topic(view, make_topic("t", [1, 1])))  # as it was
    assert moved == []
    rig.metadata.publish(with_topic(view, make_topic("t", [1, 2])))
    assert moved == ["t"]
    rig.metadata.publish(without_topic(view, "t"))
    changed = with_topic(view, make_topic("t", [1, 2]))
    rig.metadata.publish(without_topic(changed, "u"))
    rig.metadata.publish(view)
    assert moved == ["t", "t", "t", "u"]


class Broken:
    def partition(self, topic: str, key: bytes | None, partition_count: int) -> int:
        raise RuntimeError("nobody knows")


def test_a_partitioner_that_raises_fails_that_record_only() -> None:
    rig = Rig(partitioner=Broken())
    delivery = rig.send(b"v")  # it waits at first: the topic is new
    with pytest.raises(InvalidArgument, match=r"Broken failed.*nobody knows"):
        delivery.result()
    assert not rig.send(b"v", partition=0).done()


def test_records_without_a_key_fill_batches() -> None:
    rig = Rig(10, linger=1.0, batch_size=1000)
    for _ in range(100):
        rig.send(b"x" * 90)
    rig.pass_time(1.0)
    sizes, broker = [], ModelBroker()
    while rig.network.pending:
        sent = rig.take_request()
        message = sent.message()
        sizes += [len(p.records) for t in message.topic_data for p in t.partition_data]
        rig.answer(sent, broker.produce(message))
        rig.step()
    assert len(sizes) <= 13 and sum(size > 900 for size in sizes) >= 9


# Topics that aren't known.


def unknown(**settings: Any) -> Rig:
    return Rig(topics={}, **settings)


def test_a_record_for_an_unknown_topic_waits_and_requests_metadata() -> None:
    rig = unknown()
    delivery = rig.send(b"v")
    assert delivery.partition is None and not delivery.done()
    assert rig.metadata.asked and rig.metadata.touched == ["t"]


def test_waiting_records_are_sent_in_order_once_the_topic_exists() -> None:
    rig = unknown()
    deliveries = [rig.send(b"%d" % i, partition=0) for i in range(20)]
    rig.metadata.publish_topic(make_topic("t", [1]))
    deliveries.append(rig.send(b"20", partition=0))
    broker = serve_all(rig)
    assert broker.log("t", 0).values == [b"%d" % i for i in range(21)]
    assert [d.result().offset for d in deliveries] == list(range(21))


def test_an_unknown_topic_fails_after_delivery_timeout_with_the_error_of_the_brokers() -> None:
    rig = unknown(delivery_timeout=5.0)
    delivery = rig.send(b"v")
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rig.metadata.publish_topic(make_topic("t", [], error=code))
    rig.pass_time(4.9)
    assert not delivery.done()
    rig.pass_time(0.2)
    error = delivery.exception()
    assert isinstance(error, BrokerError) and error.code == code
    assert "delivery_timeout=5 s" in str(error) and "create topic t" in str(error)
    assert error.maybe_written is False


def say_unknown(rig: Rig, seconds: float) -> None:
    """Have brokers report topic t as unknown, for ``seconds`` so far."""
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rig.metadata.unknown["t"] = seconds
    rig.metadata.publish_topic(make_topic("t", [], error=code))
    rig.step()


def test_an_unknown_topic_fails_once_brokers_have_reported_it_for_long() -> None:
    rig = unknown()
    delivery = rig.send(b"v")
    say_unknown(rig, 4.9)
    assert not delivery.done()
    say_unknown(rig, 5.0)
    error = delivery.exception()
    assert isinstance(error, BrokerError) and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "topic t doesn't exist" in str(error) and error.maybe_written is False
    assert rig.accumulator.budget.waiting == 0


def test_a_topic_that_may_be_created_is_waited_for_longer() -> None:
    rig = unknown(allow_auto_create_topics=True)
    delivery = rig.send(b"v")
    say_unknown(rig, 14.9)
    assert not delivery.done()
    say_unknown(rig, 15.0)
    assert delivery.done()


def test_records_for_an_unknown_topic_fail_in_several_steps() -> None:
    rig = unknown()
    deliveries = [rig.send(b"v") for _ in range(2500)]
    say_unknown(rig, 5.0)
    assert [one.done() for one in deliveries] == [True] * 1000 + [False] * 1500
    rig.step()
    rig.step()
    assert all(one.done() for one in deliveries)


def test_a_topic_that_appears_while_its_records_fail_takes_the_others() -> None:
    rig = unknown()
    deliveries = [rig.send(b"v", partition=0) for _ in range(1500)]
    say_unknown(rig, 5.0)
    rig.metadata.publish_topic(make_topic("t", [1]))
    serve_all(rig)
    failed = [one.exception() is not None for one in deliveries]
    assert failed == [True] * 1000 + [False] * 500


def test_records_for_a_topic_that_was_known_do_not_fail_early() -> None:
    rig = Rig()
    delivery = rig.send(b"v")
    say_unknown(rig, 99.0)
    later = rig.send(b"v")
    rig.pass_time(60.0)
    assert not later.done()
    assert not delivery.done()


def test_no_metadata_at_all_is_another_error() -> None:
    rig = unknown(delivery_timeout=5.0)
    delivery = rig.send(b"v")
    rig.pass_time(5.1)
    assert isinstance(delivery.exception(), MetadataTimedOut)


@pytest.mark.parametrize(
    "code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION]
)
def test_topics_that_brokers_refuse_fail_at_once(code: int) -> None:
    rig = unknown()
    delivery = rig.send(b"v")
    rig.metadata.publish_topic(make_topic("t", [], error=code))
    error = delivery.exception()
    assert isinstance(error, BrokerError) and error.code == code


def test_an_unknown_topic_does_not_hold_up_another_one() -> None:
    rig = Rig(topics={"known": [1]})
    lost = rig.send(b"v", topic="nowhere")
    fine = rig.send(b"v", topic="known")
    serve_all(rig)
    assert fine.done() and not lost.done()


def test_an_unknown_topic_is_asked_for_again_with_each_refresh() -> None:
    rig = unknown()
    rig.send(b"v")
    asked = len(rig.metadata.asked)
    rig.metadata.publish(with_brokers(rig.metadata.view, rig.metadata.view.brokers))
    assert len(rig.metadata.asked) == asked + 1


# Memory.


def test_records_wait_for_a_full_buffer_and_are_admitted_in_order() -> None:
    rig = small()
    placed = fill(rig)
    waiting = [rig.send(b"%04d" % i) for i in range(10)]
    assert all(isinstance(d._outcome, WaitingRecord) for d in waiting)
    broker = serve_all(rig)
    assert broker.log("t", 0).values[len(placed) :] == [b"%04d" % i for i in range(10)]
    assert all(d.exception() is None for d in waiting)
    assert rig.accumulator.budget.used == 0 and rig.accumulator.budget.waiting == 0


def test_a_small_record_does_not_overtake_a_waiting_large_one() -> None:
    rig = small()
    fill(rig)
    large, tiny = rig.send(b"y" * 400), rig.send(b"z")
    assert isinstance(tiny._outcome, WaitingRecord)
    broker = serve_all(rig)
    assert broker.log("t", 0).values[-2:] == [b"y" * 400, b"z"]
    assert large.result().offset < tiny.result().offset


def test_a_batch_with_space_takes_nothing_while_records_wait() -> None:
    rig = Rig(buffer_memory=10_000, batch_size=10_000)
    rig.send(b"x" * 8000)
    large, tiny = rig.send(b"y" * 2200), rig.send(b"z")
    assert isinstance(large._outcome, WaitingRecord) and isinstance(tiny._outcome, WaitingRecord)


def test_a_batch_with_space_takes_nothing_beyond_the_memory_budget() -> None:
    rig = Rig(2, buffer_memory=10_000, batch_size=10_000)
    with pytest.raises(BufferFull):
        for number in range(100):
            rig.send(b"x" * 1000, partition=number % 2, when_full=WhenFull.RAISE)
    assert 9000 < rig.accumulator.budget.used <= 10_000


def test_waiting_records_are_bounded_by_count() -> None:
    rig = small(max_parked=3)
    fill(rig)
    for _ in range(3):
        rig.send(b"v")
    with pytest.raises(BufferFull, match=r"3 records.*enqueue"):
        rig.send(b"v")


def test_waiting_records_are_bounded_by_bytes() -> None:
    rig = small()
    fill(rig)
    with pytest.raises(BufferFull, match="at most 486 bytes"):
        for _ in range(10):
            rig.send(b"x" * 200)
    assert rig.admission.waiting_records.size <= SPACE // 4


def test_the_first_waiting_record_may_be_of_any_size() -> None:
    rig = small()
    fill(rig)
    assert not rig.send(b"x" * 1500).done()


def test_with_max_parked_zero_no_record_waits_for_memory() -> None:
    rig = small(max_parked=0)
    with pytest.raises(BufferFull, match="max_parked=0"):
        fill(rig)


def test_records_that_wait_for_metadata_are_bounded_by_memory() -> None:
    rig = unknown(buffer_memory=100_000, max_parked=5)
    with pytest.raises(BufferFull, match="metadata of topic t, or of this partition,") as caught:
        for _ in range(1000):
            rig.send(b"x" * 100)
    assert "awaiting anything lets it come" in str(caught.value)
    assert 100 < rig.accumulator.budget.waiting < 200
    rig.metadata.publish_topic(make_topic("t", [1]))
    assert rig.accumulator.budget.waiting == 0 and rig.admission.waiting_records.claimed == 0


def test_many_waiting_records_are_admitted_in_slices() -> None:
    rig = unknown()
    deliveries = [rig.send(b"%d" % i, partition=0) for i in range(2500)]
    rig.metadata.publish_topic(make_topic("t", [1]))
    assert rig.accumulator.budget.waiting == 1500
    late = rig.send(b"2500", partition=0)
    broker = serve_all(rig)
    while rig.accumulator.budget.waiting:
        serve_all(rig, broker)
    serve_all(rig, broker)
    assert broker.log("t", 0).values == [b"%d" % i for i in range(2501)]
    assert late.done() and all(d.done() for d in deliveries)


def test_when_full_raise_does_not_queue() -> None:
    rig = small()
    fill(rig)
    with pytest.raises(BufferFull, match="buffer_memory=1,946") as caught:
        rig.send(b"x" * 100, when_full=WhenFull.RAISE)
    assert caught.value.maybe_written is False
    assert rig.accumulator.budget.waiting == 0


def test_when_full_raise_still_queues_for_metadata() -> None:
    rig = unknown()
    assert not rig.send(b"v", when_full=WhenFull.RAISE).done()


def test_a_cancelled_waiting_record_is_never_written() -> None:
    rig = small()
    fill(rig)
    first, second = rig.send(b"first"), rig.send(b"second")
    first.cancel()
    broker = serve_all(rig)
    assert b"first" not in broker.log("t", 0).values
    assert b"second" in broker.log("t", 0).values
    assert first.cancelled() and second.done()


def test_cancelled_waiting_records_release_their_place() -> None:
    rig = small(max_parked=2)
    fill(rig)
    for _ in range(50):
        rig.send(b"v").cancel()
    assert rig.admission.waiting_records.count == 0 and rig.admission.waiting_records.size == 0


def test_delivery_timeout_runs_from_send_also_while_waiting() -> None:
    rig = small(delivery_timeout=10.0)
    fill(rig)
    rig.pass_time(6.0)
    waiting = rig.send(b"v")
    # The response frees memory after nine seconds; then seven are left until its deadline.
    sent = rig.take_request()
    rig.clock.time += 3.0
    rig.answer(sent, ModelBroker().produce(sent.message()))
    assert not isinstance(waiting._outcome, WaitingRecord)
    rig.network.blocked.add(1)
    rig.pass_time(6.9)
    assert not waiting.done()
    rig.pass_time(0.2)
    assert isinstance(waiting.exception(), DeliveryTimedOut)


def parked_for_a_topic(seconds: float, **settings: Any) -> tuple[Rig, Delivery]:
    """Return a record that waited ``seconds`` for its topic, and is in a batch now."""
    rig = unknown(delivery_timeout=10.0, **settings)
    waiting = rig.send(b"parked", partition=0)
    rig.pass_time(seconds)
    rig.network.blocked.add(1)
    rig.metadata.publish_topic(make_topic("t", [1]))
    return rig, waiting


@pytest.mark.parametrize("linger", [0.0, 0.5])
def test_a_record_never_has_less_time_because_another_one_waited(linger: float) -> None:
    rig, waiting = parked_for_a_topic(4.4, linger=linger)
    fresh = rig.send(b"fresh", partition=0)
    rig.pass_time(5.7)
    assert isinstance(waiting.exception(), DeliveryTimedOut)
    rig.pass_time(4.2)
    assert not fresh.done()
    rig.pass_time(0.2)
    assert isinstance(fresh.exception(), DeliveryTimedOut)


def test_records_that_waited_for_different_times_don_t_share_a_deadline() -> None:
    rig = unknown(delivery_timeout=10.0)
    first = rig.send(b"first", partition=0)
    rig.pass_time(3.0)
    second = rig.send(b"second", partition=0)
    rig.pass_time(3.0)
    rig.network.blocked.add(1)
    rig.metadata.publish_topic(make_topic("t", [1]))
    rig.pass_time(4.1)
    assert first.done() and not second.done()
    rig.pass_time(2.8)
    assert not second.done()
    rig.pass_time(0.2)
    assert second.done()


def test_a_record_that_waits_for_memory_is_not_cut_short_by_those_before_it() -> None:
    """``enqueue`` and ``send`` share a queue; the timeout of the first starts when it is left."""
    rig = small(delivery_timeout=10.0)
    fill(rig)
    rig.pass_time(1.0)
    waiting = rig.send(b"parked")
    waiter = Waiter()
    enqueued = rig.admission.put("t", b"enqueued", None, None, None, None, lambda: waiter)
    again = rig.send(b"again")
    sent = rig.take_request()
    rig.clock.time += 5.0
    rig.answer(sent, ModelBroker().produce(sent.message()))
    assert waiter.woken
    rig.network.blocked.add(1)
    fresh = rig.send(b"fresh")
    rig.pass_time(5.1)
    assert waiting.done() and again.done() and not enqueued.done() and not fresh.done()
    rig.pass_time(4.8)
    assert not enqueued.done() and not fresh.done()


def test_records_that_waited_briefly_for_memory_share_batches_whatever_the_method() -> None:
    """Else a producer at full rate would send records one by one while its memory is full."""
    rig = small(delivery_timeout=60.0)
    fill(rig)
    rig.pass_time(1.0)
    sent = rig.take_request()
    waiter = Waiter()
    waiting = []
    for n in range(10):
        waiting.append(rig.send(b"%d" % n))
        waiting.append(rig.admission.put("t", b"%d" % n, None, None, 0, None, lambda: waiter))
    rig.clock.time += 2.5
    rig.answer(sent, ModelBroker().produce(sent.message()))
    assert len({id(delivery._outcome) for delivery in waiting}) == 1


def test_records_that_waited_together_share_a_batch() -> None:
    rig = unknown(delivery_timeout=10.0)
    waiting = [rig.send(b"%d" % n, partition=0) for n in range(20)]
    rig.pass_time(5.0)
    rig.metadata.publish_topic(make_topic("t", [1]))
    assert len({id(delivery._outcome) for delivery in waiting}) == 1


def test_a_waiting_record_times_out_as_not_written() -> None:
    rig = small(delivery_timeout=10.0)
    rig.network.blocked.add(1)
    fill(rig)
    waiting = rig.send(b"v")
    rig.pass_time(10.1)
    error = waiting.exception()
    assert isinstance(error, DeliveryTimedOut) and error.maybe_written is False


def test_enqueue_waits_in_the_same_queue_and_is_not_counted() -> None:
    rig = small(max_parked=1)
    fill(rig)
    waiters: list[Waiter] = []

    def waiter() -> Any:
        waiters.append(Waiter())
        return waiters[-1]

    rig.send(b"1")
    deliveries = [rig.send(b"%d" % i, when_full=waiter) for i in range(2, 6)]
    assert rig.accumulator.budget.waiting == 5 and rig.admission.waiting_records.count == 1
    broker = serve_all(rig)
    assert all(w.woken for w in waiters)
    assert broker.log("t", 0).values[-5:] == [b"1", b"2", b"3", b"4", b"5"]
    assert all(d.exception() is None for d in deliveries)


def test_very_many_waiting_records_fail_in_several_steps() -> None:
    rig = small(max_block=2.0)
    rig.network.blocked.add(1)
    fill(rig)
    deliveries = [rig.send(b"v", when_full=Waiter) for _ in range(3500)]
    rig.pass_time(3.0)
    assert sum(delivery.done() for delivery in deliveries) == 1000
    for _ in range(3):
        rig.step()
    assert all(delivery.done() for delivery in deliveries)


def test_enqueue_fails_after_max_block() -> None:
    rig = small(max_block=2.0)
    rig.network.blocked.add(1)
    fill(rig)
    delivery = rig.send(b"v", when_full=Waiter)
    waiting = parked_of(delivery)
    rig.pass_time(1.9)
    assert waiting.error is None
    rig.pass_time(0.2)
    assert isinstance(waiting.error, BufferFull)
    assert "max_block=2 s" in str(waiting.error) and waiting.waiter.woken


def test_enqueue_without_limit_waits_for_ever() -> None:
    rig = small(max_block=None, delivery_timeout=math.inf)
    rig.network.blocked.add(1)
    fill(rig)
    delivery = rig.send(b"v", when_full=Waiter)
    rig.pass_time(1e6)
    assert parked_of(delivery).error is None


def test_lingering_batches_are_sent_when_they_hold_all_memory() -> None:
    rig = small(linger=4.0, batch_size=SPACE)
    fill(rig)
    rig.send(b"x" * 100)
    rig.step()
    assert rig.network.pending


def test_waiting_records_do_not_make_batches_of_one() -> None:
    rig = Rig(buffer_memory=4096, batch_size=1024, linger=0.005, max_parked=10_000)
    for i in range(200):
        try:
            rig.send(b"%03d" % i + b"." * 20)
        except BufferFull:
            break
    broker = ModelBroker()
    sizes = []
    for _ in range(100):
        rig.pass_time(0.006)
        while rig.network.pending:
            sent = rig.take_request()
            message = sent.message()
            sizes += [len(p.records) for t in message.topic_data for p in t.partition_data]
            rig.answer(sent, broker.produce(message))
            rig.step()
    assert rig.accumulator.budget.waiting == 0
    assert sum(size < 200 for size in sizes) <= 1


def test_closing_fails_waiting_records() -> None:
    rig = small()
    fill(rig)
    sent, enqueued = rig.send(b"v"), rig.send(b"v", when_full=Waiter)
    list(rig.admission.fail_waiting(KafkaError("bye"), enqueued_only=True))
    assert enqueued.done() and not sent.done()
    list(rig.admission.fail_waiting(KafkaError("bye")))
    assert sent.done()

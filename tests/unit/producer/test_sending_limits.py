"""Reports about batches, and the limits for very many of them: time, memory, log lines."""

from __future__ import annotations

import gc
from collections import Counter

import pytest

from kclient.error_codes import ErrorCode
from kclient.errors import (
    BufferFull,
)
from kclient.hooks import BatchDelivered, BatchFailed, BatchRetried
from kclient.producer._compiled import Delivery
from kclient.producer.idempotence import IdentityState
from tests.support.leaks import hide_from_collector

from .model_broker import ModelBroker
from .rig import Rig, Sent
from .serving import serve, values


def test_hooks_and_counters_hear_of_batches() -> None:
    rig, broker = Rig(), ModelBroker()
    rig.send(b"v")
    rig.step()
    serve(rig, broker, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    rig.pass_time(0.3)
    serve(rig, broker)
    delivery = rig.send(b"w")
    rig.step()
    serve(rig, broker, ErrorCode.INVALID_TIMESTAMP)
    delivery.exception()
    kinds = [type(event) for event in rig.core.events]
    assert kinds == [BatchRetried, BatchDelivered, BatchFailed]
    delivered = rig.core.events[1]
    assert isinstance(delivered, BatchDelivered)
    assert (delivered.records, delivered.attempts, delivered.base_offset) == (1, 2, 0)
    counters = rig.core.counters
    assert counters.get("producer.records_delivered") == 1
    assert counters.get("producer.records_failed") == 1
    assert counters.get("producer.retries") == 1


def test_unseen_failures_are_counted_and_logged_once_a_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hide_from_collector()
    caplog.clear()
    rig, broker = Rig(linger=1.0), ModelBroker()
    for i in range(5):
        rig.send(b"secret-%d" % i)
    rig.pass_time(1.0)
    serve(rig, broker, ErrorCode.INVALID_TIMESTAMP)
    gc.collect()
    assert rig.core.counters.get("producer.unseen_failures") == 5
    records = [r for r in caplog.records if "nobody looked" in r.message]
    assert len(records) == 1 and "secret" not in caplog.text
    assert rig.failures.take().count == 5


def test_an_outage_does_not_flood_the_log_with_unseen_failures(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hide_from_collector()
    caplog.clear()  # of what an earlier test left to the collector
    rig, broker = Rig(), ModelBroker()
    for _ in range(241):
        rig.send(b"x")
        rig.step()
        serve(rig, broker, ErrorCode.INVALID_TIMESTAMP)
        gc.collect()
        rig.pass_time(0.125)
    assert rig.core.counters.get("producer.unseen_failures") == 241
    lines = [r.getMessage() for r in caplog.records if "nobody looked" in r.message]
    assert len(lines) == 4
    assert all("since_last_line=80" in line for line in lines[1:])


def test_records_join_a_batch_that_lingered_as_long_as_it_cannot_go() -> None:
    rig, broker = Rig(linger=0.01), ModelBroker()
    rig.network.blocked.add(1)
    for i in range(50):
        rig.send(b"%02d" % i)
        rig.pass_time(0.015)
    assert rig.accumulator.queue(rig.accumulator.topic("t"), 0).backlog == 1
    rig.network.blocked.clear()
    rig.step()
    serve(rig, broker)
    assert broker.log("t", 0).values == [b"%02d" % i for i in range(50)]
    assert rig.accumulator.budget.used == 0


def test_a_batch_that_cannot_go_takes_records_for_a_second_only() -> None:
    """Records that join late have slightly less time, so the difference must stay small."""
    rig = Rig(linger=0.01)
    rig.network.blocked.add(1)
    for _ in range(30):
        rig.send(b"x")
        rig.pass_time(0.1)
    assert rig.accumulator.queue(rig.accumulator.topic("t"), 0).backlog == 3


def test_a_new_batch_wakes_the_sender_for_its_linger_whatever_lingers_longer() -> None:
    rig = Rig(2, linger=0.01)
    rig.network.blocked.add(1)
    rig.send(b"x", partition=0)
    rig.pass_time(0.02)
    rig.wakes = 0
    rig.send(b"x", partition=1)
    assert rig.wakes == 1
    assert rig.accumulator.earliest_due() == pytest.approx(rig.clock.now() + 0.01)


def test_very_many_expired_records_fail_in_several_steps() -> None:
    rig = Rig(200, delivery_timeout=5.0, linger=1.0)
    rig.network.blocked.add(1)
    deliveries = [rig.send(b"x", partition=i % 200) for i in range(20_000)]
    rig.clock.time += 6.0
    rig.wakes = 0
    rig.sender._step(rig.clock.now())
    done = sum(delivery.done() for delivery in deliveries)
    assert 1000 < done < 6000 and rig.wakeup.woken
    for _ in range(4):
        rig.step()
    assert all(delivery.done() for delivery in deliveries)


def test_very_many_batches_go_in_several_steps_and_no_broker_is_left_out() -> None:
    rig = Rig(topics={"t": [1] * 2000 + [2] * 10}, linger=0.01)
    for index in range(2010):
        rig.send(b"x", partition=index)
    rig.clock.time += 1.0
    counts = []
    for _ in range(4):
        rig.step()
        counts.append(sum(len(values(sent.message())) for sent in rig.network.pending))
        rig.network.pending.clear()
    # The second broker is served in the second step, whatever the first one has left.
    assert counts == [250, 10 + 250, 250, 250]


def test_brokers_alternate_where_a_step_is_not_enough_for_all() -> None:
    leaders = [1] * 250 + [2] * 250 + [3] * 250
    rig, broker = Rig(topics={"t": leaders}), ModelBroker()
    sent: Counter[int] = Counter()
    idle = set(range(len(leaders)))
    for _ in range(60):
        for index in sorted(idle):
            rig.send(b"x", partition=index)
        idle.clear()
        rig.step()
        for pending in rig.network.pending:
            written = values(pending.message())
            sent[pending.node_id] += len(written)
            idle.update(index for _, index in written)
        while rig.network.pending:
            serve(rig, broker)
    assert sent == {1: 5000, 2: 5000, 3: 5000}


def test_with_very_many_lingered_batches_in_flight_the_next_ones_fill() -> None:
    rig, broker = Rig(topics={"t": [1] * 600 + [2]}, linger=0.01, batch_size=2000), ModelBroker()

    def in_flight(node_id: int) -> list[int]:
        pending = [sent for sent in rig.network.pending if sent.node_id == node_id]
        return [len(values(sent.message())) for sent in pending]

    for value in (b"x", b"y"):
        for index in range(601):
            rig.send(value, partition=index)
        rig.pass_time(0.02)
    assert in_flight(1) == [250]
    assert in_flight(2) == [1]  # another broker has nothing to do with that
    full = 599
    for _ in range(20):
        rig.send(b"z" * 100, partition=full)
    rig.pass_time(0.02)
    assert in_flight(1) == [250, 1]
    while rig.network.pending:
        serve(rig, broker)
        rig.step()
    assert broker.log("t", 0).values == [b"x", b"y"]
    assert broker.log("t", 500).values == [b"x", b"y"]
    assert broker.log("t", full).values == [b"x", b"y"] + [b"z" * 100] * 20
    assert rig.accumulator.budget.used == 0


def test_a_partition_whose_numbering_broke_goes_on_beside_one_that_is_always_busy() -> None:
    rig, broker = Rig(2, batch_size=300, delivery_timeout=120.0), ModelBroker()

    def take_one(refuse: int = 0) -> None:
        sent = rig.take_request()
        rig.answer(sent, broker.produce(sent.message(), refuse=refuse))

    for index in range(2):
        rig.send(b"first", partition=index)
    rig.step()
    while rig.network.pending:
        take_one()
        rig.step()
    lost = rig.send(b"lost", partition=0)
    rig.step()
    for _ in range(30):
        rig.send(b"x" * 100, partition=1)
    rig.step()
    take_one(ErrorCode.UNKNOWN_PRODUCER_ID)
    for _ in range(200):
        for _ in range(3):
            rig.send(b"x" * 100, partition=1)
        rig.pass_time(0.01)
        if len(rig.network.pending) > 1:
            take_one()
        if rig.identity.state is IdentityState.REQUESTED:
            rig.grant(2000)
    assert lost.done()


def test_one_response_settles_a_limited_number_of_records() -> None:
    rig, broker = Rig(12, linger=0.01), ModelBroker()
    for index in range(12):
        for _ in range(1500):
            rig.send(b"x", partition=index)
    rig.pass_time(0.02)
    largest = 0
    while rig.network.pending:
        for sent in rig.network.pending:
            largest = max(largest, sum(map(len, values(sent.message()).values())))
        serve(rig, broker)
        rig.step()
    assert largest == 9000
    assert sum(len(broker.log("t", index).values) for index in range(12)) == 18_000


def test_very_many_small_batches_count_against_memory() -> None:
    rig = Rig(2000, buffer_memory=1_000_000, linger=1.0, max_parked=0)
    rig.network.blocked.add(1)
    taken = 0
    with pytest.raises(BufferFull):
        for index in range(2000):
            rig.send(b"x", partition=index)
            taken += 1
    assert 600 < taken < 900  # 1.25 MB by their overhead
    rig.network.blocked.clear()
    broker = ModelBroker()
    rig.pass_time(2.0)
    while rig.network.pending:
        serve(rig, broker)
        rig.step()
    assert rig.accumulator.budget.used == 0


def test_memory_comes_back_after_everything() -> None:
    rig, broker = Rig(3, batch_size=200), ModelBroker()
    deliveries: list[Delivery] = [rig.send(b"x" * 50, partition=i % 3) for i in range(60)]
    for _ in range(40):
        rig.step()
        while rig.network.pending:
            serve(rig, broker)
    assert all(d.done() for d in deliveries)
    assert rig.accumulator.budget.used == 0 and not rig.accumulator.busy
    assert not rig.accumulator.ready


def test_deliveries_of_a_partition_settle_in_order_of_send() -> None:
    rig, broker = Rig(batch_size=100, idempotence=False), ModelBroker()
    deliveries = [rig.send(b"x" * 60) for _ in range(9)]
    sent: list[Sent] = []
    while len(sent) < 9:
        rig.step()
        sent.append(rig.take_request())
        rig.answer(sent[-1], broker.produce(sent[-1].message()))
    assert [d.result().offset for d in deliveries] == list(range(9))

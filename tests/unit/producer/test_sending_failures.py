"""Error responses and failed requests: which records fail with which error, which are retried."""

from __future__ import annotations

from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.errors import (
    BrokerError,
    BrokerUnreachable,
    ClientClosed,
    ConnectionLost,
    DeliveryTimedOut,
    RequestTimedOut,
)
from kclient.producer.idempotence import ProducerIdAndEpoch, SequenceState
from kclient.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    ProduceResponse,
)

from .model_broker import ModelBroker
from .rig import Rig
from .serving import part_of, queue_of, serve, values


def test_an_unreachable_broker_leaves_no_doubt() -> None:
    rig = Rig(delivery_timeout=5.0, retry_backoff=0.1)
    delivery = rig.send(b"v")
    rig.step()
    rig.lose(rig.take_request(), BrokerUnreachable("refused"))
    rig.network.blocked.add(1)
    rig.pass_time(5.1)
    error = delivery.exception()
    assert isinstance(error, DeliveryTimedOut) and error.maybe_written is False
    assert isinstance(error.__cause__, BrokerUnreachable) and "refused" in str(error)


@pytest.mark.parametrize("lost", [ConnectionLost("cut"), RequestTimedOut("late")])
def test_a_lost_response_leaves_doubt(lost: Any) -> None:
    rig = Rig(delivery_timeout=5.0)
    delivery = rig.send(b"v")
    rig.step()
    sent = rig.take_request()
    sent.message()
    rig.lose(sent, lost)
    rig.network.blocked.add(1)
    rig.pass_time(5.1)
    error = delivery.exception()
    assert isinstance(error, DeliveryTimedOut) and error.maybe_written is True


@pytest.mark.parametrize(("leader", "waits"), [(1, True), (2, False), (-1, True)])
def test_only_another_leader_is_asked_without_a_wait(leader: int, waits: bool) -> None:
    rig = Rig(retry_backoff=0.5)
    rig.send(b"v")
    rig.step()
    sent = rig.take_request()
    sent.message()
    queue = queue_of(rig)
    queue.leader = leader
    rig.lose(sent)
    assert (queue.outstanding[0].retry_at > rig.clock.now()) == waits


def test_a_request_that_was_never_written_leaves_no_doubt() -> None:
    rig = Rig(delivery_timeout=5.0)
    delivery = rig.send(b"v")
    rig.step()
    rig.pass_time(5.1)  # it is still waiting for its connection
    error = delivery.exception()
    assert isinstance(error, DeliveryTimedOut) and error.maybe_written is False
    assert values(rig.take_request().message()) == {}


def test_in_flight_expiry_is_reported_at_once_and_the_late_response_still_counts() -> None:
    rig, broker = Rig(delivery_timeout=5.0, batch_size=100), ModelBroker()
    first = rig.send(b"a" * 60)
    rig.step()
    sent = rig.take_request()
    message = sent.message()
    rig.pass_time(5.1)
    error = first.exception()
    assert isinstance(error, DeliveryTimedOut) and error.maybe_written is True
    second = rig.send(b"b" * 60)
    rig.step()
    assert not rig.network.pending  # the first of the identity is not acknowledged yet
    rig.answer(sent, broker.produce(message))
    rig.step()
    serve(rig, broker)
    assert second.result().offset == 1
    sequences = queue_of(rig).sequences
    assert sequences is not None and sequences.identity == ProducerIdAndEpoch(1000, 0)


def test_memory_of_an_abandoned_batch_stays_reserved_until_its_response() -> None:
    rig = Rig(delivery_timeout=5.0)
    rig.send(b"v" * 100)
    rig.step()
    sent = rig.take_request()
    sent.message()
    rig.pass_time(5.1)
    assert rig.accumulator.budget.used > 0
    rig.lose(sent)
    assert rig.accumulator.budget.used == 0


def test_a_gap_that_is_proven_bumps_the_epoch_of_that_partition_only() -> None:
    rig, broker = Rig(2, batch_size=100, delivery_timeout=5.0), ModelBroker()
    for partition in (0, 1):
        rig.send(b"a" * 60, partition=partition)
    rig.step()
    serve(rig, broker)
    lost = rig.send(b"b" * 60, partition=0)
    rig.step()
    sent = rig.take_request()
    sent.message()
    rig.pass_time(5.1)
    rig.lose(sent)  # never arrived
    assert isinstance(lost.exception(), DeliveryTimedOut)
    after = [rig.send(b"c" * 60, partition=partition) for partition in (0, 1)]
    rig.step()
    serve(rig, broker)
    assert all(d.exception() is None for d in after)
    identities = [queue_of(rig, p).sequences.identity for p in (0, 1)]  # type: ignore[union-attr]
    assert identities == [ProducerIdAndEpoch(1000, 1), ProducerIdAndEpoch(1000, 0)]


def test_nothing_new_is_numbered_while_a_gap_is_unresolved() -> None:
    rig, broker = Rig(batch_size=100, delivery_timeout=5.0), ModelBroker()
    rig.send(b"a" * 60)
    rig.step()
    serve(rig, broker)
    rig.send(b"b" * 60)
    rig.step()
    rig.clock.time += 3.0
    rig.send(b"c" * 60)
    rig.step()
    first, second = rig.network.pending
    first.message(), second.message()
    rig.pass_time(2.1)  # b expires, c doesn't
    del rig.network.pending[:]
    rig.lose(first)
    rig.lose(second)
    rig.send(b"d" * 60)
    sequences = queue_of(rig).sequences
    assert sequences is not None and sequences.state is SequenceState.UNRESOLVED
    rig.pass_time(0.3)
    (again,) = rig.network.pending
    assert values(again.message()) == {("t", 0): [b"c" * 60]}
    # b never arrived, so the broker rejects c: only then is the gap proven.
    serve(rig, broker)
    assert sequences.state is SequenceState.BROKEN
    rig.pass_time(0.3)
    serve(rig, broker)
    rig.step()
    serve(rig, broker)
    assert broker.log("t", 0).values == [b"a" * 60, b"c" * 60, b"d" * 60]


def test_a_disowned_producer_goes_on_under_a_new_id() -> None:
    rig, broker = Rig(), ModelBroker()
    delivery = rig.send(b"v")
    rig.step()
    serve(rig, broker, ErrorCode.INVALID_PRODUCER_EPOCH)
    rig.pass_time(0.3)
    assert rig.core.spawned == ["producer-id"]
    rig.grant(2000)
    rig.step()
    serve(rig, broker)
    assert delivery.result().offset == 0
    assert list(broker.log("t", 0).producers) == [2000]


def test_forgotten_producers_start_over_and_lose_nothing() -> None:
    rig, broker = Rig(batch_size=100), ModelBroker()
    rig.send(b"a" * 60)
    rig.step()
    serve(rig, broker)
    delivery = rig.send(b"b" * 60)
    rig.step()
    serve(rig, broker, ErrorCode.UNKNOWN_PRODUCER_ID)
    rig.pass_time(0.3)
    serve(rig, broker)
    assert delivery.result().offset == 1
    assert broker.log("t", 0).producers[1000].epoch == 1


def test_where_the_broker_forgot_us_only_batches_in_doubt_fail() -> None:
    rig, broker = Rig(batch_size=100), ModelBroker()
    rig.send(b"a" * 60)
    rig.step()
    serve(rig, broker)
    in_doubt = rig.send(b"b" * 60)
    rig.step()
    sent = rig.take_request()
    broker.produce(sent.message())
    rig.lose(sent)  # written, and the response lost
    never_sent = rig.send(b"c" * 60)
    rig.pass_time(0.3)
    serve(rig, broker, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    for _ in range(3):
        rig.pass_time(0.3)
        while rig.network.pending:
            serve(rig, broker)
    error = in_doubt.exception()
    assert isinstance(error, BrokerError) and error.maybe_written is True
    assert "could write it twice" in str(error)
    assert never_sent.exception() is None
    assert broker.log("t", 0).values == [b"a" * 60, b"b" * 60, b"c" * 60]


def test_a_duplicate_is_success_with_unknown_offset() -> None:
    rig, broker = Rig(), ModelBroker()
    delivery = rig.send(b"v")
    rig.step()
    serve(rig, broker, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert delivery.result().offset == -1


def test_too_large_batches_are_split_in_order() -> None:
    rig, broker = Rig(batch_size=2000), ModelBroker()
    broker.log("t", 0).max_batch_bytes = 300
    deliveries = [rig.send(b"%03d" % i + b"." * 50) for i in range(20)]
    for _ in range(100):
        rig.pass_time(0.2)
        while rig.network.pending:
            serve(rig, broker)
            rig.step()
    assert [v[:3] for v in broker.log("t", 0).values] == [b"%03d" % i for i in range(20)]
    assert [d.result().offset for d in deliveries] == list(range(20))
    assert queue_of(rig).batch_limit < 2000


def test_a_single_record_too_large_fails_alone_and_its_error_has_the_size() -> None:
    rig, broker = Rig(), ModelBroker()
    broker.log("t", 0).max_batch_bytes = 300
    large = rig.send(b"x" * 500)
    rig.step()
    small = rig.send(b"y")
    for _ in range(20):
        while rig.network.pending:
            serve(rig, broker)
        rig.pass_time(0.3)
    error = large.exception()
    assert isinstance(error, BrokerError) and error.code == ErrorCode.MESSAGE_TOO_LARGE
    assert "t-0 on broker 1" in str(error) and "bytes" in str(error)
    assert error.maybe_written is False
    assert small.result().offset == 0


def test_record_errors_name_the_bad_records() -> None:
    rig, broker = Rig(linger=1.0), ModelBroker()
    deliveries = [rig.send(b"%d" % i) for i in range(4)]
    rig.pass_time(1.0)
    sent = rig.take_request()
    response = broker.produce(sent.message(), refuse=ErrorCode.INVALID_RECORD)
    part_of(response).record_errors = [
        BatchIndexAndErrorMessage(batch_index=2, batch_index_error_message="no key, no entry")
    ]
    rig.answer(sent, response)
    errors = [d.exception() for d in deliveries]
    assert all(isinstance(e, BrokerError) and e.maybe_written is False for e in errors)
    assert "no key, no entry" in str(errors[2])
    assert "1 other records of the same batch were refused" in str(errors[0])


def test_a_response_that_leaves_a_partition_out_is_doubted_and_retried() -> None:
    rig, broker = Rig(), ModelBroker()
    delivery = rig.send(b"v")
    rig.step()
    sent = rig.take_request()
    broker.produce(sent.message())
    rig.answer(sent, ProduceResponse(responses=[]))
    rig.pass_time(0.3)
    serve(rig, broker)
    assert delivery.result().offset == 0
    assert broker.log("t", 0).values == [b"v"]


def test_corrupt_batches_are_sent_again_with_the_same_bytes() -> None:
    rig, broker = Rig(), ModelBroker()
    rig.send(b"v")
    rig.step()
    first = serve(rig, broker, ErrorCode.CORRUPT_MESSAGE)
    rig.pass_time(0.3)
    again = rig.take_request().message()
    assert again == first


def test_give_up_reports_whether_each_record_may_be_written() -> None:
    rig = Rig(batch_size=100)
    in_flight = rig.send(b"a" * 60)
    rig.step()
    rig.network.pending[0].message()
    waiting = rig.send(b"b" * 60)
    queue = queue_of(rig)
    rig.accumulator.seal_all()
    for batch in [*queue.outstanding, *queue.sealed]:
        rig.response_handler.give_up(batch, ClientClosed("bye"))
    first, second = in_flight.exception(), waiting.exception()
    assert isinstance(first, ClientClosed) and first.maybe_written is True
    assert isinstance(second, ClientClosed) and second.maybe_written is False
    rig.lose(rig.take_request())
    assert rig.accumulator.budget.used == 0

"""The way out: which batches travel, what requests hold, and what follows from answers."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.errors import (
    BrokerError,
    BrokerUnreachable,
    BufferFull,
    ClientClosed,
    ConnectionLost,
    DeliveryTimedOut,
    NoCommonVersion,
    RequestTimedOut,
)
from kclient.hooks import BatchDelivered, BatchFailed, BatchRetried
from kclient.producer.hot import Delivery, PartitionQueue
from kclient.producer.idempotence import Identity, IdentityState, SequenceState
from kclient.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    ProduceRequest,
    ProduceResponse,
)
from kclient.record import read_batches

from .model_broker import ModelBroker
from .rig import Rig, Sent, make_topic


def queue_of(rig: Rig, partition: int = 0, topic: str = "t") -> PartitionQueue:
    queue = rig.accumulator.topics[topic].queues[partition]
    assert queue is not None
    return queue


def values(message: ProduceRequest) -> dict[tuple[str, int], list[bytes]]:
    return {
        (topic.name, part.index): [
            bytes(record.value)
            for batch in read_batches(part.records)
            for record in batch.records("t", 0)
        ]
        for topic in message.topic_data
        for part in topic.partition_data
    }


def serve(rig: Rig, broker: ModelBroker, code: int = 0) -> ProduceRequest:
    sent = rig.take_request()
    message = sent.message()
    rig.answer(sent, broker.produce(message, refuse=code))
    return message


def part_of(response: ProduceResponse) -> Any:
    return response.responses[0].partition_responses[0]


# Requests.


def test_without_linger_the_first_record_goes_at_once_and_the_rest_with_the_answer() -> None:
    rig, broker = Rig(), ModelBroker()
    rig.send(b"0")
    rig.step()
    for i in range(1, 5):
        rig.send(b"%d" % i)
        rig.step()
    assert len(rig.network.pending) == 1
    assert values(serve(rig, broker)) == {("t", 0): [b"0"]}
    rig.step()
    assert values(serve(rig, broker)) == {("t", 0): [b"1", b"2", b"3", b"4"]}


def test_without_linger_full_batches_do_not_wait_for_the_answer() -> None:
    rig = Rig(batch_size=200, idempotence=False)
    for _ in range(10):
        rig.send(b"x" * 50)
    rig.step()
    assert len(rig.network.pending) > 1


def test_with_linger_a_batch_waits_and_fills() -> None:
    rig = Rig(linger=0.5)
    rig.send(b"0")
    rig.pass_time(0.4)
    rig.send(b"1")
    assert not rig.network.pending
    rig.pass_time(0.11)
    assert values(rig.take_request().message()) == {("t", 0): [b"0", b"1"]}


def test_a_full_batch_does_not_linger() -> None:
    rig = Rig(linger=60.0, batch_size=200)
    for _ in range(4):
        rig.send(b"x" * 60)
    rig.step()
    assert len(rig.network.pending) == 1


def test_hurry_ends_all_linger() -> None:
    rig = Rig(3, linger=60.0)
    for partition in range(3):
        rig.send(b"v", partition=partition)
    assert len(rig.accumulator.hurry()) == 3
    rig.step()
    assert len(values(rig.take_request().message())) == 3


def test_one_request_takes_one_batch_of_each_partition_of_its_broker() -> None:
    rig = Rig(topics={"a": [1, 2], "b": [1]})
    for topic, partition in [("a", 0), ("a", 1), ("b", 0)]:
        rig.send(b"v", topic=topic, partition=partition)
    rig.step()
    by_node = {sent.node_id: set(values(sent.message())) for sent in rig.network.pending}
    assert by_node == {1: {("a", 0), ("b", 0)}, 2: {("a", 1)}}


def test_requests_stay_within_max_request_size_and_nobody_starves() -> None:
    rig, broker = Rig(6, max_request_size=1000, batch_size=400, idempotence=False), ModelBroker()
    deliveries = [rig.send(b"x" * 280, partition=i % 6) for i in range(24)]
    for _ in range(60):
        rig.step()
        while rig.network.pending:
            message = serve(rig, broker)
            total = sum(len(p.records) for t in message.topic_data for p in t.partition_data)
            assert total <= 1000
    assert all(d.done() for d in deliveries)


def test_at_most_max_in_flight_batches_of_a_partition_are_under_way() -> None:
    rig, broker = Rig(batch_size=100, max_in_flight=3), ModelBroker()
    for _ in range(10):
        rig.send(b"x" * 60)
    rig.step()
    assert len(rig.network.pending) == 1  # the first of an identity goes alone
    serve(rig, broker)
    rig.step()
    assert len(rig.network.pending) == 3


def test_a_connection_that_is_not_there_gets_one_request_only() -> None:
    rig = Rig(5, batch_size=100, idempotence=False)
    rig.network.disconnected.add(1)
    for partition in range(5):
        for _ in range(3):
            rig.send(b"x" * 60, partition=partition)
    rig.step()
    assert len(rig.network.pending) == 1


def test_numbers_run_on_over_batches() -> None:
    rig, broker = Rig(batch_size=150), ModelBroker()
    for _ in range(6):
        rig.send(b"x" * 30)
    seen = []
    for _ in range(6):
        rig.step()
        while rig.network.pending:
            for topic in serve(rig, broker).topic_data:
                (batch,) = read_batches(topic.partition_data[0].records)
                seen.append((batch.producer_id, batch.producer_epoch, batch.base_sequence))
    assert seen == [(1000, 0, 0), (1000, 0, 2), (1000, 0, 4)]


def test_without_idempotence_batches_have_no_numbers() -> None:
    rig = Rig(idempotence=False)
    rig.send(b"v")
    rig.step()
    message = rig.take_request().message()
    (batch,) = read_batches(message.topic_data[0].partition_data[0].records)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)


@pytest.mark.parametrize(("acks", "wire"), [("all", -1), (1, 1), (0, 0)])
def test_acks_and_timeout_are_in_the_request(acks: Any, wire: int) -> None:
    rig = Rig(acks=acks, idempotence=False, request_timeout=7.0)
    rig.send(b"v")
    rig.step()
    message = rig.take_request().message()
    assert (message.acks, message.timeout_ms) == (wire, 7000)


def test_with_acks_0_a_written_request_is_success_with_unknown_offset() -> None:
    rig = Rig(acks=0, idempotence=False)
    delivery = rig.send(b"v")
    rig.step()
    sent = rig.take_request()
    sent.message()
    sent.future.complete(None)
    assert delivery.result().offset == -1


def test_without_a_producer_id_nothing_is_sent_and_one_is_asked_for() -> None:
    rig = Rig(identity=False)
    rig.send(b"v")
    rig.step()
    assert not rig.network.pending
    assert rig.core.spawned == ["producer-id"]
    rig.grant()
    rig.step()
    assert len(rig.network.pending) == 1


def test_without_idempotence_no_producer_id_is_asked_for() -> None:
    rig = Rig(idempotence=False)
    rig.send(b"v")
    rig.step()
    assert not rig.core.spawned and rig.network.pending


def test_a_refused_producer_id_fails_what_waits_with_the_reason() -> None:
    rig = Rig(identity=False)
    delivery = rig.send(b"v")
    rig.step()
    rig.sender.identity_refused(BrokerUnreachable("no right to write idempotently"))
    error = delivery.exception()
    assert isinstance(error, BrokerUnreachable) and "no right" in str(error)
    assert error.maybe_written is False


def test_after_a_refusal_the_next_batch_asks_again() -> None:
    rig = Rig(identity=False)
    rig.send(b"v")
    rig.step()
    rig.sender.identity_refused(BrokerUnreachable("no right to write idempotently"))
    again = rig.send(b"w")
    rig.step()
    assert rig.core.spawned == ["producer-id"] * 2
    assert not again.done()
    rig.grant()
    rig.step()
    assert len(rig.network.pending) == 1


def test_topic_ids_are_used_from_v13_on() -> None:
    topic_id = b"0123456789abcdef"
    rig = Rig()
    rig.metadata.publish(rig.metadata.view.with_topic(make_topic("t", [1], topic_id=topic_id)))
    delivery = rig.send(b"v")
    rig.step()
    sent = rig.take_request()
    assert sent.max_version is None
    message = sent.message(13)
    assert bytes(message.topic_data[0].topic_id) == topic_id
    response = ModelBroker().produce(message)
    response.responses[0].topic_id = topic_id
    rig.answer(sent, response)
    assert delivery.result().offset == 0


def test_without_topic_ids_versions_stop_at_12() -> None:
    rig = Rig()
    rig.send(b"v")
    rig.step()
    assert rig.take_request().max_version == 12


def test_zstd_is_refused_for_brokers_that_cannot_read_it() -> None:
    rig = Rig(compression="zstd")
    delivery = rig.send(b"v")
    rig.step()
    sent = rig.take_request()
    with pytest.raises(NoCommonVersion, match="zstd") as caught:
        sent.message(6)
    rig.lose(sent, caught.value)
    error = delivery.exception()
    assert isinstance(error, NoCommonVersion) and error.maybe_written is False


def test_batches_are_compressed() -> None:
    rig = Rig(compression="gzip")
    rig.send(b"x" * 1000)
    rig.step()
    (part,) = rig.take_request().message().topic_data[0].partition_data
    assert len(part.records) < 200


# Leaders.


def test_a_partition_without_a_leader_is_kept_until_it_has_one() -> None:
    rig = Rig(topics={"t": [-1]})
    delivery = rig.send(b"v")
    for _ in range(50):
        rig.pass_time(1.0)
    assert not delivery.done() and not rig.network.pending and rig.metadata.asked
    rig.metadata.publish(rig.metadata.view.with_topic(make_topic("t", [2])))
    rig.step()
    assert rig.network.pending[0].node_id == 2


def test_a_partition_without_a_leader_times_out_as_not_written() -> None:
    rig = Rig(topics={"t": [-1]}, delivery_timeout=10.0)
    delivery = rig.send(b"v")
    rig.pass_time(10.1)
    error = delivery.exception()
    assert isinstance(error, DeliveryTimedOut) and error.maybe_written is False
    assert "no leader" in str(error)


def test_a_moved_leader_gets_the_waiting_batches() -> None:
    rig = Rig()
    rig.network.blocked.add(1)
    rig.send(b"v")
    rig.step()
    rig.metadata.publish(rig.metadata.view.with_topic(make_topic("t", [2])))
    rig.step()
    assert [sent.node_id for sent in rig.network.pending] == [2]


def test_not_leader_asks_for_metadata_and_backs_off() -> None:
    rig, broker = Rig(retry_backoff=1.0), ModelBroker()
    delivery = rig.send(b"v")
    rig.step()
    serve(rig, broker, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    rig.step()
    assert "t" in rig.metadata.asked and not rig.network.pending
    rig.pass_time(0.7)
    assert not rig.network.pending
    rig.pass_time(0.6)
    serve(rig, broker)
    assert delivery.result().offset == 0


def test_a_leader_hint_is_followed_at_once_without_a_metadata_request() -> None:
    rig, broker = Rig(retry_backoff=1.0), ModelBroker()
    rig.send(b"v")
    rig.step()
    sent = rig.take_request()
    response = broker.produce(sent.message(), refuse=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    part_of(response).current_leader = LeaderIdAndEpoch(leader_id=2, leader_epoch=5)
    rig.answer(sent, response)
    rig.step()
    assert [hint.leader_id for hint in rig.metadata.hints] == [2]
    assert [s.node_id for s in rig.network.pending] == [2]
    assert not rig.metadata.asked


def test_an_unknown_topic_id_refreshes_and_retries() -> None:
    rig, broker = Rig(), ModelBroker()
    delivery = rig.send(b"v")
    rig.step()
    serve(rig, broker, ErrorCode.UNKNOWN_TOPIC_ID)
    assert "t" in rig.metadata.asked and not delivery.done()


def test_a_leader_without_an_address_asks_for_metadata() -> None:
    rig = Rig(topics={"t": [9]})
    rig.network.blocked.add(9)
    rig.send(b"v")
    rig.step()
    assert rig.metadata.asked


# Failures and honesty.


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
def test_a_lost_answer_leaves_doubt(lost: Any) -> None:
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


def test_a_request_that_was_never_written_leaves_no_doubt() -> None:
    rig = Rig(delivery_timeout=5.0)
    delivery = rig.send(b"v")
    rig.step()
    rig.pass_time(5.1)  # it still waits for its connection
    error = delivery.exception()
    assert isinstance(error, DeliveryTimedOut) and error.maybe_written is False
    assert values(rig.take_request().message()) == {}


def test_in_flight_expiry_is_told_at_once_and_the_late_answer_still_counts() -> None:
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
    assert not rig.network.pending  # the first of the identity isn't there yet
    rig.answer(sent, broker.produce(message))
    rig.step()
    serve(rig, broker)
    assert second.result().offset == 1
    sequences = queue_of(rig).sequences
    assert sequences is not None and sequences.identity == Identity(1000, 0)


def test_memory_of_an_abandoned_batch_stays_taken_until_its_answer() -> None:
    rig = Rig(delivery_timeout=5.0)
    rig.send(b"v" * 100)
    rig.step()
    sent = rig.take_request()
    sent.message()
    rig.pass_time(5.1)
    assert rig.accumulator.used > 0
    rig.lose(sent)
    assert rig.accumulator.used == 0


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
    assert identities == [Identity(1000, 1), Identity(1000, 0)]


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
    # b never arrived, so the broker refuses c: only then is the gap proven.
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
    rig.lose(sent)  # written, and the answer lost
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


def test_a_single_record_too_large_fails_alone_and_says_how_large() -> None:
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


def test_an_answer_that_leaves_a_partition_out_is_doubted_and_retried() -> None:
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


def test_giving_up_tells_everybody_where_their_record_is() -> None:
    rig = Rig(batch_size=100)
    under_way = rig.send(b"a" * 60)
    rig.step()
    rig.network.pending[0].message()
    waiting = rig.send(b"b" * 60)
    queue = queue_of(rig)
    rig.accumulator.hurry()
    for batch in [*queue.outstanding, *queue.sealed]:
        rig.settlement.give_up(batch, ClientClosed("bye"))
    first, second = under_way.exception(), waiting.exception()
    assert isinstance(first, ClientClosed) and first.maybe_written is True
    assert isinstance(second, ClientClosed) and second.maybe_written is False
    rig.lose(rig.take_request())
    assert rig.accumulator.used == 0


# Observability.


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
    assert rig.accumulator.used == 0


def test_a_batch_that_cannot_go_takes_records_for_a_second_only() -> None:
    """Those that join late have a little less time, so it must stay a little."""
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
    assert rig.accumulator.next_due() == pytest.approx(rig.clock.now() + 0.01)


def test_very_many_records_whose_time_is_over_are_given_up_in_several_steps() -> None:
    rig = Rig(200, delivery_timeout=5.0, linger=1.0)
    rig.network.blocked.add(1)
    deliveries = [rig.send(b"x", partition=i % 200) for i in range(20_000)]
    rig.clock.time += 6.0
    rig.wakes = 0
    rig.sender._step(rig.clock.now())
    done = sum(delivery.done() for delivery in deliveries)
    assert 1000 < done < 6000 and rig.sender._woken
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
    # The second broker's turn is in the second step, whatever the first one has left.
    assert counts == [250, 10 + 250, 250, 250]


def test_with_very_many_lingered_batches_under_way_the_next_ones_fill() -> None:
    rig, broker = Rig(topics={"t": [1] * 600 + [2]}, linger=0.01, batch_size=2000), ModelBroker()

    def under_way(node_id: int) -> list[int]:
        pending = [sent for sent in rig.network.pending if sent.node_id == node_id]
        return [len(values(sent.message())) for sent in pending]

    for value in (b"x", b"y"):
        for index in range(601):
            rig.send(value, partition=index)
        rig.pass_time(0.02)
    assert under_way(1) == [250]
    assert under_way(2) == [1]  # another broker has nothing to do with that
    full = 599
    for _ in range(20):
        rig.send(b"z" * 100, partition=full)
    rig.pass_time(0.02)
    assert under_way(1) == [250, 1]
    while rig.network.pending:
        serve(rig, broker)
        rig.step()
    assert broker.log("t", 0).values == [b"x", b"y"]
    assert broker.log("t", 500).values == [b"x", b"y"]
    assert broker.log("t", full).values == [b"x", b"y"] + [b"z" * 100] * 20
    assert rig.accumulator.used == 0


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


def test_one_answer_settles_so_many_records_at_most() -> None:
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
    assert 600 < taken < 900  # 1.25 MB by their upkeep
    rig.network.blocked.clear()
    broker = ModelBroker()
    rig.pass_time(2.0)
    while rig.network.pending:
        serve(rig, broker)
        rig.step()
    assert rig.accumulator.used == 0


def test_memory_comes_back_after_everything() -> None:
    rig, broker = Rig(3, batch_size=200), ModelBroker()
    deliveries: list[Delivery] = [rig.send(b"x" * 50, partition=i % 3) for i in range(60)]
    for _ in range(40):
        rig.step()
        while rig.network.pending:
            serve(rig, broker)
    assert all(d.done() for d in deliveries)
    assert rig.accumulator.used == 0 and not rig.accumulator.busy
    assert rig.accumulator.ready_nodes() == []


def test_deliveries_of_a_partition_settle_in_order_of_send() -> None:
    rig, broker = Rig(batch_size=100, idempotence=False), ModelBroker()
    deliveries = [rig.send(b"x" * 60) for _ in range(9)]
    sent: list[Sent] = []
    while len(sent) < 9:
        rig.step()
        sent.append(rig.take_request())
        rig.answer(sent[-1], broker.produce(sent[-1].message()))
    assert [d.result().offset for d in deliveries] == list(range(9))

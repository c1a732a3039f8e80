"""Sending: which batches are sent, what requests contain, and the handling of responses."""

from __future__ import annotations

from typing import Any

import pytest

from kclient.cluster.topic import NO_TOPIC_ID, Partition
from kclient.error_codes import ErrorCode
from kclient.errors import (
    BrokerUnreachable,
    DeliveryTimedOut,
    NoCommonVersion,
)
from kclient.protocol.messages.produce import (
    LeaderIdAndEpoch,
)
from kclient.record import read_batches
from tests.support.views import topic_of

from .model_broker import ModelBroker
from .rig import Rig, make_topic
from .serving import part_of, serve, values

# Requests.


def test_without_linger_the_first_record_goes_at_once_and_the_rest_after_the_response() -> None:
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


def test_without_linger_full_batches_do_not_wait_for_the_response() -> None:
    rig = Rig(batch_size=200, idempotence=False)
    for _ in range(10):
        rig.send(b"x" * 50)
    rig.step()
    assert len(rig.network.pending) > 1


@pytest.mark.parametrize(("linger", "wakes"), [(0.01, False), (0.0, True)])
def test_a_response_that_leaves_nothing_to_send_wakes_only_without_linger(
    linger: float, wakes: bool
) -> None:
    rig, broker = Rig(linger=linger), ModelBroker()
    rig.send(b"x")
    rig.pass_time(0.01)
    rig.wakeup.woken = False
    serve(rig, broker)
    assert rig.wakeup.woken is wakes


def test_a_response_wakes_the_sender_where_a_batch_waits_for_it() -> None:
    rig, broker = Rig(linger=0.01), ModelBroker()
    rig.send(b"first of its identity, which goes alone")
    rig.pass_time(0.01)
    rig.send(b"second")
    rig.pass_time(0.01)
    rig.wakeup.woken = False
    serve(rig, broker)
    assert rig.wakeup.woken


def test_with_linger_a_batch_waits_and_fills() -> None:
    rig = Rig(linger=0.5)
    rig.send(b"0")
    rig.pass_time(0.4)
    rig.send(b"1")
    assert not rig.network.pending
    rig.pass_time(0.11)
    assert values(rig.take_request().message()) == {("t", 0): [b"0", b"1"]}


def test_a_full_batch_does_not_linger() -> None:
    rig = Rig(linger=4.0, batch_size=200)
    for _ in range(4):
        rig.send(b"x" * 60)
    rig.step()
    assert len(rig.network.pending) == 1


def test_seal_all_ends_all_linger() -> None:
    rig = Rig(3, linger=4.0)
    for partition in range(3):
        rig.send(b"v", partition=partition)
    assert len(rig.accumulator.seal_all()) == 3
    rig.step()
    assert len(values(rig.take_request().message())) == 3


def test_one_request_takes_one_batch_of_each_partition_of_its_broker() -> None:
    rig = Rig(topics={"a": [1, 2], "b": [1]})
    for topic, partition in [("a", 0), ("a", 1), ("b", 0)]:
        rig.send(b"v", topic=topic, partition=partition)
    rig.step()
    by_node = {sent.node_id: set(values(sent.message())) for sent in rig.network.pending}
    assert by_node == {1: {("a", 0), ("b", 0)}, 2: {("a", 1)}}


def test_requests_stay_within_max_request_size_and_no_partition_starves() -> None:
    rig, broker = Rig(6, max_request_size=1000, batch_size=400, idempotence=False), ModelBroker()
    deliveries = [rig.send(b"x" * 280, partition=i % 6) for i in range(24)]
    for _ in range(60):
        rig.step()
        while rig.network.pending:
            message = serve(rig, broker)
            total = sum(len(p.records) for t in message.topic_data for p in t.partition_data)
            assert total <= 1000
    assert all(d.done() for d in deliveries)


def test_at_most_max_in_flight_batches_of_a_partition_are_in_flight() -> None:
    rig, broker = Rig(batch_size=100, max_in_flight=3), ModelBroker()
    for _ in range(10):
        rig.send(b"x" * 60)
    rig.step()
    assert len(rig.network.pending) == 1  # the first of an identity is sent alone
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
    rig.metadata.publish_topic(make_topic("t", [1], topic_id=topic_id))
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
    rig.metadata.publish_topic(make_topic("t", [2]))
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
    rig.metadata.publish_topic(make_topic("t", [2]))
    rig.step()
    assert [sent.node_id for sent in rig.network.pending] == [2]


def test_what_waits_to_be_sent_again_goes_to_a_new_leader_at_once() -> None:
    rig, broker = Rig(retry_backoff=1.0), ModelBroker()
    delivery = rig.send(b"v")
    rig.step()
    serve(rig, broker, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    rig.step()
    assert not rig.network.pending
    lead(rig, 2, 1)
    rig.step()
    assert [sent.node_id for sent in rig.network.pending] == [2]
    serve(rig, broker)
    assert delivery.result().offset == 0


def test_a_new_leader_of_a_recreated_topic_ends_waits_although_epochs_start_over() -> None:
    rig, broker = Rig(retry_backoff=1.0), ModelBroker()
    lead(rig, 1, 7, topic_id=bytes(15) + b"1")
    rig.send(b"v")
    rig.step()
    lead(rig, 1, 0, topic_id=bytes(15) + b"2")
    serve(rig, broker, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    rig.step()
    assert not rig.network.pending
    lead(rig, 2, 1, topic_id=bytes(15) + b"2")
    rig.step()
    assert [sent.node_id for sent in rig.network.pending] == [2]


@pytest.mark.parametrize(
    "then",
    [[(1, 6)], [(-1, 6), (2, 6)], [(2, 3)]],
    ids=["elected again", "none in between", "epochs went back"],
)
def test_every_election_ends_waits(then: list[tuple[int, int]]) -> None:
    rig, broker = Rig(retry_backoff=1.0), ModelBroker()
    lead(rig, 1, 5)
    rig.send(b"v")
    rig.step()
    serve(rig, broker, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    for leader, epoch in then:
        lead(rig, leader, epoch)
    rig.step()
    assert [sent.node_id for sent in rig.network.pending] == [then[-1][0]]


def test_leaders_that_brokers_name_alternately_without_epochs_end_no_wait() -> None:
    rig, broker = Rig(retry_backoff=1.0), ModelBroker()
    rig.send(b"v")
    rig.step()
    serve(rig, broker, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    for leader in (2, 1, 2):
        lead(rig, leader, -1)
        rig.step()
        assert not rig.network.pending


def test_a_new_leader_that_refuses_is_asked_again_as_soon_as_the_first_one_was() -> None:
    rig, broker = Rig(retry_backoff=0.1, retry_backoff_max=10.0), ModelBroker()
    rig.send(b"v")
    rig.step()
    for _ in range(8):
        serve(rig, broker, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        rig.pass_time(12.0)
        rig.step()
    serve(rig, broker, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    lead(rig, 2, 1)
    rig.step()
    serve(rig, broker, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not rig.network.pending
    rig.pass_time(0.13)
    rig.step()
    assert [sent.node_id for sent in rig.network.pending] == [2]


def test_what_a_former_leader_refuses_after_another_is_known_goes_there_without_asking() -> None:
    rig, broker = Rig(retry_backoff=1.0, batch_size=200), ModelBroker()
    first = rig.send(b"0")
    rig.step()
    serve(rig, broker)
    later = []
    for number in (1, 2, 3):
        later.append(rig.send(b"%d" % number * 200))
        rig.step()
    asked = len(rig.metadata.asked)
    shipped = [rig.take_request() for _ in range(3)]
    rig.metadata.publish_topic(make_topic("t", [2]))
    for sent in shipped:
        rig.answer(sent, broker.produce(sent.message(), refuse=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    for delivery in later:
        rig.step()
        assert [sent.node_id for sent in rig.network.pending] == [2]
        serve(rig, broker)
        assert delivery.result().offset > first.result().offset
    assert len(rig.metadata.asked) == asked


def lead(rig: Rig, leader: int, epoch: int, topic_id: bytes = NO_TOPIC_ID) -> None:
    known = None if leader < 0 else leader
    part = Partition("t", 0, leader=known, leader_epoch=epoch)
    rig.metadata.publish_topic(topic_of("t", [part], topic_id=topic_id))


def refuse_with_hint(rig: Rig, broker: ModelBroker, leader_id: int, leader_epoch: int) -> None:
    sent = rig.take_request()
    response = broker.produce(sent.message(), refuse=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    part_of(response).current_leader = LeaderIdAndEpoch(
        leader_id=leader_id, leader_epoch=leader_epoch
    )
    rig.answer(sent, response)
    rig.step()


def test_a_broker_that_does_not_know_yet_that_it_leads_is_asked_again_soon() -> None:
    rig, broker = Rig(retry_backoff=10.0, retry_backoff_max=10.0), ModelBroker()
    delivery = rig.send(b"v")
    rig.step()
    lead(rig, 2, 5)
    refuse_with_hint(rig, broker, 2, 5)
    asked = len(rig.metadata.asked)
    for attempt, wait in enumerate((0.012, 0.024, 0.048, 0.096, *[0.192] * 4), 1):
        refuse_with_hint(rig, broker, 1, 4)
        assert not rig.network.pending
        assert len(rig.metadata.asked) == asked + max(0, attempt - 4)  # the broker may be right
        rig.pass_time(wait)
        rig.step()
        assert [sent.node_id for sent in rig.network.pending] == [2]
    refuse_with_hint(rig, broker, 1, 4)
    rig.pass_time(7.9)
    assert not rig.network.pending
    rig.pass_time(5.0)
    serve(rig, broker)
    assert delivery.result().offset == 0


def test_a_leader_that_does_not_respond_is_reported_to_metadata() -> None:
    rig = Rig()
    rig.send(b"v")
    rig.step()
    rig.lose(rig.take_request(), BrokerUnreachable("down"))
    assert rig.metadata.missed == [1]


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
    rig.network.disconnected.add(9)
    rig.send(b"v")
    rig.step()
    assert rig.metadata.asked

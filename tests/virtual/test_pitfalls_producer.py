"""Pitfalls of producers that a connection or the cluster causes, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

import kclient
from kclient.broker_errors import ClusterAuthorizationFailed
from kclient.error_codes import ErrorCode
from kclient.errors import DeliveryTimedOut, FlushFailed
from kclient.hooks import BatchRetried
from kclient.protocol.messages.produce import ProduceRequest
from kclient.testing import Cluster
from tests.virtual.relay import (
    Asked,
    Relay,
    Session,
    Watcher,
    network,
    numbers,
    refresh,
    sent_in_order,
    values,
)

PRODUCE = 0
QUICK: dict[str, Any] = {"linger": 0.0, "retry_backoff": 0.05, "retry_backoff_max": 0.2}


def batches(cluster: Cluster, partition: int = 0) -> list[tuple[int, int]]:
    """Epoch and first sequence number of each batch in the log of a partition of t."""
    return [
        (batch.producer_epoch, batch.base_sequence) for batch in cluster.log("t", partition).batches
    ]


# 12: bytes that were damaged on the way are sent again, as they were, over another connection


async def test_pitfall_12_corrupt_bytes_are_sent_again_over_a_new_connection() -> None:
    damaged: list[Session] = []

    def damage(session: Session, asked: Asked) -> Iterable[bytes]:
        if asked.api_key != PRODUCE or (damaged and session is not damaged[0]):
            return [asked.frame]
        damaged.append(session)  # this way damages whatever passes
        return [asked.frame.replace(b"whole", b"whale")]

    watcher = Watcher()
    async with Cluster(brokers=1) as cluster:
        relay = Relay()
        cluster.create_topic("t")
        async with kclient.Producer(cluster.bootstrap, **QUICK, observers=[watcher]) as producer:
            await sent_in_order(producer, 2)
            relay.on_request = damage
            assert (await producer.send("t", b"whole")).offset == 2
            await sent_in_order(producer, 2, first=3)
        retried = [event.error for _, event in watcher.reported if isinstance(event, BatchRetried)]
        assert retried == ["CorruptMessage"]
        assert len(damaged) == 1
        sent = [_records(one) for one in relay.asked(PRODUCE)]
        assert sent[2] == sent[3]  # the same bytes, with the same numbers
        first, second = [s for s in relay.sessions if any(a.api_key == PRODUCE for a in s.asked)]
        assert [a.api_key for a in first.asked].count(PRODUCE) == 3
        assert [a.api_key for a in second.asked].count(PRODUCE) == 3
        assert values(cluster) == [b"0", b"1", b"whole", b"3", b"4"]


def _records(asked: Asked) -> bytes:
    request: Any = ProduceRequest.decode(asked.frame, asked.version, _body_offset(asked.frame))
    return bytes(request.topic_data[0].partition_data[0].records)


def _body_offset(frame: bytes) -> int:
    from kclient.protocol.headers import decode_request_header

    return decode_request_header(frame).body_offset


async def test_pitfall_12_other_batches_in_flight_finish_on_the_old_connection() -> None:
    async with Cluster(brokers=1) as cluster:
        relay = Relay()
        cluster.create_topic("t", partitions=3)
        async with kclient.Producer(cluster.bootstrap, **QUICK) as producer:
            for partition in range(3):
                await sent_in_order(producer, 1, partition=partition)

            def damage(session: Session, asked: Asked) -> Iterable[bytes]:
                if asked.api_key == PRODUCE and b"whole" in asked.frame and not hit:
                    hit.append(asked)
                    return [asked.frame.replace(b"whole", b"whale")]
                return [asked.frame]

            hit: list[Asked] = []
            relay.on_request = damage
            deliveries = []
            for partition, value in enumerate((b"whole", b"one", b"two")):
                deliveries.append(producer.send("t", value, partition=partition))
                await asyncio.sleep(0)
            assert [(await delivery).offset for delivery in deliveries] == [1, 1, 1]
            assert hit
        assert values(cluster, "t", 0) == [b"0", b"whole"]


# 13: half a request is never followed by another one


async def test_pitfall_13_half_a_request_is_never_followed_by_another() -> None:
    """The peer stops reading inside a request; that connection is over with the time-out."""
    async with Cluster(brokers=1) as cluster:
        relay = Relay()
        cluster.create_topic("t", configs={"max.message.bytes": 2_000_000})
        watcher = Watcher()
        async with kclient.Producer(
            cluster.bootstrap,
            **QUICK,
            request_timeout=3.0,
            max_request_size=1_500_000,
            batch_size=1_500_000,
            observers=[watcher],
        ) as producer:
            await sent_in_order(producer, 1)
            first = relay.sessions[-1]
            net = network()
            large = producer.send("t", b"x" * 150_000)  # too little to fill the transport
            # The first pieces of it pass, then the peer reads no more.
            net.trickle("relay-of-broker-1", bytes_per_second=1_000_000)
            await asyncio.sleep(0.01)
            net.freeze("relay-of-broker-1", "to_server")
            behind = producer.send("t", b"behind")
            await asyncio.sleep(3.5)
            ends = [e.reason for e in watcher.closed if e.lane == "produce"]
            assert len(ends) == 1
            assert "timed out" in ends[0] or "took no bytes" in ends[0]
            net.heal()
            assert [(await large).offset, (await behind).offset] == [1, 2]
            # What the peer reads of the old connection afterwards is a half and then nothing.
            assert [a.api_key for a in first.asked].count(PRODUCE) == 1
        assert [len(value) for value in values(cluster)] == [1, 150_000, 6]


# 14: with acks=0 there is no response to wait for, and only the connection can show a loss


async def test_pitfall_14_acks_0_waits_for_no_response() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        async with kclient.Producer(
            cluster.bootstrap, **QUICK, acks=0, idempotence=False, request_timeout=2.0
        ) as producer:
            cluster.faults.drop("Produce", times=None, after=True)
            metas = [await producer.send("t", b"%d" % number) for number in range(5)]
            assert {meta.offset for meta in metas} == {-1}
            assert producer.metrics()["network.connections"] >= 1
            await asyncio.sleep(10.0)  # nothing was in flight, so nothing times out
            lost = [
                c.last_error for c in producer.health().client.connections if c.lane == "produce"
            ]
            assert lost == [None]


async def test_pitfall_14_acks_0_many_records_are_written_without_a_response() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        async with kclient.Producer(
            cluster.bootstrap, **QUICK, acks=0, idempotence=False
        ) as producer:
            for number in range(300):  # more than any limit of requests in flight
                await producer.send("t", b"%d" % number)
        await asyncio.sleep(1.0)
        assert values(cluster) == numbers(300)


async def test_pitfall_14_acks_0_a_refusal_comes_as_the_end_of_the_connection() -> None:
    """So brokers show that they don't lead: what follows goes to the new leader."""
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignments=[[1, 2]])
        async with kclient.Producer(
            cluster.bootstrap, **QUICK, acks=0, idempotence=False
        ) as producer:
            await sent_in_order(producer, 1)
            await asyncio.sleep(1.0)
            cluster.move_leader("t", 0, 2)
            await producer.send("t", b"lost")
            await asyncio.sleep(2.0)
            await sent_in_order(producer, 1, first=1)
            await asyncio.sleep(1.0)
        assert values(cluster) == numbers(2)


async def test_pitfall_14_acks_0_what_was_not_written_is_not_called_delivered() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        async with kclient.Producer(
            cluster.bootstrap, **QUICK, acks=0, idempotence=False, delivery_timeout=5.0
        ) as producer:
            await sent_in_order(producer, 1)
            await cluster.crash(1)
            await asyncio.sleep(1.0)
            with pytest.raises(DeliveryTimedOut) as error:
                await producer.send("t", b"1")
            assert error.value.maybe_written is False
            await cluster.restart(1)


async def test_pitfall_14_acks_0_a_half_open_peer_is_left() -> None:
    """No request is in flight that could time out: bytes that are not taken show it."""
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        watcher = Watcher()
        async with kclient.Producer(
            cluster.bootstrap,
            **QUICK,
            acks=0,
            idempotence=False,
            request_timeout=5.0,
            delivery_timeout=60.0,
            observers=[watcher],
        ) as producer:
            await sent_in_order(producer, 1)
            network().freeze("broker-1")
            for _ in range(20):
                producer.send("t", b"x" * 60_000)
            await asyncio.sleep(4.9)
            assert not watcher.closed
            await asyncio.sleep(1.0)
            assert [event.lane for event in watcher.closed] == ["produce"]
            network().heal()
            await producer.send("t", b"last")
        await asyncio.sleep(1.0)
        assert values(cluster)[-1] == b"last"
        assert "took no bytes for 5 s" in "\n".join(event.reason for event in watcher.closed)


# 16: partitions are added while records are in flight


async def test_pitfall_16_keyed_records_do_not_move_when_partitions_are_added() -> None:
    """What was placed stays; a broker that does not know of the change yet moves nothing back."""
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", assignments=[[1], [2]])
        keys = [b"key-%d" % number for number in range(40)]
        async with kclient.Producer(cluster.bootstrap, linger=0.0) as producer:
            await producer.send("t", b"first", key=b"key")
            cluster.brokers[3].freeze_metadata()
            hold = cluster.faults.hold("Produce", times=None)
            before = {key: producer.send("t", b"before", key=key) for key in keys}
            placed = {key: delivery.partition for key, delivery in before.items()}
            assert set(placed.values()) == {0, 1}
            cluster.add_partitions("t", 6)
            while (await refresh(producer)).partition_count("t") != 6:
                pass
            hold.release()
            metas = {key: await delivery for key, delivery in before.items()}
            assert {key: meta.partition for key, meta in metas.items()} == placed
            await _stays_put(cluster, producer, keys)


async def test_pitfall_16_brokers_without_topic_ids_do_not_move_them_either() -> None:
    async with Cluster(brokers=3) as cluster:
        for broker in cluster.brokers.values():
            broker.speak("Metadata", 0, 9)
            broker.speak("Produce", 3, 9)
        cluster.create_topic("t", assignments=[[1], [2]])
        async with kclient.Producer(cluster.bootstrap, linger=0.0) as producer:
            await producer.send("t", b"first", key=b"key")
            cluster.brokers[3].freeze_metadata()
            cluster.add_partitions("t", 6)
            while (await refresh(producer)).partition_count("t") != 6:
                pass
            await _stays_put(cluster, producer, [b"key-%d" % number for number in range(40)])


async def _stays_put(cluster: Cluster, producer: Any, keys: list[bytes]) -> None:
    """Each key has one partition, whichever broker returns the metadata."""
    wide = {key: (await producer.send("t", b"v", key=key)).partition for key in keys}
    assert len(set(wide.values())) > 2
    cluster.requests.clear()
    for _ in range(12):
        assert (await refresh(producer)).partition_count("t") == 6
        assert {key: (await producer.send("t", b"v", key=key)).partition for key in keys} == wide
    assert {served.broker for served in cluster.requests.of("Metadata")} == {1, 2, 3}


# 53: the topic is created again


async def test_pitfall_53_a_topic_created_again_is_numbered_from_0_under_a_new_epoch() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        async with kclient.Producer(cluster.bootstrap, **QUICK) as producer:
            await sent_in_order(producer, 5)
            assert batches(cluster) == [(0, n) for n in range(5)]
            cluster.delete_topic("t")
            cluster.create_topic("t")
            meta = await producer.send("t", b"0")  # the one that finds it out
            assert meta.offset == 0
            await sent_in_order(producer, 4, first=1)
            found = batches(cluster)
            epoch = found[-1][0]
            assert epoch > 0
            assert found[-4:] == [(epoch, n) for n in range(4)]
        assert values(cluster) == numbers(5)


async def test_pitfall_53_with_fewer_partitions_nothing_waits_for_those_that_were_deleted() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=4)
        async with kclient.Producer(cluster.bootstrap, **QUICK) as producer:
            for partition in range(4):
                await sent_in_order(producer, 2, partition=partition)
            cluster.delete_topic("t")
            cluster.create_topic("t", partitions=1)
            assert (await producer.send("t", b"0", partition=0)).offset == 0
            for number in range(1, 20):
                assert (await producer.send("t", b"%d" % number)).partition == 0
                assert (await producer.send("t", b"-", key=b"%d" % number)).partition == 0
        assert [v for v in values(cluster) if v != b"-"] == numbers(20)


async def test_pitfall_53_batches_in_flight_keep_their_numbers_and_their_order() -> None:
    """It is unknown which of the two logs they came to, so they are not renumbered."""
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        async with kclient.Producer(cluster.bootstrap, **{**QUICK, "linger": 0.001}) as producer:
            await sent_in_order(producer, 3)
            hold = cluster.faults.hold("Produce", times=1)
            under_way = []
            for number in range(3, 8):
                under_way.append(producer.send("t", b"%d" % number))
                await asyncio.sleep(0.05)
            cluster.delete_topic("t")
            cluster.create_topic("t")
            cluster.faults.close("Produce", after=True)  # and the first response is lost, too
            hold.release()
            for delivery in under_way:
                await delivery
            await sent_in_order(producer, 3, first=8)
        assert values(cluster) == numbers(11)[3:]
        kept = batches(cluster)[:5]
        assert kept == [(0, n) for n in range(3, 8)]


async def test_pitfall_53_a_broker_that_still_returns_the_old_id_changes_nothing() -> None:
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignments=[[1]])
        async with kclient.Producer(cluster.bootstrap, **QUICK, metadata_max_age=0.5) as producer:
            await sent_in_order(producer, 3)
            cluster.brokers[2].freeze_metadata()
            cluster.delete_topic("t")
            cluster.create_topic("t", assignments=[[1]])
            await asyncio.sleep(2.0)
            await sent_in_order(producer, 3)
            for turn in range(1, 10):
                await asyncio.sleep(0.7)
                await sent_in_order(producer, 3, first=3 * turn)
        assert values(cluster) == numbers(30)
        asked = {served.broker for served in cluster.requests.of("Metadata")}
        assert asked == {1, 2}
        assert len({epoch for epoch, _ in batches(cluster)}) <= 2


# Not in the list: a refusal that each batch requests again


async def test_records_that_keep_coming_after_a_refusal_make_no_rush_of_requests() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        refusal = cluster.faults.error(
            "InitProducerId", ErrorCode.CLUSTER_AUTHORIZATION_FAILED, times=None
        )
        async with kclient.Producer(cluster.bootstrap, linger=0.0) as producer:
            for _ in range(1000):
                failed = producer.send("t", b"early")
                await asyncio.sleep(0.01)
            with pytest.raises(ClusterAuthorizationFailed):
                await failed
            assert cluster.requests.count("InitProducerId") < 25  # 10 s, at most one a second soon
            cluster.faults.remove(refusal)
            await producer.send("t", b"late")
            with pytest.raises(FlushFailed):
                await producer.flush()
        assert values(cluster)[-1] == b"late"

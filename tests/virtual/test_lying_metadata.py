"""Metadata that lies, and names that hang or change: whole clients on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import kclient
from kclient.cluster.calls import LeaderTarget
from kclient.error_codes import ErrorCode
from kclient.errors import KafkaError
from kclient.protocol.messages.api_versions import ApiVersionsRequest
from kclient.testing import Cluster
from tests.virtual.relay import (
    READ,
    Asked,
    Relay,
    Session,
    core_inside,
    core_of,
    network,
    now,
    numbers,
    read,
    refresh,
    sent_in_order,
    values,
)

# Metadata that lies


def _first(response: Any) -> Any:
    return response.topics[0] if response.topics else None


def unknown_leader(request: Any, response: Any) -> None:
    """The leader is a broker that isn't in the list."""
    for topic in response.topics:
        for part in topic.partitions:
            part.leader_id = 77


def leader_without_address(request: Any, response: Any) -> None:
    """The leader is left out of the list of brokers."""
    response.brokers = [b for b in response.brokers if b.node_id != 1]


def negative_leader(request: Any, response: Any) -> None:
    """Leaders below -1."""
    for topic in response.topics:
        for part in topic.partitions:
            part.leader_id = -(2**31)


def negative_partitions(request: Any, response: Any) -> None:
    """Partition numbers below 0, beside the right ones."""
    for topic in response.topics:
        part = topic.partitions[0]
        topic.partitions = [*topic.partitions, _copy(part, partition_index=-1)]
        topic.partitions.append(_copy(part, partition_index=-(2**31)))


def only_negative_partitions(request: Any, response: Any) -> None:
    """Nothing but partition -1."""
    for topic in response.topics:
        topic.partitions = [_copy(part, partition_index=-1) for part in topic.partitions]


def huge_partitions(request: Any, response: Any) -> None:
    """A partition number that would need gigabytes."""
    for topic in response.topics:
        topic.partitions.append(_copy(topic.partitions[0], partition_index=2**31 - 1))


def doubled_partitions(request: Any, response: Any) -> None:
    """Each partition twice, with different leaders."""
    for topic in response.topics:
        topic.partitions += [_copy(part, leader_id=2) for part in topic.partitions]


def doubled_topics(request: Any, response: Any) -> None:
    """The topic twice, once refused."""
    topic = _first(response)
    if topic is not None:
        response.topics.append(_copy(topic, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))


def no_partitions(request: Any, response: Any) -> None:
    """A topic without partitions."""
    for topic in response.topics:
        topic.partitions = []


def no_topics(request: Any, response: Any) -> None:
    """No entry for the topics that were requested."""
    response.topics = []


def other_topics(request: Any, response: Any) -> None:
    """Topics that were not requested."""
    for topic in response.topics:
        topic.name = "other"


def no_topic_id(request: Any, response: Any) -> None:
    """No topic ids, as if the broker were older."""
    for topic in response.topics:
        topic.topic_id = bytes(16)


def unknown_error(request: Any, response: Any) -> None:
    """An error code of a release to come."""
    for topic in response.topics:
        topic.error_code = 9999


def old_epochs(request: Any, response: Any) -> None:
    """The first leader in the first epoch."""
    for topic in response.topics:
        for part in topic.partitions:
            part.leader_epoch, part.leader_id = 0, 2


def impossible_addresses(request: Any, response: Any) -> None:
    """Hosts and ports that can't be."""
    for broker, host, port in zip(
        response.brokers, ("", "a b", "x" * 300), (0, -1, 70_000), strict=False
    ):
        broker.host, broker.port = host, port


def negative_brokers(request: Any, response: Any) -> None:
    """Broker ids that would name bootstrap addresses."""
    for broker in response.brokers:
        broker.node_id = -broker.node_id


def no_controller(request: Any, response: Any) -> None:
    """A controller that isn't there."""
    response.controller_id = 99


LIES: list[Callable[[Any, Any], None]] = [
    unknown_leader,
    leader_without_address,
    negative_leader,
    negative_partitions,
    only_negative_partitions,
    huge_partitions,
    doubled_partitions,
    doubled_topics,
    no_partitions,
    no_topics,
    other_topics,
    no_topic_id,
    unknown_error,
    old_epochs,
    impossible_addresses,
    negative_brokers,
    no_controller,
]


def _copy(message: Any, **changes: Any) -> Any:
    fields = {name: getattr(message, name) for name in message.__slots__}
    return type(message)(**{**fields, **changes})


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
async def test_metadata_that_lies_costs_time_and_nothing_else(
    lie: Callable[[Any, Any], None],
) -> None:
    """No crash, no loss, no double, no storm; and with the truth all goes on."""
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", assignments=[[1, 2, 3], [2, 3, 1]])
        cluster.move_leader("t", 0, 2)
        cluster.move_leader("t", 0, 1)
        async with (
            kclient.Producer(cluster.bootstrap, delivery_timeout=600.0) as producer,
            kclient.Consumer(cluster.bootstrap, "t", **READ) as consumer,
            kclient.Admin(cluster.bootstrap) as admin,
        ):
            clients = (producer, consumer, admin)
            for partition in (0, 1):
                await sent_in_order(producer, 5, partition=partition)
            assert len(await read(consumer, 10)) == 10
            cluster.faults.rewrite("Metadata", lie, times=None)
            cluster.requests.clear()
            deliveries, got = [], []
            for turn in range(20):
                for client in clients:
                    core_inside(client).metadata.request_update()
                deliveries += [
                    producer.send("t", b"%d" % (5 + turn), partition=partition)
                    for partition in (0, 1)
                ]
                got += await whatever(consumer)
            assert cluster.requests.count("Metadata") < 200
            cluster.faults.clear()
            for delivery in deliveries:
                await delivery
            for client in clients:
                await refresh(client)
                assert core_inside(client).failure is None
            assert values(cluster, "t", 0) == values(cluster, "t", 1) == numbers(25)
            async with asyncio.timeout(60.0):
                while len(got) < 40:
                    got += await whatever(consumer)  # one error is left from before
            for partition in (0, 1):
                offsets = [record.offset for record in got if record.partition == partition]
                assert offsets == list(range(5, 25))
            await admin.create_topics([kclient.NewTopic("made", 1, 1)])


async def whatever(consumer: Any) -> list[Any]:
    """What one poll gives: a lie may well surface as a typed error."""
    try:
        return list(await consumer.poll(timeout=1.0))
    except KafkaError:
        await asyncio.sleep(1.0)
        return []


async def test_a_wrong_topic_id_costs_time_and_nothing_else() -> None:
    """It looks like a topic that was recreated, so a consumer starts over."""
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignments=[[1, 2]])
        async with (
            kclient.Producer(cluster.bootstrap, delivery_timeout=600.0) as producer,
            kclient.Consumer(cluster.bootstrap, "t", **READ) as consumer,
        ):
            await sent_in_order(producer, 5)
            assert await read(consumer, 5) == numbers(5)

            def lie(request: Any, response: Any) -> None:
                for topic in response.topics:
                    topic.topic_id = b"lie!" * 4

            wrong = cluster.faults.rewrite("Metadata", lie, times=None)
            await refresh(producer)
            await refresh(consumer)
            late = producer.send("t", b"5")
            await asyncio.sleep(20.0)
            assert not late.done()
            cluster.faults.remove(wrong)
            await late
            await sent_in_order(producer, 4, first=6)
            assert await read(consumer, 10) == numbers(10)
        assert values(cluster) == numbers(10)


@pytest.mark.parametrize("field", ["brokers", "topics"])
async def test_a_huge_count_in_metadata_is_a_failed_refresh(field: str) -> None:
    """Nothing is allocated for it, and the view stays as it was."""
    count = b"\xff\xff\xff\xff\x07"  # 2**31 - 1, one more than there are
    heads = {"brokers": 9, "topics": None}  # after correlation id, tags and throttle time

    def boast(session: Session, asked: Asked, frame: bytes) -> list[bytes]:
        if asked.api_key != 3 or not boasts:
            return [frame]
        at = heads[field] or frame.index(cluster.cluster_id.encode()) + 22 + 4
        boasts.pop()
        return [frame[:at] + count + frame[at + 1 :]]

    boasts = [1, 2, 3]
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t")
        relays = [Relay(f"broker-{number}") for number in (1, 2)]
        async with core_of(cluster) as core:
            await core.metadata.wait_for_topic("t", 5.0)
            for relay in relays:
                relay.on_answer = boast
            known = core.metadata.view
            core.metadata.request_update()
            while boasts:
                assert core.metadata.view is known
                await asyncio.sleep(0.01)
            assert (await refresh(core)).topics == known.topics
            assert core.metrics()["metadata.failures"] == 3
            assert core.failure is None


# Names


async def test_a_name_that_hangs_holds_up_neither_the_start_nor_the_others() -> None:
    async with Cluster(brokers=2) as cluster:
        net = network()
        net.hang_name("hangs")
        cluster.create_topic("t", assignments=[[1], [2]])
        begun = now()
        async with kclient.Producer(
            "hangs:9092,broker-2:9092", request_timeout=5.0, delivery_timeout=60.0
        ) as producer:
            assert now() - begun < 2.0
            for partition in (0, 1):
                await sent_in_order(producer, 1, partition=partition)
            net.hang_name("broker-1")
            await cluster.crash(1)
            await cluster.restart(1)
            waiting = producer.send("t", b"1", partition=0)
            begun = now()
            await sent_in_order(producer, 30, partition=1, first=1)
            assert now() - begun < 1.0
            await asyncio.sleep(20.0)
            assert not waiting.done()
            net.forget_name("broker-1")
            await waiting
        assert values(cluster, "t", 0) == numbers(2)


async def test_a_name_that_stands_for_other_machines_is_looked_up_for_each_dial() -> None:
    async with Cluster(brokers=1) as cluster:
        net = network()
        cluster.create_topic("t")
        async with kclient.Producer(cluster.bootstrap) as producer:
            await sent_in_order(producer, 1)
            for turn, answer in enumerate((["dead"], ["dead", "alive"], [], ["alive"]), start=1):
                await cluster.move(1, host="alive", port=9092)

                def by_name(request: Any, response: Any) -> None:
                    response.brokers[0].host = "broker-1"

                cluster.faults.clear()
                cluster.faults.rewrite("Metadata", by_name, times=None)
                net.set_name("broker-1", *answer)
                delivery = producer.send("t", b"%d" % turn)
                await asyncio.sleep(3.0)
                if "alive" not in answer:
                    assert not delivery.done()
                    net.set_name("broker-1", "alive")
                await delivery
        assert values(cluster) == numbers(5)


async def test_an_unknown_leader_is_reported_by_calls() -> None:
    async with Cluster(brokers=1) as cluster, core_of(cluster) as core:
        cluster.create_topic("t")
        cluster.faults.rewrite("Metadata", unknown_leader, times=None)
        request = ApiVersionsRequest(client_software_name="kclient", client_software_version="1")
        with pytest.raises(KafkaError, match="77"):
            await core.calls.call(LeaderTarget("t", 0), request, max_version=3, timeout=5.0)

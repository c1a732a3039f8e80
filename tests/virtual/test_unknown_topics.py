"""Records for topics that don't exist fail within seconds, and only where it is sure."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kclient
from kclient.broker_errors import UnknownTopicOrPartition
from kclient.error_codes import ErrorCode
from kclient.errors import DeliveryTimedOut, FlushFailed, KafkaError
from kclient.testing import Cluster
from tests.virtual.relay import now, numbers, sent_in_order, values

QUICK: dict[str, Any] = {"linger": 0.0}


async def failure(waiting: Any) -> tuple[KafkaError, float]:
    """Why it failed, and when."""
    with pytest.raises(KafkaError) as reported:
        await waiting
    return reported.value, now()


@pytest.mark.parametrize("brokers", [1, 3])
@pytest.mark.parametrize("way", ["send", "enqueue", "send_many"])
async def test_a_topic_that_does_not_exist_is_reported_within_seconds(
    brokers: int, way: str
) -> None:
    async with Cluster(brokers=brokers) as cluster:
        cluster.create_topic("t")
        async with kclient.Producer(cluster.bootstrap, **QUICK) as producer:
            started = now()
            if way == "send_many":
                lost = asyncio.ensure_future(producer.send_many("typo", [b"v"] * 5))
            else:
                lost = asyncio.ensure_future(getattr(producer, way)("typo", b"v"))
            await sent_in_order(producer, 20)  # the others go on
            assert now() - started < 1.0
            error, ended = await failure(lost)
            assert isinstance(error, UnknownTopicOrPartition)
            assert "topic typo doesn't exist" in str(error)
            assert "create topic typo first" in str(error)
            assert error.maybe_written is False
            assert 5.0 <= ended - started <= 6.5
            assert len(cluster.requests.of("Metadata")) < 20
        assert values(cluster) == numbers(20)


async def test_a_later_record_waits_for_as_long_as_the_first() -> None:
    """It may have been created meanwhile, and not be known everywhere yet."""
    async with Cluster(brokers=3) as cluster:
        async with kclient.Producer(cluster.bootstrap, **QUICK) as producer:
            await failure(producer.send("t", b"0"))
            await asyncio.sleep(30.0)
            late = producer.send("t", b"1")
            await asyncio.sleep(4.0)
            cluster.create_topic("t", partitions=1)
            assert (await late).offset == 0


async def test_very_many_records_fail_and_none_is_forgotten() -> None:
    async with Cluster(brokers=1) as cluster:
        async with kclient.Producer(cluster.bootstrap, **QUICK) as producer:
            lost = [producer.send("typo", b"%d" % number) for number in range(5000)]
            with pytest.raises(FlushFailed, match="5,000"):
                await producer.flush()
            assert all(isinstance(one.exception(), UnknownTopicOrPartition) for one in lost)


async def test_where_a_client_may_create_topics_it_waits_for_longer() -> None:
    async with Cluster(brokers=1, broker_configs={"auto.create.topics.enable": False}) as cluster:
        async with kclient.Producer(
            cluster.bootstrap, **QUICK, allow_auto_create_topics=True
        ) as producer:
            started = now()
            _, ended = await failure(producer.send("typo", b"v"))
            assert 15.0 <= ended - started <= 17.0


async def test_one_broker_that_knows_is_enough() -> None:
    """The others lag behind, and all are queried one after the other."""
    async with Cluster(brokers=3) as cluster:
        async with kclient.Producer(cluster.bootstrap, **QUICK) as producer:
            for node_id in (1, 2):
                cluster.brokers[node_id].freeze_metadata()
            cluster.create_topic("t", partitions=1)
            assert (await producer.send("t", b"v")).offset == 0


async def test_where_only_one_of_several_responds_the_wait_is_twice_as_long() -> None:
    async with Cluster(brokers=3) as cluster:
        async with kclient.Producer(cluster.bootstrap, **QUICK) as producer:
            lost = producer.send("typo", b"v")
            for node_id in (2, 3):
                cluster.faults.unavailable(broker=node_id)
            started = now()
            error, ended = await failure(lost)
            assert isinstance(error, UnknownTopicOrPartition)
            assert 9.0 <= ended - started <= 13.0


async def test_without_responses_records_wait_for_delivery_timeout() -> None:
    async with Cluster(brokers=1) as cluster:
        async with kclient.Producer(
            cluster.bootstrap, **QUICK, delivery_timeout=60.0, request_timeout=10.0
        ) as producer:
            lost = producer.send("typo", b"v")
            await asyncio.sleep(2.0)
            await cluster.brokers[1].crash()
            started = now()
            error, ended = await failure(lost)
            assert ended - started >= 57.0
            assert "delivery_timeout=60 s" in str(error)


async def test_a_topic_that_was_known_waits_through_its_absence() -> None:
    """Its numbers go on where it comes back: a stale response must not lose them."""
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        async with kclient.Producer(cluster.bootstrap, **QUICK, metadata_max_age=1.0) as producer:
            await sent_in_order(producer, 3)
            absent = cluster.faults.error(
                "Metadata", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, times=None, topic="t"
            )
            refused = cluster.faults.error(
                "Produce", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, times=None, topic="t"
            )
            waiting = [producer.send("t", b"%d" % number) for number in range(3, 6)]
            await asyncio.sleep(20.0)
            assert not any(one.done() for one in waiting)
            absent.remove()
            refused.remove()
            assert [(await one).offset for one in waiting] == [3, 4, 5]
        assert [(b.producer_epoch, b.base_sequence) for b in cluster.log("t").batches] == [
            (0, number) for number in range(4)
        ]


async def test_a_topic_without_leaders_waits_for_delivery_timeout() -> None:
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignments=[[2]])
        await cluster.brokers[2].crash()
        async with kclient.Producer(
            cluster.bootstrap, **QUICK, delivery_timeout=40.0, request_timeout=10.0
        ) as producer:
            started = now()
            error, ended = await failure(producer.send("t", b"v"))
            assert isinstance(error, DeliveryTimedOut)
            assert ended - started >= 39.0


@pytest.mark.parametrize("recreated", [False, True])
async def test_a_topic_deleted_while_it_is_written_to_is_waited_for_until_delivery_timeout(
    recreated: bool,
) -> None:
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", partitions=1)
        async with kclient.Producer(cluster.bootstrap, delivery_timeout=120.0) as producer:
            await producer.send("t", b"v")
            cluster.delete_topic("t")
            started = now()
            delivery = producer.send("t", b"w")
            await asyncio.sleep(100.0)
            assert not delivery.done()
            if recreated:
                cluster.create_topic("t", partitions=1)
                assert (await delivery).offset == 0
            else:
                with pytest.raises(kclient.KafkaError, match="UNKNOWN_TOPIC"):
                    await delivery
                assert 119.0 < now() - started < 122.0

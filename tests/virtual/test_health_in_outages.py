"""``health()`` in a long outage: a monitor must not see a client that is well."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

import kclient
from kclient.error_codes import ErrorCode
from kclient.errors import KafkaError
from kclient.testing import Cluster, MemoryNet
from kclient.types import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def net() -> MemoryNet:
    loop: Any = asyncio.get_running_loop()
    found: MemoryNet = loop.network
    return found


@contextlib.asynccontextmanager
async def two_brokers() -> AsyncIterator[Cluster]:
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignments=[[1], [2]])
        yield cluster


def consumer_of(cluster: Cluster) -> kclient.Consumer[Any, Any]:
    return kclient.Consumer(
        cluster.bootstrap, "t", auto_offset_reset="earliest", request_timeout=5.0
    )


async def test_a_consumer_whose_brokers_are_silent_is_not_well() -> None:
    async with two_brokers() as cluster, consumer_of(cluster) as consumer:
        await consumer.poll(timeout=1.0)
        health = consumer.health()
        assert health.ok
        assert health.lag == 0
        assert all(part.last_fetch_age is not None for part in health.partitions.values())

        net().freeze("broker-1")
        await asyncio.sleep(6.0)
        health = consumer.health()
        assert not health.ok
        assert health.lag is None
        stuck, fine = health.partitions[P0], health.partitions[P1]
        assert stuck.stalled
        assert stuck.lag is None
        assert stuck.failures > 0
        assert stuck.last_fetch_age is not None
        assert stuck.last_fetch_age > 5.0
        assert not fine.stalled
        assert fine.lag == 0

        consumer.pause(P0)
        assert not consumer.health().partitions[P0].stalled
        consumer.resume(P0)
        net().heal()
        await asyncio.sleep(10.0)
        assert consumer.health().ok
        assert consumer.health().lag == 0


async def test_a_consumer_whose_brokers_are_all_dead_is_not_well() -> None:
    async with two_brokers() as cluster, consumer_of(cluster) as consumer:
        await consumer.poll(timeout=1.0)
        for broker in (1, 2):
            net().refuse(f"broker-{broker}")
        net().cut()
        await asyncio.sleep(30.0)
        health = consumer.health()
        assert not health.ok
        assert health.lag is None
        assert all(part.stalled and part.failures for part in health.partitions.values())
        net().heal()


async def test_a_consumer_whose_records_are_not_polled_is_well() -> None:
    async with Cluster(brokers=1) as cluster, kclient.Producer(cluster.bootstrap) as producer:
        cluster.create_topic("t", partitions=2)
        for index in (0, 1):
            for _ in range(50):
                producer.send("t", bytes(1000), partition=index)
        await producer.flush()
        consumer = kclient.Consumer(
            cluster.bootstrap,
            "t",
            auto_offset_reset="earliest",
            request_timeout=5.0,
            max_partition_fetch_bytes=10_000,
        )
        async with consumer:
            assert await consumer.poll(1, timeout=5.0)
            await asyncio.sleep(300.0)
            health = consumer.health()
            assert health.ok
            assert health.lag == 99


async def test_the_last_error_of_a_producer_goes_with_the_next_success_of_its_partition() -> None:
    async with Cluster(brokers=1) as cluster, kclient.Producer(cluster.bootstrap) as producer:
        cluster.create_topic("t", partitions=2)
        await producer.send("t", b"v", partition=0)
        assert producer.health().last_error is None
        cluster.faults.error("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(KafkaError):
            await producer.send("t", b"v", partition=0)
        await asyncio.sleep(10.0)
        await producer.send("t", b"v", partition=1)
        health = producer.health()
        assert "TOPIC_AUTHORIZATION_FAILED" in str(health.last_error)
        assert health.last_error_age == pytest.approx(10.0, abs=0.5)
        await producer.send("t", b"v", partition=0)
        assert producer.health().last_error is None
        assert producer.health().last_error_age is None

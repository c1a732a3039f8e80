"""A record that was never sent names the reason when it expires."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kclient
from kclient.error_codes import ErrorCode
from kclient.errors import DeliveryTimedOut
from kclient.testing import Cluster, MemoryNet


def net() -> MemoryNet:
    loop: Any = asyncio.get_running_loop()
    found: MemoryNet = loop.network
    return found


async def failure_of(delivery: kclient.Delivery) -> DeliveryTimedOut:
    with pytest.raises(DeliveryTimedOut) as failed:
        await delivery
    return failed.value


SHORT = {"delivery_timeout": 4.0, "request_timeout": 4.0, "linger": 0.0}


async def test_a_broker_that_can_not_be_reached_is_named_with_its_reason() -> None:
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignments=[[1]])
        async with kclient.Producer(cluster.bootstrap, **SHORT) as producer:
            await producer.send("t", b"v")
            net().refuse("broker-1")
            net().cut("broker-1")
            await asyncio.sleep(10.0)  # a long back-off has begun
            errors = [await failure_of(producer.send("t", b"w", partition=0)) for _ in range(5)]
            for error in errors:
                assert "broker-1:9092 can't be reached" in str(error)
                assert error.__cause__ is not None
            net().heal()


async def test_a_missing_producer_id_is_reported_with_its_reason() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        cluster.faults.error("InitProducerId", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None)
        async with kclient.Producer(cluster.bootstrap, api_timeout=2.0, **SHORT) as producer:
            error = await failure_of(producer.send("t", b"v"))
            assert "0 attempts; the producer waits for a producer id: " in str(error)
            assert "COORDINATOR_LOAD_IN_PROGRESS" in str(error)
            cluster.faults.clear()


async def test_a_batch_behind_an_earlier_one_names_that_as_the_reason() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        async with kclient.Producer(
            cluster.bootstrap, max_in_flight=1, **{**SHORT, "delivery_timeout": 6.0}
        ) as producer:
            await producer.send("t", b"v")
            cluster.faults.hold("Produce", times=None)
            first = producer.send("t", b"first")
            await asyncio.sleep(0.5)
            second = producer.send("t", b"second")
            assert "1 at broker-1:9092 got no answer" in str(await failure_of(first))
            error = str(await failure_of(second))
            assert "0 attempts; it waits behind an earlier batch of its partition" in error
            cluster.faults.clear()

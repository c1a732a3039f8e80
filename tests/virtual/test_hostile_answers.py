"""One damaged or lying response must not stop a client for good. Each of these once did."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kclient
from kclient.errors import KafkaError, NoCommonVersion, ProtocolError
from kclient.network.node_connection import VERSIONS_MAX_AGE
from kclient.protocol.api_versions import MAX_THROTTLE_TIME
from kclient.testing import Cluster
from kclient.types import TopicPartition
from tests.unit.consumer.log_bytes import batch

T = "flights"
P = TopicPartition(T, 0)


async def read_until(consumer: Any, count: int, seconds: float) -> list[KafkaError]:
    """Poll until ``count`` records came; the errors on the way."""
    errors, got = [], 0
    async with asyncio.timeout(seconds):
        while got < count:
            try:
                got += len(await consumer.poll(timeout=1.0))
            except KafkaError as error:
                errors.append(error)
    return errors


async def test_an_api_that_a_broker_forgot_to_list_is_looked_up_again() -> None:
    def forget(request: Any, response: Any) -> None:
        response.api_keys = [one for one in response.api_keys if one.api_key != 1]

    async with Cluster(brokers=1) as cluster:
        cluster.create_topic(T)
        cluster.append(T, 0, batch(0, 3))
        async with kclient.Consumer(cluster.bootstrap) as consumer:
            fault = cluster.faults.rewrite("ApiVersions", forget, times=None)
            consumer.assign([P])
            consumer.seek(P, 0)
            with pytest.raises(NoCommonVersion):
                await consumer.poll(timeout=5.0)
            cluster.faults.remove(fault)
            errors = await read_until(consumer, 3, VERSIONS_MAX_AGE + 15.0)
        assert {type(error) for error in errors} == {NoCommonVersion}


async def test_a_broker_that_lacks_an_api_is_not_queried_all_the_time() -> None:
    def forget(request: Any, response: Any) -> None:
        response.api_keys = [one for one in response.api_keys if one.api_key != 1]

    async with Cluster(brokers=1) as cluster:
        cluster.create_topic(T)
        fault = cluster.faults.rewrite("ApiVersions", forget, times=None)
        async with kclient.Consumer(cluster.bootstrap) as consumer:
            consumer.assign([P])
            consumer.seek(P, 0)
            for _ in range(60):
                with pytest.raises(NoCommonVersion):
                    await consumer.poll(timeout=60.0)
                await asyncio.sleep(10.0)
        assert fault.hits <= 2 + 600 / VERSIONS_MAX_AGE


@pytest.mark.parametrize("offset", [-1, -5, -(2**40)])
async def test_a_start_that_is_no_offset_is_not_taken_for_a_position(offset: int) -> None:
    def lie(request: Any, response: Any) -> None:
        for topic in response.topics:
            for part in topic.partitions:
                part.offset = offset

    async with Cluster(brokers=1) as cluster:
        cluster.create_topic(T)
        cluster.append(T, 0, batch(0, 3))
        cluster.faults.rewrite("ListOffsets", lie, times=2)
        async with kclient.Consumer(cluster.bootstrap, T, auto_offset_reset="earliest") as consumer:
            errors = await read_until(consumer, 3, 30.0)
        assert {type(error) for error in errors} == {ProtocolError}
        assert str(offset) in str(errors[0])


async def test_a_response_that_throttles_for_days_costs_minutes() -> None:
    def lie(request: Any, response: Any) -> None:
        response.throttle_time_ms = 2**31 - 1

    async with Cluster(brokers=1) as cluster:
        cluster.create_topic(T, configs={"retention.ms": -1})  # its records are of 1970
        async with kclient.Consumer(cluster.bootstrap) as consumer:
            consumer.assign([P])
            consumer.seek(P, 0)
            fault = cluster.faults.rewrite("Fetch", lie, times=1)
            await consumer.poll(timeout=2.0)
            assert fault.hits == 1
            cluster.append(T, 0, batch(0, 3))
            await read_until(consumer, 3, MAX_THROTTLE_TIME + 60.0)


async def test_a_leader_epoch_that_was_a_lie_is_forgotten() -> None:
    def lie(request: Any, response: Any) -> None:
        for topic in response.topics:
            for part in topic.partitions:
                part.leader_epoch = 2**31 - 1
                part.leader_id = 3 - part.leader_id

    async with Cluster(brokers=2) as cluster:
        cluster.create_topic(T, replication_factor=1)
        fault = cluster.faults.rewrite("Metadata", lie, times=1, topic=T)
        async with kclient.Consumer(cluster.bootstrap) as consumer:
            consumer.assign([P])
            consumer.seek(P, 0)
            await consumer.partitions_for(T)
            assert fault.hits == 1
            cluster.append(T, 0, batch(0, 3))
            await read_until(consumer, 3, 60.0)
        async with kclient.Producer(cluster.bootstrap) as producer:
            cluster.faults.rewrite("Metadata", lie, times=1, topic=T)
            await asyncio.wait_for(producer.send(T, b"v"), 60.0)

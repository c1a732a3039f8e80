"""Fetches that bring nothing: unknown preferred replicas, hasty brokers, quotas.

None of them may stall a consumer in silence, or make it fetch in a rush; a quota is no stall.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kclient
from kclient.errors import ConsumerStalled, KafkaError
from kclient.testing import Cluster
from kclient.types import TopicPartition
from tests.unit.consumer.log_bytes import batch
from tests.virtual.consumer_scene import (
    P,
    T,
    fetches,
    offsets,
    parts_of,
    read,
    reading,
    scene,
    until,
)

RACKS: dict[str, object] = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"
}


async def errors_of(consumer: Any, seconds: float) -> list[KafkaError]:
    """What poll raises within that time; no record may come."""
    found: list[KafkaError] = []
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        try:
            assert await consumer.poll(timeout=min(1.0, end - loop.time())) == []
        except KafkaError as error:
            found.append(error)
    return found


# Preferred replicas


async def test_a_replica_that_comes_back_unknown_to_the_view_stalls_nothing() -> None:
    """A rolling restart: metadata was refreshed while the replica of our rack was down."""
    async with Cluster(3, broker_configs=RACKS, racks=["a", "b", "c"]) as cluster:
        cluster.create_topic(T, assignments=[[1, 2, 3]])
        cluster.append(T, 0, batch(0, 10))
        await cluster.wait_in_sync()
        async with reading(cluster, client_rack="c") as consumer:
            assert offsets(await read(consumer, 10)) == {0: list(range(10))}
            await until(lambda: consumer.health().partitions[P].node_id == 3)
            await cluster.stop(3)
            await until(lambda: consumer.health().partitions[P].node_id == 1)
            await asyncio.sleep(5.0)
            await cluster.restart(3)
            await cluster.wait_in_sync()
            cluster.append(T, 0, batch(10, 10))
            cluster.requests.clear()
            assert offsets(await read(consumer, 10, 5.0)) == {0: list(range(10, 20))}
            await until(lambda: consumer.health().partitions[P].node_id == 3, 5.0)
            assert cluster.requests.count("Fetch") < 20
            assert cluster.requests.count("Metadata") < 5
            cluster.append(T, 0, batch(20, 1))
            assert offsets(await read(consumer, 1)) == {0: [20]}
            assert consumer.health().ok


def sent_on(broker: int) -> Any:
    """Send each reader that names a rack to ``broker``, as a leader does; return no records."""

    def change(request: Any, response: Any) -> None:
        if request.rack_id:
            for part in parts_of(response):
                part.preferred_read_replica = broker
                part.records = None

    return change


async def test_the_leader_is_read_as_long_as_the_preferred_replica_is_unknown() -> None:
    async with scene(0, client_rack="a", fetch_max_wait=0.5) as (cluster, consumer):
        cluster.faults.rewrite("Fetch", sent_on(77), times=None)
        cluster.requests.clear()
        for start in range(0, 30, 10):
            cluster.append(T, 0, batch(start, 10))
            assert offsets(await read(consumer, 10, 1.0)) == {0: list(range(start, start + 10))}
            await asyncio.sleep(20.0)
        assert consumer.health().ok
        assert cluster.requests.count("Fetch") < 2 * 60 / 0.5
        assert 3 <= cluster.requests.count("Metadata") < 40


# Brokers that respond at once, with nothing


def nothing(_: Any, response: Any) -> None:
    for part in parts_of(response):
        part.records = None


def named_itself(_: Any, response: Any) -> None:
    nothing(_, response)
    for part in parts_of(response):
        part.preferred_read_replica = 1


def named_an_unknown_one(_: Any, response: Any) -> None:
    nothing(_, response)
    for part in parts_of(response):
        part.preferred_read_replica = 77


@pytest.mark.parametrize("change", [nothing, named_itself, named_an_unknown_one])
async def test_a_broker_that_withholds_records_is_a_stall_and_not_fetched_from_in_a_rush(
    change: Any,
) -> None:
    async with scene(30, client_rack="a", fetch_max_wait=0.5, request_timeout=5.0) as (
        cluster,
        consumer,
    ):
        fault = cluster.faults.rewrite("Fetch", change, times=None)
        consumer.seek(P, 20)
        cluster.requests.clear()
        errors = await errors_of(consumer, 20.0)
        assert errors
        assert {type(error) for error in errors} == {ConsumerStalled}
        assert "flights-0" in str(errors[0])
        assert "came at once, with nothing" in str(errors[0])
        health = consumer.health()
        assert health.partitions[P].stalled
        assert not health.ok
        assert len(fetches(cluster)) < 20 * 15
        assert cluster.requests.count("Metadata") < 20
        fault.remove()
        assert offsets(await read(consumer, 10)) == {0: list(range(20, 30))}
        assert consumer.health().ok


@pytest.mark.parametrize("behind", [0.01, 0.05, 0.2, 1.0])
async def test_a_new_leader_whose_high_watermark_lags_is_read_soon_after_that_has_moved(
    behind: float,
) -> None:
    """It responds at once to a fetch from beyond the high watermark."""
    loop = asyncio.get_running_loop()
    async with scene(30, retry_backoff=0.1, retry_backoff_max=1.0) as (cluster, consumer):
        fault = cluster.faults.rewrite("Fetch", nothing, times=None)
        consumer.seek(P, 20)
        cluster.requests.clear()
        reader = asyncio.create_task(read(consumer, 10))
        await asyncio.sleep(behind)
        cluster.faults.remove(fault)
        began = loop.time()
        assert offsets(await reader) == {0: list(range(20, 30))}
        assert loop.time() - began <= max(0.01, 0.15 * behind)
        assert len(fetches(cluster)) < 50


async def test_immediate_responses_while_nothing_is_waited_for_are_no_stall() -> None:
    settings = {"fetch_min_bytes": 0, "fetch_max_wait": 0.5, "request_timeout": 5.0}
    async with scene(10, **settings) as (_, consumer):
        assert offsets(await read(consumer, 10)) == {0: list(range(10))}
        assert await errors_of(consumer, 20.0) == []
        assert consumer.health().ok


# Quotas


@pytest.mark.parametrize("what", ["empty", "with records"])
async def test_a_consumer_that_a_quota_throttles_is_not_stalled(what: str) -> None:
    async with scene(10, brokers=1) as (cluster, consumer):
        assert offsets(await read(consumer, 10)) == {0: list(range(10))}
        cluster.faults.throttle("Fetch", 60.0, times=1)
        if what == "with records":
            cluster.append(T, 0, batch(10, 1))
            assert offsets(await read(consumer, 1)) == {0: [10]}
        else:
            await asyncio.sleep(1.0)
        end = cluster.end_offset(T)
        cluster.append(T, 0, batch(end, 1))
        assert await errors_of(consumer, 50.0) == []
        health = consumer.health()
        assert health.ok
        part = health.partitions[P]
        assert not part.stalled
        assert 5.0 < part.throttled_for < 15.0
        assert offsets(await read(consumer, 1)) == {0: [end]}
        assert consumer.health().partitions[P].throttled_for == 0.0


async def test_a_lookup_that_a_quota_throttles_is_not_stalled() -> None:
    async with Cluster(1) as cluster:
        cluster.create_topic(T)
        cluster.append(T, 0, batch(0, 10))
        async with kclient.Consumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            cluster.faults.throttle("Metadata", 60.0, times=1)
            consumer.assign([P])
            assert await errors_of(consumer, 50.0) == []
            assert consumer.health().partitions[P].throttled_for > 5.0
            assert offsets(await read(consumer, 10)) == {0: list(range(10))}


async def test_a_broker_that_hangs_once_the_quota_is_over_is_stalled() -> None:
    async with scene(10, brokers=1) as (cluster, consumer):
        assert offsets(await read(consumer, 10)) == {0: list(range(10))}
        cluster.faults.throttle("Fetch", 60.0, times=1)
        await asyncio.sleep(1.0)
        cluster.faults.drop("Fetch", times=None)
        assert await errors_of(consumer, 55.0) == []
        assert any(isinstance(error, ConsumerStalled) for error in await errors_of(consumer, 90.0))
        assert consumer.health().partitions[P].stalled


# Health


@pytest.mark.parametrize("group", [None, "g"])
async def test_a_partition_without_a_leader_is_stalled_in_health_as_in_poll(
    group: str | None,
) -> None:
    one, other = P, TopicPartition(T, 1)
    async with Cluster(2) as cluster:
        cluster.create_topic(T, assignments=[[1], [2]])
        for partition in (0, 1):
            cluster.append(T, partition, batch(0, 1))
        how = {"group": group, "auto_offset_reset": "earliest", "request_timeout": 2.0}
        async with kclient.Consumer(cluster.bootstrap, T, **how) as consumer:
            await read(consumer, 2)
            await cluster.crash(2)
            while not any(
                isinstance(one, ConsumerStalled) for one in await errors_of(consumer, 1.0)
            ):
                pass
            for _ in range(5):
                health = consumer.health().partitions
                assert (health[other].stalled, health[other].lag) == (True, None)
                assert not health[one].stalled
                await errors_of(consumer, 1.0)
            await cluster.restart(2)
            await until(lambda: not consumer.health().partitions[other].stalled)
            assert consumer.health().ok

"""Subscribed names in a group that no topic has: reported, and the others are read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kclient
from kclient.broker_errors import UnknownTopicOrPartition
from kclient.testing import Cluster, run_virtually
from kclient.types import TopicPartition
from tests.unit.consumer.log_bytes import batch
from tests.virtual.consumer_scene import T, fill, offsets, read, the_loop, until
from tests.virtual.group_scene import GROUP, SETTINGS


def member(cluster: Cluster, *topics: str, **settings: Any) -> Any:
    return kclient.Consumer(cluster.bootstrap, *topics, group=GROUP, **{**SETTINGS, **settings})


async def reported(consumer: Any, seconds: float, timeout: float | None = 1.0) -> list[float]:
    """The times at which poll reported an unknown topic."""
    times = []
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    await consumer.poll(timeout=timeout)
                except UnknownTopicOrPartition as error:
                    assert error.retriable
                    assert "typo" in str(error)
                    times.append(the_loop().time())
    except TimeoutError:
        return times


@pytest.mark.parametrize("timeout", [1.0, None])
@pytest.mark.parametrize("topics", [("typo",), (T, "typo")])
def test_a_name_of_no_topic_is_reported_by_poll_the_log_and_health(
    topics: tuple[str, ...], timeout: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with Cluster(brokers=2) as cluster:
            fill(cluster, 5, 2)
            async with member(cluster, api_timeout=60.0) as consumer:
                consumer.subscribe(*topics)
                if T in topics:
                    assert set(offsets(await read(consumer, 10))) == {0, 1}
                    assert consumer.health().ok
                    assert consumer.health().unknown_topics == ()
                begun = the_loop().time()
                times = await reported(consumer, 200.0, timeout)
                assert 3 <= len(times) <= 4
                assert times[0] - begun < 30.0
                assert consumer.health().unknown_topics == ("typo",)
                assert not consumer.health().ok
                assert ("the other topics are read" in caplog.text) is (T in topics)
                cluster.create_topic("typo", partitions=1)
                await reported(consumer, 30.0, timeout)
                assert consumer.health().unknown_topics == ()
                assert consumer.health().ok
                assert {one.topic for one in consumer.assignment} == {*topics}

    run_virtually(main())
    lines = [text for text in caplog.messages if "typo" in text and "no broker knows" in text]
    assert 3 <= len(lines) <= 4


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_topic_that_is_deleted_is_reported_and_the_others_are_read(strategy: str) -> None:
    async def main() -> None:
        async with Cluster(brokers=2) as cluster:
            fill(cluster, 5, 2)
            cluster.create_topic("typo", partitions=1)
            async with member(
                cluster, T, "typo", partition_assignment_strategy=strategy
            ) as consumer:
                await read(consumer, 10)
                cluster.delete_topic("typo")
                assert len(await reported(consumer, 55.0, None)) >= 1
                assert not consumer.health().ok
                async with kclient.Producer(cluster.bootstrap) as producer:
                    await producer.send(T, b"10", partition=0)
                assert offsets(await read(consumer, 1)) == {0: [5]}

    run_virtually(main())


def test_another_wrong_name_is_reported_at_once_and_one_that_is_not_wanted_never() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 0, 1)
            async with member(cluster, T) as consumer:
                consumer.subscribe(T, "typo")
                assert len(await reported(consumer, 20.0)) == 1
                consumer.subscribe(T, "another-typo")
                assert len(await reported(consumer, 20.0)) == 1
                assert consumer.health().unknown_topics == ("another-typo",)
                consumer.subscribe(T)
                assert await reported(consumer, 100.0) == []
                assert consumer.health().ok

    run_virtually(main())


def test_a_topic_that_is_there_by_now_is_unknown_no_more() -> None:
    """Whenever it was looked for last."""

    async def main() -> None:
        async with Cluster(brokers=2) as cluster:
            fill(cluster, 5, 2)
            async with member(cluster, T) as consumer:
                consumer.subscribe(T, "late")
                await until(lambda: consumer.health().unknown_topics == ("late",), 60.0)
                cluster.create_topic("late", partitions=1)
                view = consumer._engine.core.metadata
                await until(lambda: view.view.partition_count("late") is not None, 60.0)
                assert consumer.health().unknown_topics == ()
                assert len(await read(consumer, 10)) == 10

    run_virtually(main())


# One broker that lags behind


@pytest.mark.parametrize("seed", range(6))
def test_a_topic_that_only_a_lagging_broker_does_not_know_is_waited_for(seed: int) -> None:
    """It has no leader for a while, so that brokers' metadata is all the evidence."""

    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            cluster.brokers[3].freeze_metadata()
            cluster.create_topic(T, assignments=[[1]])
            cluster.append(T, 0, batch(0, 5))
            await cluster.crash(1)
            async with kclient.Consumer(
                cluster.bootstrap, auto_offset_reset="earliest", api_timeout=60.0
            ) as consumer:
                consumer.assign([TopicPartition(T, 0)])
                assert await consumer.poll(timeout=45.0) == []
                await cluster.restart(1)
                assert offsets(await read(consumer, 5)) == {0: list(range(5))}

    run_virtually(main(), seed=seed)


@pytest.mark.parametrize("seed", range(3))
def test_a_topic_that_no_broker_knows_is_reported_though_one_is_unreachable(seed: int) -> None:
    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            cluster.faults.unavailable(broker=3)
            async with kclient.Consumer(
                cluster.bootstrap, auto_offset_reset="earliest"
            ) as consumer:
                consumer.assign([TopicPartition("typo", 0)])
                begun = the_loop().time()
                times = await reported(consumer, 20.0)
                assert 4.9 <= times[0] - begun < 15.0

    run_virtually(main(), seed=seed)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]
)
def test_a_topic_that_was_unknown_long_ago_is_not_so_by_one_lagging_broker(seed: int) -> None:
    """Metadata from before it was subscribed to again proves nothing of now."""

    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            fill(cluster, 5, 1)
            async with member(cluster, T, api_timeout=60.0) as consumer:
                consumer.subscribe(T, "typo")
                await until(lambda: consumer.health().unknown_topics == ("typo",), 60.0)
                await reported(consumer, 3.0)
                consumer.subscribe(T)
                await reported(consumer, 20.0)
                cluster.brokers[3].freeze_metadata()
                cluster.create_topic("typo", partitions=1)
                for broker in (1, 2):
                    cluster.faults.delay("Metadata", 0.9, broker=broker, times=None)
                consumer.subscribe(T, "typo")
                assert await reported(consumer, 30.0) == []
                assert consumer.health().unknown_topics == ()

    run_virtually(main(), seed=seed)

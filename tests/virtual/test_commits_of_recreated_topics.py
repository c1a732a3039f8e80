"""Commits of a topic that is deleted and recreated: its offsets are not those of the new one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kclient
from kclient.broker_errors import UnknownTopicId, UnknownTopicOrPartition
from kclient.cluster.retry import MISSING_PARTITION_GRACE
from kclient.error_codes import ErrorCode
from kclient.errors import CommitFailed, KafkaError
from kclient.testing import Cluster, run_virtually
from tests.virtual.consumer_scene import P, T, fill, the_loop, until
from tests.virtual.group_scene import GROUP, SETTINGS

COMMIT = "OffsetCommit"
WAYS = ["assign", "range"]
REFUSALS = (CommitFailed, UnknownTopicId, UnknownTopicOrPartition)


def reader(cluster: Cluster, way: str, **settings: Any) -> Any:
    topics = () if way == "assign" else (T,)
    every = {**SETTINGS, "metadata_max_age": 1.0, **settings}
    return kclient.Consumer(cluster.bootstrap, *topics, group=GROUP, **every)


async def read(consumer: Any, count: int) -> list[int]:
    """The offsets of so many records, whatever is raised meanwhile."""
    got: list[int] = []
    async with asyncio.timeout(300.0):
        while len(got) < count:
            try:
                got += [record.offset for record in await consumer.poll(timeout=1.0)]
            except KafkaError as error:
                assert not error.fatal
    return got


async def committed(cluster: Cluster) -> int | None:
    async with kclient.Consumer(cluster.bootstrap, group=GROUP, **SETTINGS) as other:
        found = (await other.committed([P]))[P]
        return None if found is None else int(found.offset)


def speak(cluster: Cluster, last: int) -> None:
    for broker in cluster.brokers.values():
        broker.speak(COMMIT, 2, last)


def lacks_topic(consumer: Any) -> bool:
    return consumer._engine.core.metadata.view.topic_id(T) is None


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("last", [10, 9])
def test_a_commit_of_a_deleted_topic_is_not_stored_for_its_successor(way: str, last: int) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 1)
            speak(cluster, last)
            async with reader(cluster, way, enable_auto_commit=False) as consumer:
                if way == "assign":
                    consumer.assign([P])
                assert await read(consumer, 20) == list(range(20))
                code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                loading = cluster.faults.error(COMMIT, code, times=None)
                commit = asyncio.create_task(consumer.commit())
                cluster.delete_topic(T)
                await until(lambda: lacks_topic(consumer))
                loading.remove()
                await asyncio.sleep(0.5)
                fill(cluster, 30, 1)
                with pytest.raises(REFUSALS):
                    await commit
                assert await committed(cluster) is None
                assert await read(consumer, 30) == list(range(30))

    run_virtually(main())


@pytest.mark.parametrize("way", WAYS)
def test_by_name_a_commit_of_a_deleted_topic_ends_soon(way: str) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 1)
            speak(cluster, 9)
            settings = {"metadata_max_age": 300.0, "enable_auto_commit": False}
            async with reader(cluster, way, **settings) as consumer:
                if way == "assign":
                    consumer.assign([P])
                await read(consumer, 20)
                cluster.delete_topic(T)
                begun = the_loop().time()
                with pytest.raises(UnknownTopicOrPartition, match=str(P)):
                    await consumer.commit()
                assert the_loop().time() - begun < MISSING_PARTITION_GRACE + 1.0

    run_virtually(main())


@pytest.mark.parametrize("what", ["record", "offsets"])
def test_a_record_of_a_deleted_topic_is_not_committed_once_its_successor_is_read(what: str) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 1)
            async with reader(cluster, "assign", enable_auto_commit=False) as consumer:
                consumer.assign([P])
                records = await consumer.poll(max_records=20, timeout=None)
                former = consumer._engine.core.metadata.view.topic_id(T)
                cluster.delete_topic(T)
                fill(cluster, 30, 1)
                await until(lambda: consumer._engine.subscription.get(P).topic_id != former)
                await consumer.position(P)
                last = records[-1]
                with pytest.raises(REFUSALS):
                    await consumer.commit(last if what == "record" else {P: last.offset + 1})
                assert await committed(cluster) is None
                assert await read(consumer, 30) == list(range(30))
                await consumer.commit()
                assert await committed(cluster) == 30

    run_virtually(main())


def test_an_explicit_commit_does_not_outlive_its_topic() -> None:
    """Its offset is deleted with the topic: the position in the new one is committed once."""

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 1)
            async with reader(cluster, "assign", auto_offset_reset="latest") as consumer:
                consumer.assign([P])
                assert await consumer.position(P) == 20
                await consumer.commit({P: 20})
                former = consumer._engine.core.metadata.view.topic_id(T)
                cluster.delete_topic(T)
                fill(cluster, 30, 1)
                await until(lambda: consumer._engine.subscription.get(P).topic_id != former)
                assert await consumer.position(P) == 30
            assert await committed(cluster) == 30

    run_virtually(main())


def test_once_a_recreated_topic_is_read_offsets_ahead_can_be_committed() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 1)
            async with reader(cluster, "assign", enable_auto_commit=False) as consumer:
                consumer.assign([P])
                await read(consumer, 20)
                former = consumer._engine.core.metadata.view.topic_id(T)
                cluster.delete_topic(T)
                fill(cluster, 30, 1)
                await until(lambda: consumer._engine.subscription.get(P).topic_id != former)
                await consumer.position(P)
                assert len(await consumer.poll(max_records=5, timeout=None)) == 5
                await consumer.commit({P: 25})
            assert await committed(cluster) == 25

    run_virtually(main())


@pytest.mark.parametrize("last", [10, 9])
@pytest.mark.parametrize("seed", range(6))
def test_a_member_reads_all_of_a_recreated_topic_whatever_it_commits(last: int, seed: int) -> None:
    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            fill(cluster, 20, 1)
            speak(cluster, last)
            async with reader(cluster, "range", auto_commit_interval=0.3) as consumer:
                await read(consumer, 20)
                polls = asyncio.create_task(read(consumer, 30))
                await asyncio.sleep(0.1 * seed)
                cluster.delete_topic(T)
                await asyncio.sleep(0.25 * (seed + 1))
                fill(cluster, 30, 1)
                assert await polls == list(range(30))

    run_virtually(main(), seed=seed)

"""Automatic commits beside explicit ones, seeks and resets: only what was consumed since."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kclient
from kclient.testing import Cluster, run_virtually
from kclient.types import TopicPartition
from tests.unit.consumer.log_bytes import batch
from tests.virtual.consumer_scene import P, T, fill, until
from tests.virtual.group_scene import COOPERATIVE, GROUP, SETTINGS

ENDS = ["close", "interval", "exception", "end of block"]
WAYS = ["assign", "range", COOPERATIVE]


def member(cluster: Cluster, way: str, **settings: Any) -> Any:
    """A consumer in the group, not started, that is given partitions in this way."""
    if way == "assign":
        return kclient.Consumer(cluster.bootstrap, group=GROUP, **{**SETTINGS, **settings})
    settings["partition_assignment_strategy"] = way
    return kclient.Consumer(cluster.bootstrap, T, group=GROUP, **{**SETTINGS, **settings})


async def placed(consumer: Any, way: str) -> int:
    """The position of the partition, once it is known."""
    if way == "assign":
        consumer.assign([P])
    await until(lambda: P in consumer.assignment)
    return int(await consumer.position(P))


async def committed(cluster: Cluster, partition: TopicPartition = P) -> int | None:
    async with kclient.Consumer(cluster.bootstrap, group=GROUP, **SETTINGS) as other:
        found = (await other.committed([partition]))[partition]
        return None if found is None else int(found.offset)


async def preset(cluster: Cluster, offset: int) -> None:
    """The group has committed ``offset``."""
    async with kclient.Consumer(cluster.bootstrap, group=GROUP, **SETTINGS) as other:
        other.assign([P])
        await other.commit({P: offset})
    assert await committed(cluster) == offset


async def ended(consumer: Any, end: str, act: Any) -> None:
    """Run ``act`` with the started consumer, then have an automatic commit become due."""
    try:
        async with consumer:
            await act(consumer)
            if end == "close":
                await consumer.close()
            elif end == "interval":
                for _ in range(20):
                    await consumer.poll(timeout=1.0)
                await consumer.close()
            elif end == "exception":
                raise ZeroDivisionError
    except ZeroDivisionError:
        assert end == "exception"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("before", ["no commit", "a commit", "records"])
def test_an_explicit_commit_stands_until_more_is_consumed(way: str, end: str, before: str) -> None:
    async def act(consumer: Any) -> None:
        assert await placed(consumer, way) == (40 if before != "records" else 0)
        if before == "records":
            while await consumer.position(P) < 40:
                await consumer.poll(timeout=1.0)
            await consumer.poll(timeout=0.0)
        await consumer.commit({P: 10})

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 40, 1)
            if before == "a commit":
                await preset(cluster, 40)
            reset = "earliest" if before == "records" else "latest"
            await ended(member(cluster, way, auto_offset_reset=reset), end, act)
            assert await committed(cluster) == 10

    run_virtually(main())


@pytest.mark.parametrize("way", WAYS)
def test_an_explicit_commit_gives_way_to_what_is_consumed_after_it(way: str) -> None:
    async def act(consumer: Any) -> None:
        await placed(consumer, way)
        await consumer.poll(max_records=5, timeout=None)
        await consumer.commit({P: 2})
        await consumer.poll(max_records=5, timeout=None)
        await asyncio.sleep(6.0)
        found = (await consumer.committed([P]))[P]
        assert found.offset == 2  # none of the second five is known to be finished
        await consumer.poll(max_records=5, timeout=None)

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 40, 1)
            await ended(member(cluster, way), "close", act)
            assert await committed(cluster) == 10

    run_virtually(main())


def test_an_explicit_commit_within_an_async_for_gives_way_to_the_records_behind_it() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 40, 1)
            async with member(cluster, "range") as consumer:
                async for record in consumer:
                    if record.offset == 10:
                        await consumer.commit({P: 3})
                    if record.offset == 10 + 7:
                        break
            assert await committed(cluster) == 18

    run_virtually(main())


def test_an_explicit_commit_before_the_position_is_known_stands() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 40, 1)
            async with member(cluster, "assign", auto_offset_reset="latest") as consumer:
                consumer.assign([P])
                await consumer.commit({P: 10})
                await consumer.position(P)
            assert await committed(cluster) == 10

    run_virtually(main())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", ["close", "exception", "end of block"])
@pytest.mark.parametrize("to", ["offset", "beginning", "end"])
def test_a_seek_without_a_poll_commits_nothing(way: str, end: str, to: str) -> None:
    async def act(consumer: Any) -> None:
        assert await placed(consumer, way) == 30
        if to == "offset":
            consumer.seek(P, 5)
        elif to == "beginning":
            consumer.seek_to_beginning()
        else:
            consumer.seek_to_end()
        await consumer.position(P)
        await asyncio.sleep(20.0)

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 40, 1)
            await preset(cluster, 30)
            await ended(member(cluster, way), end, act)
            assert await committed(cluster) == 30

    run_virtually(main())


@pytest.mark.parametrize("end", ENDS)
def test_what_was_finished_before_a_seek_is_committed(end: str) -> None:
    async def act(consumer: Any) -> None:
        await placed(consumer, "range")
        await consumer.poll(max_records=5, timeout=None)
        await consumer.poll(max_records=5, timeout=None)
        consumer.seek(P, 40)

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 40, 1)
            await ended(member(cluster, "range", auto_commit_interval=5.0), end, act)
            assert await committed(cluster) == 5

    run_virtually(main())


def test_a_seek_back_is_committed_once_records_from_there_are_finished() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 40, 1)
            await preset(cluster, 30)
            async with member(cluster, "range") as consumer:
                await placed(consumer, "range")
                consumer.seek(P, 5)
                await consumer.poll(max_records=3, timeout=None)
            assert await committed(cluster) == 8

    run_virtually(main())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", ENDS)
def test_the_position_that_a_reset_chose_is_committed_once(way: str, end: str) -> None:
    async def act(consumer: Any) -> None:
        assert await placed(consumer, way) == 40

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 40, 1)
            settings = {"auto_offset_reset": "latest"}
            await ended(member(cluster, way, **settings), end, act)
            assert await committed(cluster) == 40
            cluster.append(T, 0, batch(40, 5))  # while no member is there
            async with member(cluster, way, **settings) as consumer:
                await placed(consumer, way)
                [record] = await consumer.poll(max_records=1, timeout=10.0)
                assert record.offset == 40
            commits = [r for r in cluster.requests if r.api == "OffsetCommit"]
            assert len(commits) <= 2

    run_virtually(main())


def test_a_rebalance_keeps_an_explicit_commit() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 40, 2)
            settings = {"auto_offset_reset": "latest"}
            async with member(cluster, "range", **settings) as first:
                await until(lambda: len(first.assignment) == 2)
                await first.position(P)
                await first.commit({P: 10})
                polls = asyncio.create_task(first.poll(timeout=None))
                async with member(cluster, "range", **settings) as second:
                    await until(lambda: len(first.assignment) == len(second.assignment) == 1)
                polls.cancel()
            assert await committed(cluster) == 10

    run_virtually(main())


@pytest.mark.parametrize("more", [0, 3])
def test_an_explicit_commit_in_a_handler_stands_until_handlers_finish_more(more: int) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 10, 1)
            handled = 0

            async def handle(record: Any) -> None:
                nonlocal handled
                handled += 1

            async with member(cluster, "range", auto_commit_interval=1.0) as consumer:
                run = asyncio.create_task(consumer.run(handle))
                await until(lambda: handled == 10)
                await asyncio.sleep(3.0)
                assert await committed(cluster) == 10
                await consumer.commit({P: 4})
                await asyncio.sleep(3.0)
                assert await committed(cluster) == 4
                if more:
                    cluster.append(T, 0, batch(10, more))
                    await until(lambda: handled == 10 + more)
                await consumer.close()
                await run
            assert await committed(cluster) == (10 + more if more else 4)

    run_virtually(main())


def test_a_run_that_is_cancelled_commits_no_more_than_its_handlers_finished() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 1)
            done = 0

            async def handle(record: Any) -> None:
                nonlocal done
                if record.offset == 7:
                    await asyncio.sleep(1_000)
                done += 1

            async with member(cluster, "range") as consumer:
                run = asyncio.create_task(consumer.run(handle, ordering="none"))
                await until(lambda: done == 19)
                run.cancel()
                await asyncio.wait([run])
                assert await consumer.position(P) == 7
            assert await committed(cluster) == 7

    run_virtually(main())

"""Thousands of seeks, pauses and assignments during fetches, and tasks with one consumer.

Never a record of an old position, of a paused partition or of a revoked one; and in the end each
record once.
"""

from __future__ import annotations

import asyncio

import pytest

from kclient.record import Compression
from kclient.testing import Cluster
from kclient.types import TopicPartition
from tests.virtual.consumer_scene import (
    Ledger,
    P,
    Q,
    T,
    fill,
    reading,
    scene,
    the_loop,
    until,
)


@pytest.mark.parametrize("kind", ["poll", "loop"])
async def test_ten_thousand_seeks_give_no_record_of_an_old_position(kind: str) -> None:
    rng = the_loop().rng
    count, seeks = 2000, 10_000
    async with scene(count, 2, max_partition_fetch_bytes=1000) as (_, consumer):
        ledger = Ledger(2)
        steps = aiter(consumer)
        for number in range(seeks):
            partition = (P, Q)[rng.randrange(2)]
            # Often to where it is, or was: what is in flight then has the right offset.
            near = rng.choice([ledger.next[partition], rng.randrange(count)])
            offset = min(max(near + rng.choice((0, 0, -1, 7)), 0), count)
            consumer.seek(partition, offset)
            ledger.next[partition] = offset
            if number % 3:
                await asyncio.sleep(rng.choice((0, 0, 0.0005, 0.002)))
                continue
            try:
                async with asyncio.timeout(rng.choice((0, 0.001, 0.01))):
                    if kind == "poll":
                        ledger.take(await consumer.poll(rng.choice((1, 5, 50)), timeout=None))
                    else:
                        ledger.take([await anext(steps)])
            except TimeoutError:
                pass
        assert ledger.taken > 1000
        await ledger.read_to(consumer, count)


async def test_a_storm_of_pauses_gives_nothing_of_paused_partitions_and_loses_nothing() -> None:
    rng = the_loop().rng
    async with scene(3000, 3, max_partition_fetch_bytes=1000) as (_, consumer):
        ledger = Ledger(3)
        steps = aiter(consumer)
        async with asyncio.timeout(600.0):
            while min(ledger.next.values()) < 3000:
                some = rng.sample(list(ledger.next), rng.randrange(4))
                (consumer.pause if rng.random() < 0.5 else consumer.resume)(*some)
                paused = consumer.paused
                try:
                    async with asyncio.timeout(rng.choice((0, 0.001, 0.01))):
                        if rng.random() < 0.5:
                            got = await consumer.poll(rng.choice((1, 20)), timeout=None)
                        else:
                            got = [await anext(steps)]
                except TimeoutError:
                    continue
                assert not paused & {record.topic_partition for record in got}
                ledger.take(got)
        assert max(ledger.next.values()) == 3000


async def test_assignments_that_change_under_every_fetch_give_what_is_assigned_only() -> None:
    rng = the_loop().rng
    count = 300
    async with scene(count, 4, max_partition_fetch_bytes=1000) as (_, consumer):
        ledger = Ledger(4)
        everything = [TopicPartition(T, index) for index in range(4)]
        consumer.assign(everything)
        for _ in range(2000):
            kept = consumer.assignment
            wanted = rng.sample(everything, rng.randrange(5))
            if wanted:
                consumer.assign(wanted)
            else:
                consumer.unassign()
            for partition in wanted:
                if partition not in kept:
                    ledger.next[partition] = 0  # it starts again, by policy
            assert consumer.assignment == frozenset(wanted)
            if not wanted:
                await asyncio.sleep(rng.choice((0, 0.001)))
                continue
            got = await consumer.poll(rng.choice((1, 30)), timeout=rng.choice((0.0, 0.002, 0.01)))
            assert {record.topic_partition for record in got} <= set(wanted)
            ledger.take(got)
        assert ledger.taken > 1000
        consumer.assign(everything)
        for partition in everything:
            consumer.seek(partition, 0)
            ledger.next[partition] = 0
        await ledger.read_to(consumer, count)


async def test_storms_over_batches_that_are_inflated_in_threads_lose_nothing() -> None:
    rng = the_loop().rng
    count = 400
    async with Cluster(brokers=1) as cluster:
        fill(cluster, count, 3, per_batch=50, value_bytes=20_000, codec=Compression.GZIP)
        async with reading(cluster) as consumer:
            ledger = Ledger(3)
            for _ in range(300):
                some = rng.sample(list(ledger.next), rng.randrange(1, 4))
                match rng.randrange(4):
                    case 0:
                        consumer.pause(*some)
                    case 1:
                        consumer.resume()
                    case 2:
                        offset = rng.randrange(count)
                        consumer.seek(some[0], offset)
                        ledger.next[some[0]] = offset
                    case _:
                        await asyncio.sleep(rng.choice((0, 0.0005, 0.01)))
                paused = consumer.paused
                got = await consumer.poll(rng.choice((1, 20)), timeout=rng.choice((0.0, 0.002)))
                assert not paused & {record.topic_partition for record in got}
                ledger.take(got)
            consumer.resume()
            while min(ledger.next.values()) < count:
                ledger.take(await consumer.poll(timeout=1.0))


async def test_tasks_with_one_consumer_get_each_record_once() -> None:
    rng = the_loop().rng
    count = 500
    async with scene(count, 2, max_partition_fetch_bytes=700) as (_, consumer):
        seen: dict[int, list[int]] = {0: [], 1: []}

        async def poll() -> None:
            while True:
                for record in await consumer.poll(rng.choice((1, 9)), timeout=0.1):
                    seen[record.partition].append(record.offset)
                await asyncio.sleep(rng.choice((0, 0.001)))

        async def iterate() -> None:
            async for record in consumer:
                seen[record.partition].append(record.offset)
                await asyncio.sleep(rng.choice((0, 0, 0.001)))

        async def columns() -> None:
            while True:
                for row in (await consumer.poll_arrow(timeout=0.1)).to_pylist():
                    seen[row["partition"]].append(row["offset"])
                await asyncio.sleep(0.01)

        tasks = [asyncio.ensure_future(job()) for job in (poll, iterate, iterate, columns, poll)]
        await until(lambda: sum(map(len, seen.values())) >= 2 * count)
        await asyncio.sleep(1.0)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)
        assert seen == {0: list(range(count)), 1: list(range(count))}

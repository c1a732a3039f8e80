"""Bounds on a consumer's memory, loop time and requests; and calls in any order."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pyarrow  # noqa: F401 - loaded before a probe looks
import pytest
import pytest_asyncio

import kclient
from kclient.consumer import poller
from kclient.record import Compression
from kclient.types import TopicPartition
from tests.behaviours.reading import offsets, read
from tests.unit.consumer.log_bytes import batch

T = "flights"
P = TopicPartition(T, 0)
MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def the_collector_keeps_out() -> Iterator[None]:
    """No garbage collection: its passes over the suite's objects aren't holds of the client."""
    gc.disable()
    yield
    gc.enable()


START: Any = {"auto_offset_reset": "earliest", "fetch_max_wait": 0.1}


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[kclient.testing.Cluster]:
    async with kclient.testing.Cluster(brokers=1) as running:
        yield running


async def fetches_rest(cluster: Any) -> int:
    """Wait until no fetch comes for 0.15 s; return the number of fetches so far."""
    count = -1
    while count != cluster.requests.count("Fetch"):
        count = cluster.requests.count("Fetch")
        await asyncio.sleep(0.15)
    return count


async def test_one_response_is_a_part_of_the_memory(cluster: Any) -> None:
    # Records of large responses cost more, so many partitions come in several responses.
    cluster.create_topic(T, partitions=4)
    for index in range(4):
        for first in range(0, 10):
            cluster.append(T, index, batch(first, 1, value_bytes=50_000))
    settings = {"buffer_memory": 4 * MIB, "max_partition_fetch_bytes": 100_000}
    async with kclient.Consumer(cluster.bootstrap, T, **START, **settings) as consumer:
        assert offsets(await read(consumer, 40)) == {n: list(range(10)) for n in range(4)}
    asked = {seen.request.max_bytes for seen in cluster.requests.of("Fetch")[:3]}
    assert asked == {4 * MIB // 8}


async def test_paused_data_does_not_starve_the_others(cluster: Any) -> None:
    cluster.create_topic(T, partitions=2)
    for index in (0, 1):
        for first in range(0, 60):
            cluster.append(T, index, batch(first, 1, value_bytes=100_000))
    settings = {"buffer_memory": MIB, "max_partition_fetch_bytes": MIB}
    async with kclient.Consumer(cluster.bootstrap, T, **START, **settings) as consumer:
        await consumer.position(P)
        await fetches_rest(cluster)
        consumer.pause(P)
        assert offsets(await read(consumer, 60)) == {1: list(range(60))}
        consumer.resume(P)
        assert offsets(await read(consumer, 60)) == {0: list(range(60))}


async def test_a_partition_that_is_never_polled_is_not_fetched_for_ever(cluster: Any) -> None:
    cluster.create_topic(T, partitions=2)
    for first in range(0, 100):
        cluster.append(T, 0, batch(first, 1, value_bytes=10_000))
    settings = {"max_partition_fetch_bytes": 50_000}
    async with kclient.Consumer(cluster.bootstrap, T, **START, **settings) as consumer:
        await consumer.position(P)
        await asyncio.sleep(0.5)
        assert cluster.requests.count("Fetch") < 20
        assert consumer.health().buffered_bytes < 300_000


async def test_a_slow_reader_of_one_partition_gets_the_others_in_time(cluster: Any) -> None:
    cluster.create_topic(T, partitions=2)
    for first in range(0, 200):
        cluster.append(T, 0, batch(first, 1, value_bytes=10_000))
    settings = {"max_partition_fetch_bytes": 50_000}
    async with kclient.Consumer(
        cluster.bootstrap, T, auto_offset_reset="earliest", fetch_max_wait=5.0, **settings
    ) as consumer:
        await read(consumer, 1)
        cluster.append(T, 1, batch(0, 1))
        before = 0
        while True:
            records = await consumer.poll(max_records=1, timeout=5.0)
            if records[0].partition == 1:
                break
            before += 1
            await asyncio.sleep(0.01)
        assert before < 150


async def test_batches_that_need_a_thread_are_not_starved_by_others(cluster: Any) -> None:
    """The other partition never runs dry: it is written to as fast as it is read."""
    cluster.create_topic(T, partitions=2)
    written = 100_000
    for first in range(0, written, 1000):
        cluster.append(T, 0, batch(first, 1000))
    cluster.append(T, 1, batch(0, 100, codec=Compression.GZIP, value_bytes=30_000))
    async with kclient.Consumer(
        cluster.bootstrap, T, **START, max_partition_fetch_bytes=20_000
    ) as consumer:
        before = 0
        async for record in consumer:
            if record.partition == 1:
                break
            before += 1
            if before % 1000 == 0:
                cluster.append(T, 0, batch(written, 1000))
                written += 1000
            assert before < 2_000_000


async def test_a_thousand_partitions_are_asked_for_in_small_requests(cluster: Any) -> None:
    cluster.create_topic(T, partitions=1000)
    for index in range(0, 1000, 10):
        cluster.append(T, index, batch(0, 3))
    async with kclient.Consumer(cluster.bootstrap, T, **START) as consumer:
        assert len(await read(consumer, 300)) == 300
        cluster.requests.clear()
        cluster.append(T, 7, batch(0, 3))
        assert len(await read(consumer, 3)) == 3
        await cluster.requests.wait_count("Fetch", 3)
        later = cluster.requests.of("Fetch")
        assert max(one.size_bytes for one in later[1:]) < 2048


# Cancelling


async def drive(make: Callable[[], Awaitable[Any]], turns: int) -> tuple[bool, Any]:
    """Run ``make()`` for ``turns`` loop iterations, then cancel it: (did it end?, its value)."""
    task = asyncio.ensure_future(make())
    for _ in range(turns):
        if task.done():
            break
        await asyncio.sleep(0)
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
        if task.cancelled():
            return False, None
    return True, task.result()


@pytest.mark.parametrize("seed", range(4))
async def test_anything_the_user_does_in_any_order_skips_and_doubles_nothing(
    cluster: Any, seed: int
) -> None:
    """Polls, loops, columns, seeks, pauses, assignments and cancellations, with faults between."""
    rng = random.Random(seed)
    partitions = 3
    cluster.create_topic(T, partitions=partitions)
    for index in range(partitions):
        for first in range(0, 300, 10):
            cluster.append(T, index, batch(first, 10))
    expected = [0] * partitions
    settings = {**START, "retry_backoff": 0.01, "retry_backoff_max": 0.02}
    async with kclient.Consumer(
        cluster.bootstrap, T, **settings, max_partition_fetch_bytes=700
    ) as consumer:

        def took(pairs: Any) -> None:
            for index, offset in pairs:
                assert offset == expected[index], (seed, index)
                expected[index] += 1

        async def poll() -> list[tuple[int, int]]:
            found = await consumer.poll(max_records=rng.randint(1, 30), timeout=0.2)
            return [(record.partition, record.offset) for record in found]

        async def columns() -> list[tuple[int, int]]:
            table = (await consumer.poll_arrow(timeout=0.2)).to_pydict()
            return list(zip(table["partition"], table["offset"], strict=True))

        for _ in range(250):
            index = rng.randrange(partitions)
            partition = TopicPartition(T, index)
            match rng.randrange(13):
                case 0 | 1 | 2 | 3:
                    _, found = await drive(poll, rng.choice((1, 3, 10, 1000)))
                    took(found or ())
                case 4 | 5:
                    _, found = await drive(columns, rng.choice((1, 3, 10, 1000)))
                    took(found or ())
                case 6:
                    wanted = rng.randint(1, 15)
                    if min(expected) < 250 and not consumer.paused:
                        async for record in consumer:
                            took([(record.partition, record.offset)])
                            wanted -= 1
                            if not wanted:
                                break
                case 7:
                    offset = rng.randrange(290)
                    consumer.seek(partition, offset)
                    expected[index] = offset
                case 8:
                    consumer.pause(partition)
                case 9:
                    consumer.resume()
                case 10:
                    others = [TopicPartition(T, n) for n in range(partitions) if n != index]
                    consumer.assign(others)
                    consumer.assign([*others, partition])
                    consumer.seek(partition, expected[index])
                case 12:
                    consumer.seek(partition, expected[index])
                case 11:
                    rng.choice(
                        (
                            lambda: cluster.faults.close("Fetch", after=True),
                            lambda: cluster.faults.error("Fetch", 70),
                            lambda: cluster.faults.error("Fetch", 6),
                        )
                    )()
            for n in range(partitions):
                assert consumer.positions()[TopicPartition(T, n)] in (expected[n], None)
        consumer.resume()
        left = sum(300 - offset for offset in expected)
        for record in await read(consumer, left) if left else ():
            took([(record.partition, record.offset)])
        assert expected == [300] * partitions


async def test_columns_that_no_memory_could_be_had_for_are_not_expected_again(
    cluster: kclient.testing.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic(T, partitions=1)
    expectations: list[tuple[int, int, int]] = []

    class Watched(poller.Columns):
        def __init__(self, expected: tuple[int, int, int], *chosen: Any) -> None:
            expectations.append(expected)
            super().__init__(expected, *chosen)

        def to_record_batch(self) -> Any:
            if len(expectations) == 2:
                raise MemoryError
            return super().to_record_batch()

    monkeypatch.setattr(poller, "Columns", Watched)
    async with kclient.Consumer(cluster.bootstrap, T, **START) as consumer:
        cluster.append(T, 0, batch(0, 10))
        assert (await consumer.poll_arrow(timeout=5.0)).num_rows == 10
        cluster.append(T, 0, batch(10, 10))
        with pytest.raises(MemoryError):
            await consumer.poll_arrow(timeout=5.0)
        assert consumer.positions()[P] == 10
        cluster.append(T, 0, batch(20, 10))
        assert await offsets_in_columns(consumer, 20) == list(range(10, 30))
        assert consumer.metrics()["consumer.records"] == 30
    nothing, ten, none_again = expectations[:3]
    assert nothing == none_again == (0, 0, 0)
    assert ten[0] == 10


async def test_columns_that_were_added_before_memory_failed_are_handed_over(
    cluster: kclient.testing.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic(T, partitions=1)
    for first in (0, 10):
        cluster.append(T, 0, batch(first, 10))
    add, shown = poller.Columns.add, 0

    def fail_once(columns: poller.Columns, *args: Any) -> int | None:
        nonlocal shown
        shown += 1
        if shown == 2:
            raise MemoryError
        return add(columns, *args)

    monkeypatch.setattr(poller.Columns, "add", fail_once)
    # Both batches belong to one poll, however slow the machine is.
    monkeypatch.setattr("kclient.consumer.poller.TURN", 60.0)
    async with kclient.Consumer(cluster.bootstrap, T, **START) as consumer:
        assert await offsets_in_columns(consumer, 10) == list(range(10))
        assert consumer.positions()[P] == 10
        assert await offsets_in_columns(consumer, 10) == list(range(10, 20))


async def offsets_in_columns(consumer: Any, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found += (await consumer.poll_arrow(timeout=5.0)).column("offset").to_pylist()
    return found

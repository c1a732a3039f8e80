"""Reporting the outcome of very many records at once doesn't hold the event loop.

See ``tests.support.holds`` for how. The pure build does a tenth of the work.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pyarrow  # noqa: F401 - loaded before a probe looks
import pytest

import kclient
from kclient.errors import DeliveryTimedOut, FlushFailed, KafkaError
from kclient.record import IMPLEMENTATION
from kclient.testing import Cluster, LoopProbe
from tests.support.holds import held, run_held, scaled

T = "flights"
MIB = 1024 * 1024
VALUE = b"x" * 100


async def filled(cluster: Cluster, count: int, **settings: Any) -> tuple[Any, list[Any]]:
    """A producer with ``count`` records that aren't acknowledged yet."""
    if IMPLEMENTATION == "pure":
        settings["max_request_size"] = MIB // 4  # the brokers are in this loop, and parse it all
    producer: Any = kclient.Producer(cluster.bootstrap, buffer_memory=256 * MIB, **settings)
    await producer.start()
    await producer.partitions_for(T)
    deliveries = []
    for number in range(count):
        deliveries.append(producer.send(T, VALUE, key=b"%d" % number))
        if number % 1000 == 0:
            await asyncio.sleep(0)
    return producer, deliveries


async def watch(delivery: Any) -> bool:
    try:
        await delivery
    except KafkaError:
        return False
    return True


def watchers(deliveries: list[Any]) -> list[asyncio.Task[bool]]:
    return [asyncio.create_task(watch(delivery)) for delivery in deliveries]


async def count_delivered(tasks: list[asyncio.Task[bool]]) -> int:
    """Await the tasks one by one: a gather would add a callback over all of them."""
    return sum([await task for task in tasks])


@pytest.mark.parametrize("partitions", [6, 1000])
@pytest.mark.parametrize("awaited", [False, True], ids=["alone", "awaited"])
def test_closing_with_a_hundred_thousand_records_to_deliver(awaited: bool, partitions: int) -> None:
    count = scaled(100_000)

    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            cluster.create_topic(T, partitions=partitions, replication_factor=1)
            # One fault per broker: what one fault holds is released in one callback.
            holds = [cluster.faults.hold("Produce", times=None, broker=n) for n in (1, 2, 3)]
            producer, deliveries = await filled(cluster, count)
            tasks = watchers(deliveries) if awaited else []
            await asyncio.sleep(0)
            with LoopProbe() as probe:
                closing = asyncio.create_task(producer.close())
                for held_back in holds:
                    await asyncio.sleep(0)
                    cluster.faults.remove(held_back)
                await closing
            held(probe)
            assert sum(cluster.end_offset(T, n) for n in range(partitions)) == count
            assert await count_delivered(tasks) == len(tasks)

    run_held(main)


@pytest.mark.parametrize("partitions", [6, 1000])
@pytest.mark.parametrize("awaited", [False, True], ids=["alone", "awaited"])
def test_closing_with_very_many_records_to_fail(awaited: bool, partitions: int) -> None:
    count = scaled(200_000)

    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            cluster.create_topic(T, partitions=partitions)
            cluster.faults.drop("Produce", times=None)
            producer, deliveries = await filled(cluster, count)
            tasks = watchers(deliveries) if awaited else []
            await asyncio.sleep(0)
            with LoopProbe() as probe:
                with pytest.raises(FlushFailed) as caught:
                    await producer.close(timeout=0.0)
            held(probe)
            assert caught.value.count == count
            assert await count_delivered(tasks) == 0

    run_held(main)


@pytest.mark.parametrize("partitions", [6, 1000])
@pytest.mark.parametrize("awaited", [False, True], ids=["alone", "awaited"])
def test_a_hundred_thousand_records_that_expire_at_once(awaited: bool, partitions: int) -> None:
    count = scaled(100_000)

    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            cluster.create_topic(T, partitions=partitions)
            cluster.faults.drop("Produce", times=None)
            producer, deliveries = await filled(
                cluster, count, delivery_timeout=2.0, request_timeout=1.0, linger=1.0
            )
            tasks = watchers(deliveries) if awaited else []
            last = deliveries[-1]
            if not awaited:
                deliveries.clear()
            await asyncio.sleep(0)
            with LoopProbe() as probe:
                with pytest.raises(DeliveryTimedOut):
                    await last
                with contextlib.suppress(FlushFailed):
                    await producer.flush()
            held(probe)
            assert await count_delivered(tasks) == 0
            with contextlib.suppress(FlushFailed):
                await producer.close(timeout=0.0)

    run_held(main)


@pytest.mark.parametrize("end", ["space", "time", "close"])
def test_very_many_calls_that_wait_for_memory(end: str) -> None:
    """Each is a task of the application, and all are notified at once."""
    count = scaled(50_000)

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic(T, partitions=6)
            held_back = cluster.faults.hold("Produce", times=None)
            producer: Any = kclient.Producer(
                cluster.bootstrap, buffer_memory=MIB // 4, max_block=0.1 if end == "time" else 30.0
            )
            await producer.start()

            async def one() -> bool:
                try:
                    await producer.enqueue(T, VALUE)
                except KafkaError:
                    return False
                return True

            tasks = [asyncio.create_task(one()) for _ in range(count)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            with LoopProbe() as probe:
                if end == "close":
                    with contextlib.suppress(FlushFailed):
                        await producer.close(timeout=0.0)
                elif end == "space":
                    cluster.faults.clear()
                    held_back.release()
                taken = sum([await task for task in tasks])
            held(probe)
            assert taken == count if end == "space" else taken < count
            with contextlib.suppress(FlushFailed):
                await producer.close(timeout=5.0 if end == "space" else 0.0)

    run_held(main)

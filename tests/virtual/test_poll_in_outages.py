"""In a long outage poll and ``async for`` raise retriable errors now and then, as they document."""

from __future__ import annotations

import asyncio
from typing import Any

import kclient
from kclient.errors import KafkaError
from kclient.testing import Cluster, MemoryNet

OUTAGE = 600.0
REQUEST_TIMEOUT = 30.0


def net() -> MemoryNet:
    loop: Any = asyncio.get_running_loop()
    found: MemoryNet = loop.network
    return found


async def read(consumer: Any, errors: list[KafkaError], values: list[Any], *, polls: bool) -> None:
    while True:
        try:
            if polls:
                values += [record.value for record in await consumer.poll(timeout=1.0)]
            else:
                async for record in consumer:
                    values.append(record.value)
                return
        except KafkaError as error:
            errors.append(error)
            if not error.retriable:
                return  # else it would come at once, again and again


async def reads_through_an_outage(how: str, *, polls: bool) -> None:
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignments=[[1], [2]])
        consumer = kclient.Consumer(cluster.bootstrap, "t", auto_offset_reset="earliest")
        async with consumer, kclient.Producer(cluster.bootstrap) as producer:
            await producer.send("t", b"before", partition=0)
            errors: list[KafkaError] = []
            values: list[Any] = []
            reading = asyncio.create_task(read(consumer, errors, values, polls=polls))
            await asyncio.sleep(5.0)
            assert (values, errors) == ([b"before"], [])
            getattr(net(), how)("broker-1")
            net().cut("broker-1")
            await asyncio.sleep(OUTAGE)
            assert errors
            assert len(errors) <= OUTAGE / REQUEST_TIMEOUT + 1
            assert all(error.retriable for error in errors)
            net().heal()
            await producer.send("t", b"after", partition=0)
            await asyncio.sleep(10.0)
            assert values == [b"before", b"after"]
            reading.cancel()
            await asyncio.wait([reading])


async def test_polls_of_an_unreachable_leader() -> None:
    await reads_through_an_outage("refuse", polls=True)


async def test_polls_of_a_silent_leader() -> None:
    await reads_through_an_outage("blackhole", polls=True)


async def test_iteration_over_an_unreachable_leader() -> None:
    await reads_through_an_outage("refuse", polls=False)


async def test_iteration_over_a_silent_leader() -> None:
    await reads_through_an_outage("blackhole", polls=False)

"""A consumer whose rack's replica restarts goes on, with few requests (KIP-392)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from kclient import Consumer, Producer, TopicPartition
from tests.nodes.diary import Diary
from tests.support.nodes import Nodes

_PATIENCE = 15.0
FETCHES = 60
"""From the write until five seconds after the replica is read again; it was 4,000 a second."""


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_PATIENCE):
        while not condition():  # noqa: ASYNC110 - health() has no notification
            await asyncio.sleep(0.05)


async def values(consumer: Consumer[bytes, bytes], count: int) -> list[int]:
    """The next ``count`` records' values."""
    found: list[int] = []
    async with asyncio.timeout(_PATIENCE):
        while len(found) < count:
            found += [int(one.value or b"-1") for one in await consumer.poll(timeout=1.0)]
    return found


@pytest.mark.timeout(120)
async def test_a_replica_that_restarts_is_left_and_read_again(nodes: Nodes, topic: str) -> None:
    """Metadata is refreshed while it is down, so that the view lacks it when it returns."""
    await asyncio.to_thread(nodes.create_topic, topic, replicas=[(1, 2, 3)])
    place, diary = TopicPartition(topic, 0), Diary("consumer")
    async with (
        Producer(nodes.bootstrap) as producer,
        Consumer(
            nodes.bootstrap,
            topic,
            auto_offset_reset="earliest",
            client_rack="rack-3",
            observers=[diary],
        ) as consumer,
    ):

        async def write(numbers: range) -> None:
            await asyncio.gather(*[producer.send(topic, b"%d" % number) for number in numbers])

        def reads_from(node: int) -> bool:
            return consumer.health().partitions[place].node_id == node

        await write(range(10))
        assert await values(consumer, 10) == list(range(10))
        await until(lambda: reads_from(3))
        await asyncio.to_thread(nodes.stop, 3)
        await until(lambda: reads_from(1))
        assert await consumer.poll(timeout=5.0) == []  # metadata is refreshed by then
        await asyncio.to_thread(nodes.restart, 3)
        await asyncio.to_thread(nodes.wait_full_isr, topic)
        began = time.monotonic()
        await write(range(10, 20))
        assert await values(consumer, 10) == list(range(10, 20))
        await until(lambda: reads_from(3))
        assert await consumer.poll(timeout=5.0) == []
        assert len(diary.requests("Fetch", began)) < FETCHES
        assert consumer.health().ok

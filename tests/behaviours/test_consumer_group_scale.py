"""A thousand partitions in a group, on every kind of broker."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from typing import Any

import kclient
from kclient.types import TopicPartition

PARTITIONS = 1000
PATIENCE = 60.0
"""Seconds; it takes one or two."""
SETTINGS: Any = {
    "auto_offset_reset": "earliest",
    "session_timeout": 10.0,
    "heartbeat_interval": 0.5,
    "partition_assignment_strategy": "cooperative-sticky",
}


async def until(condition: Callable[[], bool]) -> None:
    """The test as a whole has a limit."""
    while not condition():  # noqa: ASYNC110 - a client has no event for it
        await asyncio.sleep(0.01)


async def test_a_thousand_partitions_are_shared_out_read_and_committed(broker, topic) -> None:
    name, group = await topic(partitions=PARTITIONS), f"scale-{secrets.token_hex(8)}"
    every = [TopicPartition(name, index) for index in range(PARTITIONS)]
    values: set[bytes] = set()

    async def poll_on(consumer: Any) -> None:
        while True:
            values.update(record.value for record in await consumer.poll(timeout=0.2))

    async with kclient.Producer(broker.bootstrap) as producer:
        for index in range(PARTITIONS):
            await producer.enqueue(name, b"%d" % index, partition=index)
        await producer.flush()
    first, second = (
        kclient.Consumer(broker.bootstrap, name, group=group, **SETTINGS) for _ in range(2)
    )
    async with asyncio.timeout(PATIENCE), first:
        tasks = [asyncio.create_task(poll_on(first))]
        await until(lambda: len(values) == PARTITIONS)
        async with second:
            tasks.append(asyncio.create_task(poll_on(second)))
            half = PARTITIONS // 2
            await until(lambda: len(first.assignment) == len(second.assignment) == half)
            assert first.assignment | second.assignment == set(every)
            tasks[1].cancel()
        await until(lambda: len(first.assignment) == PARTITIONS)
        tasks[0].cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError, kclient.errors.ClientClosed):
                await task
        await first.commit()
        found = await first.committed(every)
        assert {offset and offset.offset for offset in found.values()} == {1}

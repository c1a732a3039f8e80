"""Hot paths of the consumer, by its public methods: from a fetch response's bytes to the user."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from kclient import Consumer, TopicPartition
from tests.budgets.canned import ADDRESS, TOPIC, CannedBroker
from tests.budgets.hot_path import HotPath, Step
from tests.budgets.records import BARE, filled
from tests.budgets.still import StillLoop

Client = Consumer[Any, Any]
Walk = Callable[[Client, int], Coroutine[Any, Any, object]]


def whole(walk: Walk) -> Callable[[int], AbstractContextManager[Step]]:
    """All that a walk does; the consumer is at offset 0 and has asked for nothing yet."""

    @contextmanager
    def prepare(count: int) -> Iterator[Step]:
        batches = [(one.encode(), one.record_count) for one in filled(count, BARE)]
        loop = StillLoop()
        asyncio.set_event_loop(loop)
        consumer: Client = Consumer(ADDRESS, dialer=CannedBroker(batches))
        try:
            loop.run_until_complete(consumer.start())
            partition = TopicPartition(TOPIC, 0)

            async def run() -> object:
                consumer.assign([partition])
                consumer.seek(partition, 0)
                return await walk(consumer, count)

            yield lambda: loop.run_until_complete(run())
        finally:
            loop.run_until_complete(consumer.close())
            asyncio.set_event_loop(None)
            loop.close()

    return prepare


async def polled(consumer: Client, count: int) -> list[Any]:
    """500 at a time, as is the default."""
    records: list[Any] = []
    while len(records) < count:
        records += await consumer.poll(timeout=None)
    return records


async def iterated(consumer: Client, count: int) -> int:
    """One by one, and each value is looked at."""
    size = 0
    async for record in consumer:
        size += len(record.value)
        count -= 1
        if not count:
            return size
    raise RuntimeError("the records ended")


async def arrow(consumer: Client, count: int) -> list[Any]:
    """Whole batches as columns."""
    batches: list[Any] = []
    while count > 0:
        batches.append(await consumer.poll_arrow(timeout=None))
        count -= batches[-1].num_rows
    return batches


PATHS = (
    HotPath("poll", "Consumer.poll to Record objects", whole(polled), 2400, pure=True),
    HotPath("iterate", "async for, value read", whole(iterated), 2400),
    HotPath("poll_arrow", "Consumer.poll_arrow", whole(arrow), 4800),
)

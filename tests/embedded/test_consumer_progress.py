"""A consumer makes progress when memory is released late, and with very short timeouts.

The brokers are on this loop. The tests wait for events; a step that must come eventually may take
a few tries, as the poller's loop time follows the real clock.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow  # noqa: F401 - its import takes longer than poller.TURN
import pytest
import pytest_asyncio

import kclient
from kclient.consumer.poller import TURN
from kclient.record import Compression
from kclient.types import TopicPartition
from tests.behaviours.reading import offsets, read
from tests.unit.consumer.log_bytes import batch

T = "flights"
P = TopicPartition(T, 0)
START: Any = {"auto_offset_reset": "earliest", "fetch_max_wait": 0.05}
TRIES = 100


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[kclient.testing.Cluster]:
    async with kclient.testing.Cluster(brokers=1) as running:
        running.create_topic(T)
        yield running


class HeldThreads(ThreadPoolExecutor):
    """Begins its jobs only when ``opened`` is set; ``asked`` is set by the first one."""

    def __init__(self) -> None:
        super().__init__(max_workers=1)
        self.asked = asyncio.Event()
        self.opened = threading.Event()

    def submit(self, job: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        def later() -> Any:
            self.opened.wait()
            return job(*args, **kwargs)

        self.asked.set()
        return super().submit(later)


async def test_memory_that_only_a_thread_held_is_asked_for_again(cluster: Any) -> None:
    """A seek left the batch while it was inflated, and it alone filled the memory."""
    for first in (0, 100):
        cluster.append(T, 0, batch(first, 100, codec=Compression.GZIP, value_bytes=20_000))
    threads = HeldThreads()
    asyncio.get_running_loop().set_default_executor(threads)
    async with kclient.Consumer(cluster.bootstrap, **START, buffer_memory=1024) as consumer:
        consumer.assign([P])
        polled = asyncio.create_task(consumer.poll(max_records=1, timeout=5.0))
        try:
            await threads.asked.wait()
            consumer.seek(P, 100)
            # Until everything that the seek and the start caused has ended.
            await asyncio.sleep(0.3)
        finally:
            threads.opened.set()
        assert offsets(await polled) == {0: [100]}


WAYS: dict[str, Callable[[Any], Callable[[], Awaitable[Any]]]] = {
    "poll": lambda consumer: consumer.poll,
    "anext": lambda consumer: aiter(consumer).__anext__,
    "arrow": lambda consumer: consumer.poll_arrow,
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_timeout_of_nothing_gets_records_that_are_at_hand(cluster: Any, way: str) -> None:
    """A call may be cut short where yielding to the loop is due, but not every time."""
    for first in (0, 100):
        cluster.append(T, 0, batch(first, 100))
    async with kclient.Consumer(cluster.bootstrap, T, **START) as consumer:
        assert len(await read(consumer, 1)) == 1
        take = WAYS[way](consumer)
        if way == "anext":
            assert await take()
        await asyncio.sleep(2 * TURN)
        assert await tries_with_no_time(take) < TRIES


async def tries_with_no_time(take: Callable[[], Awaitable[Any]]) -> int:
    """How often ``take`` timed out before it returned records."""
    for number in range(TRIES):
        try:
            async with asyncio.timeout(0):
                assert await take()
                return number
        except TimeoutError:
            pass
    return TRIES

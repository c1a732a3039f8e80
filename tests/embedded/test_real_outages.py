"""Outages in real time, on real sockets: how often clients dial a listener that hangs up on them.

The exact schedule is tested on virtual time (``tests/virtual/test_reconnects.py``); this shows once
that loops, kernels and sockets don't add to it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import kclient
from kclient.errors import KafkaError
from kclient.testing import Cluster

MOST_IN_20_SECONDS = 28


async def producing(bootstrap: str, over: asyncio.Event) -> None:
    producer: Any = kclient.Producer(bootstrap)
    await producer.start()
    while not over.is_set():
        with contextlib.suppress(KafkaError):
            producer.send("flights", b"x")
        await asyncio.sleep(0.01)
    with contextlib.suppress(KafkaError):
        await producer.close(timeout=0.0)


async def consuming(bootstrap: str, over: asyncio.Event) -> None:
    async with kclient.Consumer(bootstrap, "flights", auto_offset_reset="earliest") as consumer:
        while not over.is_set():
            with contextlib.suppress(KafkaError):
                await consumer.poll(timeout=0.1)


async def administering(bootstrap: str, over: asyncio.Event) -> None:
    async with kclient.Admin(bootstrap, api_timeout=0.5) as admin:
        while not over.is_set():
            with contextlib.suppress(KafkaError):
                await admin.list_topics()
            await asyncio.sleep(0.01)


async def connects_in_20_seconds(
    client: Callable[[str, asyncio.Event], Coroutine[Any, Any, None]],
) -> int:
    """Connections that ``client`` makes to a listener that accepts and closes."""
    over, connects = asyncio.Event(), 0

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connects
        connects += 1
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("flights")
        task = asyncio.create_task(client(cluster.bootstrap, over))
        await cluster.requests.wait_count("Metadata", 1)
        await asyncio.sleep(0.5)
        host, _, port = cluster.bootstrap.rpartition(":")
        await cluster.crash(1)
        async with await asyncio.start_server(hang_up, host, int(port)):
            await asyncio.sleep(20.0)
        over.set()
        await task
    return connects


async def test_a_listener_that_hangs_up_is_dialed_at_most_28_times_in_20_seconds() -> None:
    async with asyncio.timeout(60.0), asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(connects_in_20_seconds(client))
            for client in (producing, consuming, administering)
        ]
    counts = [task.result() for task in tasks]
    assert all(10 <= count <= MOST_IN_20_SECONDS for count in counts), counts

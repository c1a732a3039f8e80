"""Outages in real time, on real sockets: how often clients dial, and how much memory they take.

The exact figures are tested on virtual time (``test_reconnects.py`` and
``test_memory_in_outages.py`` there); these tests show that real loops, kernels, sockets and
allocators add nothing to them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

import kclient
from kclient.errors import KafkaError
from kclient.testing import Cluster

MOST_IN_20_SECONDS = 28
MIB = 1024 * 1024
BUDGET = 32 * MIB
"""The default of ``buffer_memory``: what Python and the heap add is the same for smaller ones."""
PARTITIONS = 200


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


class Log:
    """All partitions of the topic, counted, and emptied now and then."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def end(self) -> int:
        """Records written so far."""
        return sum(self._cluster.end_offset("flights", n) for n in range(PARTITIONS))

    async def grows(self, seconds: float) -> int:
        """Records written within ``seconds``."""
        before = self.end()
        for _ in range(int(seconds * 5)):
            await asyncio.sleep(0.2)
            for n in range(PARTITIONS):
                committed = self._cluster.high_watermark("flights", n)
                self._cluster.delete_records("flights", n, committed)
        return self.end() - before


async def be_frozen(cluster: Cluster, seconds: float) -> None:
    """As stopped processes: kernels accept connections and bytes, no broker reads them."""
    time.sleep(seconds)  # noqa: ASYNC251 - on purpose: the brokers are in this loop


async def be_refused(cluster: Cluster, seconds: float) -> None:
    for node_id in (1, 2, 3):
        await cluster.crash(node_id)
    await asyncio.sleep(seconds)
    for node_id in (1, 2, 3):
        await cluster.restart(node_id)


async def be_silent(cluster: Cluster, seconds: float) -> None:
    """As half-open connections: they stay open, and no response comes back."""
    silence = cluster.faults.drop(None, times=None)
    await asyncio.sleep(seconds)
    cluster.faults.remove(silence)


OUTAGES = ((be_frozen, 1.5), (be_refused, 1.5), (be_silent, 3.5))
"""With the seconds until the rate is checked: the last kind is detected by time-outs of 2 s."""


async def test_a_producer_at_full_rate_keeps_its_memory_in_outages_and_loses_nothing() -> None:
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("flights", partitions=PARTITIONS)
        arguments = ("-m", "tests.support.full_rate", cluster.bootstrap, "flights", str(BUDGET))
        pipe = asyncio.subprocess.PIPE
        service = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL
        )
        assert service.stdin is not None and service.stdout is not None
        log = Log(cluster)
        try:
            assert await service.stdout.readline() == b"writing\n"
            usual = await log.grows(1.0)
            for outage, settles in OUTAGES:
                await outage(cluster, 2.0)
                await log.grows(settles)
                assert await log.grows(1.0) > 0.2 * usual, outage.__name__
            service.stdin.close()
            said = json.loads(await service.stdout.readline())
        finally:
            service.stdin.close()
            await service.wait()
        assert said["grown"] <= 1.5 * BUDGET + 16 * MIB, said
        assert said["refused"] > 0
        assert said["taken"] == said["delivered"] == log.end()

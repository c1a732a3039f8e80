"""A producer and a consumer under a load that is offered at a fixed rate, and its outcome.

The rate lies far below what clients and brokers can do, so a partition that falls behind it is held
up by something: windows can be compared on a busy machine. Records are numbered per partition, so a
record that is lost, doubled or out of order is seen. Tests of recovery and of isolation use it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any

from kclient import Consumer, Producer
from kclient.errors import KafkaError
from kclient.producer.delivery import Delivery

TICK = 0.01
"""Seconds between two looks at what is due."""
_PADDING = b"x" * 80
_POLL = 0.1


class SteadyLoad:
    """Offers ``rate`` records per second to each partition of a topic, and reads them.

    ``acked`` and ``read`` have, per partition, an instant for each record, on the monotonic clock.
    ``wrong`` has violations; ``troubles`` has the retriable errors that ``poll`` raised.
    """

    def __init__(
        self,
        producer: Producer[Any, Any],
        consumer: Consumer[bytes | None, bytes | None],
        topic: str,
        partitions: int,
        rate: float,
    ) -> None:
        self._producer = producer
        self._consumer = consumer
        self._topic = topic
        self._rate = rate
        self._sent = dict.fromkeys(range(partitions), 0)
        self._next = dict.fromkeys(range(partitions), 0)
        self.acked: dict[int, list[float]] = {index: [] for index in range(partitions)}
        self.read: dict[int, list[float]] = {index: [] for index in range(partitions)}
        self.wrong: list[str] = []
        self.troubles: list[KafkaError] = []
        self._settling: set[asyncio.Task[None]] = set()
        self._offering = True

    async def offer(self) -> None:
        """Send what is due, until ``drain``."""
        began = time.monotonic()
        while self._offering:
            due = int((time.monotonic() - began) * self._rate)
            for partition, sent in self._sent.items():
                if due > sent:
                    self._send(partition, range(sent, due))
                    self._sent[partition] = due
            await asyncio.sleep(TICK)

    async def take(self) -> None:
        """Read, until cancelled."""
        while True:
            try:
                records = await self._consumer.poll(max_records=5000, timeout=_POLL)
            except KafkaError as error:
                if not error.retriable:
                    self.wrong.append(f"poll failed: {error}")
                    raise
                self.troubles.append(error)
                continue
            now = time.monotonic()
            for record in records:
                number = int((record.value or b"-1").partition(b" ")[0])
                due = self._next[record.partition]
                if number != due:
                    self.wrong.append(f"{record.partition}: read {number} where {due} was due")
                self._next[record.partition] = number + 1
                self.read[record.partition].append(now)

    async def flowing(self, timeout: float) -> None:
        """Wait until every partition gives back what it was given a second ago."""
        async with asyncio.timeout(timeout):
            while min(map(len, self.read.values())) < self._rate:  # noqa: ASYNC110 - it is polled
                await asyncio.sleep(TICK)

    async def drain(self, timeout: float) -> None:
        """Stop offering, and wait until all that was sent is acknowledged and read."""
        self._offering = False
        async with asyncio.timeout(timeout):
            if self._settling:
                await asyncio.wait(tuple(self._settling))
            while self._next != self._sent and not self.wrong:  # noqa: ASYNC110 - it is polled
                await asyncio.sleep(TICK)

    async def abandon(self) -> None:
        """Stop offering, without waiting for requests in flight."""
        self._offering = False
        for task in self._settling:
            task.cancel()
        await asyncio.gather(*self._settling, return_exceptions=True)

    def acks_between(self, start: float, end: float, partitions: Collection[int]) -> int:
        """Records that were acknowledged in a window."""
        return _between(self.acked, start, end, partitions)

    def reads_between(self, start: float, end: float, partitions: Collection[int]) -> int:
        """Records that were read in a window."""
        return _between(self.read, start, end, partitions)

    def _send(self, partition: int, numbers: range) -> None:
        deliveries = [
            self._producer.send(self._topic, b"%d %s" % (number, _PADDING), partition=partition)
            for number in numbers
        ]
        task = asyncio.create_task(self._settle(partition, deliveries))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _settle(self, partition: int, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            try:
                await delivery
            except KafkaError as error:
                self.wrong.append(f"{partition}: a send failed: {error}")
            else:
                self.acked[partition].append(time.monotonic())


def first_since(times: Sequence[float], instant: float) -> float | None:
    """The first of some times, which ascend, that isn't before an instant."""
    place = bisect_left(times, instant)
    return times[place] if place < len(times) else None


def p95(values: Sequence[float]) -> float:
    """The nearest rank: of twenty values the largest but one."""
    return sorted(values)[-(-len(values) * 95 // 100) - 1]


@contextlib.asynccontextmanager
async def under_load(load: SteadyLoad) -> AsyncIterator[SteadyLoad]:
    """Offer and read for the time of the context; what is in flight at its end is abandoned."""
    tasks = [asyncio.create_task(load.offer()), asyncio.create_task(load.take())]
    try:
        yield load
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await load.abandon()


def _between(
    times: dict[int, list[float]], start: float, end: float, partitions: Collection[int]
) -> int:
    return sum(
        bisect_left(times[partition], end) - bisect_left(times[partition], start)
        for partition in partitions
    )

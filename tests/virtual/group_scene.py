"""What the tests of groups on virtual time have in common: members, and what they received.

``Reader`` is one consumer in the group with a task that polls, and a diary of its rebalances and
records. Used by the tests of this folder only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import kclient
from kclient.testing import Cluster
from kclient.types import TopicPartition
from tests.virtual.consumer_scene import T, until

GROUP = "audit"
SETTINGS: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "fetch_max_wait": 0.1,
    "retry_backoff": 0.02,
    "retry_backoff_max": 0.1,
    "session_timeout": 6.0,
    "heartbeat_interval": 1.0,
    "partition_assignment_strategy": "range",
}
COOPERATIVE = "cooperative-sticky"


class Reader:
    """One member. ``start`` it, and ``stop`` or ``crash`` it.

    Attributes:
        diary: ("assigned" | "revoked" | "lost", partitions) in order.
        offsets: By partition, the offsets that were handed over, in order.
        errors: What poll raised.
    """

    def __init__(self, cluster: Cluster, *topics: str, **settings: Any) -> None:
        self.cluster = cluster
        self.topics = topics if topics or "pattern" in settings else (T,)
        self.settings = {**SETTINGS, **settings}
        self.diary: list[tuple[str, list[TopicPartition]]] = []
        self.offsets: dict[TopicPartition, list[int]] = {}
        self.errors: list[BaseException] = []
        self.work: Callable[[list[Any]], Any] | None = None
        self.task: asyncio.Task[None] | None = None
        self.consumer: Any = None

    def _reported(self, what: str) -> Callable[[Any], None]:
        return lambda partitions: self.diary.append((what, list(partitions)))

    async def start(self) -> Reader:
        """Join the group and begin to poll."""
        self.consumer = kclient.Consumer(
            self.cluster.bootstrap,
            *self.topics,
            **{
                "group": GROUP,
                "on_assigned": self._reported("assigned"),
                "on_revoked": self._reported("revoked"),
                "on_lost": self._reported("lost"),
                **self.settings,
            },
        )
        await self.consumer.start()
        self.task = asyncio.create_task(self._run())
        return self

    async def _run(self) -> None:
        while True:
            try:
                records = await self.consumer.poll(timeout=1.0)
            except kclient.errors.ClientClosed:
                return
            except kclient.KafkaError as error:
                self.errors.append(error)
                await asyncio.sleep(0.1)
                continue
            for record in records:
                self.offsets.setdefault(record.topic_partition, []).append(record.offset)
            if self.work is not None:
                await self.work(records)

    async def stop(self) -> None:
        """Stop polling when the work at hand is done, and close."""
        await self._end_task()
        await self.consumer.__aexit__(None, None, None)

    async def _end_task(self) -> None:
        if self.task is not None:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task

    @property
    def owned(self) -> list[int]:
        """The indexes of the partitions that it owns by its callbacks."""
        own: set[TopicPartition] = set()
        for what, partitions in self.diary:
            own = own | set(partitions) if what == "assigned" else own - set(partitions)
        return sorted(partition.partition for partition in own)

    @property
    def seen(self) -> int:
        """How many records it received."""
        return sum(map(len, self.offsets.values()))

    def reported(self, what: str) -> list[list[int]]:
        """The partitions of each such call, by index."""
        return [[one.partition for one in parts] for kind, parts in self.diary if kind == what]


async def settled(*readers: Reader, partitions: int = 4, seconds: float = 60.0) -> None:
    """Wait until each partition belongs to exactly one reader, and each reader has some."""

    def done() -> bool:
        owned = sorted(index for one in readers for index in one.owned)
        return all(one.owned for one in readers) and owned == list(range(partitions))

    await until(done, seconds)

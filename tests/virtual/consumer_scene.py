"""What the consumer's tests on virtual time have in common: a log, a consumer of it, and checks.

``Ledger`` knows which offset of each partition must come next, and rejects any other: records left
out, repeated, of an old position or in another order. Used by the tests of this folder only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import kclient
from kclient.testing import Cluster, VirtualLoop
from kclient.types import TopicPartition
from tests.unit.consumer.log_bytes import batch

T = "flights"
P, Q = TopicPartition(T, 0), TopicPartition(T, 1)
QUICK: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "fetch_max_wait": 0.1,
    "retry_backoff": 0.02,
    "retry_backoff_max": 0.1,
}


def the_loop() -> VirtualLoop:
    """The loop that the test runs on."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def fill(
    cluster: Cluster, count: int, partitions: int = 1, *, per_batch: int = 10, **options: Any
) -> None:
    """Create the topic, with ``count`` records in each partition; leaders go round the brokers."""
    cluster.create_topic(T, partitions=partitions, replication_factor=len(cluster.brokers))
    for index in range(partitions):
        lead(cluster, index, index % len(cluster.brokers) + 1)
        for first in range(0, count, per_batch):
            cluster.append(T, index, batch(first, min(per_batch, count - first), **options))


def lead(cluster: Cluster, partition: int, broker: int) -> None:
    """Let ``broker`` lead ``partition``, if it doesn't yet."""
    if cluster.leader(T, partition) != broker:
        cluster.move_leader(T, partition, broker)


@asynccontextmanager
async def reading(cluster: Cluster, *topics: str, **settings: Any) -> AsyncIterator[Any]:
    """A consumer of the topics, by default of the one that ``fill`` makes."""
    async with kclient.Consumer(
        cluster.bootstrap, *(topics or (T,)), **{**QUICK, **settings}
    ) as consumer:
        yield consumer


@asynccontextmanager
async def scene(
    count: int = 0,
    partitions: int = 1,
    *,
    brokers: int = 3,
    per_batch: int = 10,
    configs: dict[str, object] | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[Cluster, Any]]:
    """A cluster with a filled topic, and a consumer of it."""
    async with Cluster(brokers=brokers, broker_configs=configs) as cluster:
        fill(cluster, count, partitions, per_batch=per_batch)
        async with reading(cluster, **settings) as consumer:
            yield cluster, consumer


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until ``condition`` holds; check it every virtual millisecond, later less often.

    After 50 ms the time between two checks is a fiftieth of the time that has passed, 50 ms at
    most.
    """
    began = the_loop().time()
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - it is cheap on virtual time
            await asyncio.sleep(min(max(0.001, (the_loop().time() - began) / 50), 0.05))


async def quiet(consumer: Any) -> None:
    """Pause everything, and wait until no fetch is in flight."""
    consumer.pause()
    await asyncio.sleep(1.0)


async def read(consumer: Any, count: int, seconds: float = 60.0) -> list[Any]:
    """Poll until ``count`` records came."""
    records: list[Any] = []
    async with asyncio.timeout(seconds):
        while len(records) < count:
            records += await consumer.poll(max_records=count - len(records), timeout=1.0)
    return records


def offsets(records: Iterable[Any]) -> dict[int, list[int]]:
    """The offsets by partition, in the order in which they came."""
    found: dict[int, list[int]] = {}
    for record in records:
        found.setdefault(record.partition, []).append(record.offset)
    return found


class Ledger:
    """The next offset of each partition, kept while records come.

    Attributes:
        next: By partition.
        taken: How many records came.
    """

    def __init__(self, partitions: int, first: int = 0) -> None:
        self.next = dict.fromkeys((TopicPartition(T, n) for n in range(partitions)), first)
        self.taken = 0

    def take(self, records: Iterable[Any]) -> None:
        """Check that these came, in this order; each value names the offset it was written at."""
        for record in records:
            self._take(record.topic, record.partition, record.offset, record.value)

    def take_rows(self, rows: Iterable[Any]) -> None:
        """Check the same for the rows of columns."""
        for row in rows:
            self._take(row["topic"], row["partition"], row["offset"], row["value"])

    def _take(self, topic: str, index: int, offset: int, value: Any) -> None:
        partition = TopicPartition(topic, index)
        expected = self.next[partition]
        assert offset == expected, f"{partition}: {offset}, not {expected}"
        assert int(value.rstrip(b".") if isinstance(value, bytes) else value) == expected
        self.next[partition] = expected + 1
        self.taken += 1

    def check_positions(self, consumer: Any) -> None:
        """Check that the consumer's positions are the next offsets, as far as it knows them yet."""
        for partition, position in consumer.positions().items():
            assert position in (None, self.next[partition]), partition

    async def read_to(self, consumer: Any, end: int, seconds: float = 60.0) -> None:
        """Poll until each partition has reached ``end``."""
        async with asyncio.timeout(seconds):
            while min(self.next.values()) < end:
                self.take(await consumer.poll(timeout=1.0))
        assert max(self.next.values()) == end


def fetches(cluster: Cluster, broker: int | None = None) -> list[Any]:
    """The fetch requests that brokers got, oldest first."""
    return [served.request for served in cluster.requests.of("Fetch", broker=broker)]


def parts_of(response: Any) -> Iterable[Any]:
    """The partitions' parts of a fetch response."""
    return (part for topic in response.responses for part in topic.partitions)

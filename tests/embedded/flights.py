"""A topic of flights in an embedded cluster, and consumers with short backoffs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import kclient
from kclient.types import TopicPartition
from tests.unit.consumer.log_bytes import batch

T = "flights"
P = TopicPartition(T, 0)
QUICK: Any = {
    "auto_offset_reset": "earliest",
    "fetch_max_wait": 0.1,
    "retry_backoff": 0.02,
    "retry_backoff_max": 0.1,
}


def fill(cluster: Any, count: int, partitions: int = 1, *, per_batch: int = 10) -> None:
    """Create the topic, with ``count`` records in each partition."""
    cluster.create_topic(T, partitions=partitions, replication_factor=len(cluster.brokers))
    for index in range(partitions):
        for first in range(0, count, per_batch):
            cluster.append(T, index, batch(first, per_batch))


@asynccontextmanager
async def reading(cluster: Any, *topics: str, **settings: Any) -> AsyncIterator[Any]:
    async with kclient.Consumer(
        cluster.bootstrap, *(topics or (T,)), **{**QUICK, **settings}
    ) as consumer:
        yield consumer


def fetches(cluster: Any) -> list[Any]:
    return [served.request for served in cluster.requests.of("Fetch")]

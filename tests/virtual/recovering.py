"""Common parts of the tests of a producer's recovery: producers behind a ``Wire``, and outcomes.

Used by the pitfalls of producers and by the matrix of lost responses. Judges nothing but what must
hold in every test.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import kclient
from kclient.errors import KafkaError
from kclient.producer import Delivery
from kclient.testing import Cluster
from tests.virtual.relay import sent_in_order
from tests.virtual.wire import Fate, Reported, Sent, Wire

BATCH_EACH: dict[str, Any] = {
    "linger": 0.0,
    "batch_size": 64,
    "retry_backoff": 0.05,
    "retry_backoff_max": 0.2,
}
"""One record fills a batch."""
IMPATIENT: dict[str, Any] = {"delivery_timeout": 5.0, "request_timeout": 60.0}
"""Batches expire while they are in flight."""


@asynccontextmanager
async def wired(
    cluster: Cluster, **settings: Any
) -> AsyncIterator[tuple[Wire, kclient.Producer[Any, Any]]]:
    """A producer behind a wire; at the end, check that each number meant one record."""
    wire = Wire(cluster)
    async with kclient.Producer(cluster.bootstrap, **{**BATCH_EACH, **settings}) as producer:
        yield wire, producer
    await asyncio.sleep(0.1)  # a dial in progress ends at the wire, which wants a broker
    wire.check_numbers()


@asynccontextmanager
async def sending(
    cluster: Cluster, **settings: Any
) -> AsyncIterator[tuple[Wire, kclient.Producer[Any, Any]]]:
    """The same, with its first record, 0, written: only then do several batches go at once."""
    async with wired(cluster, **settings) as (wire, producer):
        await sent_in_order(producer, 1)
        yield wire, producer


@asynccontextmanager
async def one_broker() -> AsyncIterator[Cluster]:
    """A cluster of one, with the topic t of one partition."""
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        yield cluster


def send(producer: Any, first: int, end: int) -> list[Delivery]:
    """Have it send these numbers to the first partition of t."""
    return [producer.send("t", b"%d" % number, partition=0) for number in range(first, end)]


async def outcomes(deliveries: Sequence[Delivery]) -> list[Any]:
    """Offsets, and ``maybe_written`` of those that failed."""
    found: list[Any] = []
    for delivery in deliveries:
        try:
            found.append((await delivery).offset)
        except KafkaError as error:
            found.append(error.maybe_written)
    return found


def only(value: bytes) -> Any:
    """Keeps what is about the batch with one record of that value."""
    return lambda one: Fate.KEEP if _batch(one).values == (value,) else Fate.PASS


def _batch(one: Sent | Reported) -> Sent:
    return one if isinstance(one, Sent) else one.batch

"""``close`` against a real broker that is stopped by SIGSTOP, in the states where that matters.

The kernel still accepts connections and bytes for a stopped process, so a client sees a broker
that is up and sends nothing. The same states as in tests/virtual/test_closing.py; here, where
time is real, they show that the client's own time-outs suffice for ``close`` to return. The
broker belongs to this file, and goes on after each test.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

import kclient
from kclient.errors import BufferFull, ClientClosed, FlushFailed
from kclient.types import TopicPartition
from tests.support import kafka, raw_admin
from tests.support.kafka import RunningBroker

RELEASE = "4.3.0"
TIMEOUT = 1.0
LIMIT = TIMEOUT + 1.0
MANY = 100_000


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with kafka.private(RELEASE, "sigstop") as running:
        yield running


@pytest.fixture
def topic(broker: RunningBroker) -> str:
    name = f"stopped-{secrets.token_hex(4)}"
    raw_admin.create_topic(broker.bootstrap, name, partitions=2)
    return name


@contextlib.contextmanager
def stopped(broker: RunningBroker) -> Iterator[None]:
    """The broker's process doesn't run."""
    process = broker.processes[0]
    process.pause()
    try:
        yield
    finally:
        process.resume()


def make(kind: str, broker: RunningBroker, topic: str, **settings: Any) -> Any:
    if kind == "producer":
        return kclient.Producer(broker.bootstrap, **settings)
    if kind == "consumer":
        return kclient.Consumer(broker.bootstrap, topic, auto_offset_reset="earliest", **settings)
    return kclient.Admin(broker.bootstrap, **settings)


async def use(kind: str, client: Any, topic: str) -> None:
    """Use the client, so that its connections are open."""
    if kind == "producer":
        await asyncio.gather(*(client.send(topic, b"first", partition=p) for p in range(2)))
    elif kind == "consumer":
        async with kclient.Producer(client._config.bootstrap) as producer:
            await producer.send(topic, b"v")
        assert await client.poll(timeout=10.0)
    else:
        await client.list_topics()


def begin_calls(kind: str, client: Any, topic: str) -> list[asyncio.Task[Any]]:
    """Calls that wait for the stopped broker."""
    calls: list[Any]
    if kind == "producer":
        for number in range(100):
            client.send(topic, b"%d" % number)
        calls = [client.flush()]
    elif kind == "consumer":
        calls = [client.poll(timeout=None), client.end_offsets([TopicPartition(topic, 0)])]
    else:
        calls = [client.list_topics(), client.describe_cluster()]
    return [asyncio.create_task(call) for call in calls]


async def timed_close(client: Any) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    with contextlib.suppress(FlushFailed):
        await client.close(TIMEOUT)
    return loop.time() - began


async def reported(calls: list[asyncio.Task[Any]]) -> None:
    """Each call has ended, with an error that reports the client as closed."""
    for call in calls:
        assert call.done()
        assert isinstance(call.exception(), (ClientClosed, FlushFailed)), repr(call)


async def test_all_well_everything_is_delivered(broker: RunningBroker, topic: str) -> None:
    producer = make("producer", broker, topic)
    await producer.start()
    await producer.partitions_for(topic)
    for number in range(MANY):
        producer.send(topic, b"%d" % number)
    await producer.close(30.0)
    async with make("consumer", broker, topic) as consumer:
        places = [TopicPartition(topic, p) for p in range(2)]
        assert sum((await consumer.end_offsets(places)).values()) == MANY


@pytest.mark.parametrize("kind", ["producer", "consumer", "admin"])
async def test_stopped_with_calls_in_flight(broker: RunningBroker, topic: str, kind: str) -> None:
    client = make(kind, broker, topic)
    await client.start()
    await use(kind, client, topic)
    with stopped(broker):
        calls = begin_calls(kind, client, topic)
        await asyncio.sleep(0.2)
        assert not any(call.done() for call in calls)
        assert await timed_close(client) <= LIMIT
        await asyncio.sleep(0)
        await reported(calls)


@pytest.mark.parametrize("kind", ["producer", "consumer", "admin"])
async def test_stopped_while_the_client_starts(
    broker: RunningBroker, topic: str, kind: str
) -> None:
    with stopped(broker):
        client = make(kind, broker, topic)
        starting = asyncio.create_task(client.start())
        await asyncio.sleep(0.2)
        assert await timed_close(client) <= LIMIT
        with pytest.raises(ClientClosed):
            await starting


@pytest.mark.parametrize("kind", ["producer", "consumer", "admin"])
async def test_stopped_and_several_close_at_once(
    broker: RunningBroker, topic: str, kind: str
) -> None:
    client = make(kind, broker, topic)
    await client.start()
    await use(kind, client, topic)
    with stopped(broker):
        calls = begin_calls(kind, client, topic)
        await asyncio.sleep(0.1)
        for took in await asyncio.gather(*(timed_close(client) for _ in range(5))):
            assert took <= LIMIT
        await reported(calls)


async def test_stopped_with_all_memory_taken(broker: RunningBroker, topic: str) -> None:
    producer = make("producer", broker, topic, buffer_memory=100_000, batch_size=10_000)
    await producer.start()
    await use("producer", producer, topic)
    with stopped(broker):
        deliveries = []
        with pytest.raises(BufferFull):
            while True:
                deliveries.append(producer.send(topic, b"x" * 1_000))
        calls = [asyncio.create_task(producer.enqueue(topic, b"y" * 1_000)) for _ in range(5)]
        await asyncio.sleep(0.2)
        assert not any(call.done() for call in calls)
        assert await timed_close(producer) <= LIMIT
        await reported(calls)
        for delivery in deliveries:
            error = delivery.exception()
            assert isinstance(error, ClientClosed)
            assert error.maybe_written is not None
        with pytest.raises(ClientClosed):
            await producer.flush()


async def test_it_goes_on_when_the_broker_does(broker: RunningBroker, topic: str) -> None:
    async with make("producer", broker, topic) as producer:
        await use("producer", producer, topic)
        with stopped(broker):
            delivery = producer.send(topic, b"late", partition=0)
            await asyncio.sleep(0.5)
            assert not delivery.done()
        assert (await delivery).offset == 1

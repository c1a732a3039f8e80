"""How far ahead of the sender ``send_many`` and ``send_arrow`` go, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pyarrow as pa
import pytest

import kclient
from kclient.errors import ClientClosed, FlushFailed, KafkaError
from kclient.testing import Cluster

VALUE = b"x" * 100
REQUEST = 64 * 1024
SMALL: Any = {"batch_size": 4096, "max_request_size": REQUEST, "max_in_flight": 1}
MANY = 20_000
"""Records, of which a request has less than a tenth."""
HIGH = 3 * REQUEST
"""Bytes that may be taken while one request is under way: what it has, a request's worth that
waits, and less than that again for upkeep and the batch that is open."""


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(brokers=2) as running:
        running.create_topic("t", partitions=4)
        yield running


class Source:
    """An iterator that counts what was pulled."""

    def __init__(self, count: int = MANY, value: bytes = VALUE) -> None:
        self.pulled = 0
        self._count = count
        self._value = value

    def __iter__(self) -> Iterator[bytes]:
        for _ in range(self._count):
            self.pulled += 1
            yield self._value

    @property
    def pulled_bytes(self) -> int:
        return self.pulled * len(self._value)


def written(cluster: Cluster, topic: str = "t", partitions: int = 4) -> int:
    return sum(len(cluster.records(topic, p)) for p in range(partitions))


async def begun(producer: Any, cluster: Cluster) -> Any:
    """Have the producer know its topic; from here on no Produce request is answered."""
    await producer.send("t", b"first")
    return cluster.faults.hold("Produce", times=None)


@pytest.mark.parametrize("size", [100, 20_000], ids=["many a batch", "a batch each"])
async def test_records_are_pulled_as_they_can_be_sent(cluster: Cluster, size: int) -> None:
    source = Source(MANY * 100 // size, b"x" * size)
    async with kclient.Producer(cluster.bootstrap, **SMALL) as producer:
        held = await begun(producer, cluster)
        call = asyncio.create_task(producer.send_many("t", source))
        await asyncio.sleep(5.0)
        brokers = 2
        assert REQUEST < source.pulled_bytes < brokers * HIGH
        assert not call.done()
        held.release()
        cluster.faults.clear()
        assert await call == source.pulled
    assert written(cluster) == source.pulled + 1


async def test_rows_are_taken_as_they_can_be_sent(cluster: Cluster) -> None:
    rows = pa.table({"value": pa.array([VALUE] * MANY, pa.binary())})
    async with kclient.Producer(cluster.bootstrap, **SMALL) as producer:
        held = await begun(producer, cluster)
        call = asyncio.create_task(producer.send_arrow("t", rows))
        await asyncio.sleep(5.0)
        assert REQUEST < producer.health().buffered_bytes < 2 * HIGH
        held.release()
        cluster.faults.clear()
        assert await call == MANY
    assert written(cluster) == MANY + 1


async def test_batches_that_take_records_still_are_no_reason_to_wait(cluster: Cluster) -> None:
    cluster.create_topic("wide", partitions=300)
    records = [(b"%d" % i, VALUE) for i in range(6000)]
    async with kclient.Producer(cluster.bootstrap, linger=60.0, **SMALL) as producer:
        await producer.partitions_for("wide")
        call = asyncio.create_task(producer.send_many("wide", records))
        await asyncio.sleep(1.0)
        assert producer.health().buffered_bytes > len(records) * len(VALUE)  # more than REQUEST
        await producer.flush()
        assert await call == len(records)


async def test_calls_do_not_wait_for_what_others_have_unsent(cluster: Cluster) -> None:
    cluster.create_topic("other")
    async with kclient.Producer(cluster.bootstrap, linger=0.0, **SMALL) as producer:
        await producer.send("other", b"first")
        held = await begun(producer, cluster)
        stuck = asyncio.create_task(producer.send_many("t", Source()))
        await asyncio.sleep(1.0)
        source = Source(100)
        call = asyncio.create_task(producer.send_many("other", source))
        await asyncio.sleep(1.0)
        assert source.pulled == 100
        held.release()
        cluster.faults.clear()
        await asyncio.gather(stuck, call)


async def test_a_failure_ends_the_wait(cluster: Cluster) -> None:
    source = Source()
    settings = {**SMALL, "request_timeout": 2.0, "delivery_timeout": 5.0}
    async with kclient.Producer(cluster.bootstrap, **settings) as producer:
        held = await begun(producer, cluster)
        began = asyncio.get_running_loop().time()
        with pytest.raises(FlushFailed) as failed:
            await producer.send_many("t", source)
        assert failed.value.count == source.pulled < MANY
        assert asyncio.get_running_loop().time() - began < 6.0
        held.release()
        cluster.faults.clear()


async def test_closing_ends_the_wait(cluster: Cluster) -> None:
    source = Source()
    producer = kclient.Producer(cluster.bootstrap, **SMALL)
    await producer.start()
    held = await begun(producer, cluster)
    call = asyncio.create_task(producer.send_many("t", source))
    await asyncio.sleep(1.0)
    pulled = source.pulled
    await asyncio.gather(producer.close(timeout=1.0), return_exceptions=True)
    with pytest.raises((ClientClosed, FlushFailed)):
        await asyncio.wait_for(call, 0.1)
    assert source.pulled == pulled
    held.release()


async def test_a_cancelled_wait_leaves_nothing_behind(cluster: Cluster) -> None:
    source = Source()
    async with kclient.Producer(cluster.bootstrap, **SMALL) as producer:
        held = await begun(producer, cluster)
        call = asyncio.create_task(producer.send_many("t", source))
        await asyncio.sleep(1.0)
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        held.release()
        cluster.faults.clear()
        await producer.flush()
        assert await producer.send_many("t", [VALUE]) == 1
    assert written(cluster) == source.pulled + 2


async def test_the_death_of_the_sender_ends_the_wait(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source()
    producer = kclient.Producer(cluster.bootstrap, **SMALL)
    await producer.start()
    held = await begun(producer, cluster)
    call = asyncio.create_task(producer.send_many("t", source))
    await asyncio.sleep(1.0)

    def dies(*arguments: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(producer._sender, "_step", dies)
    held.release()
    with pytest.raises(KafkaError):
        await asyncio.wait_for(call, 5.0)
    assert source.pulled < MANY
    await asyncio.gather(producer.close(timeout=0.1), return_exceptions=True)


async def test_the_wait_is_over_once_batches_are_sent_before_any_answer(cluster: Cluster) -> None:
    """Else a long way to the broker would be idle for most of the time."""
    source = Source()
    async with kclient.Producer(cluster.bootstrap, **{**SMALL, "max_in_flight": 5}) as producer:
        held = await begun(producer, cluster)
        call = asyncio.create_task(producer.send_many("t", source))
        await asyncio.sleep(5.0)
        # Of each partition one batch is acknowledged before another may be under way, hence four.
        assert source.pulled_bytes > REQUEST + 4 * SMALL["batch_size"]
        held.release()
        cluster.faults.clear()
        assert await call == MANY

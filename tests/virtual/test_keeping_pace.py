"""How far ahead of the sender ``send_many`` and ``send_arrow`` go, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pyarrow as pa
import pytest

import kclient
from kclient.errors import BufferFull, ClientClosed, KafkaError
from kclient.producer._compiled import MemoryBudget
from kclient.producer.flush import FlushWait
from kclient.producer.send_many import BACKPRESSURE_TIMEOUT, Backpressure, new_yield_timer
from kclient.testing import Cluster

VALUE = b"x" * 100
BATCH, REQUEST = 4096, 64 * 1024
BROKERS, PARTITIONS = 2, 4
AHEAD = BROKERS * REQUEST
SMALL: Any = {"batch_size": BATCH, "max_request_size": REQUEST, "max_in_flight": 1, "linger": 0.0}
MANY = 20_000
"""Records, of which a request has less than a tenth."""
AT_ONCE = BACKPRESSURE_TIMEOUT / 2
"""Virtual seconds: no time passes but for messages between client and brokers."""


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(brokers=BROKERS) as running:
        running.create_topic("t", partitions=PARTITIONS)
        yield running


class Source:
    """Values, and how many were pulled."""

    def __init__(self, count: int = MANY, value: bytes = VALUE) -> None:
        self.pulled = 0
        self._count = count
        self._value = value

    def __iter__(self) -> Iterator[bytes]:
        for _ in range(self._count):
            self.pulled += 1
            yield self._value

    async def later(self) -> AsyncIterator[bytes]:
        for value in self:
            yield value

    @property
    def pulled_bytes(self) -> int:
        return self.pulled * len(self._value)


def written(cluster: Cluster, partition: int) -> int:
    return len(cluster.records("t", partition))


def answer(cluster: Cluster, held: Any) -> None:
    """Respond to what was held, and to all that comes."""
    held.release()
    cluster.faults.clear()


async def begun(producer: Any, cluster: Cluster, **where: Any) -> Any:
    """Have each partition acknowledge a batch; from here on Produce requests get no response."""
    await asyncio.gather(*[producer.send("t", VALUE, partition=p) for p in range(PARTITIONS)])
    return cluster.faults.hold("Produce", times=None, **where)


@pytest.mark.parametrize("kind", ["iterable", "async iterable"])
@pytest.mark.parametrize("size", [100, 20_000], ids=["many a batch", "a batch each"])
async def test_records_are_pulled_as_they_can_be_sent(
    cluster: Cluster, size: int, kind: str
) -> None:
    source = Source(MANY * 100 // size, b"x" * size)
    async with kclient.Producer(cluster.bootstrap, **SMALL) as producer:
        held = await begun(producer, cluster)
        records: Any = source if kind == "iterable" else source.later()
        call = asyncio.create_task(producer.send_many("t", records))
        await asyncio.sleep(AT_ONCE)
        # With a batch of each partition in flight, another one open, and what a block overshoots.
        assert AHEAD // 2 < source.pulled_bytes < AHEAD + (2 * PARTITIONS + 1) * max(size, BATCH)
        answer(cluster, held)
        assert await call == source.pulled
    assert sum(written(cluster, p) for p in range(PARTITIONS)) == source.pulled + PARTITIONS


async def test_rows_are_taken_as_they_can_be_sent(cluster: Cluster) -> None:
    rows = pa.table({"value": pa.array([VALUE] * MANY, pa.binary())})
    async with kclient.Producer(cluster.bootstrap, **SMALL) as producer:
        held = await begun(producer, cluster)
        call = asyncio.create_task(producer.send_arrow("t", rows))
        await asyncio.sleep(AT_ONCE)
        taken = producer.health().buffered_bytes
        assert AHEAD // 2 < taken < AHEAD + 3 * PARTITIONS * BATCH
        answer(cluster, held)
        assert await call == MANY


async def test_batches_that_take_records_still_are_no_reason_to_wait(cluster: Cluster) -> None:
    cluster.create_topic("wide", partitions=300)
    records = [(b"%d" % i, VALUE) for i in range(6000)]
    async with kclient.Producer(cluster.bootstrap, **{**SMALL, "linger": 4.0}) as producer:
        await producer.partitions_for("wide")
        call = asyncio.create_task(producer.send_many("wide", records))
        await asyncio.sleep(AT_ONCE)
        assert producer.health().buffered_bytes > len(records) * len(VALUE) > AHEAD
        await producer.flush()
        assert await call == len(records)


async def test_calls_do_not_wait_for_what_others_have_unsent(cluster: Cluster) -> None:
    cluster.create_topic("other")
    async with kclient.Producer(cluster.bootstrap, **SMALL) as producer:
        await producer.send("other", b"first")
        held = await begun(producer, cluster)
        stuck = asyncio.create_task(producer.send_many("t", Source()))
        await asyncio.sleep(AT_ONCE / 2)
        source = Source(100)
        call = asyncio.create_task(producer.send_many("other", source))
        await asyncio.sleep(AT_ONCE / 2)
        assert source.pulled == 100
        answer(cluster, held)
        await asyncio.gather(stuck, call)


async def test_an_unreachable_leader_does_not_stop_what_is_for_the_others(cluster: Cluster) -> None:
    records = [(b"%d" % i, VALUE) for i in range(MANY)]
    async with kclient.Producer(cluster.bootstrap, **SMALL) as producer:
        away = cluster.leader("t", 0)
        held = await begun(producer, cluster, broker=away)
        call = asyncio.create_task(producer.send_many("t", records))
        await asyncio.sleep(2.0)
        for partition in range(PARTITIONS):
            there = cluster.leader("t", partition) != away
            assert written(cluster, partition) > MANY // PARTITIONS * 0.8 if there else True
        answer(cluster, held)
        assert await call == MANY


async def test_with_no_responses_at_all_the_buffer_is_full_as_soon_as_ever(
    cluster: Cluster,
) -> None:
    settings: Any = {**SMALL, "buffer_memory": 1 << 20, "max_block": 3.0}
    async with kclient.Producer(cluster.bootstrap, **settings) as producer:
        held = await begun(producer, cluster)
        began = asyncio.get_running_loop().time()
        with pytest.raises(BufferFull):
            await producer.send_many("t", Source())
        assert asyncio.get_running_loop().time() - began < 3.0 + 5 * BACKPRESSURE_TIMEOUT
        answer(cluster, held)


async def test_closing_ends_the_wait(cluster: Cluster) -> None:
    source = Source()
    producer = kclient.Producer(cluster.bootstrap, **SMALL)
    await producer.start()
    held = await begun(producer, cluster)
    call = asyncio.create_task(producer.send_many("t", source))
    await asyncio.sleep(AT_ONCE)
    pulled = source.pulled
    closing = asyncio.create_task(producer.close(timeout=20.0))
    with pytest.raises(ClientClosed):
        await asyncio.wait_for(call, 2 * BACKPRESSURE_TIMEOUT)
    assert not closing.done()
    assert source.pulled == pulled
    answer(cluster, held)
    await closing


async def test_a_cancelled_wait_leaves_nothing_behind(cluster: Cluster) -> None:
    source = Source()
    async with kclient.Producer(cluster.bootstrap, **SMALL) as producer:
        held = await begun(producer, cluster)
        call = asyncio.create_task(producer.send_many("t", source))
        await asyncio.sleep(AT_ONCE)
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        answer(cluster, held)
        await producer.flush()
        assert await producer.send_many("t", [VALUE]) == 1
    total = source.pulled + 1 + PARTITIONS
    assert sum(written(cluster, p) for p in range(PARTITIONS)) == total


async def test_the_death_of_the_sender_ends_the_wait(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source()
    producer = kclient.Producer(cluster.bootstrap, **SMALL)
    await producer.start()
    held = await begun(producer, cluster)
    call = asyncio.create_task(producer.send_many("t", source))
    await asyncio.sleep(AT_ONCE)

    def dies(*arguments: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(producer._sender, "_step", dies)
    held.release()
    with pytest.raises(KafkaError):
        await asyncio.wait_for(call, BACKPRESSURE_TIMEOUT)
    assert source.pulled < MANY
    await asyncio.gather(producer.close(timeout=0.1), return_exceptions=True)


# The rule by itself


def pace(wait: FlushWait) -> Backpressure:
    return Backpressure(new_yield_timer(MemoryBudget(1 << 20)), wait, 100)


async def taken(turn: Any) -> bool:
    """Whether the wait was over without waiting for what is unsent."""
    for _ in range(3):
        await asyncio.sleep(0)
    return bool(turn.done())


async def test_with_too_much_unsent_it_waits_until_half_is_left() -> None:
    wait = FlushWait(urgent=False)
    one = pace(wait)
    wait.unsent = 100
    assert await taken(asyncio.create_task(one.yield_to_loop()))
    wait.unsent = 101
    turn = asyncio.create_task(one.yield_to_loop())
    assert not await taken(turn)
    wait.left(50)
    assert not await taken(turn)
    wait.left(1)
    assert await taken(turn)


async def test_where_that_takes_too_long_it_may_have_twice_as_much_until_it_is_over() -> None:
    wait = FlushWait(urgent=False)
    one = pace(wait)
    wait.unsent = 101
    before = asyncio.get_running_loop().time()
    await one.yield_to_loop()
    assert asyncio.get_running_loop().time() - before == pytest.approx(BACKPRESSURE_TIMEOUT)
    wait.unsent = 200
    assert await taken(asyncio.create_task(one.yield_to_loop()))
    wait.unsent = 201
    turn = asyncio.create_task(one.yield_to_loop())
    assert not await taken(turn)
    wait.left(101)
    assert await taken(turn)
    wait.unsent = 50
    await one.yield_to_loop()
    wait.unsent = 101
    turn = asyncio.create_task(one.yield_to_loop())
    assert not await taken(turn)
    await turn

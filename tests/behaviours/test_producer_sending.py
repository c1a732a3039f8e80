"""The producer's methods and their promises: send, enqueue, flush, close, cancellation, metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Any, NamedTuple

import pytest

import kclient
from kclient.broker_errors import UnknownTopicOrPartition
from kclient.errors import BufferFull, ClientClosed, InvalidArgument, SerializationFailed
from kclient.hooks import BatchDelivered, Event
from kclient.producer import Outgoing
from tests.behaviours.test_producer_records import read


async def test_send_gives_a_delivery_at_once(topic: Any, producer: Any) -> None:
    name, out = await topic(), await producer()
    delivery = out.send(name, b"v")
    assert isinstance(delivery, kclient.Delivery) and not delivery.done()
    assert (await delivery).offset == 0
    assert delivery.done() and delivery.result().offset == 0


async def test_gather_makes_no_tasks(topic: Any, producer: Any) -> None:
    name, out = await topic(), await producer()
    tasks = len(asyncio.all_tasks())
    gathered = asyncio.gather(*(out.send(name, b"%d" % i) for i in range(500)))
    assert len(asyncio.all_tasks()) <= tasks + 1
    assert [meta.offset for meta in await gathered] == list(range(500))


async def test_without_linger_one_awaited_send_after_another_works(
    topic: Any, producer: Any
) -> None:
    name, out = await topic(), await producer(linger=0.0)
    assert [(await out.send(name, b"v")).offset for _ in range(20)] == list(range(20))


async def test_linger_puts_records_into_one_batch(topic: Any, producer: Any) -> None:
    name, out = await topic(), await producer(linger=0.1)
    await out.send(name, b"first")
    before = out.metrics()["producer.batches_delivered"]
    deliveries = []
    for i in range(20):
        deliveries.append(out.send(name, b"%d" % i))
        await asyncio.sleep(0)
    await asyncio.gather(*deliveries)
    assert out.metrics()["producer.batches_delivered"] == before + 1


async def test_enqueue_waits_for_space_and_loses_nothing(
    topic: Any, producer: Any, consumer: Any
) -> None:
    name = await topic()
    out = await producer(buffer_memory=20_000, batch_size=2000)
    for i in range(1000):
        await out.enqueue(name, b"%04d" % i + b"." * 96)
        assert out.health().buffered_bytes <= 20_000
    await out.flush()
    values = [record.value[:4] for record in await read(consumer, name, 1000)]
    assert values == [b"%04d" % i for i in range(1000)]


async def test_enqueue_of_many_tasks_at_once_loses_nothing(
    topic: Any, producer: Any, consumer: Any
) -> None:
    name = await topic()
    out = await producer(buffer_memory=4096, batch_size=1024)

    async def work(i: int) -> None:
        delivery = await out.enqueue(name, b"%03d" % i + b"." * 100)
        await delivery

    async with asyncio.timeout(20):
        await asyncio.gather(*(work(i) for i in range(200)))
    values = {record.value[:3] for record in await read(consumer, name, 200)}
    assert len(values) == 200


async def test_enqueue_nowait_refuses_where_there_is_no_space(topic: Any, producer: Any) -> None:
    name = await topic()
    out = await producer(buffer_memory=5000, batch_size=1000, linger=0.5)
    await out.send(name, b"v")
    taken = 0
    with pytest.raises(BufferFull, match="enqueue"):
        for _ in range(100):
            out.enqueue_nowait(name, b"x" * 200)
            taken += 1
    assert 10 < taken < 25
    await out.flush()
    out.enqueue_nowait(name, b"x" * 200)  # there is memory again
    await out.flush()


async def test_sends_beyond_memory_are_parked_in_order(
    topic: Any, producer: Any, consumer: Any
) -> None:
    name = await topic()
    out = await producer(buffer_memory=40_000, batch_size=2000)
    await out.partitions_for(name)
    deliveries = [out.send(name, b"%03d" % i + b"." * 97) for i in range(400)]
    assert out.health().parked_records > 0
    assert [meta.offset for meta in await asyncio.gather(*deliveries)] == list(range(400))
    values = [record.value[:3] for record in await read(consumer, name, 400)]
    assert values == [b"%03d" % i for i in range(400)]


async def test_sends_beyond_max_parked_are_refused_and_the_rest_arrives(
    topic: Any, producer: Any
) -> None:
    name = await topic()
    out = await producer(buffer_memory=4096, batch_size=1000, max_parked=5)
    await out.send(name, b"v")
    deliveries = []
    with pytest.raises(BufferFull, match="max_parked=5"):
        while True:
            deliveries.append(out.send(name, b"x" * 100))
    metas = await asyncio.gather(*deliveries)
    assert len(metas) > 30


async def test_a_cancelled_parked_record_is_not_written(
    topic: Any, producer: Any, consumer: Any
) -> None:
    name = await topic()
    out = await producer(buffer_memory=4096, batch_size=1000)
    await out.send(name, b"first")
    kept, cancelled = [], []
    for i in range(40):
        delivery = out.send(name, b"%02d" % i + b"." * 98)
        parked = out.health().parked_records > 0
        (cancelled if parked and i % 2 else kept).append((i, delivery))
    assert cancelled
    for _, delivery in cancelled:
        assert delivery.cancel()
    await asyncio.gather(*(delivery for _, delivery in kept))
    values = [record.value[:2] for record in await read(consumer, name, len(kept) + 1)]
    assert values[1:] == [b"%02d" % i for i, _ in kept]


async def test_a_cancelled_waiter_changes_nothing_about_the_record(
    topic: Any, producer: Any, consumer: Any
) -> None:
    name, out = await topic(), await producer(linger=0.2)
    delivery = out.send(name, b"v")

    async def wait() -> None:
        await delivery

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await delivery).offset == 0
    (record,) = await read(consumer, name, 1)
    assert record.value == b"v"


async def test_wait_for_times_out_and_the_record_arrives_all_the_same(
    topic: Any, producer: Any, consumer: Any
) -> None:
    name, out = await topic(), await producer(linger=0.2)
    await out.partitions_for(name)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(out.send(name, b"v"), 0.01)
    await out.flush()
    (record,) = await read(consumer, name, 1)
    assert record.value == b"v"


async def test_send_many_takes_values_pairs_and_outgoing(
    topic: Any, producer: Any, consumer: Any
) -> None:
    name, out = await topic(partitions=2), await producer()
    count = await out.send_many(
        name,
        [
            Outgoing(b"plain", partition=0),
            Outgoing(b"full", b"k", (("h", b"1"),), 1, 1_790_000_000_000),
        ],
    )
    assert count == 2
    assert await out.send_many(name, [b"value", (b"key", None), (None, b"x")]) == 3
    records = await read(consumer, name, 5)
    full = next(record for record in records if record.value == b"full")
    assert (full.key, full.headers, full.partition) == (b"k", (("h", b"1"),), 1)
    assert {(r.key, r.value) for r in records} >= {(None, b"value"), (b"key", None), (None, b"x")}


async def test_send_many_takes_an_async_iterable(topic: Any, producer: Any, consumer: Any) -> None:
    name, out = await topic(), await producer()

    async def source() -> AsyncIterator[bytes]:
        for i in range(100):
            yield b"%d" % i
            if i % 10 == 0:
                await asyncio.sleep(0)

    assert await out.send_many(name, source()) == 100
    assert [r.value for r in await read(consumer, name, 100)] == [b"%d" % i for i in range(100)]


class Name(StrEnum):
    """A subclass of str."""

    KEY = "key"


async def test_subclasses_and_lists_are_taken_like_the_plain_types(
    topic: Any, producer: Any, consumer: Any
) -> None:
    class Text(str):
        pass

    class Number(int):
        pass

    name, out, when = Text(await topic()), await producer(), Number(1_790_000_000_000)
    for method in (out.send, out.enqueue_nowait):
        await method(name, b"1", headers=[["a", b"b"], (Name.KEY, None)], timestamp=when)
    await out.enqueue(name, b"1", headers={"a": b"b", "key": None}, timestamp=when)
    assert await out.send_many(name, [b"2", (b"k", bytearray(b"3"))]) == 2
    records = await read(consumer, name, 5)
    assert [record.value for record in records] == [b"1", b"1", b"1", b"2", b"3"]
    for record in records[:3]:
        assert record.headers == (("a", b"b"), ("key", None))
        assert record.timestamp == when


async def test_send_many_of_nothing_is_nothing(topic: Any, producer: Any) -> None:
    name, out = await topic(), await producer()
    assert await out.send_many(name, []) == 0


async def test_send_many_stops_at_a_bad_record_and_delivers_those_before(
    topic: Any, producer: Any, consumer: Any
) -> None:
    name, out = await topic(), await producer()
    with pytest.raises(SerializationFailed) as caught:
        await out.send_many(name, [b"1", b"2", "three", b"4"])
    assert caught.value.__notes__ == ["at record 2, counted from 0; the 2 before it were taken"]
    await out.flush()
    assert [record.value for record in await read(consumer, name, 2)] == [b"1", b"2"]


async def test_send_many_says_which_record_is_bad(topic: Any, producer: Any) -> None:
    name, out = await topic(), await producer()
    good = [b"%d" % i for i in range(1000)]
    with pytest.raises(InvalidArgument, match=r"has 3 items: use kclient\.Outgoing") as caught:
        await out.send_many(name, [*good, (b"k", b"v", [])])
    assert "at record 1000, counted from 0; the 1,000 before" in caught.value.__notes__[0]


async def test_send_many_says_which_record_could_not_be_placed(producer: Any) -> None:
    out = await producer(max_block=0.2)
    with pytest.raises(UnknownTopicOrPartition) as caught:
        await out.send_many("no-such-topic", [b"v"])
    assert caught.value.__notes__ == ["at record 0, counted from 0; the 0 before it were taken"]


class Pair(NamedTuple):
    """A tuple subclass: it may be a (key, value) pair, or a value."""

    key: bytes
    value: bytes


async def test_send_many_says_that_a_pair_must_be_a_plain_tuple(topic: Any, producer: Any) -> None:
    name, out = await topic(), await producer()
    with pytest.raises(SerializationFailed, match=r"plain tuple or a kclient\.Outgoing"):
        await out.send_many(name, [Pair(b"k", b"v")])


@pytest.mark.parametrize("records", [b"bytes", "text", 5, None])
async def test_send_many_refuses_what_is_no_collection_of_records(
    topic: Any, producer: Any, records: Any
) -> None:
    name, out = await topic(), await producer()
    with pytest.raises(InvalidArgument, match="records must be"):
        await out.send_many(name, records)


async def test_send_many_is_bounded_by_memory(topic: Any, producer: Any, consumer: Any) -> None:
    name = await topic()
    out = await producer(buffer_memory=10_000, batch_size=1000)
    values = [b"%04d" % i + b"." * 100 for i in range(500)]
    assert await out.send_many(name, values) == 500
    assert [record.value for record in await read(consumer, name, 500)] == values


async def test_flush_sends_without_lingering_and_waits_for_all(topic: Any, producer: Any) -> None:
    name, out = await topic(partitions=3), await producer(linger=4.0)
    deliveries = [out.send(name, b"v", partition=i % 3) for i in range(30)]
    async with asyncio.timeout(3.5):
        await out.flush()
    assert all(delivery.done() for delivery in deliveries)


async def test_flush_of_nothing_returns_at_once(producer: Any) -> None:
    out = await producer()
    await out.flush()


async def test_close_delivers_what_was_sent(topic: Any, broker: Any, consumer: Any) -> None:
    name = await topic()
    out = kclient.Producer(broker.bootstrap, linger=4.0)
    await out.start()
    deliveries = [out.send(name, b"%d" % i) for i in range(100)]
    async with asyncio.timeout(3.5):
        await out.close()
    assert all(delivery.exception() is None for delivery in deliveries)
    await out.close()  # twice is fine
    assert len(await read(consumer, name, 100)) == 100


async def test_leaving_the_block_by_an_error_delivers_and_raises_that_error(
    topic: Any, broker: Any, consumer: Any
) -> None:
    name = await topic()
    with pytest.raises(ZeroDivisionError):
        async with kclient.Producer(broker.bootstrap, linger=4.0) as out:
            out.send(name, b"v")
            raise ZeroDivisionError
    (record,) = await read(consumer, name, 1)
    assert record.value == b"v"


async def test_a_closed_producer_refuses_everything(topic: Any, broker: Any) -> None:
    name = await topic()
    out = kclient.Producer(broker.bootstrap)
    async with out:
        pass
    with pytest.raises(ClientClosed):
        out.send(name, b"v")
    with pytest.raises(ClientClosed):
        out.enqueue_nowait(name, b"v")
    for call in (
        out.enqueue(name, b"v"),
        out.send_many(name, [b"v"]),
        out.flush(),
        out.partitions_for(name),
    ):
        with pytest.raises(ClientClosed):
            await call


async def test_a_producer_that_was_not_started_says_so(broker: Any) -> None:
    out = kclient.Producer(broker.bootstrap)
    with pytest.raises(ClientClosed, match="not started"):
        out.send("t", b"v")
    with pytest.raises(ClientClosed, match="not started"):
        out.enqueue_nowait("t", b"v")
    for call in (out.enqueue("t", b"v"), out.send_many("t", [b"v"]), out.flush()):
        with pytest.raises(ClientClosed, match="not started"):
            await call
    await out.close()
    with pytest.raises(ClientClosed):
        await out.enqueue("t", b"v")


async def test_metrics_and_health_report_what_happened(topic: Any, producer: Any) -> None:
    name, out = await topic(), await producer()
    await out.send_many(name, [b"v"] * 10)
    metrics = out.metrics()
    assert metrics["producer.records_delivered"] == 10
    assert metrics["producer.buffered_bytes"] == 0
    health = out.health()
    assert health.ok and health.producer_id is not None and health.producer_epoch == 0
    assert health.last_error is None and health.requests_in_flight == 0


class Watcher:
    """An observer that keeps batch events."""

    def __init__(self) -> None:
        self.delivered: list[BatchDelivered] = []

    def observe(self, event: Event, /) -> None:
        if isinstance(event, BatchDelivered):
            self.delivered.append(event)


async def test_observers_hear_of_batches(topic: Any, producer: Any) -> None:
    watcher = Watcher()
    name, out = await topic(), await producer(observers=[watcher])
    await out.send_many(name, [b"v"] * 10)
    assert sum(event.records for event in watcher.delivered) == 10
    assert watcher.delivered[0].topic_partition == (name, 0)
    assert watcher.delivered[0].base_offset == 0

"""What is measured: one function per client and door, run in a process of its own.

Each takes (bootstrap, topic, records, size), does its work between two readings of the process's
CPU clock, and returns the seconds of CPU and of wall time that the work took.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

PARTITIONS = 4
LINGER = 0.005
BATCH = 128 * 1024
Cell = Callable[[str, str, int, int], tuple[float, float]]


class Stopwatch:
    """CPU of the whole process and wall time, from ``start`` to ``stop``."""

    def start(self) -> None:
        self.cpu, self.wall = time.process_time(), time.perf_counter()

    def stop(self) -> tuple[float, float]:
        return time.process_time() - self.cpu, time.perf_counter() - self.wall


def _checked(count: int, total: int, records: int, size: int) -> None:
    if (count, total) != (records, records * size):
        raise SystemExit(f"read {count} records of {total} bytes, not {records} of {size} each")


def _async(cell: Callable[..., Coroutine[Any, Any, tuple[float, float]]]) -> Cell:
    return lambda *arguments: asyncio.run(cell(*arguments))


async def _kclient_producer(
    bootstrap: str, work: Callable[[Any], Awaitable[None]]
) -> tuple[float, float]:
    import kclient

    watch = Stopwatch()
    async with kclient.Producer(bootstrap, linger=LINGER, batch_size=BATCH) as producer:
        await producer.send("warm-up", b"x")
        watch.start()
        await work(producer)
        await producer.flush()
        return watch.stop()


async def kclient_send(bootstrap: str, topic: str, records: int, size: int) -> tuple[float, float]:
    value = b"v" * size

    async def work(producer: Any) -> None:
        for begin in range(0, records, 10_000):
            count = min(10_000, records - begin)
            await asyncio.gather(*(producer.send(topic, value) for _ in range(count)))

    return await _kclient_producer(bootstrap, work)


async def kclient_enqueue(
    bootstrap: str, topic: str, records: int, size: int
) -> tuple[float, float]:
    value = b"v" * size

    async def work(producer: Any) -> None:
        for _ in range(records):
            await producer.enqueue(topic, value)

    return await _kclient_producer(bootstrap, work)


async def kclient_send_many(
    bootstrap: str, topic: str, records: int, size: int
) -> tuple[float, float]:
    value = b"v" * size

    async def work(producer: Any) -> None:
        await producer.send_many(topic, (value for _ in range(records)))

    return await _kclient_producer(bootstrap, work)


async def aiokafka_send(bootstrap: str, topic: str, records: int, size: int) -> tuple[float, float]:
    from aiokafka import AIOKafkaProducer

    value, watch = b"v" * size, Stopwatch()
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        enable_idempotence=True,
        linger_ms=int(LINGER * 1000),
        max_batch_size=BATCH,
    )
    async with producer:
        await producer.send_and_wait("warm-up", b"x")
        watch.start()
        waiting = [await producer.send(topic, value) for _ in range(records)]
        await asyncio.gather(*waiting)
        return watch.stop()


def confluent_produce(bootstrap: str, topic: str, records: int, size: int) -> tuple[float, float]:
    from confluent_kafka import Producer

    value, watch, acked = b"v" * size, Stopwatch(), 0
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": LINGER * 1000,
            "batch.size": BATCH,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.produce("warm-up", b"x")
    producer.flush()

    def done(error: Any, message: Any) -> None:
        nonlocal acked
        if error is not None:
            raise SystemExit(str(error))
        acked += 1

    watch.start()
    for n in range(records):
        producer.produce(topic, value, on_delivery=done)
        if n % 1000 == 0:
            producer.poll(0)
    producer.flush()
    spent = watch.stop()
    _checked(acked, acked * size, records, size)
    return spent


def kafka_python_send(bootstrap: str, topic: str, records: int, size: int) -> tuple[float, float]:
    from kafka import KafkaProducer

    value, watch = b"v" * size, Stopwatch()
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        enable_idempotence=True,
        linger_ms=int(LINGER * 1000),
        batch_size=BATCH,
    )
    producer.send("warm-up", b"x").get(30)
    watch.start()
    waiting = [producer.send(topic, value) for _ in range(records)]
    producer.flush()
    for future in waiting:
        future.get(30)
    spent = watch.stop()
    producer.close()
    return spent


async def kclient_poll(bootstrap: str, topic: str, records: int, size: int) -> tuple[float, float]:
    import kclient

    watch, count, total = Stopwatch(), 0, 0
    async with kclient.Consumer(bootstrap, topic, auto_offset_reset="earliest") as consumer:
        watch.start()
        while count < records:
            batch = await consumer.poll(max_records=2000, timeout=10.0)
            count += len(batch)
            total += sum(len(record.value or b"") for record in batch)
        spent = watch.stop()
    _checked(count, total, records, size)
    return spent


async def kclient_async_for(
    bootstrap: str, topic: str, records: int, size: int
) -> tuple[float, float]:
    import kclient

    watch, count, total = Stopwatch(), 0, 0
    async with kclient.Consumer(bootstrap, topic, auto_offset_reset="earliest") as consumer:
        watch.start()
        async for record in consumer:
            count += 1
            total += len(record.value or b"")
            if count == records:
                break
        spent = watch.stop()
    _checked(count, total, records, size)
    return spent


async def kclient_poll_arrow(
    bootstrap: str, topic: str, records: int, size: int
) -> tuple[float, float]:
    import pyarrow.compute as compute

    import kclient

    watch, count, total = Stopwatch(), 0, 0
    async with kclient.Consumer(bootstrap, topic, auto_offset_reset="earliest") as consumer:
        watch.start()
        while count < records:
            batch = await consumer.poll_arrow(timeout=10.0)
            count += batch.num_rows
            if batch.num_rows:
                total += compute.sum(compute.binary_length(batch["value"])).as_py()
        spent = watch.stop()
    _checked(count, total, records, size)
    return spent


async def _aiokafka_consumer(bootstrap: str, topic: str) -> Any:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", check_crcs=True
    )
    await consumer.start()
    consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
    return consumer


async def aiokafka_getmany(
    bootstrap: str, topic: str, records: int, size: int
) -> tuple[float, float]:
    watch, count, total = Stopwatch(), 0, 0
    consumer = await _aiokafka_consumer(bootstrap, topic)
    watch.start()
    while count < records:
        for batch in (await consumer.getmany(timeout_ms=10_000, max_records=2000)).values():
            count += len(batch)
            total += sum(len(record.value) for record in batch)
    spent = watch.stop()
    await consumer.stop()
    _checked(count, total, records, size)
    return spent


def confluent_consume(bootstrap: str, topic: str, records: int, size: int) -> tuple[float, float]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    watch, count, total = Stopwatch(), 0, 0
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "benchmark", "check.crcs": True}
    )
    places = [TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)]
    watch.start()
    consumer.assign(places)
    while count < records:
        for message in consumer.consume(2000, timeout=10):
            count += 1
            total += len(message.value() or b"")
    spent = watch.stop()
    consumer.close()
    _checked(count, total, records, size)
    return spent


def kafka_python_poll(bootstrap: str, topic: str, records: int, size: int) -> tuple[float, float]:
    from kafka import KafkaConsumer, TopicPartition

    watch, count, total = Stopwatch(), 0, 0
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", check_crcs=True
    )
    consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
    watch.start()
    while count < records:
        for batch in consumer.poll(timeout_ms=10_000, max_records=2000).values():
            count += len(batch)
            total += sum(len(record.value) for record in batch)
    spent = watch.stop()
    consumer.close()
    _checked(count, total, records, size)
    return spent


PRODUCE: dict[str, Cell] = {
    "kclient send, gathered": _async(kclient_send),
    "kclient enqueue": _async(kclient_enqueue),
    "kclient send_many": _async(kclient_send_many),
    "confluent-kafka produce": confluent_produce,
    "aiokafka send": _async(aiokafka_send),
    "kafka-python send": kafka_python_send,
}
CONSUME: dict[str, Cell] = {
    "kclient poll": _async(kclient_poll),
    "kclient async for": _async(kclient_async_for),
    "kclient poll_arrow": _async(kclient_poll_arrow),
    "confluent-kafka consume": confluent_consume,
    "aiokafka getmany": _async(aiokafka_getmany),
    "kafka-python poll": kafka_python_poll,
}

"""aiokafka's entries. Loaded in a worker process only; measures, and decides nothing.

Equal settings: acks=all, idempotent, the job's linger, batch size and codec, CRC checks on (its
compiled codec). The tuned ones are those that its documentation names for throughput: larger
batches and a longer linger, larger fetches.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from benchmarks.clients.loops import run_on_loop
from benchmarks.job import POLL_RECORDS, Job, Outcome
from benchmarks.tally import Tally, Watch
from benchmarks.values import PER_CHECK, pool, rows, shares, values, windows

TASKS = 1_000
Write = Callable[[Any, Job, int], Awaitable[int]]
Read = Callable[[Any, Tally, int, Watch], Awaitable[None]]


def common(job: Job) -> dict[str, Any]:
    found: dict[str, Any] = {"bootstrap_servers": job.bootstrap}
    if job.ca:
        context = ssl.create_default_context(cafile=job.ca)
        found |= {"security_protocol": "SSL", "ssl_context": context}
    return found


def producer_for(job: Job) -> Any:
    settings: dict[str, Any] = {
        "acks": "all",
        "enable_idempotence": True,
        "linger_ms": round(job.linger * 1000),
        "max_batch_size": job.batch_size,
        "compression_type": None if job.codec == "none" else job.codec,
    }
    if job.tuned:
        settings |= {"linger_ms": 50, "max_batch_size": 512 * 1024}
    return AIOKafkaProducer(**common(job), **settings)


def _written(job: Job, write: Write) -> Outcome:
    async def main() -> Outcome:
        watch = Watch()
        async with producer_for(job) as producer:
            await write(producer, job, job.warm_up)
            watch.start()
            count = await write(producer, job, job.records)
            watch.stop()
        if count != job.records:
            raise ValueError(f"{count} of {job.records} records were acknowledged")
        return watch.outcome(job.records)

    return run_on_loop(job, main)


async def _send(producer: Any, job: Job, count: int) -> int:
    """Keep futures and await them in order, each window after the next one was sent."""
    send, topic, done = producer.send, job.topic, 0
    before: list[Any] = []
    for chunk in itertools.chain(windows(job.size, count, job.window), ([],)):
        if job.plain:
            now = [await send(topic, value) for value in chunk]
        else:
            now = [
                await send(topic, value, key=key, headers=headers)
                for topic, value, key, headers in rows(job, chunk, done + len(before))
            ]
        for future in before:
            await future
        done += len(before)
        before = now
    return done


async def _create_batch(producer: Any, job: Job, count: int) -> int:
    """Build whole batches by hand, and send them to the partitions in turn."""
    places = itertools.cycle(range(job.partitions))
    sent = []
    batch = producer.create_batch()
    append = batch.append
    for value in values(job.size, count):
        if append(value=value, timestamp=None, key=None) is None:
            sent.append(await producer.send_batch(batch, job.topic, partition=next(places)))
            batch = producer.create_batch()
            append = batch.append
            append(value=value, timestamp=None, key=None)
    sent.append(await producer.send_batch(batch, job.topic, partition=next(places)))
    for future in sent:
        await future
    return count


async def _tasks(producer: Any, job: Job, count: int) -> int:
    send, topic, source = producer.send_and_wait, job.topic, pool(job.size)

    async def one(numbers: range) -> None:
        for number in numbers:
            await send(topic, source[number % len(source)])

    await asyncio.gather(*[one(numbers) for numbers in shares(count, TASKS)])
    return count


def _read(job: Job, read: Read) -> Outcome:
    settings: dict[str, Any] = {"check_crcs": True, "enable_auto_commit": False}
    if job.tuned:
        settings |= {"max_partition_fetch_bytes": 8 * 1024 * 1024}

    async def main() -> Outcome:
        watch, tally = Watch(), Tally(job)
        consumer = AIOKafkaConsumer(**common(job), auto_offset_reset="earliest", **settings)
        await consumer.start()
        consumer.assign(_places(job.warm_topics, job.warm_partitions))
        await read(consumer, Tally(job), job.warm_up, Watch())
        places = _places(job.topics, job.partitions)
        watch.start()
        consumer.assign(places)
        await read(consumer, tally, job.records, watch)
        watch.stop()
        await consumer.stop()
        tally.check(job.records)
        return watch.outcome(job.records)

    return run_on_loop(job, main)


async def _getmany(consumer: Any, tally: Tally, records: int, watch: Watch) -> None:
    while tally.count < records:
        found = await consumer.getmany(timeout_ms=10_000, max_records=POLL_RECORDS)
        for batch in found.values():
            tally.add([record.value for record in batch])
        watch.lap(tally.count)


async def _async_for(consumer: Any, tally: Tally, records: int, watch: Watch) -> None:
    collected: list[bytes] = []
    async for record in consumer:
        collected.append(record.value)
        if len(collected) == PER_CHECK or tally.count + len(collected) == records:
            tally.add(collected)
            watch.lap(len(collected))
            collected.clear()
            if tally.count >= records:
                break


def send(job: Job) -> Outcome:
    return _written(job, _send)


def create_batch(job: Job) -> Outcome:
    return _written(job, _create_batch)


def tasks(job: Job) -> Outcome:
    return _written(job, _tasks)


def getmany(job: Job) -> Outcome:
    return _read(job, _getmany)


def async_for(job: Job) -> Outcome:
    return _read(job, _async_for)


def _places(topics: tuple[str, ...], partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for topic in topics for index in range(partitions)]

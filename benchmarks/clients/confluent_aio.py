"""The entries of ``confluent_kafka.aio``. Loaded in a worker process only; decides nothing.

It runs librdkafka's calls in threads. Settings are those of ``confluent_entries``; its own batch of
1,000 records and its wait of a second stay at their defaults.
"""

from __future__ import annotations

import asyncio
from typing import Any

from confluent_kafka.aio import AIOConsumer, AIOProducer

from benchmarks.clients.confluent_entries import consumer_settings, places, producer_settings
from benchmarks.clients.loops import run_on_loop
from benchmarks.job import POLL_RECORDS, Job, Outcome
from benchmarks.tally import Tally, Watch
from benchmarks.values import PER_CHECK, pool, shares, values

TASKS = 1_000


def _buffer(job: Job) -> dict[str, Any]:
    """Tuned for tasks that wait for each record: send early, poll for reports often."""
    return {"batch_size": 250, "buffer_timeout": 0.02} if job.tuned else {}


def _written(job: Job, write: Any) -> Outcome:
    async def main() -> Outcome:
        watch = Watch()
        async with AIOProducer(producer_settings(job), **_buffer(job)) as producer:
            await write(producer, job, job.warm_up)
            watch.start()
            count = await write(producer, job, job.records)
            watch.stop()
        if count != job.records:
            raise ValueError(f"{count} of {job.records} records were acknowledged")
        return watch.outcome(job.records)

    return run_on_loop(job, main)


async def _produce(producer: Any, job: Job, count: int) -> int:
    """Keep all futures, flush (or the last ones are a second late), then await each."""
    make, topic = producer.produce, job.topic
    futures = [await make(topic, value=value) for value in values(job.size, count)]
    await producer.flush()
    for future in futures:
        await future
    return len(futures)


async def _tasks(producer: Any, job: Job, count: int) -> int:
    make, topic, source = producer.produce, job.topic, pool(job.size)

    async def one(numbers: range) -> None:
        for number in numbers:
            await (await make(topic, value=source[number % len(source)]))

    await asyncio.gather(*[one(numbers) for numbers in shares(count, TASKS)])
    return count


def _read(job: Job, read: Any) -> Outcome:
    async def main() -> Outcome:
        watch, tally = Watch(), Tally(job)
        async with AIOConsumer(consumer_settings(job)) as consumer:
            await consumer.assign(places(job.warm_topics, job.warm_partitions))
            await read(consumer, Tally(job), job.warm_up, Watch())
            there = places(job.topics, job.partitions)
            watch.start()
            await consumer.assign(there)
            await read(consumer, tally, job.records, watch)
            watch.stop()
        tally.check(job.records)
        return watch.outcome(job.records)

    return run_on_loop(job, main)


async def _consume(consumer: Any, tally: Tally, records: int, watch: Watch) -> None:
    while tally.count < records:
        wanted = min(POLL_RECORDS, records - tally.count)
        messages = await consumer.consume(wanted, timeout=10)
        tally.add([message.value() for message in messages])
        watch.lap(len(messages))


async def _poll(consumer: Any, tally: Tally, records: int, watch: Watch) -> None:
    """Poll one by one, as an ``async for`` would, which this client doesn't have."""
    collected: list[bytes] = []
    while tally.count < records:
        message = await consumer.poll(timeout=10)
        collected.append(message.value())
        if len(collected) == PER_CHECK or tally.count + len(collected) == records:
            tally.add(collected)
            watch.lap(len(collected))
            collected.clear()


def produce(job: Job) -> Outcome:
    return _written(job, _produce)


def tasks(job: Job) -> Outcome:
    return _written(job, _tasks)


def consume(job: Job) -> Outcome:
    return _read(job, _consume)


def poll(job: Job) -> Outcome:
    return _read(job, _poll)

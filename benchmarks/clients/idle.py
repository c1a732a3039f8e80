"""What a hundred clients cost while nothing happens: memory, threads, CPU.

Consumers wait in a poll if the client can wait without a thread of ours; producers have sent one
record each. One more client is made beforehand, so that code and the first connection's buffers
aren't counted. Loaded in workers only; Linux only, as memory is read from /proc.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from benchmarks.clients.loops import run_on_loop
from benchmarks.job import Job, NotRun, Outcome

SETTLE, WATCHED = 1.0, 10.0
"""Seconds before and during the measurement of processor time: several periods of all that repeats
(heartbeats every 3 s, commits every 5 s), as the first two seconds still belong to the start."""
POLL = 1.5
"""Seconds of one poll: polls are repeated, as in idle services."""
Make = Callable[[AsyncExitStack], Awaitable[Any]]
Wait = Callable[[Any], Awaitable[Any]]


def _status() -> tuple[int, int]:
    """Resident KiB and threads of this process."""
    found = dict(
        line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if line
    )
    return int(found["VmRSS"].split()[0]), int(found["Threads"])


def measured(job: Job, make: Make, wait: Wait | None) -> Outcome:
    if not Path("/proc/self/status").exists():
        raise NotRun("memory and threads are read from /proc")

    async def main() -> Outcome:
        async with AsyncExitStack() as stack:
            clients = [await make(stack)]
            stop = asyncio.Event()

            async def waits(client: Any) -> None:
                while wait is not None and not stop.is_set():
                    await wait(client)

            tasks = [asyncio.create_task(waits(clients[0]))]
            await asyncio.sleep(SETTLE)
            gc.collect()
            memory, threads = _status()
            clients = [await make(stack) for _ in range(job.records)]
            tasks += [asyncio.create_task(waits(client)) for client in clients]
            await asyncio.sleep(SETTLE)
            gc.collect()
            after, more = _status()
            began = time.process_time()
            await asyncio.sleep(WATCHED)
            cpu = time.process_time() - began
            stop.set()
            await asyncio.gather(*tasks)
            count = job.records
            return {
                "kib": (after - memory) / count,
                "native_threads": (more - threads) / count,
                "cpu_ms_s": cpu * 1000 / WATCHED / count,
                "records": count,
            }

    return run_on_loop(job, main)


def kclient_consumers(job: Job) -> Outcome:
    import kclient

    async def make(stack: AsyncExitStack) -> Any:
        consumer: Any = kclient.Consumer(job.bootstrap, auto_offset_reset="latest")
        await stack.enter_async_context(consumer)
        consumer.assign([kclient.TopicPartition(job.topic, 0)])
        return consumer

    return measured(job, make, lambda consumer: consumer.poll(timeout=POLL))


def aiokafka_consumers(job: Job) -> Outcome:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    from benchmarks.clients.aiokafka_entries import common

    async def make(stack: AsyncExitStack) -> Any:
        consumer = AIOKafkaConsumer(**common(job), enable_auto_commit=False)
        await stack.enter_async_context(consumer)
        consumer.assign([TopicPartition(job.topic, 0)])
        return consumer

    return measured(job, make, lambda one: one.getmany(timeout_ms=round(POLL * 1000)))


def confluent_consumers(job: Job) -> Outcome:
    """Its threads fetch whether or not the application polls."""
    from confluent_kafka import OFFSET_END, Consumer, TopicPartition

    from benchmarks.clients.confluent_entries import consumer_settings

    async def make(stack: AsyncExitStack) -> Any:
        consumer = Consumer(consumer_settings(job))
        consumer.assign([TopicPartition(job.topic, 0, OFFSET_END)])
        consumer.poll(0)
        stack.callback(consumer.close)
        return consumer

    return measured(job, make, None)


def confluent_aio_consumers(job: Job) -> Outcome:
    from confluent_kafka import OFFSET_END, TopicPartition
    from confluent_kafka.aio import AIOConsumer

    from benchmarks.clients.confluent_entries import consumer_settings

    async def make(stack: AsyncExitStack) -> Any:
        consumer = AIOConsumer(consumer_settings(job))
        stack.push_async_callback(consumer.close)
        await consumer.assign([TopicPartition(job.topic, 0, OFFSET_END)])
        return consumer

    return measured(job, make, lambda consumer: consumer.poll(timeout=POLL))


def kafka_python_consumers(job: Job) -> Outcome:
    raise NotRun("nothing of it runs between polls, and a poll needs a thread of the user's")


def kclient_producers(job: Job) -> Outcome:
    from benchmarks.clients.kclient_produce import producer_for

    async def make(stack: AsyncExitStack) -> Any:
        producer = await stack.enter_async_context(producer_for(job))
        await producer.send(job.topic, b"x")
        return producer

    return measured(job, make, None)


def aiokafka_producers(job: Job) -> Outcome:
    from benchmarks.clients.aiokafka_entries import producer_for

    async def make(stack: AsyncExitStack) -> Any:
        producer = await stack.enter_async_context(producer_for(job))
        await producer.send_and_wait(job.topic, b"x")
        return producer

    return measured(job, make, None)


def confluent_producers(job: Job) -> Outcome:
    from confluent_kafka import Producer

    from benchmarks.clients.confluent_entries import producer_settings

    async def make(stack: AsyncExitStack) -> Any:
        producer = Producer(producer_settings(job))
        producer.produce(job.topic, b"x")  # leaves while all others are made: a flush takes 0.5 s
        stack.callback(producer.flush)
        return producer

    return measured(job, make, None)


def kafka_python_producers(job: Job) -> Outcome:
    from benchmarks.clients.kafka_python_entries import producer_for

    async def make(stack: AsyncExitStack) -> Any:
        producer = producer_for(job)
        producer.send(job.topic, b"x")
        stack.callback(producer.close)
        return producer

    return measured(job, make, None)

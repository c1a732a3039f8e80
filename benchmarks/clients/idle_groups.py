"""What a hundred consumers cost, each alone in a group, while nothing happens.

As ``idle``, with heartbeats and automatic commits. Loaded in workers only; Linux only.
"""

from __future__ import annotations

import secrets
from contextlib import AsyncExitStack
from typing import Any

from benchmarks.clients.idle import POLL, measured
from benchmarks.job import Job, NotRun, Outcome


def _group() -> str:
    return f"idle-{secrets.token_hex(8)}"


def kclient_members(job: Job) -> Outcome:
    import kclient

    async def make(stack: AsyncExitStack) -> Any:
        consumer: Any = kclient.Consumer(
            job.bootstrap, job.topic, group=_group(), auto_offset_reset="latest"
        )
        await stack.enter_async_context(consumer)
        while not consumer.assignment:
            await consumer.poll(timeout=0.1)
        return consumer

    return measured(job, make, lambda consumer: consumer.poll(timeout=POLL))


def aiokafka_members(job: Job) -> Outcome:
    from aiokafka import AIOKafkaConsumer

    from benchmarks.clients.aiokafka_entries import common

    async def make(stack: AsyncExitStack) -> Any:
        consumer = AIOKafkaConsumer(job.topic, group_id=_group(), **common(job))
        await stack.enter_async_context(consumer)
        while not consumer.assignment():
            await consumer.getmany(timeout_ms=100)
        return consumer

    return measured(job, make, lambda one: one.getmany(timeout_ms=round(POLL * 1000)))


def confluent_members(job: Job) -> Outcome:
    """Its threads fetch whether or not the application polls."""
    from confluent_kafka import Consumer

    from benchmarks.clients.confluent_entries import consumer_settings

    async def make(stack: AsyncExitStack) -> Any:
        consumer = Consumer({**consumer_settings(job), "group.id": _group()})
        consumer.subscribe([job.topic])
        while not consumer.assignment():
            consumer.poll(0.1)
        stack.callback(consumer.close)
        return consumer

    return measured(job, make, None)


def confluent_aio_members(job: Job) -> Outcome:
    from confluent_kafka.aio import AIOConsumer

    from benchmarks.clients.confluent_entries import consumer_settings

    async def make(stack: AsyncExitStack) -> Any:
        consumer = AIOConsumer({**consumer_settings(job), "group.id": _group()})
        stack.push_async_callback(consumer.close)
        await consumer.subscribe([job.topic])
        while not await consumer.assignment():
            await consumer.poll(timeout=0.1)
        return consumer

    return measured(job, make, lambda consumer: consumer.poll(timeout=POLL))


def kafka_python_members(job: Job) -> Outcome:
    raise NotRun("nothing of it but heartbeats runs between polls, and a poll needs a thread")

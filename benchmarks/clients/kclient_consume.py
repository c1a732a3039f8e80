"""kclient's entries for reading. Loaded in a worker process only; measures, and decides nothing.

The consumer reads the warm-up topic to its end first. The watch starts right before the measured
topics are assigned, so that none of their records was fetched before.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import kclient
from benchmarks.clients.kclient_produce import security
from benchmarks.clients.loops import run_on_loop
from benchmarks.job import POLL_RECORDS, Job, Outcome
from benchmarks.tally import Tally, Watch
from benchmarks.values import PER_CHECK
from kclient import TopicPartition

Read = Callable[[Any, Tally, int, Watch], Awaitable[None]]


def _measured(job: Job, read: Read) -> Outcome:
    async def main() -> Outcome:
        watch, tally = Watch(), Tally(job)
        consumer: Any = kclient.Consumer(
            job.bootstrap, auto_offset_reset="earliest", security=security(job)
        )
        async with consumer:
            consumer.assign(_places(job.warm_topics, job.warm_partitions))
            await read(consumer, Tally(job), job.warm_up, Watch())
            watch.start()
            consumer.assign(_places(job.topics, job.partitions))
            await read(consumer, tally, job.records, watch)
            watch.stop()
        tally.check(job.records)
        return watch.outcome(job.records)

    return run_on_loop(job, main)


def _measured_in_group(job: Job, read: Read) -> Outcome:
    """Subscribe, with automatic commits; the watch starts when the partitions are assigned."""

    async def main() -> Outcome:
        watch, tally = Watch(), Tally(job)

        def came(partitions: Sequence[TopicPartition]) -> None:
            if any(one.topic in job.topics for one in partitions):
                watch.start()

        consumer: Any = kclient.Consumer(
            job.bootstrap,
            *job.warm_topics,
            group=f"benchmarks-{secrets.token_hex(8)}",
            auto_offset_reset="earliest",
            security=security(job),
        )
        async with consumer:
            await read(consumer, Tally(job), job.warm_up, Watch())
            consumer.subscribe(*job.topics, on_assigned=came)
            await read(consumer, tally, job.records, watch)
            watch.stop()
        tally.check(job.records)
        return watch.outcome(job.records)

    return run_on_loop(job, main)


def _places(topics: tuple[str, ...], partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for topic in topics for index in range(partitions)]


async def _poll(consumer: Any, tally: Tally, records: int, watch: Watch) -> None:
    while tally.count < records:
        batch = await consumer.poll(max_records=POLL_RECORDS, timeout=10.0)
        tally.add([record.value for record in batch])
        watch.lap(len(batch))


async def _async_for(consumer: Any, tally: Tally, records: int, watch: Watch) -> None:
    values: list[bytes] = []
    async for record in consumer:
        values.append(record.value)
        if len(values) == PER_CHECK or tally.count + len(values) == records:
            tally.add(values)
            watch.lap(len(values))
            values.clear()
            if tally.count >= records:
                break


async def _poll_arrow(consumer: Any, tally: Tally, records: int, watch: Watch) -> None:
    while tally.count < records:
        batch = await consumer.poll_arrow(timeout=10.0)
        column = batch.column("value")
        if len(column):
            tally.add_column(column)
        watch.lap(len(column))


def poll(job: Job) -> Outcome:
    return _measured(job, _poll)


def poll_in_group(job: Job) -> Outcome:
    return _measured_in_group(job, _poll)


def async_for_in_group(job: Job) -> Outcome:
    return _measured_in_group(job, _async_for)


def poll_arrow_in_group(job: Job) -> Outcome:
    import pyarrow  # noqa: F401 - loaded before the watch starts

    return _measured_in_group(job, _poll_arrow)


def async_for(job: Job) -> Outcome:
    return _measured(job, _async_for)


def poll_arrow(job: Job) -> Outcome:
    import pyarrow  # noqa: F401 - loaded before the watch starts

    return _measured(job, _poll_arrow)

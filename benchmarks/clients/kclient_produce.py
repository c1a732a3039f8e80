"""kclient's entries for writing. Loaded in a worker process only; measures, and decides nothing.

Each entry writes the warm-up first, then the measured records, each time until all of them are
acknowledged. An entry's name describes what it does with its deliveries.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import kclient
from benchmarks.clients.loops import run_on_loop
from benchmarks.job import Job, NotRun, Outcome
from benchmarks.tally import Watch
from benchmarks.values import pool, rows, shares, values, windows
from kclient.errors import BufferFull
from kclient.producer.outgoing import Outgoing

TASKS = 1_000
Write = Callable[[Any, Job, int], Awaitable[int]]


def security(job: Job) -> Any:
    return kclient.Security.tls(ca_file=job.ca) if job.ca else kclient.Security.plaintext()


def producer_for(job: Job) -> Any:
    codec: Any = job.codec
    return kclient.Producer(
        job.bootstrap,
        linger=job.linger,
        batch_size=job.batch_size,
        compression=codec,
        security=security(job),
    )


def _measured(job: Job, write: Write) -> Outcome:
    async def main() -> Outcome:
        watch = Watch()
        async with producer_for(job) as producer:
            if await write(producer, job, job.warm_up) != job.warm_up:
                raise ValueError("the warm-up was not taken whole")
            watch.start()
            count = await write(producer, job, job.records)
            watch.stop()
        if count != job.records:
            raise ValueError(f"{count} of {job.records} records were acknowledged")
        return watch.outcome(job.records)

    return run_on_loop(job, main)


async def _send(producer: Any, job: Job, count: int) -> int:
    """``send``; keep deliveries and await them in order, each window after the next was sent."""
    send, topic, done = producer.send, job.topic, 0
    before: list[Any] = []
    for chunk in itertools.chain(windows(job.size, count, job.window), ([],)):
        if job.plain:
            now = [send(topic, value) for value in chunk]
        else:
            now = [
                send(topic, value, key=key, headers=headers)
                for topic, value, key, headers in rows(job, chunk, done + len(before))
            ]
        for delivery in before:
            await delivery
        done += len(before)
        before = now
    return done


async def _gathered(producer: Any, job: Job, count: int) -> int:
    send, topic, done = producer.send, job.topic, 0
    for chunk in windows(job.size, count, job.window):
        done += len(await asyncio.gather(*[send(topic, value) for value in chunk]))
    return done


async def _enqueue(producer: Any, job: Job, count: int) -> int:
    enqueue, topic = producer.enqueue, job.topic
    if job.plain:
        for value in values(job.size, count):
            await enqueue(topic, value)
    else:
        chunk: Any = values(job.size, count)
        for topic, value, key, headers in rows(job, chunk):
            await enqueue(topic, value, key=key, headers=headers)
    await producer.flush()
    return count


async def _enqueue_nowait(producer: Any, job: Job, count: int) -> int:
    """Keep and await no Delivery; yield to the loop per window, and wait if the buffer is full."""
    put, topic = producer.enqueue_nowait, job.topic
    for chunk in windows(job.size, count, job.window // 10):
        for value in chunk:
            try:
                put(topic, value)
            except BufferFull:
                await producer.enqueue(topic, value)
        await asyncio.sleep(0)
    await producer.flush()
    return count


async def _send_many(producer: Any, job: Job, count: int) -> int:
    chunk: Any = values(job.size, count)
    if job.headers:
        chunk = (Outgoing(v, key=k, headers=tuple(h or ())) for _, v, k, h in rows(job, chunk))
    elif job.keyed:
        chunk = ((key, value) for _, value, key, _ in rows(job, chunk))
    taken: int = await producer.send_many(job.topic, chunk)
    return taken


async def _tasks(producer: Any, job: Job, count: int) -> int:
    send, topic, source = producer.send, job.topic, pool(job.size)

    async def one(numbers: range) -> None:
        for number in numbers:
            await send(topic, source[number % len(source)])

    await asyncio.gather(*[one(numbers) for numbers in shares(count, TASKS)])
    return count


def send(job: Job) -> Outcome:
    return _measured(job, _send)


def gathered(job: Job) -> Outcome:
    return _measured(job, _gathered)


def enqueue(job: Job) -> Outcome:
    return _measured(job, _enqueue)


def enqueue_nowait(job: Job) -> Outcome:
    return _measured(job, _enqueue_nowait)


def send_many(job: Job) -> Outcome:
    return _measured(job, _send_many)


def tasks(job: Job) -> Outcome:
    return _measured(job, _tasks)


def send_arrow(job: Job) -> Outcome:
    """Make tables beforehand: this entry is for data that is in columns already."""
    if not hasattr(kclient.Producer, "send_arrow"):
        raise NotRun("this version of kclient has no Producer.send_arrow")
    import pyarrow

    def table(count: int) -> Any:
        columns: dict[str, Any] = {"value": list(values(job.size, count))}
        if job.keyed:
            columns["key"] = [key for _, _, key, _ in rows(job, columns["value"])]
        return pyarrow.table({k: pyarrow.array(v, pyarrow.binary()) for k, v in columns.items()})

    tables = {count: table(count) for count in (job.warm_up, job.records)}

    async def write(producer: Any, job: Job, count: int) -> int:
        await producer.send_arrow(job.topic, tables[count])
        return count

    return _measured(job, write)

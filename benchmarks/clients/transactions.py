"""Transactions: one after the other, and records in transactions of 1,000 or of 100 ms.

All clients are in one module, which shows that their loops are equal. Loaded in workers only.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any

from benchmarks.clients.latency import PATIENCE, timed, timed_without_loop
from benchmarks.clients.loops import run_on_loop
from benchmarks.job import Job, Outcome
from benchmarks.tally import Watch
from benchmarks.values import windows

RECORDS = 1_000
SECONDS = 0.1
_CHUNK = 100


def _checked(job: Job, outcome: Outcome, transactions: int, *, records: bool = True) -> Outcome:
    """Add what the runner checks the topic by."""
    written = job.records + job.warm_up if records else 0
    return outcome | {"written": written, "transactions": transactions}


def kclient_one(job: Job) -> Outcome:
    """Transactions of one record."""
    return _kclient(job, records=True)


def kclient_empty(job: Job) -> Outcome:
    """Transactions of nothing."""
    return _kclient(job, records=False)


def _kclient(job: Job, *, records: bool) -> Outcome:
    count = job.records + job.warm_up

    async def main() -> Outcome:
        async with _kclient_producer(job) as producer:
            topic = job.topic

            async def one(value: bytes) -> None:
                async with producer.transaction() as txn:
                    if records:
                        txn.send(topic, value)

            return _checked(job, await timed(job, one), count, records=records)

    return run_on_loop(job, main)


def _kclient_producer(job: Job) -> Any:
    import kclient

    return kclient.Producer(
        job.bootstrap,
        transactional_id=f"benchmark-{secrets.token_hex(6)}",
        linger=job.linger,
        batch_size=job.batch_size,
    )


def aiokafka_one(job: Job) -> Outcome:
    """Transactions of one record."""
    from aiokafka import AIOKafkaProducer

    async def main() -> Outcome:
        producer = AIOKafkaProducer(
            bootstrap_servers=job.bootstrap,
            transactional_id=f"benchmark-{secrets.token_hex(6)}",
            linger_ms=round(job.linger * 1000),
        )
        async with producer:

            async def one(value: bytes) -> None:
                async with producer.transaction():
                    await producer.send(job.topic, value)

            return _checked(job, await timed(job, one), job.records + job.warm_up)

    return run_on_loop(job, main)


def confluent_one(job: Job) -> Outcome:
    """Transactions of one record."""
    return _confluent(job, records=True)


def confluent_empty(job: Job) -> Outcome:
    """Transactions of nothing."""
    return _confluent(job, records=False)


def _confluent(job: Job, *, records: bool) -> Outcome:
    producer = _confluent_producer(job)

    def one(value: bytes) -> None:
        producer.begin_transaction()
        if records:
            producer.produce(job.topic, value)
        producer.commit_transaction(PATIENCE)

    outcome = timed_without_loop(job, one)
    return _checked(job, outcome, job.records + job.warm_up, records=records)


def _confluent_producer(job: Job) -> Any:
    from confluent_kafka import Producer

    from benchmarks.clients.confluent_entries import producer_settings

    settings = producer_settings(job) | {"transactional.id": f"benchmark-{secrets.token_hex(6)}"}
    producer = Producer(settings)
    producer.init_transactions(PATIENCE)
    return producer


# Many records in each: what a record costs beside the same without transactions.


def kclient_plain(job: Job) -> Outcome:
    """``send`` without transactions, each chunk's deliveries dropped; ``flush`` at the end."""

    async def main() -> Outcome:
        import kclient

        watch = Watch()
        async with kclient.Producer(
            job.bootstrap, linger=job.linger, batch_size=job.batch_size
        ) as producer:
            await _fill(producer, job, job.warm_up)
            await producer.flush()
            watch.start()
            await _fill(producer, job, job.records)
            await producer.flush()
            watch.stop()
        return watch.outcome(job.records)

    return run_on_loop(job, main)


async def _fill(producer: Any, job: Job, count: int) -> None:
    for chunk in windows(job.size, count, _CHUNK):
        for value in chunk:
            await producer.enqueue(job.topic, value)


def kclient_by_count(job: Job) -> Outcome:
    """In transactions of 1,000 records."""
    return _kclient_many(job, lambda sent, began: sent >= RECORDS)


def kclient_by_time(job: Job) -> Outcome:
    """In transactions of 100 ms."""
    return _kclient_many(job, lambda sent, began: time.monotonic() - began >= SECONDS)


def _kclient_many(job: Job, full: Callable[[int, float], bool]) -> Outcome:
    transactions = 0

    async def write(producer: Any, count: int) -> None:
        nonlocal transactions
        txn, open_ = producer.transaction(), False
        sent, began = 0, 0.0
        for chunk in windows(job.size, count, _CHUNK):
            if not open_:
                await txn.begin()
                transactions += 1
                open_, sent, began = True, 0, time.monotonic()
            for value in chunk:
                await producer.enqueue(job.topic, value)
            sent += len(chunk)
            if full(sent, began):
                await txn.commit()
                open_ = False
        if open_:
            await txn.commit()

    async def main() -> Outcome:
        watch = Watch()
        async with _kclient_producer(job) as producer:
            await write(producer, job.warm_up)
            watch.start()
            await write(producer, job.records)
            watch.stop()
        return _checked(job, watch.outcome(job.records), transactions)

    return run_on_loop(job, main)


def confluent_by_count(job: Job) -> Outcome:
    """In transactions of 1,000 records."""
    return _confluent_many(job, lambda sent, began: sent >= RECORDS)


def confluent_by_time(job: Job) -> Outcome:
    """In transactions of 100 ms."""
    return _confluent_many(job, lambda sent, began: time.monotonic() - began >= SECONDS)


def _confluent_many(job: Job, full: Callable[[int, float], bool]) -> Outcome:
    producer, watch = _confluent_producer(job), Watch()
    transactions = 0

    def write(count: int) -> None:
        nonlocal transactions
        sent, began, open_ = 0, 0.0, False
        for chunk in windows(job.size, count, _CHUNK):
            if not open_:
                producer.begin_transaction()
                transactions += 1
                open_, sent, began = True, 0, time.monotonic()
            for value in chunk:
                producer.produce(job.topic, value)
            producer.poll(0)
            sent += len(chunk)
            if full(sent, began):
                producer.commit_transaction(PATIENCE)
                open_ = False
        if open_:
            producer.commit_transaction(PATIENCE)

    write(job.warm_up)
    watch.start()
    write(job.records)
    watch.stop()
    return _checked(job, watch.outcome(job.records), transactions)

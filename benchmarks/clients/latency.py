"""One record at a time, linger 0: how long until it is acknowledged, and until it is received.

All clients are in one module, which shows that their loops are equal. Each measures the wall time
of one record; the next one begins when that is done. Loaded in workers only.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from benchmarks.clients.loops import run_on_loop
from benchmarks.job import Job, Outcome
from benchmarks.tally import Watch
from benchmarks.values import values

PATIENCE = 10.0


def figures(job: Job, watch: Watch, times: list[float]) -> Outcome:
    """Return percentiles and the mean beside the usual figures."""
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    spent = {"p50_us": cuts[49], "p99_us": cuts[98], "mean_us": statistics.fmean(times)}
    return watch.outcome(job.records) | {name: one * 1e6 for name, one in spent.items()}


async def timed(job: Job, one: Callable[[bytes], Awaitable[Any]]) -> Outcome:
    for value in values(job.size, job.warm_up):
        await one(value)
    clock, times, watch = time.perf_counter, [], Watch()
    watch.start()
    for value in values(job.size, job.records):
        began = clock()
        await one(value)
        times.append(clock() - began)
    watch.stop()
    return figures(job, watch, times)


def timed_without_loop(job: Job, one: Callable[[bytes], Any]) -> Outcome:
    for value in values(job.size, job.warm_up):
        one(value)
    clock, times, watch = time.perf_counter, [], Watch()
    watch.start()
    for value in values(job.size, job.records):
        began = clock()
        one(value)
        times.append(clock() - began)
    watch.stop()
    return figures(job, watch, times)


def kclient(job: Job) -> Outcome:
    from benchmarks.clients.kclient_produce import producer_for

    async def main() -> Outcome:
        async with producer_for(job) as producer:
            send, topic = producer.send, job.topic
            return await timed(job, lambda value: send(topic, value))

    return run_on_loop(job, main)


def kclient_uvloop(job: Job) -> Outcome:
    return kclient(replace(job, loop="uvloop"))


def aiokafka(job: Job) -> Outcome:
    from benchmarks.clients.aiokafka_entries import producer_for

    async def main() -> Outcome:
        async with producer_for(job) as producer:
            send, topic = producer.send_and_wait, job.topic
            return await timed(job, lambda value: send(topic, value))

    return run_on_loop(job, main)


def aiokafka_uvloop(job: Job) -> Outcome:
    return aiokafka(replace(job, loop="uvloop"))


def confluent_aio(job: Job) -> Outcome:
    from confluent_kafka.aio import AIOProducer

    from benchmarks.clients.confluent_entries import producer_settings

    buffer: dict[str, Any] = {"batch_size": 1, "buffer_timeout": 0.02} if job.tuned else {}

    async def main() -> Outcome:
        async with AIOProducer(producer_settings(replace(job, tuned=False)), **buffer) as producer:

            async def one(value: bytes) -> None:
                await (await producer.produce(job.topic, value=value))

            return await timed(job, one)

    return run_on_loop(job, main)


def confluent(job: Job) -> Outcome:
    """``produce``, then ``poll`` until its delivery report arrives."""
    from confluent_kafka import Producer

    from benchmarks.clients.confluent_entries import producer_settings

    producer, topic = Producer(producer_settings(job)), job.topic
    reports: list[Any] = []

    def done(error: Any, message: Any) -> None:
        reports.append(error)

    def one(value: bytes) -> None:
        producer.produce(topic, value, on_delivery=done)
        while not reports:
            producer.poll(PATIENCE)
        if reports.pop() is not None:
            raise ValueError("not delivered")

    return timed_without_loop(job, one)


def confluent_flush(job: Job) -> Outcome:
    """``produce``, then ``flush``."""
    from confluent_kafka import Producer

    from benchmarks.clients.confluent_entries import producer_settings

    producer, topic = Producer(producer_settings(job)), job.topic

    def one(value: bytes) -> None:
        producer.produce(topic, value)
        if producer.flush(PATIENCE):
            raise ValueError("not delivered")

    return timed_without_loop(job, one)


def kafka_python(job: Job) -> Outcome:
    from benchmarks.clients.kafka_python_entries import producer_for

    producer, topic = producer_for(job), job.topic
    outcome = timed_without_loop(job, lambda value: producer.send(topic, value).get(PATIENCE))
    producer.close()
    return outcome

"""How long one callback holds the event loop while a million records are read, or 150,000 written.

``kclient.testing.LoopProbe`` times every callback of asyncio's own loop in CPU time of its thread,
whichever client runs on it. Only what happens while the watch runs counts. The default garbage
collector is part of it. Loaded in workers only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from benchmarks.clients.loops import run_on_loop
from benchmarks.job import Job, Outcome
from benchmarks.tally import Watch
from benchmarks.values import values
from kclient.testing import LoopProbe


def _probed(run: Callable[[Job], Outcome], job: Job) -> Outcome:
    found: Outcome = {}

    def begin() -> None:
        probe.longest, probe.longest_callback = 0.0, ""

    def end() -> None:
        # The callback that stops the watch counts too, and it has not ended yet.
        asyncio.get_running_loop().call_soon(take)

    def take() -> None:
        found["longest_ms"] = probe.longest * 1000
        found["longest_callback"] = probe.longest_callback

    with LoopProbe() as probe:
        Watch.on_start, Watch.on_stop = begin, end
        try:
            outcome = run(job)
        finally:
            Watch.on_start = Watch.on_stop = None
    return outcome | found


def kclient_poll(job: Job) -> Outcome:
    from benchmarks.clients import kclient_consume

    return _probed(kclient_consume.poll, job)


def kclient_async_for(job: Job) -> Outcome:
    from benchmarks.clients import kclient_consume

    return _probed(kclient_consume.async_for, job)


def aiokafka_getmany(job: Job) -> Outcome:
    from benchmarks.clients import aiokafka_entries

    return _probed(aiokafka_entries.getmany, job)


def confluent_aio_consume(job: Job) -> Outcome:
    from benchmarks.clients import confluent_aio

    return _probed(confluent_aio.consume, job)


def _burst(job: Job, made: Callable[[], Any], put: str) -> Outcome:
    """Send records as fast as the client accepts them, then await each acknowledgement."""

    async def main() -> Outcome:
        watch = Watch()
        async with made() as producer:
            take: Any = getattr(producer, put)
            for count in (job.warm_up, job.records):
                if count == job.records:
                    watch.start()
                kept = [await take(job.topic, value=value) for value in values(job.size, count)]
                if put == "produce":
                    await producer.flush()
                for one in kept:
                    await one
            watch.stop()
        return watch.outcome(job.records)

    return _probed(lambda job: run_on_loop(job, main), job)


def kclient_burst(job: Job) -> Outcome:
    from benchmarks.clients.kclient_produce import producer_for

    return _burst(job, lambda: producer_for(job), "enqueue")


def aiokafka_burst(job: Job) -> Outcome:
    from benchmarks.clients.aiokafka_entries import producer_for

    return _burst(job, lambda: producer_for(job), "send")


def confluent_aio_burst(job: Job) -> Outcome:
    from confluent_kafka.aio import AIOProducer

    from benchmarks.clients.confluent_entries import producer_settings

    return _burst(job, lambda: AIOProducer(producer_settings(job)), "produce")

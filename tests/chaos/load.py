"""The producers of a run: idempotent, each with settings of its own, at a rate that can be changed.

``run`` makes one ``Load``. Each producer has one task, which offers its records one after the other
and never waits for an acknowledgement; outcomes go into the ledger. Nothing is judged.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import kclient
from kclient.errors import FlushFailed, KafkaError
from kclient.producer import Delivery
from tests.chaos.ledger import Account, Ledger
from tests.chaos.records import Recipe

CAST: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("hasty", {"compression": "lz4", "delivery_timeout": 1.0}),
    ("plain", {"compression": "none"}),
    ("gzip", {"compression": "gzip", "linger": 0.02}),
    ("eager", {"compression": "snappy", "linger": 0.0}),
    ("small", {"compression": "lz4", "linger": 0.02, "batch_size": 4096}),
    ("nervous", {"compression": "zstd", "request_timeout": 1.5}),
    ("narrow", {"compression": "none", "linger": 0.05, "buffer_memory": 256 * 1024}),
)
"""Names and settings. Records of the hasty one expire while a leader is away, so that there are
failures whose ``maybe_written`` can be compared with the logs; requests of the nervous one time
out, and the narrow one has to wait for buffer memory."""
TICK = (0.004, 0.03)
"""Seconds between two handfuls of records, at least and at most."""
MOST_DUE = 0.5
"""Seconds of the rate that are made up for after a wait."""
CLOSE_TIMEOUT = 60.0
COMMON: Mapping[str, Any] = {"acks": "all", "idempotence": True, "max_in_flight": 5}
"""Settings of all: what the promises are made for."""


class Load:
    """All producers.

    Tasks: one per producer, from ``start`` to ``stop``; one that dies makes ``watch`` raise.

    Args:
        bootstrap: Where clients begin.
        topic: Where all records go.
        count: How many producers; the cast is gone through as often as it takes.
        compression: The codec of all, or "mix" for those of the cast.

    Attributes:
        rate: Records per second, of all producers together.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        recipe: Recipe,
        ledger: Ledger,
        *,
        count: int,
        compression: str,
        seed: int,
        rate: float,
    ) -> None:
        self.rate = rate
        self._topic = topic
        self._recipe = recipe
        self._over = False
        self._workers: list[_Worker] = []
        for number in range(count):
            name, settings = CAST[number % len(CAST)]
            given = {**COMMON, **settings}
            if compression != "mix":
                given["compression"] = compression
            account = ledger.open(f"{name}-{number}")
            producer: kclient.Producer[Any, Any] = kclient.Producer(
                bootstrap, client_id=account.name, **given
            )
            rng = random.Random(f"load {seed} {number}")
            self._workers.append(_Worker(producer, number, account, rng))
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start all producers and begin."""
        for worker in self._workers:
            await worker.producer.start()
        self._tasks = [
            asyncio.create_task(self._work(worker), name=worker.account.name)
            for worker in self._workers
        ]

    def finish(self) -> None:
        """Offer no more."""
        self._over = True

    async def stop(self) -> None:
        """Offer no more, and wait for what was offered: close all producers."""
        self.finish()
        await asyncio.gather(*self._tasks)
        await asyncio.gather(*(self._close(worker) for worker in self._workers))
        await asyncio.sleep(0)  # the last outcomes are reported in the next loop iteration

    async def abandon(self) -> None:
        """End at once, whatever becomes of the records: the run has failed."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for worker in self._workers:
            with contextlib.suppress(KafkaError):
                await worker.producer.close(0.0)

    async def watch(self) -> None:
        """Return when ``finish`` was called; raise what ended a producer's task before."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()

    async def _close(self, worker: _Worker) -> None:
        with contextlib.suppress(FlushFailed):  # every delivery was looked at by itself
            await worker.producer.close(CLOSE_TIMEOUT)

    async def _work(self, worker: _Worker) -> None:
        debt, last = 0.0, time.monotonic()
        while not self._over:
            await asyncio.sleep(worker.rng.uniform(*TICK))
            now = time.monotonic()
            share = self.rate / len(self._workers)
            debt = min(debt + (now - last) * share, share * MOST_DUE)
            last = now
            while debt >= 1.0 and not self._over:
                debt -= 1.0
                await self._offer(worker)

    async def _offer(self, worker: _Worker) -> None:
        """One record, by ``send`` or by ``enqueue``."""
        account = worker.account
        number = account.offer(time.monotonic())
        key, value, headers, partition = self._recipe.make(worker.number, number)
        more: dict[str, Any] = {"key": key, "headers": headers, "partition": partition}
        try:
            if worker.waits:
                delivery = await worker.producer.enqueue(self._topic, value, **more)
            else:
                delivery = worker.producer.send(self._topic, value, **more)
        except KafkaError as error:
            account.refused.add(number)
            account.fail(number, time.monotonic(), type(error).__name__, error.maybe_written)
            return
        delivery.add_done_callback(partial(_reported, account, number))


class _Worker:
    """One producer with what is its own."""

    def __init__(
        self,
        producer: kclient.Producer[Any, Any],
        number: int,
        account: Account,
        rng: random.Random,
    ) -> None:
        self.producer = producer
        self.number = number
        self.account = account
        self.rng = rng
        self.waits = number % 2 == 0
        """Whether it has back-pressure, by ``enqueue``; else records of ``send`` wait."""


def _reported(account: Account, number: int, delivery: Delivery) -> None:
    now, error = time.monotonic(), delivery.exception()
    if error is None:
        meta = delivery.result()
        account.ok(number, now, meta.partition, meta.offset)
    else:
        account.fail(number, now, type(error).__name__, error.maybe_written)

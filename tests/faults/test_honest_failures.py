"""Producers report outcomes truthfully: through lost responses (R2), and past expiry (R4).

Each run is recorded in a history of tests.history, and judged against the final logs, which are
read past the proxy.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import kclient
from kclient.producer import Delivery
from tests.faults import Drop, FaultProxy, Hold
from tests.faults.reading import all_records
from tests.history import History, Place, Report, Send, Written, check

PRODUCE = 0
SEED = "R2 R4"
PARTITIONS = 12
LOST_ANSWERS = {"kafka": 200_000, "embedded": 20_000}
BATCH_SIZE = {"kafka": 4096, "embedded": 2048}
"""Small, so that there are many requests."""
UNDER_EXPIRY = {"kafka": 100_000, "embedded": 10_000}
FILLER = b"." * 80


class Sending:
    """A producer whose records and outcomes go into a history."""

    def __init__(self, history: History, name: str, topic: str, client: Any) -> None:
        self._history = history
        self._name = name
        self._topic = topic
        self._client = client
        self._sent = 0
        self._pending: set[Any] = set()

    async def send(self, count: int) -> None:
        """Send so many, to the partitions round robin."""
        for _ in range(count):
            value = b"%s %d %s" % (self._name.encode(), self._sent, FILLER)
            partition = self._sent % PARTITIONS
            self._sent += 1
            send = self._history.send(self._name, self._topic, value, partition=partition)
            try:
                delivery = await self._client.enqueue(self._topic, value, partition=partition)
            except kclient.errors.BufferFull as error:
                assert error.maybe_written is False
                self._history.fail(send, repr(error))
                continue
            self._history.taken(send)
            self._pending.add(delivery)
            delivery.add_done_callback(lambda done, send=send: self._reported(send, done))

    async def settled(self) -> None:
        """Wait until all outcomes were reported."""
        while self._pending:
            await asyncio.wait(self._pending)

    def _reported(self, send: Send, delivery: Delivery) -> None:
        self._pending.discard(delivery)
        error = delivery.exception()
        if error is None:
            reported = delivery.result()
            self._history.ok(send, Place(reported.topic, reported.partition), reported.offset)
        elif error.maybe_written is None:
            raise AssertionError(f"{error!r} doesn't say whether {send} is written")
        elif error.maybe_written:
            self._history.info(send, type(error).__name__)
        else:
            self._history.fail(send, type(error).__name__)


@asynccontextmanager
async def sending(
    history: History, name: str, topic: str, bootstrap: str, **settings: Any
) -> AsyncIterator[Sending]:
    """Start a producer; when it ends, all that it was given is settled."""
    history.producer(name)
    async with kclient.Producer(
        bootstrap,
        max_in_flight=5,
        reconnect_backoff=0.01,
        reconnect_backoff_max=0.05,
        retry_backoff=0.02,
        **settings,
    ) as client:
        one = Sending(history, name, topic, client)
        yield one
        await one.settled()


async def judge(history: History, bootstrap: str, topic: str) -> Report:
    """Read the logs and check the history against them."""
    logs: dict[Place, list[Written]] = {}
    async for records in all_records(bootstrap, [topic], PARTITIONS):
        for record in records:
            log = logs.setdefault(Place(record.topic, record.partition), [])
            log.append(Written(record.offset, record.key, record.value))
    return check(history, logs)


@pytest.mark.timeout(240)
async def test_nothing_is_lost_doubled_or_reordered_where_responses_are_lost(
    proxy: FaultProxy, broker: Any, topic: Any
) -> None:
    name, history, rng = await topic(partitions=PARTITIONS), History(lean=True), random.Random(SEED)
    records = LOST_ANSWERS[broker.kind]
    numbers, most = itertools.count(), 0

    def tenth(_: Any) -> bool:
        nonlocal most
        most = max([most, *(session.in_flight("Produce") for session in proxy.sessions())])
        return rng.random() < 0.1

    settings: Any = {"request_timeout": 0.5, "batch_size": BATCH_SIZE[broker.kind]}
    # Most are lost with their connections, and a few just never come.
    cut = proxy.add(Drop("Produce", then="cut", times=None, when=tenth))
    silent = proxy.add(Drop("Produce", times=None, when=lambda _: next(numbers) % 100 == 99))
    async with (
        sending(history, "one", name, proxy.bootstrap, **settings) as one,
        sending(history, "two", name, proxy.bootstrap, **settings) as two,
    ):
        await asyncio.gather(one.send(records // 2), two.send(records // 2))
    answered = proxy.answers[PRODUCE]
    report = await judge(history, broker.bootstrap, name)
    assert report, str(report)
    assert report.acknowledged == report.written == records, str(report)
    lost = cut.hits + silent.hits
    assert silent.hits and lost >= 20 and lost / (lost + answered) > 0.08, (lost, answered)
    assert most == 5


@pytest.mark.timeout(240)
async def test_failures_under_expiry_report_whether_a_record_is_written(
    proxy: FaultProxy, broker: Any, topic: Any
) -> None:
    name, history, rng = await topic(partitions=PARTITIONS), History(lean=True), random.Random(SEED)
    records, phases = UNDER_EXPIRY[broker.kind], 5
    share = records // phases // 2 // 3
    settings: Any = {"delivery_timeout": 1.0, "batch_size": 1024, "buffer_memory": 1_500_000}
    async with (
        sending(history, "one", name, proxy.bootstrap, request_timeout=30.0, **settings) as one,
        sending(history, "two", name, proxy.bootstrap, request_timeout=0.3, **settings) as two,
    ):
        for phase in range(phases):
            await asyncio.gather(one.send(share), two.send(share))
            await asyncio.gather(one.settled(), two.settled())
            side: Any = "request" if phase % 2 else "answer"
            held = proxy.add(Hold("Produce", on=side, times=None))
            await asyncio.gather(one.send(2 * share), two.send(2 * share))
            await asyncio.gather(one.settled(), two.settled())
            for session in proxy.sessions():
                if session.in_flight("Produce") and rng.random() < 0.5:
                    session.cut(reset=rng.random() < 0.5)
            assert held.hits
            proxy.remove(held)
    report = await judge(history, broker.bootstrap, name)
    assert report, str(report)
    reported = (report.acknowledged, report.unknown, report.failed)
    assert sum(reported) == len(history.sends) == 6 * share * phases
    assert min(reported) > records // 50, reported

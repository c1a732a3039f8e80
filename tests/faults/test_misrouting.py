"""Records stay what and where they are while their batches expire in flight (CVE-2026-35554).

Another client reused the memory of an expired batch while the old request was still in flight, so
that records came into a wrong topic and were reported as delivered.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import secrets
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import pytest

import kclient
from kclient import Admin, NewTopic
from kclient.errors import BufferFull
from tests.faults import Cut, FaultProxy, Hold
from tests.faults.labelled import Book, Fate
from tests.faults.passage import Side
from tests.faults.reading import all_records

PRODUCE = 0
SEED = "R27"
TOPICS, PARTITIONS = 200, 2
RECORDS = {"kafka": 1_000_000, "embedded": 50_000}
BURSTS = {"kafka": 1500, "embedded": 1200}
"""How many bursts all producers together send: the fewer the records, the smaller they are."""
RUN = 5
"""Records for one partition one after the other."""
OUTSTANDING = 4
"""Bursts of a producer that are not settled."""
CALM_ANSWERS = 40
"""Produce responses that pass before the next fault."""
CALM_SECONDS = 1.0


ENDS = (Fate.DELIVERED, Fate.IN_DOUBT, Fate.NOT_WRITTEN)


class Sender(NamedTuple):
    """How one producer is set up."""

    delivery_timeout: float
    request_timeout: float
    compression: str


SENDERS = [
    Sender(0.05, 30.0, "none"),
    Sender(0.12, 0.1, "none"),
    Sender(0.25, 30.0, "lz4"),
    Sender(0.5, 0.3, "none"),
]


async def send_bursts(book: Book, number: int, bootstrap: str, records: int, size: int) -> None:
    """Send ``records`` in bursts of a size, and note the outcome of each."""
    rng, sender = random.Random(f"{SEED} {number}"), SENDERS[number]
    waiting: deque[tuple[int, Any]] = deque()
    ends: deque[Any] = deque()
    async with kclient.Producer(
        bootstrap,
        **sender._asdict(),
        linger=0.002,
        batch_size=4096,
        buffer_memory=1_000_000,
        max_block=60.0,  # metadata is not the point, and requests time out early
        reconnect_backoff_max=0.1,
        retry_backoff=0.02,
        retry_backoff_max=0.1,
    ) as producer:
        for count in range(0, records, size):
            delivery = None
            for nth in range(min(size, records - count)):
                if nth % RUN == 0:
                    topic, partition = rng.randrange(TOPICS), rng.randrange(PARTITIONS)
                record, value = book.make(topic, partition, number)
                try:
                    delivery = await producer.enqueue(
                        book.topics[topic], value, partition=partition
                    )
                except BufferFull as error:
                    book.failed(record, error)
                else:
                    waiting.append((record, delivery))
            ends.append(delivery)
            if len(ends) > OUTSTANDING and (first := ends.popleft()) is not None:
                await asyncio.wait([first])
            while waiting and waiting[0][1].done():
                book.note(*waiting.popleft())
        await asyncio.gather(*(delivery for _, delivery in waiting), return_exceptions=True)
        for record, delivery in waiting:
            book.note(record, delivery)


async def break_things(proxy: FaultProxy, rng: random.Random, done: Counter[str]) -> None:
    """Hold Produce requests and responses past expiry, and cut connections, over and over."""
    for turn in itertools.count():
        answered = proxy.answers[PRODUCE] + CALM_ANSWERS
        with suppress(TimeoutError):
            await proxy.until(lambda: proxy.answers[PRODUCE] >= answered, timeout=CALM_SECONDS)  # noqa: B023
        hold = proxy.add(Hold("Produce", on="request" if turn % 3 == 0 else "answer", times=None))
        with suppress(TimeoutError):
            await hold.reached(timeout=CALM_SECONDS)
        await asyncio.sleep(rng.uniform(0.03, 0.6))
        done["held"] += hold.hits
        busy = [session for session in proxy.sessions() if session.in_flight("Produce")]
        for session in rng.sample(busy, len(busy) // 2):
            session.cut(reset=rng.random() < 0.3)
        proxy.remove(hold)
        if rng.random() < 0.5:
            side: Side = "request" if rng.random() < 0.5 else "answer"
            proxy.add(Cut("Produce", on=side, at=rng.random(), skip=rng.randrange(20)))
        done["turns"] += 1


@asynccontextmanager
async def fresh_topics(broker: Any) -> AsyncIterator[list[str]]:
    """Topics that are deleted afterwards: a real broker may be up for longer than this test."""
    stem = f"misrouting-{secrets.token_hex(4)}"
    names = [f"{stem}-{number}" for number in range(TOPICS)]
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topics(
            [NewTopic(name, partitions=PARTITIONS, replication_factor=1) for name in names]
        )
    yield names
    if broker.kind == "kafka":
        async with Admin(broker.bootstrap) as admin:
            await admin.delete_topics(names)


@asynccontextmanager
async def broken(proxy: FaultProxy, done: Counter[str]) -> AsyncIterator[None]:
    """Break things for the time of the context, then remove all faults."""
    breaking = asyncio.create_task(break_things(proxy, random.Random(SEED), done))
    try:
        yield
    finally:
        breaking.cancel()
        await asyncio.wait([breaking])
        proxy.clear()
    assert breaking.cancelled(), breaking.exception()


@pytest.mark.timeout(300)
async def test_records_stay_in_their_places_while_batches_expire(
    proxy: FaultProxy, broker: Any
) -> None:
    records, done = RECORDS[broker.kind], Counter[str]()
    share, size = records // len(SENDERS), records // BURSTS[broker.kind]
    async with fresh_topics(broker) as topics:
        book = Book(topics, records)
        async with broken(proxy, done), asyncio.TaskGroup() as tasks:
            for number in range(len(SENDERS)):
                tasks.create_task(send_bursts(book, number, proxy.bootstrap, share, size))
        async for found in all_records(broker.bootstrap, topics, PARTITIONS):
            for record in found:
                book.read(record)
    fates = book.close()
    assert not book.problems, "\n".join([f"{book.problems} in {fates}", *book.examples])
    # The run met the faults. Usually each of these outcomes has a sixth of the records.
    assert min(fates[fate] for fate in ENDS) > records // 20, fates
    assert book.written_in_doubt() > records // 40, fates
    assert done["turns"] >= 8 and done["held"] >= 100 and proxy.cuts >= 10, (done, proxy.cuts)

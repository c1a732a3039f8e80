"""Hot paths of the producer, by its public methods: from ``send`` to the acknowledgement.

Whole ones (``gather``, ``send_many``) and their stages: appending to a batch, sending all batches,
and awaiting a delivery that is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from kclient import Delivery, Producer
from tests.budgets.canned import ADDRESS, TOPIC, CannedBroker
from tests.budgets.hot_path import HotPath, Step
from tests.budgets.records import BATCH_BYTES, KEYED, VALUE
from tests.budgets.still import StillLoop

Bytes = bytes | bytearray | memoryview
Client = Producer[Any, Any]
Walk = Callable[[Client, int], Coroutine[Any, Any, object]]
TASKS_SHARE = 10
"""Records that each of many tasks sends."""


@contextmanager
def producing(**settings: Any) -> Iterator[tuple[StillLoop, Client]]:
    """A producer at work, which knows the topic and has its id."""
    loop = StillLoop()
    asyncio.set_event_loop(loop)
    settings = {"batch_size": BATCH_BYTES, "linger": 0.005, **settings}
    producer: Client = Producer(ADDRESS, dialer=CannedBroker(), **settings)
    try:
        loop.run_until_complete(producer.start())
        loop.run_until_complete(_first(producer))
        yield loop, producer
    finally:
        loop.run_until_complete(producer.close())
        asyncio.set_event_loop(None)
        loop.close()


async def _first(producer: Client) -> None:
    await producer.send(TOPIC, VALUE)


def whole(walk: Walk, **settings: Any) -> Callable[[int], AbstractContextManager[Step]]:
    """All that a walk does."""

    @contextmanager
    def prepare(count: int) -> Iterator[Step]:
        with producing(**settings) as (loop, producer):
            yield lambda: loop.run_until_complete(walk(producer, count))

    return prepare


async def sent(producer: Client, count: int) -> list[Delivery]:
    """Append records to batches that aren't sent: the sender doesn't run meanwhile."""
    send = producer.send
    return [send(TOPIC, VALUE) for _ in range(count)]


async def sent_keyed(producer: Client, count: int) -> list[Delivery]:
    """The same with key and headers."""
    send = producer.send
    key, headers = KEYED
    return [send(TOPIC, VALUE, key=key, headers=headers) for _ in range(count)]


@contextmanager
def flushing(count: int) -> Iterator[Step]:
    """Send full batches: encode, request, response, settle."""
    with producing() as (loop, producer):
        loop.run_until_complete(sent(producer, 1))
        kept = loop.run_until_complete(sent(producer, count))
        yield lambda: loop.run_until_complete(producer.flush())
        if not all(delivery.done() for delivery in kept):
            raise RuntimeError("a flush left deliveries behind")


@contextmanager
def awaiting_done(count: int) -> Iterator[Step]:
    """Deliveries that are done when they are awaited."""

    async def walk(deliveries: list[Delivery]) -> object:
        return [await delivery for delivery in deliveries]

    with producing() as (loop, producer):
        kept = loop.run_until_complete(sent(producer, count))
        loop.run_until_complete(producer.flush())
        yield lambda: loop.run_until_complete(walk(kept))


async def gathered(producer: Client, count: int) -> object:
    """The usual way: one gather over many sends."""
    send = producer.send
    return await asyncio.gather(*[send(TOPIC, VALUE) for _ in range(count)])


async def nowait(producer: Client, count: int) -> None:
    """Send without keeping the deliveries."""
    enqueue = producer.enqueue_nowait
    for _ in range(count):
        enqueue(TOPIC, VALUE)
    await producer.flush()


async def enqueued(producer: Client, count: int) -> None:
    """With back-pressure."""
    enqueue = producer.enqueue
    for _ in range(count):
        await enqueue(TOPIC, VALUE)
    await producer.flush()


async def many(producer: Client, count: int) -> object:
    """The quickest way in."""
    return await producer.send_many(TOPIC, [VALUE] * count)


async def many_keyed(producer: Client, count: int) -> object:
    """Those that aren't taken a block at a time."""
    return await producer.send_many(TOPIC, [(VALUE[:8], VALUE)] * count)


@contextmanager
def arrow(count: int) -> Iterator[Step]:
    """Rows of columns that the user has."""
    import pyarrow

    rows = pyarrow.record_batch({"value": pyarrow.array([VALUE] * count, pyarrow.binary())})
    with producing() as (loop, producer):
        yield lambda: loop.run_until_complete(producer.send_arrow(TOPIC, rows))


async def tasks(producer: Client, count: int) -> None:
    """Many tasks, each awaiting each of its records."""

    async def one() -> None:
        for _ in range(TASKS_SHARE):
            await producer.send(TOPIC, VALUE)

    await asyncio.gather(*[one() for _ in range(count // TASKS_SHARE)])


async def single(producer: Client, count: int) -> None:
    """One record after the other: the whole client once per record."""
    for _ in range(count):
        await producer.send(TOPIC, VALUE)


PATHS = (
    HotPath("send", "Producer.send: into a batch", whole(sent), 1200, pure=True),
    HotPath("send_keyed", "... with key and two headers", whole(sent_keyed), 600),
    HotPath("ship", "flush: from full batches to settled ones", flushing, 2400),
    HotPath("await_done", "await a Delivery that is done", awaiting_done, 800),
    HotPath("gather", "gather over send, to the last outcome", whole(gathered), 800),
    HotPath("enqueue_nowait", "enqueue_nowait and flush", whole(nowait), 1200),
    HotPath("enqueue", "await enqueue, and flush", whole(enqueued), 1200),
    HotPath("send_many", "send_many of a list", whole(many), 1200),
    HotPath("send_many_keyed", "... of pairs", whole(many_keyed), 1200),
    HotPath("send_arrow", "send_arrow of a record batch", arrow, 2400),
    HotPath("tasks", "tasks that await their sends", whole(tasks), 1800),
    HotPath("single", "one awaited send at linger 0", whole(single, linger=0.0), 360),
)

"""``kclient.process``: read, handle and write exactly once."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from typing import Any

import pytest

import kclient
from kclient import TopicPartition
from tests.behaviours.reading import read, write

PATIENCE = 40.0
FIRST_WITH_GENERATIONS = (2, 5, 0)


@pytest.fixture
def generations(broker: Any) -> None:
    if broker.version < FIRST_WITH_GENERATIONS:
        pytest.skip("before 2.5 brokers can't check a member's generation")


def reading(group: str) -> dict[str, Any]:
    return {
        "group": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "isolation_level": "read_committed",
    }


async def output(consumer: Any, topic: str, count: int) -> list[bytes]:
    """Read ``count`` committed records, and see that there are no more."""
    back = await consumer(topic, auto_offset_reset="earliest", isolation_level="read_committed")
    async with asyncio.timeout(PATIENCE):
        records = await read(back, count)
    assert await back.poll(timeout=0.3) == []
    return sorted(record.value for record in records)


async def until_committed(reader: Any, offsets: dict[TopicPartition, int]) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await reader.committed(offsets)
            if all(at is not None and at.offset >= offsets[key] for key, at in found.items()):
                return
            await asyncio.sleep(0.05)


async def ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def scene(topic: Any, producer: Any, consumer: Any, count: int, partitions: int = 2) -> Any:
    source, target = await topic(partitions=partitions), await topic()
    numbers = [b"%04d" % number for number in range(count)]
    await write(await producer(), source, numbers, partitions)
    group = f"g-{secrets.token_hex(6)}"
    return source, target, group, numbers


async def test_each_record_is_handled_once_for_those_who_read_committed_ones(
    broker, topic, producer, consumer
) -> None:
    source, target, group, numbers = await scene(topic, producer, consumer, 40)
    reader = await consumer(source, **reading(group))
    out = await producer(transactional_id=group)

    def handle(record: Any, txn: Any) -> None:
        txn.send(target, record.value)

    work = asyncio.create_task(kclient.process(reader, out, handle, max_records=7))
    if broker.version < FIRST_WITH_GENERATIONS:
        with pytest.raises(kclient.NoCommonVersion, match="generation"):
            await work
        return
    await until_committed(reader, {TopicPartition(source, n): 20 for n in (0, 1)})
    await ended(work)
    assert await output(consumer, target, 40) == numbers


async def test_what_a_handler_raises_ends_it_and_leaves_nothing_behind(
    broker, topic, producer, consumer, generations
) -> None:
    source, target, group, numbers = await scene(topic, producer, consumer, 30)
    reader = await consumer(source, **reading(group))
    out = await producer(transactional_id=group)
    tries: Counter[bytes] = Counter()

    async def handle(record: Any, txn: Any) -> None:
        tries[record.value] += 1
        await txn.enqueue(target, record.value)
        if record.value == b"0013" and tries[record.value] <= 2:
            raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await kclient.process(reader, out, handle, max_records=10)
    work = asyncio.create_task(kclient.process(reader, out, handle, max_records=10))
    await until_committed(reader, {TopicPartition(source, n): 15 for n in (0, 1)})
    await ended(work)
    assert tries[b"0013"] == 3
    assert await output(consumer, target, 30) == numbers


async def test_a_successor_goes_on_where_an_interrupted_process_stood(
    broker, topic, producer, consumer, generations
) -> None:
    source, target, group, numbers = await scene(topic, producer, consumer, 60)
    handled = 0

    async def handle(record: Any, txn: Any) -> None:
        nonlocal handled
        handled += 1
        await txn.send(target, record.value)
        if handled in (13, 31):
            raise KeyboardInterrupt  # what nothing between it and the event loop handles

    for _ in range(3):
        reader = await consumer(source, **reading(group), session_timeout=6.0)
        out = await producer(transactional_id=group, linger=0.0)
        loop = asyncio.ensure_future(_caught(kclient.process(reader, out, handle, max_records=9)))
        waiting = asyncio.ensure_future(
            until_committed(reader, {TopicPartition(source, n): 30 for n in (0, 1)})
        )
        await asyncio.wait([loop, waiting], return_when=asyncio.FIRST_COMPLETED)
        for task in (loop, waiting):
            task.cancel()
        await asyncio.gather(loop, waiting, return_exceptions=True)
        await reader.close()
    assert await output(consumer, target, 60) == numbers


async def _caught(work: Any) -> None:
    try:
        await work
    except KeyboardInterrupt:
        pass


async def test_members_that_come_and_go_double_nothing(
    broker, topic, producer, consumer, generations
) -> None:
    source, target, group, numbers = await scene(topic, producer, consumer, 120, partitions=4)

    async def handle(record: Any, txn: Any) -> None:
        txn.send(target, record.value)
        await asyncio.sleep(0.002)

    async def start(name: str) -> tuple[Any, Any]:
        reader = await consumer(source, **reading(group))
        out = await producer(transactional_id=f"{group}-{name}")
        return reader, asyncio.create_task(kclient.process(reader, out, handle, max_records=5))

    first, work = await start("a")
    await until_committed(first, {TopicPartition(source, 0): 3})
    second, more = await start("b")
    async with asyncio.timeout(PATIENCE):
        while not second.assignment:  # noqa: ASYNC110 - it has joined then
            await asyncio.sleep(0.02)
    await ended(work)
    await first.close()
    await until_committed(second, {TopicPartition(source, n): 30 for n in range(4)})
    await ended(more)
    assert await output(consumer, target, 120) == numbers


async def test_a_slow_handler_commits_before_its_transaction_is_too_old(
    broker, topic, producer, consumer, generations
) -> None:
    source, target, group, numbers = await scene(topic, producer, consumer, 20)
    reader = await consumer(source, **reading(group))
    out = await producer(transactional_id=group, transaction_timeout=2.0)

    async def handle(record: Any, txn: Any) -> None:
        txn.send(target, record.value)
        await asyncio.sleep(0.2)  # 4 s for what one poll returns

    work = asyncio.create_task(kclient.process(reader, out, handle))
    await until_committed(reader, {TopicPartition(source, n): 10 for n in (0, 1)})
    await ended(work)
    assert out.metrics()["producer.transactions_committed"] > 1
    assert await output(consumer, target, 20) == numbers


async def test_clients_that_do_not_suit_it_are_refused(broker, topic, producer, consumer) -> None:
    name = await topic()
    plain, automatic = await producer(), await consumer(name, group="g")

    def handle(record: Any, txn: Any) -> None: ...

    out = await producer(transactional_id=f"p-{secrets.token_hex(6)}")
    with pytest.raises(kclient.InvalidConfig, match="enable_auto_commit=False"):
        await kclient.process(automatic, out, handle)
    alone = await consumer(name, enable_auto_commit=False)
    with pytest.raises(kclient.InvalidConfig, match="group"):
        await kclient.process(alone, out, handle)
    by_hand = await consumer(**reading(f"g-{secrets.token_hex(6)}"))
    by_hand.assign([TopicPartition(name, 0)])
    with pytest.raises(kclient.InvalidConfig, match="subscribed"):
        await kclient.process(by_hand, out, handle)
    suited = await consumer(name, **reading(f"g-{secrets.token_hex(6)}"))
    with pytest.raises(kclient.InvalidConfig, match="transactional_id"):
        await kclient.process(suited, plain, handle)
    with pytest.raises(kclient.InvalidArgument, match="max_records"):
        await kclient.process(suited, out, handle, max_records=0)
    with pytest.raises(kclient.InvalidArgument, match="handler"):
        await kclient.process(suited, out, 5)  # type: ignore[arg-type]

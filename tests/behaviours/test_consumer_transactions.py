"""Reading what transactions wrote, on every kind of broker (KIP-98)."""

from __future__ import annotations

import asyncio

import pytest

from kclient.types import TopicPartition
from tests.behaviours.reading import read, write
from tests.behaviours.transactions import begin, transact

COMMITTED = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
UNCOMMITTED = {"auto_offset_reset": "earliest", "isolation_level": "read_uncommitted"}


def values(records) -> list[bytes]:
    return [record.value for record in records]


async def caught_up(consumer, partition: TopicPartition, offset: int) -> None:
    """Poll without getting records until the position is ``offset``."""
    async with asyncio.timeout(20.0):
        while await consumer.position(partition) < offset:
            assert await consumer.poll(timeout=0.1) == []


async def test_committed_records_are_read_and_aborted_ones_are_not(broker, topic, consumer) -> None:
    name = await topic()
    await transact(broker, name, [b"a1", b"a2"], commit=False)
    await transact(broker, name, [b"c1", b"c2"], commit=True)
    await transact(broker, name, [b"a3"], commit=False)
    await transact(broker, name, [b"c3"], commit=True)
    back = await consumer(name, **COMMITTED)
    assert values(await read(back, 3)) == [b"c1", b"c2", b"c3"]
    assert await back.poll(timeout=0.05) == []


async def test_read_uncommitted_gives_everything_but_the_markers(broker, topic, consumer) -> None:
    name = await topic()
    await transact(broker, name, [b"a1"], commit=False)
    await transact(broker, name, [b"c1"], commit=True)
    records = await read(await consumer(name, **UNCOMMITTED), 2)
    assert [(record.offset, record.value) for record in records] == [(0, b"a1"), (2, b"c1")]


async def test_markers_move_the_position(broker, topic, consumer) -> None:
    name = await topic()
    await transact(broker, name, [b"v"], commit=True)
    partition = TopicPartition(name, 0)
    for settings in (COMMITTED, UNCOMMITTED):
        back = await consumer(name, **settings)
        await read(back, 1)
        await caught_up(back, partition, 2)
        assert back.lag(partition) == 0


async def test_an_open_transaction_holds_back_what_follows_it(
    broker, topic, producer, consumer
) -> None:
    name = await topic()
    out = await producer(linger=0.0)
    await write(out, name, [b"before"])
    open_one = await begin(broker)
    await open_one.write(name, [b"open"])
    await write(out, name, [b"after"])
    back = await consumer(name, **COMMITTED)
    assert values(await read(back, 1)) == [b"before"]
    assert await back.poll(timeout=0.2) == []
    await open_one.end(commit=True)
    assert values(await read(back, 2)) == [b"open", b"after"]


async def test_an_open_transaction_that_aborts_lets_the_rest_through(
    broker, topic, producer, consumer
) -> None:
    name = await topic()
    open_one = await begin(broker)
    await open_one.write(name, [b"open"])
    await write(await producer(linger=0.0), name, [b"after"])
    back = await consumer(name, **COMMITTED)
    assert await back.poll(timeout=0.2) == []
    await open_one.end(commit=False)
    assert values(await read(back, 1)) == [b"after"]


async def test_the_end_is_the_last_stable_offset(broker, topic, consumer) -> None:
    name = await topic()
    await transact(broker, name, [b"v"], commit=True)
    open_one = await begin(broker)
    await open_one.write(name, [b"open"] * 3)
    partition = TopicPartition(name, 0)
    committed, uncommitted = await consumer(name, **COMMITTED), await consumer(name, **UNCOMMITTED)
    assert await committed.end_offsets([partition]) == {partition: 2}
    assert await uncommitted.end_offsets([partition]) == {partition: 5}
    committed.seek_to_end()
    assert await committed.position(partition) == 2
    uncommitted.seek_to_end()
    assert await uncommitted.position(partition) == 5
    await open_one.end(commit=False)


async def test_lag_counts_to_the_last_stable_offset(broker, topic, consumer) -> None:
    name = await topic()
    await transact(broker, name, [b"v"] * 4, commit=True)
    open_one = await begin(broker)
    await open_one.write(name, [b"open"] * 10)
    partition = TopicPartition(name, 0)
    back = await consumer(name, **COMMITTED)
    await read(back, 1)
    assert back.lag(partition) == 4  # three records and a marker
    await open_one.end(commit=True)


async def test_transactions_of_several_producers_may_interleave(broker, topic, consumer) -> None:
    name = await topic()
    good, bad = await begin(broker), await begin(broker)
    for number in range(5):
        await good.write(name, [b"good%d" % number])
        await bad.write(name, [b"bad%d" % number])
    await bad.end(commit=False)
    await good.end(commit=True)
    back = await consumer(name, **COMMITTED)
    assert values(await read(back, 5)) == [b"good%d" % number for number in range(5)]
    await caught_up(back, TopicPartition(name, 0), 12)


async def test_a_log_of_aborted_records_only_is_passed(broker, topic, consumer) -> None:
    name = await topic()
    aborted = await begin(broker)
    for _ in range(20):
        await aborted.write(name, [b"x" * 2000])
    await aborted.end(commit=False)
    back = await consumer(name, **COMMITTED, max_partition_fetch_bytes=4000)
    await caught_up(back, TopicPartition(name, 0), 21)
    fetches = back.metrics()["consumer.fetches"]
    await back.poll(timeout=0.5)
    assert back.metrics()["consumer.fetches"] - fetches <= 8  # it stays there, and doesn't spin


async def test_a_transaction_over_several_partitions(broker, topic, consumer) -> None:
    name = await topic(partitions=2)
    for commit in (False, True):
        transaction = await begin(broker)
        for partition in (0, 1):
            await transaction.write(name, [b"%d" % commit] * 2, partition)
        await transaction.end(commit=commit)
    records = await read(await consumer(name, **COMMITTED), 4)
    assert sorted((r.partition, r.offset, r.value) for r in records) == [
        (0, 3, b"1"),
        (0, 4, b"1"),
        (1, 3, b"1"),
        (1, 4, b"1"),
    ]


async def test_reading_from_the_middle_of_an_aborted_transaction(broker, topic, consumer) -> None:
    name = await topic()
    aborted = await begin(broker)
    await aborted.write(name, [b"a0", b"a1", b"a2"])
    await aborted.write(name, [b"a3"])
    await aborted.end(commit=False)
    await transact(broker, name, [b"c"], commit=True)
    back = await consumer(name, **COMMITTED)
    back.seek(TopicPartition(name, 0), 1)
    assert values(await read(back, 1)) == [b"c"]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
async def test_columns_show_what_poll_shows(broker, topic, consumer, isolation: str) -> None:
    name = await topic()
    await transact(broker, name, [b"a"], commit=False)
    await transact(broker, name, [b"c1", b"c2"], commit=True)
    settings = {"auto_offset_reset": "earliest", "isolation_level": isolation}
    expected = [b"c1", b"c2"] if isolation == "read_committed" else [b"a", b"c1", b"c2"]
    back = await consumer(name, **settings)
    seen: list[bytes] = []
    while len(seen) < len(expected):
        seen += (await back.poll_arrow(timeout=5.0)).column("value").to_pylist()
    assert seen == expected

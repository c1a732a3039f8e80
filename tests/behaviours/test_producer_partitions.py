"""Which partition a record goes to, and what stays when topics change."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kclient.errors import KafkaError, MetadataTimedOut
from kclient.record import partition_of_key
from tests.behaviours.test_producer_records import read


async def test_keys_go_where_java_would_put_them(topic: Any, producer: Any) -> None:
    name, out = await topic(partitions=6), await producer()
    keys = [b"key-%d" % i for i in range(60)]
    metas = await asyncio.gather(*(out.send(name, b"v", key=key) for key in keys))
    assert [meta.partition for meta in metas] == [partition_of_key(key, 6) for key in keys]


async def test_records_of_a_key_stay_in_order(topic: Any, producer: Any, consumer: Any) -> None:
    name, out = await topic(partitions=4), await producer(batch_size=300)
    pairs = [(b"key-%d" % (i % 7), b"%04d" % i) for i in range(1000)]
    assert await out.send_many(name, pairs) == 1000
    by_key: dict[bytes, list[bytes]] = {}
    for record in await read(consumer, name, 1000):
        by_key.setdefault(record.key, []).append(record.value)
    assert len(by_key) == 7
    assert all(values == sorted(values) for values in by_key.values())


async def test_an_explicit_partition_wins_over_the_key(topic: Any, producer: Any) -> None:
    name, out = await topic(partitions=3), await producer()
    metas = [await out.send(name, b"v", key=b"same", partition=p) for p in (2, 0, 1)]
    assert [meta.partition for meta in metas] == [2, 0, 1]


async def test_records_without_a_key_spread_over_all_partitions(topic: Any, producer: Any) -> None:
    name, out = await topic(partitions=3), await producer(batch_size=500)
    metas = await asyncio.gather(*(out.send(name, b"x" * 50) for _ in range(600)))
    counts = [sum(meta.partition == p for meta in metas) for p in range(3)]
    assert min(counts) > 60


class LastPartition:
    """A custom partitioner."""

    def partition(self, topic: str, key: bytes | None, partition_count: int) -> int:
        return partition_count - 1


async def test_a_custom_partitioner_decides(topic: Any, producer: Any) -> None:
    name, out = await topic(partitions=3), await producer(partitioner=LastPartition())
    metas = await asyncio.gather(*(out.send(name, b"v", key=b"%d" % i) for i in range(10)))
    assert {meta.partition for meta in metas} == {2}


async def test_a_partition_that_does_not_exist_is_named(topic: Any, producer: Any) -> None:
    name = await topic(partitions=2)
    out = await producer(delivery_timeout=3.0, request_timeout=2.0)
    with pytest.raises(MetadataTimedOut, match="has 2, 0 to 1"):
        await out.send(name, b"v", partition=2)
    assert (await out.send(name, b"v", partition=1)).offset == 0


async def test_partitions_for_reports_leaders(topic: Any, producer: Any) -> None:
    name, out = await topic(partitions=3), await producer()
    partitions = await out.partitions_for(name)
    assert [partition.index for partition in partitions] == [0, 1, 2]
    assert all(partition.leader is not None for partition in partitions)


async def test_partitions_for_an_unknown_topic_is_a_typed_error(producer: Any) -> None:
    out = await producer(api_timeout=1.0)
    with pytest.raises(KafkaError, match="no-such-topic"):
        await out.partitions_for("no-such-topic")


async def test_added_partitions_are_used_and_sent_records_stay(
    topic: Any, producer: Any, consumer: Any, admin: Any
) -> None:
    name = await topic(partitions=1)
    out, ops = await producer(metadata_max_age=0.3), await admin()
    assert (await out.send(name, b"early")).partition == 0
    await ops.create_partitions({name: 3})
    async with asyncio.timeout(20):
        while True:
            if len(await out.partitions_for(name)) == 3:
                break
            await asyncio.sleep(0.05)  # until metadata_max_age has passed
    meta = await out.send(name, b"late", partition=2)
    assert (meta.partition, meta.offset) == (2, 0)
    records = await read(consumer, name, 2)
    assert sorted((r.partition, r.value) for r in records) == [(0, b"early"), (2, b"late")]


async def test_a_partition_that_was_just_added_is_found_without_waiting_for_max_age(
    topic: Any, producer: Any, admin: Any
) -> None:
    name = await topic(partitions=1)
    out, ops = await producer(), await admin()
    await out.send(name, b"v")
    await ops.create_partitions({name: 2})
    async with asyncio.timeout(20):
        assert (await out.send(name, b"v", partition=1)).partition == 1


async def test_many_topics_at_once(topic: Any, producer: Any, consumer: Any) -> None:
    names = [await topic(partitions=2) for _ in range(4)]
    out = await producer()
    await asyncio.gather(
        *(out.send(name, b"%d" % i, key=b"k") for i in range(50) for name in names)
    )
    for name in names:
        values = [record.value for record in await read(consumer, name, 50)]
        assert values == [b"%d" % i for i in range(50)]

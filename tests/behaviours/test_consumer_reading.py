"""Reading records by poll, async for and poll_arrow, on every kind of broker."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest

from kclient.errors import DeserializationFailed
from kclient.serializers import JsonDeserializer, StringDeserializer
from kclient.types import TimestampType, TopicPartition
from tests.behaviours.reading import offsets, read, write

START = "earliest"


async def test_all_records_come_in_order_per_partition(topic, producer, consumer) -> None:
    name = await topic(partitions=3)
    await write(await producer(), name, [b"%d" % n for n in range(300)], partitions=3)
    records = await read(await consumer(name, auto_offset_reset=START), 300)
    assert offsets(records) == {index: list(range(100)) for index in range(3)}
    for record in records:
        assert int(record.value or b"") == record.offset * 3 + record.partition


async def test_a_record_has_all_that_was_written(topic, producer, consumer) -> None:
    name = await topic(partitions=2)
    out = await producer()
    headers = (("a", b"1"), ("a", b"2"), ("null", None), ("", b""))
    await out.send(
        name, b"value", key=b"key", headers=headers, partition=1, timestamp=1_700_000_000_123
    )
    [record] = await read(await consumer(name, auto_offset_reset=START), 1)
    assert (record.topic, record.partition, record.offset) == (name, 1, 0)
    assert (record.key, record.value) == (b"key", b"value")
    assert record.headers == headers
    assert record.timestamp == 1_700_000_000_123
    assert record.timestamp_type is TimestampType.CREATE_TIME
    assert record.topic_partition == TopicPartition(name, 1)
    assert record.size_bytes == 8


async def test_nulls_and_empty_bytes_stay_different(topic, producer, consumer) -> None:
    name = await topic()
    out = await producer()
    await out.send(name, None, key=None)
    await out.send(name, b"", key=b"")
    records = await read(await consumer(name, auto_offset_reset=START), 2)
    assert [(record.key, record.value) for record in records] == [(None, None), (b"", b"")]


async def test_the_broker_may_give_the_timestamps(topic, producer, consumer) -> None:
    name = await topic(message_timestamp_type="LogAppendTime")
    out = await producer()
    sent = await out.send(name, b"value", timestamp=1_700_000_000_000)
    [record] = await read(await consumer(name, auto_offset_reset=START), 1)
    assert record.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert record.timestamp == sent.timestamp > 1_700_000_000_000


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_every_codec_is_read(broker, topic, producer, consumer, codec: str) -> None:
    # Apache Kafka knows zstd since 2.1; the topic's codec makes an older one write gzip.
    known = codec if codec != "zstd" or broker.version >= (2, 1, 0) else "gzip"
    name = await topic()
    values = [b"%d" % n * 50 for n in range(200)]
    await write(await producer(compression=known), name, values)
    records = await read(await consumer(name, auto_offset_reset=START), 200)
    assert [record.value for record in records] == values


async def test_poll_gives_at_most_what_was_asked_for(topic, producer, consumer) -> None:
    name = await topic()
    await write(await producer(), name, [b"v"] * 25)
    back = await consumer(name, auto_offset_reset=START)
    sizes = []
    while sum(sizes) < 25:
        sizes.append(len(await back.poll(max_records=10, timeout=5.0)))
    assert max(sizes) == 10
    assert sum(sizes) == 25


async def test_the_default_of_max_records_is_a_setting(topic, producer, consumer) -> None:
    name = await topic()
    await write(await producer(), name, [b"v"] * 20)
    back = await consumer(name, auto_offset_reset=START, max_poll_records=7)
    assert len(await back.poll(timeout=5.0)) == 7


async def test_poll_without_records_gives_none_after_its_timeout(topic, consumer) -> None:
    name = await topic()
    back = await consumer(name, auto_offset_reset=START)
    await back.position(TopicPartition(name, 0))
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await back.poll(timeout=0.1) == []
    assert 0.09 <= loop.time() - began < 5.0


async def test_poll_with_timeout_zero_does_not_wait(topic, producer, consumer) -> None:
    name = await topic()
    await write(await producer(), name, [b"v"])
    back = await consumer(name, auto_offset_reset=START)
    records: Sequence[Any] = []
    async with asyncio.timeout(10.0):
        while not records:  # other tasks run all the same
            records = await back.poll(timeout=0)
    assert len(records) == 1


async def test_a_record_that_comes_later_ends_the_wait(topic, producer, consumer) -> None:
    name = await topic()
    out, back = await producer(linger=0.0), await consumer(name, auto_offset_reset=START)
    await back.position(TopicPartition(name, 0))
    waiting = asyncio.ensure_future(back.poll(timeout=30.0))
    await out.send(name, b"late")
    assert [record.value for record in await waiting] == [b"late"]


async def test_records_are_read_while_others_are_written(topic, producer, consumer) -> None:
    name = await topic(partitions=2)
    out, back = await producer(), await consumer(name, auto_offset_reset=START)
    writing = asyncio.ensure_future(
        write(out, name, [b"%d" % n for n in range(2000)], partitions=2)
    )
    records = await read(back, 2000)
    await writing
    assert offsets(records) == {0: list(range(1000)), 1: list(range(1000))}


async def test_async_for_gives_records_in_order(topic, producer, consumer) -> None:
    name = await topic()
    await write(await producer(), name, [b"%d" % n for n in range(50)])
    back = await consumer(name, auto_offset_reset=START)
    seen = []
    async for record in back:
        seen.append(int(record.value))
        if len(seen) == 50:
            break
    assert seen == list(range(50))


async def test_leaving_a_loop_and_coming_back_goes_on_with_the_next_record(
    topic, producer, consumer
) -> None:
    name = await topic()
    await write(await producer(), name, [b"%d" % n for n in range(30)])
    back = await consumer(name, auto_offset_reset=START)
    seen = []
    while len(seen) < 30:
        async for record in back:
            seen.append(record.offset)
            assert back.positions() == {TopicPartition(name, 0): record.offset + 1}
            if len(seen) % 7 == 0 or len(seen) == 30:
                break
    assert seen == list(range(30))


async def test_poll_async_for_and_arrow_can_be_mixed(topic, producer, consumer) -> None:
    name = await topic()
    out = await producer(batch_size=200)
    await write(out, name, [b"%d" % n for n in range(200)])
    back = await consumer(name, auto_offset_reset=START)
    seen: list[int] = []
    rng = random.Random(7)
    while len(seen) < 200:
        match rng.randrange(3):
            case 0:
                seen += [r.offset for r in await back.poll(max_records=11, timeout=5.0)]
            case 1:
                wanted = rng.randint(1, 20)
                async for record in back:
                    seen.append(record.offset)
                    wanted -= 1
                    if not wanted or len(seen) == 200:
                        break
            case 2:
                batch = await back.poll_arrow(timeout=5.0)
                seen += batch.column("offset").to_pylist()
    assert seen == list(range(200))


async def test_arrow_has_the_same_records(topic, producer, consumer) -> None:
    name = await topic(partitions=2)
    out = await producer()
    await out.send(name, b"v0", key=b"k0", headers=(("h", b"1"), ("n", None)), partition=0)
    await out.send(name, None, key=None, partition=1)
    back = await consumer(name, auto_offset_reset=START)
    rows: list[dict[str, Any]] = []
    while len(rows) < 2:
        rows += (await back.poll_arrow(timeout=5.0)).to_pylist()
    rows.sort(key=lambda row: row["partition"])
    first, second = rows
    assert (first["topic"], first["partition"], first["offset"]) == (name, 0, 0)
    assert (first["key"], first["value"]) == (b"k0", b"v0")
    assert first["headers"] == [{"name": "h", "value": b"1"}, {"name": "n", "value": None}]
    assert (second["key"], second["value"], second["headers"]) == (None, None, [])


async def test_arrow_without_records_has_no_rows_and_the_same_columns(
    topic, producer, consumer
) -> None:
    name = await topic()
    back = await consumer(name, auto_offset_reset=START)
    empty = await back.poll_arrow(timeout=0)
    assert empty.num_rows == 0
    await (await producer(linger=0.0)).send(name, b"v")
    full = await back.poll_arrow(timeout=10.0)
    assert full.num_rows == 1
    assert empty.schema.names == full.schema.names


async def test_a_record_larger_than_the_fetch_sizes_is_still_given(
    topic, producer, consumer
) -> None:
    name = await topic()
    out = await producer(linger=0.0)
    for size in (10, 200_000, 10):
        await out.send(name, b"x" * size)
    back = await consumer(
        name, auto_offset_reset=START, max_partition_fetch_bytes=1000, fetch_max_bytes=2000
    )
    records = await read(back, 3)
    assert [len(record.value) for record in records] == [10, 200_000, 10]


async def test_large_records_of_many_partitions_all_come(topic, producer, consumer) -> None:
    name = await topic(partitions=4)
    await write(await producer(), name, [b"x" * 50_000] * 20, partitions=4)
    back = await consumer(
        name, auto_offset_reset=START, max_partition_fetch_bytes=1000, fetch_max_bytes=1000
    )
    assert offsets(await read(back, 20)) == {index: list(range(5)) for index in range(4)}


async def test_many_fetches_pass_no_record_twice(topic, producer, consumer) -> None:
    name = await topic(partitions=2)
    await write(await producer(batch_size=500), name, [b"%0100d" % n for n in range(400)], 2)
    back = await consumer(name, auto_offset_reset=START, max_partition_fetch_bytes=1500)
    assert offsets(await read(back, 400)) == {0: list(range(200)), 1: list(range(200))}
    assert back.metrics()["consumer.fetches"] > 5


async def test_partitions_take_turns(topic, producer, consumer) -> None:
    name = await topic(partitions=3)
    await write(await producer(), name, [b"v"] * 300, partitions=3)
    back = await consumer(name, auto_offset_reset=START)
    served = []
    while len(served) < 30:
        records = await back.poll(max_records=10, timeout=5.0)
        served += sorted({record.partition for record in records})
        await asyncio.sleep(0.002)  # leaves time for all partitions to be fetched
    assert min(served[6:].count(index) for index in range(3)) >= 6


async def test_several_topics_are_read_at_once(topic, producer, consumer) -> None:
    names = [await topic(), await topic()]
    out = await producer()
    for name in names:
        await write(out, name, [b"v"] * 5)
    records = await read(await consumer(*names, auto_offset_reset=START), 10)
    assert {record.topic for record in records} == set(names)


async def test_deserializers_make_typed_records(topic, producer, consumer) -> None:
    name = await topic()
    await (await producer()).send(name, json.dumps({"a": 1}).encode(), key="ключ".encode())
    back = await consumer(
        name,
        auto_offset_reset=START,
        key_deserializer=StringDeserializer(),
        value_deserializer=JsonDeserializer(),
    )
    [record] = await read(back, 1)
    assert (record.key, record.value) == ("ключ", {"a": 1})


async def test_a_value_that_can_not_be_deserialized_keeps_the_position(
    topic, producer, consumer
) -> None:
    name = await topic()
    await write(await producer(), name, [b"1", b"2", b"no json", b"4"])
    partition = TopicPartition(name, 0)
    settings = {"auto_offset_reset": START, "value_deserializer": JsonDeserializer()}
    polling, iterating = await consumer(name, **settings), await consumer(name, **settings)

    async def by_poll() -> list[Any]:
        return [record.value for record in await polling.poll(timeout=5.0)]

    async def by_loop() -> list[Any]:
        async for record in iterating:
            return [record.value]
        return []

    for back, step in ((polling, by_poll), (iterating, by_loop)):
        seen: list[Any] = []
        while len(seen) < 2:
            seen += await step()
        for _ in range(2):
            with pytest.raises(DeserializationFailed, match="offset 2") as failed:
                await step()
            assert failed.value.topic_partition == partition
            assert await back.position(partition) == 2
        back.seek(partition, 3)
        assert await step() == [4]
        assert seen == [1, 2]


async def test_a_cancelled_poll_loses_nothing(topic, producer, consumer) -> None:
    name = await topic(partitions=2)
    await write(await producer(batch_size=300), name, [b"%d" % n for n in range(1000)], 2)
    back = await consumer(name, auto_offset_reset=START, max_partition_fetch_bytes=2000)
    rng = random.Random(11)
    seen: list[Any] = []
    cancelled = 0
    while len(seen) < 1000:
        try:
            seen += await asyncio.wait_for(
                back.poll(max_records=9, timeout=1.0), rng.random() / 500
            )
        except TimeoutError:
            cancelled += 1
    assert offsets(seen) == {0: list(range(500)), 1: list(range(500))}
    assert cancelled


async def test_a_cancelled_step_of_a_loop_loses_nothing(topic, producer, consumer) -> None:
    name = await topic()
    await write(await producer(batch_size=300), name, [b"%d" % n for n in range(300)])
    back = await consumer(name, auto_offset_reset=START, max_partition_fetch_bytes=600)
    rng = random.Random(13)
    seen: list[int] = []
    records = aiter(back)
    cancelled = 0
    while len(seen) < 300:  # the same iterator goes on after each time
        try:
            seen.append((await asyncio.wait_for(anext(records), rng.random() / 1000)).offset)
        except TimeoutError:
            cancelled += 1
    assert seen == list(range(300))
    assert cancelled


async def test_two_tasks_share_the_records(topic, producer, consumer) -> None:
    name = await topic(partitions=2)
    await write(await producer(), name, [b"v"] * 600, partitions=2)
    back = await consumer(name, auto_offset_reset=START)
    seen: dict[int, list[int]] = defaultdict(list)

    async def work() -> None:
        while sum(map(len, seen.values())) < 600:
            for record in await back.poll(max_records=7, timeout=0.2):
                seen[record.partition].append(record.offset)

    await asyncio.gather(work(), work())
    assert seen == {0: list(range(300)), 1: list(range(300))}


async def test_reading_without_checksums_gives_the_same(topic, producer, consumer) -> None:
    name = await topic()
    await write(await producer(compression="lz4"), name, [b"%d" % n for n in range(40)])
    records = await read(await consumer(name, auto_offset_reset=START, check_crcs=False), 40)
    assert [int(record.value) for record in records] == list(range(40))


async def test_a_loop_that_never_waits_lets_other_tasks_run(topic, producer, consumer) -> None:
    name = await topic()
    await write(await producer(), name, [b"x" * 10] * 20_000)
    back = await consumer(name, auto_offset_reset=START)
    turns = 0
    running = True

    async def count() -> None:
        nonlocal turns
        while running:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    await read(back, 1)
    before, left = turns, 2000
    async for _ in back:
        left -= 1
        if not left:
            break
        until = time.perf_counter() + 0.00002  # the application's work, which never waits
        while time.perf_counter() < until:
            pass
    running = False
    await counting
    assert turns - before >= 6  # 40 ms, a loop iteration every 5


@pytest.mark.parametrize("message_format", ["0.9.0", "0.10.2"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
async def test_message_sets_of_old_topics_are_read(
    broker, topic, producer, consumer, message_format: str, codec: str
) -> None:
    # Releases before 3.0 store topics in the configured format; later ones in v2 only.
    old = broker.version < (3, 0, 0)
    name = await topic(**({"message_format_version": message_format} if old else {}))
    out = await producer(idempotence=False, compression=codec, batch_size=1000)
    for number in range(100):
        await out.enqueue(name, b"%050d" % number, key=b"k", timestamp=1_700_000_000_000 + number)
    await out.flush()
    back = await consumer(name, auto_offset_reset=START, max_partition_fetch_bytes=3000)
    records = await read(back, 100)
    assert [int(record.value) for record in records] == list(range(100))
    assert [record.offset for record in records] == list(range(100))
    assert {record.key for record in records} == {b"k"}
    if not (old and message_format == "0.9.0"):  # which has no timestamps
        assert records[7].timestamp == 1_700_000_000_007
    back.seek(TopicPartition(name, 0), 55)  # inside of a batch
    assert [record.offset for record in await read(back, 45)] == list(range(55, 100))

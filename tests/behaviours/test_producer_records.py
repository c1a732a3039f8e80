"""What a producer writes is what comes back: keys, values, headers, timestamps, codecs, acks."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from kclient.errors import NoCommonVersion
from kclient.serializers import JsonSerializer, StringSerializer

NOW_MS = 1_700_000_000_000


async def read(consumer: Any, topic: str, count: int, **settings: Any) -> list[Any]:
    """The first ``count`` records of ``topic``."""
    client = await consumer(topic, auto_offset_reset="earliest", **settings)
    records: list[Any] = []
    async with asyncio.timeout(20):
        while len(records) < count:
            records += await client.poll(timeout=5.0)
    assert len(records) == count
    return records


async def test_a_record_comes_back_as_it_was_sent(topic: Any, producer: Any, consumer: Any) -> None:
    name, out = await topic(), await producer()
    meta = await out.send(name, b"value", key=b"key")
    assert (meta.topic, meta.partition, meta.offset) == (name, 0, 0)
    (record,) = await read(consumer, name, 1)
    assert (record.key, record.value, record.headers) == (b"key", b"value", ())
    assert (record.topic, record.partition, record.offset) == (name, 0, 0)


async def test_offsets_count_up_in_order_of_send(topic: Any, producer: Any) -> None:
    name, out = await topic(), await producer()
    metas = await asyncio.gather(*(out.send(name, b"%d" % i) for i in range(100)))
    assert [meta.offset for meta in metas] == list(range(100))


@pytest.mark.parametrize("key", [None, b"", b"k"])
@pytest.mark.parametrize("value", [None, b"", b"v"])
async def test_null_and_empty_are_different(
    topic: Any, producer: Any, consumer: Any, key: bytes | None, value: bytes | None
) -> None:
    name, out = await topic(), await producer(linger=0.0)
    await out.send(name, value, key=key)
    (record,) = await read(consumer, name, 1)
    assert (record.key, record.value) == (key, value)


async def test_headers_keep_order_repeats_and_nulls(
    topic: Any, producer: Any, consumer: Any
) -> None:
    name, out = await topic(), await producer()
    headers = (("a", b"1"), ("b", None), ("a", b""), ("ü", b"\x00\xff"))
    await out.send(name, b"v", headers=headers)
    (record,) = await read(consumer, name, 1)
    assert record.headers == headers


async def test_headers_may_be_a_mapping(topic: Any, producer: Any, consumer: Any) -> None:
    name, out = await topic(), await producer()
    await out.send(name, b"v", headers={"trace": b"1", "span": bytearray(b"2")})
    (record,) = await read(consumer, name, 1)
    assert record.headers == (("trace", b"1"), ("span", b"2"))


async def test_a_given_timestamp_is_kept(topic: Any, producer: Any, consumer: Any) -> None:
    name, out = await topic(), await producer()
    now = int(time.time() * 1000)
    stamps = [now - 60_000, now, now - 30_000]
    metas = await asyncio.gather(*(out.send(name, b"v", timestamp=stamp) for stamp in stamps))
    assert [meta.timestamp for meta in metas] == stamps
    assert [record.timestamp for record in await read(consumer, name, 3)] == stamps


async def test_without_a_timestamp_it_is_now(topic: Any, producer: Any) -> None:
    name, out = await topic(), await producer()
    before = time.time() * 1000
    meta = await out.send(name, b"v")
    assert before - 1 <= meta.timestamp <= time.time() * 1000 + 1
    assert meta.datetime.tzinfo is not None


async def test_log_append_time_is_reported_by_the_broker(
    topic: Any, producer: Any, consumer: Any
) -> None:
    name = await topic(message_timestamp_type="LogAppendTime")
    out = await producer()
    meta = await out.send(name, b"v", timestamp=NOW_MS)
    assert meta.timestamp != NOW_MS
    (record,) = await read(consumer, name, 1)
    assert record.timestamp == meta.timestamp


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
async def test_compressed_records_come_back(
    topic: Any, producer: Any, consumer: Any, codec: str
) -> None:
    name, out = await topic(), await producer(compression=codec)
    values = [b"%d " % i * 50 for i in range(200)]
    assert await out.send_many(name, values) == 200
    assert [record.value for record in await read(consumer, name, 200)] == values
    assert out.metrics()["producer.bytes_delivered"] < sum(map(len, values)) / 2


async def test_zstd_works_from_2_1_on_and_is_refused_before(
    broker: Any, topic: Any, producer: Any, consumer: Any
) -> None:
    name, out = await topic(), await producer(compression="zstd")
    if broker.version < (2, 1, 0):
        with pytest.raises(NoCommonVersion, match="zstd") as caught:
            await out.send(name, b"v")
        assert caught.value.maybe_written is False
        return
    await out.send(name, b"v" * 1000)
    (record,) = await read(consumer, name, 1)
    assert record.value == b"v" * 1000


@pytest.mark.parametrize(("codec", "level"), [("gzip", 1), ("gzip", 9), ("lz4", 9)])
async def test_compression_levels_come_back(
    topic: Any, producer: Any, consumer: Any, codec: str, level: int
) -> None:
    name, out = await topic(), await producer(compression=codec, compression_level=level)
    await out.send(name, b"abc" * 1000)
    (record,) = await read(consumer, name, 1)
    assert record.value == b"abc" * 1000


async def test_large_batches_are_compressed_beside_the_loop(
    topic: Any, producer: Any, consumer: Any
) -> None:
    name = await topic()
    out = await producer(compression="gzip", compression_level=9, batch_size=500_000)
    values = [b"%06d" % i * 100 for i in range(2000)]
    await out.send_many(name, values)
    assert [record.value for record in await read(consumer, name, 2000)] == values


async def test_a_large_record_comes_back(topic: Any, producer: Any, consumer: Any) -> None:
    name, out = await topic(), await producer()
    value = bytes(range(256)) * 3600
    await out.send(name, value)
    (record,) = await read(consumer, name, 1)
    assert record.value == value


async def test_bytes_like_keys_and_values_are_taken(
    topic: Any, producer: Any, consumer: Any
) -> None:
    name, out = await topic(), await producer()
    await out.send(name, bytearray(b"value"), key=memoryview(b"key"))
    (record,) = await read(consumer, name, 1)
    assert (record.key, record.value) == (b"key", b"value")


async def test_serializers_turn_objects_into_bytes(
    topic: Any, producer: Any, consumer: Any
) -> None:
    name = await topic()
    out = await producer(key_serializer=StringSerializer(), value_serializer=JsonSerializer())
    await out.send(name, {"late": True}, key="N14228")
    (record,) = await read(consumer, name, 1)
    assert (record.key, record.value) == (b"N14228", b'{"late":true}')


@pytest.mark.parametrize("acks", ["all", 1])
async def test_without_idempotence_records_arrive_as_well(
    topic: Any, producer: Any, consumer: Any, acks: Any
) -> None:
    name, out = await topic(), await producer(acks=acks, idempotence=False)
    await out.send_many(name, [b"%d" % i for i in range(50)])
    assert [r.value for r in await read(consumer, name, 50)] == [b"%d" % i for i in range(50)]
    assert out.health().producer_id is None


async def test_with_acks_0_records_arrive_and_offsets_are_unknown(
    topic: Any, producer: Any, consumer: Any
) -> None:
    name, out = await topic(), await producer(acks=0, idempotence=False)
    meta = await out.send(name, b"v")
    assert meta.offset == -1
    (record,) = await read(consumer, name, 1)
    assert record.value == b"v"


async def test_ten_thousand_records_stay_in_order(topic: Any, producer: Any, consumer: Any) -> None:
    name, out = await topic(), await producer(batch_size=4096)
    values = [b"%05d" % i for i in range(10_000)]
    assert await out.send_many(name, values) == 10_000
    assert [r.value for r in await read(consumer, name, 10_000)] == values


async def test_two_producers_share_a_partition(topic: Any, producer: Any, consumer: Any) -> None:
    name, one, two = await topic(), await producer(), await producer()
    await asyncio.gather(
        one.send_many(name, [b"1-%03d" % i for i in range(300)]),
        two.send_many(name, [b"2-%03d" % i for i in range(300)]),
    )
    values = [record.value for record in await read(consumer, name, 600)]
    for who in (b"1", b"2"):
        mine = [value for value in values if value.startswith(who)]
        assert mine == sorted(mine) and len(mine) == 300

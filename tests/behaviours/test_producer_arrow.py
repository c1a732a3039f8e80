"""Arrow data goes out as rows and comes back as records, and as the same columns."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest

from kclient.errors import RowsRejected
from tests.behaviours.test_producer_records import read


async def test_columns_come_back_as_records(topic: Any, producer: Any, consumer: Any) -> None:
    name, out = await topic(), await producer()
    now = int(time.time() * 1000)
    headers = pa.array([[("a", b"1"), ("b", None)], None, []], pa.map_(pa.string(), pa.binary()))
    table = pa.table(
        {
            "key": ["k", None, "l"],
            "value": [b"one", None, b""],
            "timestamp": pa.array([now - 2, now - 1, now], pa.timestamp("ms")),
            "headers": headers,
        }
    )
    assert await out.send_arrow(name, table) == 3
    found = [(r.key, r.value, r.timestamp, r.headers) for r in await read(consumer, name, 3)]
    assert found == [
        (b"k", b"one", now - 2, (("a", b"1"), ("b", None))),
        (None, None, now - 1, ()),
        (b"l", b"", now, ()),
    ]


async def test_many_rows_in_chunks_and_slices_stay_in_order(
    topic: Any, producer: Any, consumer: Any
) -> None:
    name, out = await topic(), await producer(batch_size=10_000)
    values = [b"%06d" % i for i in range(30_000)]
    chunks = pa.chunked_array([values[:7], values[7:9000], values[9000:]])
    assert await out.send_arrow(name, pa.table({"value": chunks})[5:]) == 29_995
    assert [record.value for record in await read(consumer, name, 29_995)] == values[5:]


async def test_arrow_rows_of_one_key_go_where_other_records_of_it_go(
    topic: Any, producer: Any
) -> None:
    name, out = await topic(partitions=6), await producer()
    keys = [b"%d" % i for i in range(50)]
    metas = [await out.send(name, b"v", key=key) for key in keys]
    before = [(await out.send(name, b"v", partition=p)).offset for p in range(6)]
    assert await out.send_arrow(name, pa.table({"value": keys, "key": keys})) == 50
    after = [(await out.send(name, b"v", partition=p)).offset for p in range(6)]
    grown = [b - a - 1 for a, b in zip(before, after, strict=True)]
    assert grown == [sum(meta.partition == p for meta in metas) for p in range(6)]


@pytest.mark.parametrize("codec", ["gzip", "lz4"])
async def test_compressed_arrow_rows_come_back(
    topic: Any, producer: Any, consumer: Any, codec: str
) -> None:
    name, out = await topic(), await producer(compression=codec)
    values = [b"%d " % i * 50 for i in range(500)]
    assert await out.send_arrow(name, pa.table({"value": values})) == 500
    assert [record.value for record in await read(consumer, name, 500)] == values


async def test_arrow_batches_that_were_polled_can_be_sent_again(
    topic: Any, producer: Any, consumer: Any
) -> None:
    source, target, out = await topic(), await topic(), await producer()
    for i in range(100):
        await out.enqueue(source, b"%d" % i, key=b"k", headers={"n": b"%d" % i}, timestamp=1000 + i)
    await out.flush()
    client = await consumer(source, auto_offset_reset="earliest")
    count = 0
    while count < 100:
        count += await out.send_arrow(target, await client.poll_arrow(timeout=5.0))
    found = [(r.value, r.headers, r.timestamp) for r in await read(consumer, target, 100)]
    assert found == [(b"%d" % i, (("n", b"%d" % i),), 1000 + i) for i in range(100)]


async def test_arrow_rows_that_cannot_be_sent_are_named_and_none_is_sent(
    topic: Any, producer: Any
) -> None:
    name, out = await topic(), await producer()
    await out.send(name, b"first")
    table = pa.table({"value": [b"a", b"b", b"c"], "partition": [0, 7, -1]})
    with pytest.raises(RowsRejected, match="row 2: partition=-1") as reported:
        await out.send_arrow(name, table)
    assert reported.value.count == 1
    with pytest.raises(RowsRejected, match="row 1: partition 7 of topic") as reported:
        await out.send_arrow(name, table[:2])
    assert (await out.send(name, b"second")).offset == 1

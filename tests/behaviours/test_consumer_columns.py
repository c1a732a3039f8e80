"""Some columns only, and reading up to given offsets, by ``poll_arrow``."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import pytest

from kclient.errors import InvalidArgument
from kclient.types import TopicPartition
from tests.behaviours.reading import write
from tests.behaviours.transactions import transact

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
EARLIEST = {"auto_offset_reset": "earliest"}


async def to_the_end(back: Any, until: dict[TopicPartition, int]) -> dict[int, list[int]]:
    """Offsets by partition, up to ``until``, whatever is chosen."""
    found: dict[int, list[int]] = defaultdict(list)
    columns = ["partition", "offset"]
    while (batch := await back.poll_arrow(columns=columns, until=until, timeout=30.0)).num_rows:
        for row in batch.to_pylist():
            found[row["partition"]].append(row["offset"])
    return found


async def three_rows(back: Any, columns: list[str]) -> dict[str, list[Any]]:
    """Three rows of ``columns``, in however many record batches they come."""
    rows: dict[str, list[Any]] = {}
    while len(rows.get(columns[0], ())) < 3:
        batch = await back.poll_arrow(columns=columns, timeout=10.0)
        assert batch.schema.names == columns
        assert batch.num_rows > 0
        for column, values in batch.to_pydict().items():
            rows.setdefault(column, []).extend(values)
    return rows


@pytest.mark.parametrize("compression", ["none", "lz4"])
async def test_the_columns_that_are_asked_for_have_what_all_columns_have(
    topic, producer, consumer, compression
) -> None:
    name = await topic()
    out = await producer(compression=compression)
    await out.send(name, b"v0", key=b"k0", headers=(("h", b"1"),))
    await out.send(name, None, key=b"k1")
    await out.send(name, b"v2")
    back = await consumer(name, **EARLIEST)
    whole = await three_rows(back, list(COLUMNS))
    names = ["headers", "value", "key", "timestamp", "offset", "partition", "topic"]
    for chosen in itertools.chain(([name] for name in names), (names, names[:3], names[2:])):
        back.seek(TopicPartition(name, 0), 0)
        assert await three_rows(back, chosen) == {name: whole[name] for name in chosen}


@pytest.mark.parametrize(("kind", "number"), [("CreateTime", 0), ("LogAppendTime", 1)])
async def test_who_set_the_timestamp_is_a_column(topic, producer, consumer, kind, number) -> None:
    name = await topic(message_timestamp_type=kind)
    await write(await producer(), name, [b"v"] * 3)
    back = await consumer(name, **EARLIEST)
    batch = await back.poll_arrow(columns=["timestamp_type", "value"], timeout=10.0)
    assert batch.to_pydict() == {"timestamp_type": [number] * 3, "value": [b"v"] * 3}


async def test_it_ends_at_given_offsets_and_goes_on_there_later(topic, producer, consumer) -> None:
    name = await topic(partitions=3)
    await write(await producer(), name, [b"%d" % n for n in range(300)], partitions=3)
    back = await consumer(name, **EARLIEST)
    first, second, third = (TopicPartition(name, n) for n in range(3))
    assert await to_the_end(back, {first: 37, second: 0, third: 100}) == {
        0: list(range(37)),
        2: list(range(100)),
    }
    assert back.paused == {first, second, third}
    assert back.positions() == {first: 37, second: 0, third: 100}
    back.resume()
    assert await to_the_end(back, await back.end_offsets(back.assignment)) == {
        0: list(range(37, 100)),
        1: list(range(100)),
    }


async def test_partitions_without_an_end_are_read_on(topic, producer, consumer) -> None:
    name = await topic(partitions=2)
    out = await producer()
    await write(out, name, [b"%d" % n for n in range(20)], partitions=2)
    back = await consumer(name, **EARLIEST)
    until = {TopicPartition(name, 0): 3}
    seen: dict[int, int] = {0: 0, 1: 0}
    while sum(seen.values()) < 13:
        batch = await back.poll_arrow(until=until, timeout=30.0)
        for partition in batch.column("partition").to_pylist():
            seen[partition] += 1
    assert seen == {0: 3, 1: 10}
    assert (await back.poll_arrow(until=until, timeout=0.0)).num_rows == 0
    await out.send(name, b"later", partition=1)
    assert (await back.poll_arrow(until=until, timeout=30.0)).num_rows == 1


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
async def test_it_passes_what_transactions_leave_in_front_of_an_end(
    broker, topic, producer, consumer, isolation_level
) -> None:
    name = await topic()
    await write(await producer(), name, [b"0", b"1"])
    await transact(broker, name, [b"2"], commit=True)
    await transact(broker, name, [b"4", b"5"], commit=False)
    back = await consumer(name, isolation_level=isolation_level, **EARLIEST)
    ends = await back.end_offsets(back.assignment)
    assert ends == {TopicPartition(name, 0): 7}  # with a marker behind each transaction
    aborted = [] if isolation_level == "read_committed" else [4, 5]
    assert await to_the_end(back, ends) == {0: [0, 1, 2, *aborted]}


async def test_what_can_not_be_is_refused_with_what_is_allowed(topic, consumer) -> None:
    name = await topic()
    back = await consumer(name, **EARLIEST)
    for columns in ("key", [], ["key", "key"], ["Key"], 5):
        with pytest.raises(InvalidArgument, match="allowed are one or more of topic, partition"):
            await back.poll_arrow(columns=columns)
    other = {TopicPartition(name, 7): 5}
    for until, text in (
        (5, "a mapping of TopicPartition to offset, not an int"),
        (other, f"{name}-7 is not assigned"),
        ({TopicPartition(name, 0): -1}, "allowed is 0 to"),
    ):
        with pytest.raises(InvalidArgument, match=text):
            await back.poll_arrow(until=until)

"""``send_many`` pulls records in blocks: what an iterator that goes on afterwards still has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import kclient
from kclient.error_codes import ErrorCode
from kclient.errors import BufferFull, FlushFailed, SerializationFailed
from kclient.testing import Cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(brokers=1) as running:
        running.create_topic("t", partitions=2)
        yield running


def all_values(cluster: Cluster) -> list[bytes | None]:
    return [r.value for p in range(2) for r in cluster.records("t", p)]


async def test_nothing_is_lost_behind_a_bad_record_of_an_iterator(cluster: Cluster) -> None:
    values = [b"%03d" % i for i in range(100)]
    records: list[Any] = [*values[:37], "bad", *values[37:60], (b"k", "bad"), *values[60:]]
    source = iter(records)
    async with kclient.Producer(cluster.bootstrap) as producer:
        for _ in range(2):
            with pytest.raises(SerializationFailed):
                await producer.send_many("t", source)
        assert await producer.send_many("t", source) == 40
    assert sorted(map(bytes, filter(None, all_values(cluster)))) == values


async def test_nothing_is_lost_behind_a_failure_of_a_batch(cluster: Cluster) -> None:
    pulled: list[bytes] = []

    def records() -> Iterator[bytes]:
        for i in range(20_000):
            pulled.append(b"%05d" % i)
            yield pulled[-1]

    source = records()
    async with kclient.Producer(cluster.bootstrap, batch_size=2000, linger=0.0) as producer:
        await producer.send_many("t", [b"first"])
        cluster.faults.error("Produce", ErrorCode.INVALID_RECORD)
        with pytest.raises(FlushFailed) as failed:
            await producer.send_many("t", source)
        written = all_values(cluster)
        assert len(written) + failed.value.count == 1 + len(pulled) < 20_001
        await producer.send_many("t", source)
    assert len(set(all_values(cluster))) == 20_001 - failed.value.count


async def test_what_the_iterator_raises_is_told_though_a_batch_has_failed_meanwhile(
    cluster: Cluster,
) -> None:
    for count in range(2, 34):  # a failure is seen after some 16 records

        def records(count: int = count) -> Iterator[bytes]:
            for _ in range(count):
                yield b"x" * 100
            raise ValueError("the file is torn")

        async with kclient.Producer(cluster.bootstrap, batch_size=500, linger=0.0) as producer:
            await producer.send_many("t", [b"first"])
            cluster.faults.error("Produce", ErrorCode.INVALID_RECORD)
            source = records()
            with pytest.raises((FlushFailed, ValueError)) as first:
                await producer.send_many("t", source)
            if first.type is FlushFailed:
                with pytest.raises(ValueError, match="torn"):
                    await producer.send_many("t", source)
            cluster.faults.clear()
            await asyncio.gather(producer.flush(), return_exceptions=True)


async def test_the_note_says_how_many_were_pulled_behind_a_record_without_room(
    cluster: Cluster,
) -> None:
    values = iter([b"%0100d" % i for i in range(1000)])
    settings: Any = {"buffer_memory": 20_000, "batch_size": 4000, "linger": 0.01, "max_block": 0.2}
    async with kclient.Producer(cluster.bootstrap, **settings) as producer:
        await producer.send_many("t", [b"first"])
        held = cluster.faults.hold("Produce", times=None)
        with pytest.raises(BufferFull) as full:
            await producer.send_many("t", values)
        left = len(list(values))
        note = full.value.__notes__[0]
        taken = int(note.partition("at record ")[2].partition(",")[0])
        lost = 1000 - left - taken - 1
        assert 0 <= lost < 8
        assert (f", the next {lost} were pulled and not taken" in note) == (lost > 0)
        held.release()


async def test_a_cancelled_call_sends_all_that_it_pulled(cluster: Cluster) -> None:
    pulled = 0

    def records() -> Iterator[bytes]:
        nonlocal pulled
        for pulled in range(1, 50_001):
            if pulled == 1003:
                call.cancel()
            yield b"%05d" % pulled

    async with kclient.Producer(cluster.bootstrap) as producer:
        call = asyncio.create_task(producer.send_many("t", records()))
        with pytest.raises(asyncio.CancelledError):
            await call
        await producer.flush()
    assert pulled < 50_000
    assert len(all_values(cluster)) == pulled

"""Pitfalls of what a fetch brings: gaps, markers, aborted transactions, pieces, damaged batches."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kclient.errors import CorruptRecord, DecompressionFailed
from kclient.record import Compression
from kclient.testing import Cluster
from tests.unit.consumer.log_bytes import batch, control, corrupted, gapped
from tests.virtual.consumer_scene import (
    P,
    Q,
    T,
    offsets,
    parts_of,
    read,
    reading,
    scene,
    the_loop,
)

FETCH = 1000
"""Bytes of a fetch in these tests."""
ABORT, COMMIT = 0, 1
IN_A_VALUE = -2
"""Where the value of a batch's last record is: damage there is seen by its CRC only."""


def data(offset: int, producer: int, count: int = 1, value_bytes: int = 0) -> bytes:
    """Records of a transaction."""
    return batch(offset, count, producer_id=producer, transactional=True, value_bytes=value_bytes)


async def positions_reach(consumer: Any, offset: int) -> None:
    """Poll, and get nothing, until the first partition's position is there."""
    async with asyncio.timeout(60.0):
        while consumer.positions()[P] != offset:
            assert await consumer.poll(timeout=0.1) == []


# 42: a fetch with nothing in it that the reader may see


@pytest.mark.parametrize("by", ["poll", "loop", "columns"])
async def test_pitfall_42_aborted_batches_of_ten_fetches_are_passed(by: str) -> None:
    settings = {"isolation_level": "read_committed", "max_partition_fetch_bytes": FETCH}
    async with scene(0, **settings) as (cluster, consumer):
        offset = 0
        while offset < 200:
            cluster.append(T, 0, data(offset, 7, 10, value_bytes=50))
            offset += 10
        cluster.append(T, 0, control(offset, 7, ABORT))
        cluster.append(T, 0, batch(offset + 1, 1))
        assert cluster.log(T).size_bytes > 10 * FETCH
        if by == "poll":
            [record] = await read(consumer, 1)
            assert record.offset == 201
        elif by == "loop":
            assert (await anext(aiter(consumer))).offset == 201
        else:
            table = await consumer.poll_arrow(timeout=10.0)
            assert table.column("offset").to_pylist() == [201]
        assert consumer.positions() == {P: 202}


async def test_pitfall_42_the_position_moves_where_there_is_nothing_else_without_spinning() -> None:
    settings = {"isolation_level": "read_committed", "max_partition_fetch_bytes": FETCH}
    async with scene(0, fetch_max_wait=0.5, **settings) as (cluster, consumer):
        for offset in range(0, 200, 10):
            cluster.append(T, 0, data(offset, 7, 10, value_bytes=50))
        cluster.append(T, 0, control(200, 7, ABORT))
        await positions_reach(consumer, 201)
        assert consumer.lag(P) == 0
        cluster.requests.clear()
        assert await consumer.poll(timeout=10.0) == []
        assert cluster.requests.count("Fetch") <= 21  # two per second


async def test_pitfall_42_an_open_transaction_is_waited_for_without_spinning() -> None:
    settings = {"isolation_level": "read_committed", "fetch_max_wait": 0.5}
    async with scene(10, **settings) as (cluster, consumer):
        await read(consumer, 10)
        cluster.append(T, 0, data(10, 7, 5))
        cluster.requests.clear()
        assert await consumer.poll(timeout=10.0) == []
        assert cluster.requests.count("Fetch") <= 21
        assert consumer.positions() == {P: 10}
        cluster.append(T, 0, control(15, 7, COMMIT))
        assert offsets(await read(consumer, 5)) == {0: [10, 11, 12, 13, 14]}
        await positions_reach(consumer, 16)


# 43: the list of aborted transactions in any order, and markers of any number


def shuffling(rng: random.Random) -> Any:
    """Put the list of aborted transactions in another order, as some brokers have it."""

    def shuffle(_: Any, response: Any) -> None:
        for part in parts_of(response):
            rng.shuffle(part.aborted_transactions or [])

    return shuffle


@pytest.mark.parametrize("seed", range(5))
async def test_pitfall_43_the_list_of_aborted_transactions_may_come_unsorted(seed: int) -> None:
    rng = random.Random(seed)
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic(T)
        committed: list[int] = []
        opened: dict[int, list[int]] = {}
        for _ in range(300):
            end, producer = cluster.end_offset(T), rng.randrange(1, 5)
            if rng.random() < 0.6:
                cluster.append(T, 0, data(end, producer))
                opened.setdefault(producer, []).append(end)
            else:
                commit = rng.random() < 0.5
                cluster.append(T, 0, control(end, producer, COMMIT if commit else ABORT))
                committed += opened.pop(producer, []) if commit else []
                opened.pop(producer, None)
        for producer in list(opened):
            cluster.append(T, 0, control(cluster.end_offset(T), producer, ABORT))
        cluster.faults.rewrite("Fetch", shuffling(rng), times=None)
        settings = {"isolation_level": "read_committed", "max_partition_fetch_bytes": FETCH}
        async with reading(cluster, **settings) as consumer:
            assert offsets(await read(consumer, len(committed))) == {0: sorted(committed)}
            await positions_reach(consumer, cluster.end_offset(T))


@pytest.mark.parametrize("kinds", [(ABORT, COMMIT), (COMMIT, ABORT), (ABORT, ABORT)])
async def test_pitfall_43_several_markers_in_a_batch_end_the_transaction(
    kinds: tuple[int, ...],
) -> None:
    async with scene(0, isolation_level="read_committed") as (cluster, consumer):
        cluster.append(T, 0, data(0, 7, 3) + control(3, 7, ABORT))
        cluster.append(T, 0, data(4, 7, 2))
        cluster.append(T, 0, control(6, 7, COMMIT))

        def two_markers(_: Any, response: Any) -> None:
            for part in parts_of(response):
                if part.records:
                    before = data(0, 7, 2) + control(2, 7, *kinds)
                    part.records = before + data(4, 7, 2) + control(6, 7, COMMIT)

        cluster.faults.rewrite("Fetch", two_markers)
        assert offsets(await read(consumer, 2)) == {0: [4, 5]}
        await positions_reach(consumer, 7)


# 44: a control record at the end


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
async def test_pitfall_44_a_marker_at_the_end_raises_the_position(isolation: str) -> None:
    async with scene(0, isolation_level=isolation) as (cluster, consumer):
        cluster.append(T, 0, data(0, 7, 5) + control(5, 7, COMMIT))
        assert offsets(await read(consumer, 5)) == {0: [0, 1, 2, 3, 4]}
        await positions_reach(consumer, 6)
        assert consumer.lag(P) == 0


async def test_pitfall_44_a_marker_at_the_end_raises_the_leader_epoch_too() -> None:
    async with scene(0, auto_offset_reset="none", metadata_max_age=0.5) as (cluster, consumer):
        consumer.seek(P, 0)
        cluster.append(T, 0, data(0, 7, 5))
        await read(consumer, 5)
        cluster.move_leader(T, 0, 2)
        cluster.append(T, 0, control(5, 7, COMMIT))
        epoch = cluster.leader_epoch(T)
        await positions_reach(consumer, 6)
        cluster.requests.clear()
        # The former epoch ends at 5: a query for that one takes 6 for a log that was cut.
        cluster.move_leader(T, 0, 3)
        cluster.append(T, 0, batch(6, 2))
        assert offsets(await read(consumer, 2)) == {0: [6, 7]}
        asked = [
            part.leader_epoch
            for served in cluster.requests.of("OffsetForLeaderEpoch")
            for topic in served.request.topics
            for part in topic.partitions
        ]
        assert asked == [epoch]
        assert "consumer.truncations" not in consumer.metrics()


# 45: what compaction leaves


async def test_pitfall_45_the_next_offset_is_behind_the_batch_not_behind_its_last_record() -> None:
    async with scene(0) as (cluster, consumer):
        cluster.append(T, 0, gapped(batch(0, 2), 9) + batch(10, 2) + gapped(batch(20, 3), 7))
        assert offsets(await read(consumer, 2)) == {0: [0, 1]}
        assert consumer.positions() == {P: 10}
        assert offsets(await read(consumer, 5)) == {0: [10, 11, 20, 21, 22]}
        await positions_reach(consumer, 28)
        cluster.append(T, 0, batch(28, 1))
        assert offsets(await read(consumer, 1)) == {0: [28]}
        assert cluster.requests.count("Fetch") < 10


async def test_pitfall_45_a_gap_as_large_as_the_fetch_is_passed() -> None:
    async with scene(0, max_partition_fetch_bytes=100) as (cluster, consumer):
        offset = 0
        for last_delta in (999, 5, 99_999, 0):
            cluster.append(T, 0, gapped(batch(offset, 1), last_delta))
            offset += last_delta + 1
        assert [record.offset for record in await read(consumer, 4)] == [0, 1000, 1006, 101_006]
        for lost in (1, 999, 1001, 1005, 50_000):  # seeks to where no record is
            consumer.seek(P, lost)
            expected = next(start for start in (1000, 1006, 101_006) if start >= lost)
            assert (await read(consumer, 1))[0].offset == expected


# 46: a batch that begins before the requested offset


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.LZ4])
@pytest.mark.parametrize("by", ["poll", "loop", "columns"])
async def test_pitfall_46_records_before_the_requested_offset_are_skipped(
    by: str, codec: Compression
) -> None:
    async with scene(0) as (cluster, consumer):
        for first in range(0, 60, 20):
            cluster.append(T, 0, batch(first, 20, codec=codec))
        for start in (7, 19, 20, 39, 33, 1, 59):
            consumer.seek(P, start)
            count = min(60 - start, 25)
            if by == "poll":
                found = [record.offset for record in await read(consumer, count)]
            elif by == "loop":
                steps = aiter(consumer)
                found = [(await anext(steps)).offset for _ in range(count)]
            else:
                found = []
                while len(found) < count:
                    table = await consumer.poll_arrow()
                    found += table.column("offset").to_pylist()
            assert found[:count] == list(range(start, start + count))


# 47: larger than the fetch, and cut off at its end


@pytest.mark.parametrize("cut", [1, 20, 75])
async def test_pitfall_47_a_last_batch_that_is_cut_off_is_ignored_and_fetched_again(
    cut: int,
) -> None:
    cut_once: list[int] = []

    def cut_off(_: Any, response: Any) -> None:
        for part in parts_of(response):
            if part.records and not cut_once:
                cut_once.append(len(part.records))
                part.records = bytes(part.records)[:-cut]

    async with scene(0) as (cluster, consumer):
        cluster.faults.rewrite("Fetch", cut_off, times=None)
        cluster.append(T, 0, b"".join(batch(first, 2) for first in range(0, 20, 2)))
        assert offsets(await read(consumer, 20)) == {0: list(range(20))}
        assert len(cut_once) == 1


# 59: damaged batches


async def raised(consumer: Any, kind: type[Exception], times: int) -> list[Any]:
    """Errors of so many polls, which must raise and give nothing."""
    errors = []
    for _ in range(times):
        with pytest.raises(kind) as failed:
            await consumer.poll(timeout=10.0)
        errors.append(failed.value)
    return errors


async def test_pitfall_59_a_wrong_crc_is_raised_once_per_poll_and_the_offset_stays() -> None:
    async with scene(0) as (cluster, consumer):
        cluster.append(T, 0, batch(0, 3) + corrupted(batch(3, 4), IN_A_VALUE) + batch(7, 2))
        assert offsets(await read(consumer, 3)) == {0: [0, 1, 2]}
        for error in await raised(consumer, CorruptRecord, 5):
            assert (error.topic_partition, error.offset) == (P, 3)
            assert "seek to 7" in str(error)
            assert await consumer.position(P) == 3
        consumer.seek(P, 7)
        assert offsets(await read(consumer, 2)) == {0: [7, 8]}
        assert await consumer.poll(timeout=1.0) == []


async def test_pitfall_59_the_other_partitions_go_on_beside_a_damaged_one() -> None:
    async with scene(0, 2, brokers=1) as (cluster, consumer):
        cluster.append(T, 0, corrupted(batch(0, 3)))
        seen: list[Any] = []
        failed = 0
        for number in range(20):
            cluster.append(T, 1, batch(number, 1))
            while len(seen) <= number:
                try:
                    seen += await consumer.poll(timeout=1.0)
                except CorruptRecord:
                    failed += 1
                    assert failed < 100
        assert offsets(seen) == {1: list(range(20))}
        assert failed >= 1
        assert consumer.positions() == {P: 0, Q: 20}


async def test_pitfall_59_a_damaged_batch_does_not_make_the_consumer_spin() -> None:
    async with scene(0, retry_backoff=0.1, retry_backoff_max=1.0) as (cluster, consumer):
        cluster.append(T, 0, corrupted(batch(0, 3)))
        began = the_loop().time()
        await raised(consumer, CorruptRecord, 20)
        assert the_loop().time() - began > 10.0
        times = [served.at for served in cluster.requests.of("Fetch")]
        assert len(times) <= 42  # one more each time, for what may follow
        late = times[20:]
        assert min(c - a for a, c in zip(late, late[2:], strict=False)) > 0.7


async def test_pitfall_59_damage_on_the_way_is_healed_by_the_next_poll() -> None:
    async with scene(30, max_partition_fetch_bytes=500) as (cluster, consumer):
        seen: list[Any] = []
        failed = 0
        cluster.faults.corrupt_fetch(T, times=4)
        async with asyncio.timeout(60.0):
            while len(seen) < 30:
                try:
                    seen += await consumer.poll(timeout=1.0)
                except CorruptRecord:
                    failed += 1
        assert failed >= 1
        assert offsets(seen) == {0: list(range(30))}


@pytest.mark.parametrize("by", ["poll", "loop", "columns"])
async def test_pitfall_59_a_bomb_is_raised_by_every_poll_and_can_be_sought_past(by: str) -> None:
    async with scene(0, decompression_cap=100_000) as (cluster, consumer):
        bomb = batch(0, 50, codec=Compression.GZIP, value_bytes=20_000)
        cluster.append(T, 0, bomb + batch(50, 2))
        for _ in range(3):
            with pytest.raises(DecompressionFailed) as failed:
                if by == "poll":
                    await consumer.poll(timeout=10.0)
                elif by == "loop":
                    await anext(aiter(consumer))
                else:
                    await consumer.poll_arrow(timeout=10.0)
            assert (failed.value.topic_partition, failed.value.offset) == (P, 0)
            assert consumer.positions() == {P: 0}
        consumer.seek(P, 50)
        assert offsets(await read(consumer, 2)) == {0: [50, 51]}

"""Consumers in hostile surroundings: recreated topics, leaders that keep moving, frozen brokers.

Each test is about records that must not come (of another incarnation, of an old position, of a
revoked partition), or about those that must go on coming.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kclient.broker_errors import OffsetOutOfRange, UnknownTopicOrPartition
from kclient.error_codes import ErrorCode
from kclient.errors import LogTruncated
from kclient.testing import Cluster
from tests.unit.consumer.log_bytes import batch
from tests.virtual.consumer_scene import (
    Ledger,
    P,
    Q,
    T,
    fill,
    lead,
    offsets,
    parts_of,
    quiet,
    read,
    reading,
    scene,
    the_loop,
    until,
)

NEW = 8
"""Bytes of the values of a recreated topic; before, they are shorter."""


def make_anew(cluster: Cluster, count: int, partitions: int = 1) -> None:
    """Delete the topic and create it again, with other records."""
    cluster.delete_topic(T)
    fill(cluster, count, partitions, value_bytes=NEW)


async def by_poll(consumer: Any) -> list[Any]:
    records: list[Any] = await consumer.poll(max_records=3, timeout=5.0)
    return records


async def by_loop(consumer: Any) -> list[Any]:
    return [await anext(aiter(consumer))]


async def by_columns(consumer: Any) -> list[Any]:
    class Row:
        def __init__(self, row: dict[str, Any]) -> None:
            self.__dict__.update(row)

    return [Row(row) for row in (await consumer.poll_arrow(timeout=5.0)).to_pylist()]


reads = pytest.mark.parametrize("take", [by_poll, by_loop, by_columns])
Take = Callable[[Any], Awaitable[list[Any]]]


# Recreated topics


@reads
async def test_a_topic_recreated_with_fewer_partitions_is_read_from_its_beginning(
    take: Take,
) -> None:
    async with scene(100, 3, metadata_max_age=0.5, max_partition_fetch_bytes=500) as (
        cluster,
        consumer,
    ):
        while len(seen := await take(consumer)) == 0 or seen[-1].offset < 15:
            pass
        make_anew(cluster, 40, 2)
        new: list[Any] = []
        async with asyncio.timeout(30.0):
            while len(new) < 80:
                got = [one for one in await take(consumer) if len(one.value) == NEW or new]
                new += got
        assert all(len(one.value) == NEW for one in new), "the old topic came after the new one"
        assert offsets(new) == {0: list(range(40)), 1: list(range(40))}
        assert consumer.assignment == {P, Q}
        assert consumer.health().ok


@reads
async def test_a_response_about_the_deleted_topic_is_not_taken_for_the_new_one(take: Take) -> None:
    async with scene(10, metadata_max_age=0.2) as (cluster, consumer):
        await read(consumer, 10)
        await quiet(consumer)
        consumer.seek(P, 0)
        held = cluster.faults.hold("Fetch", after=True)
        consumer.resume()
        await until(lambda: held.held)  # the old records, from offset 0 on
        make_anew(cluster, 10)
        await until(lambda: cluster.requests.count("ListOffsets") == 2)
        assert await consumer.position(P) == 0
        held.release()
        new: list[Any] = []
        while len(new) < 10:
            new += await take(consumer)
        assert [len(one.value) for one in new] == [NEW] * 10


async def test_a_lookup_in_the_deleted_topic_is_not_taken_for_the_new_one() -> None:
    async with scene(50, metadata_max_age=0.2) as (cluster, consumer):
        await read(consumer, 50)
        held = cluster.faults.hold("ListOffsets", after=True)
        consumer.seek_to_end(P)
        await until(lambda: held.held)  # returns 50
        make_anew(cluster, 80)
        await asyncio.sleep(1.0)
        held.release()
        assert await consumer.position(P) == 0  # by policy, as the position was lost
        assert offsets(await read(consumer, 80)) == {0: list(range(80))}


async def test_records_that_a_loop_holds_are_not_returned_after_their_topic_was_recreated() -> None:
    async with scene(500, metadata_max_age=0.2, per_batch=100) as (cluster, consumer):
        values: list[bytes] = []
        async for record in consumer:
            values.append(record.value)
            if len(values) == 10:
                make_anew(cluster, 20)
                await asyncio.sleep(1.0)
            if record.offset == 19 and len(record.value) == NEW:
                break
        assert [len(value) for value in values[10:]] == [NEW] * 20


async def test_a_deleted_partition_is_reported_and_the_others_go_on() -> None:
    async with Cluster(brokers=1) as cluster:
        fill(cluster, 10, 2)
        async with reading(cluster, metadata_max_age=0.5) as consumer:
            consumer.assign([P, Q])
            await read(consumer, 20)
            make_anew(cluster, 30)
            seen: list[Any] = []
            reported = 0
            async with asyncio.timeout(60.0):
                while len(seen) < 30 or reported < 3:
                    try:
                        seen += await consumer.poll(timeout=5.0)
                    except UnknownTopicOrPartition as error:
                        assert error.topic_partition == Q
                        reported += 1
            assert offsets(seen) == {0: list(range(30))}
            consumer.assign([P])
            assert await consumer.poll(timeout=10.0) == []


async def test_partitions_that_metadata_leaves_out_are_not_read_again_from_their_start() -> None:
    def left_out(_: Any, response: Any) -> None:
        for topic in response.topics:
            del topic.partitions[1:]

    async with scene(10, 3, metadata_max_age=0.2) as (cluster, consumer):
        ledger = Ledger(3)
        await ledger.read_to(consumer, 10)
        lie = cluster.faults.rewrite("Metadata", left_out, times=None)
        await asyncio.sleep(5.0)
        cluster.faults.remove(lie)
        for index in range(3):
            cluster.append(T, index, batch(10, 10))
        await ledger.read_to(consumer, 20)


# Leaders that keep moving


async def test_leaders_that_move_under_every_fetch_lose_and_repeat_nothing() -> None:
    rng = the_loop().rng
    async with scene(0, 3, max_partition_fetch_bytes=500) as (cluster, consumer):
        ledger = Ledger(3)
        for _ in range(300):
            index = rng.randrange(3)
            end = cluster.end_offset(T, index)
            cluster.append(T, index, batch(end, rng.randrange(1, 30)))
            lead(cluster, index, rng.randrange(1, 4))
            ledger.take(await consumer.poll(timeout=rng.uniform(0, 0.2)))
        ends = {partition: cluster.end_offset(*partition) for partition in ledger.next}
        async with asyncio.timeout(60.0):
            while ledger.next != ends:
                ledger.take(await consumer.poll(timeout=1.0))
        assert "consumer.truncations" not in consumer.metrics()


@reads
async def test_reading_on_while_a_position_is_validated_is_no_truncation(take: Take) -> None:
    settings = {"auto_offset_reset": "none", "metadata_max_age": 0.2}
    async with scene(10, **settings) as (cluster, consumer):
        cluster.move_leader(T, 0, 2)
        cluster.append(T, 0, batch(10, 10))
        consumer.seek(P, 0)
        assert offsets(await read(consumer, 5)) == {0: [0, 1, 2, 3, 4]}
        await asyncio.sleep(0.5)  # what was appended by the second leader is buffered
        held = cluster.faults.hold("OffsetForLeaderEpoch", after=True)
        cluster.move_leader(T, 0, 3)
        await until(lambda: held.held)  # responds that the first leader's log ends at 10
        seen: list[int] = []
        while len(seen) < 15:
            seen += [one.offset for one in await take(consumer)]
        held.release()
        await asyncio.sleep(1.0)
        assert seen == list(range(5, 20))
        cluster.append(T, 0, batch(20, 3))
        more: list[int] = []
        while len(more) < 3:
            more += [one.offset for one in await take(consumer)]
        assert more == [20, 21, 22]
        assert "consumer.truncations" not in consumer.metrics()


async def test_records_that_a_loop_holds_are_not_given_after_the_log_was_cut_before_them() -> None:
    async with scene(30, metadata_max_age=0.2, per_batch=15) as (cluster, consumer):
        seen: list[int] = []
        async for record in consumer:
            seen.append(record.offset)
            if len(seen) == 16:
                cluster.log(T, broker=2).truncate(15)
                cluster.move_leader(T, 0, 2)
                cluster.append(T, 0, batch(15, 10))
                await asyncio.sleep(1.0)
            if len(seen) == 26:
                break
        assert seen == [*range(16), *range(15, 25)]


@reads
@pytest.mark.parametrize("reset", ["earliest", "none"])
async def test_what_was_fetched_behind_a_cut_is_dropped_and_what_lies_before_it_is_not(
    take: Take, reset: str
) -> None:
    settings = {"metadata_max_age": 0.2, "auto_offset_reset": reset}
    async with scene(30, per_batch=5, **settings) as (cluster, consumer):
        consumer.seek(P, 0)
        seen: list[Any] = []
        while len(seen) < 5:
            seen += await take(consumer)
        cut = max(seen[-1].offset + 1, 15)  # columns come by several batches
        cluster.log(T, broker=2).truncate(cut)
        cluster.move_leader(T, 0, 2)
        cluster.append(T, 0, batch(cut, 30, value_bytes=NEW))
        await asyncio.sleep(1.0)
        while seen[-1].offset < cut + 29:
            seen += await take(consumer)
        assert [record.offset for record in seen] == list(range(cut + 30))
        assert all(len(record.value) == NEW for record in seen[cut:])
        assert "consumer.truncations" not in consumer.metrics()


async def test_a_truncated_log_is_reported_while_a_loop_holds_records() -> None:
    settings = {"metadata_max_age": 0.2, "auto_offset_reset": "none"}
    async with scene(30, per_batch=30, **settings) as (cluster, consumer):
        consumer.seek(P, 0)
        with pytest.raises(LogTruncated) as failed:
            async for record in consumer:
                if record.offset == 20:
                    cluster.log(T, broker=2).truncate(0)
                    cluster.move_leader(T, 0, 2)
                    cluster.append(T, 0, batch(0, 5))
                    await asyncio.sleep(1.0)
                    await consumer.poll(timeout=1.0)
        assert failed.value.topic_partition == P


# Leaders that don't know the epoch that was read (KIP-320)


def undefined(_: Any, response: Any) -> None:
    for topic in response.topics:
        for part in topic.partitions:
            part.leader_epoch = part.end_offset = -1


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
async def test_an_epoch_that_a_leader_does_not_know_moves_no_position(reset: str) -> None:
    """Such as of a log without epochs: that is no data loss, and is requested once."""
    settings = {"metadata_max_age": 0.2, "auto_offset_reset": reset}
    async with scene(30, **settings) as (cluster, consumer):
        consumer.seek(P, 0)
        seen = await read(consumer, 20)
        asked = cluster.faults.rewrite("OffsetForLeaderEpoch", undefined, times=None)
        cluster.move_leader(T, 0, 2)
        cluster.append(T, 0, batch(30, 10))
        seen += await read(consumer, 20)
        assert offsets(seen) == {0: list(range(40))}
        await asyncio.sleep(20.0)
        assert 1 <= asked.hits <= 2
        assert "consumer.truncations" not in consumer.metrics()


async def test_a_shorter_log_that_does_not_know_the_epoch_is_out_of_range() -> None:
    settings = {"metadata_max_age": 0.2, "auto_offset_reset": "none"}
    async with scene(30, **settings) as (cluster, consumer):
        consumer.seek(P, 0)
        await read(consumer, 30)
        cluster.faults.rewrite("OffsetForLeaderEpoch", undefined, times=None)
        cluster.log(T, broker=2).truncate(10)
        cluster.move_leader(T, 0, 2)
        with pytest.raises(OffsetOutOfRange) as failed:
            await read(consumer, 1)
        assert failed.value.topic_partition == P
        assert consumer.positions() == {P: 30}


@pytest.mark.parametrize("reset", ["earliest", "none"])
async def test_a_leader_that_has_no_record_of_the_epoch_lost_them_all(reset: str) -> None:
    """Its log begins with a later epoch, and has grown past the position since."""
    settings = {"metadata_max_age": 0.2, "auto_offset_reset": reset}
    async with scene(30, **settings) as (cluster, consumer):
        consumer.seek(P, 0)
        await read(consumer, 30)
        cluster.log(T, broker=2).truncate(0)
        cluster.move_leader(T, 0, 2)
        cluster.append(T, 0, batch(0, 40, value_bytes=NEW))
        if reset == "none":
            with pytest.raises(LogTruncated) as failed:
                await read(consumer, 1)
            assert failed.value.offset == 0
            consumer.seek(P, 0)
        seen = await read(consumer, 40)
        assert [(one.offset, len(one.value)) for one in seen] == [(at, NEW) for at in range(40)]


# Brokers that freeze


async def test_the_partitions_of_other_brokers_go_on_beside_a_frozen_one() -> None:
    async with scene(0, 3, request_timeout=10.0) as (cluster, consumer):
        ledger = Ledger(3)
        frozen = cluster.brokers[2].address
        for round_number in range(3):
            first = round_number * 20
            the_loop().network.freeze(frozen)
            for index in (0, 2):
                cluster.append(T, index, batch(first, 20))
            began = the_loop().time()
            ledger.take(await read(consumer, 40))
            assert the_loop().time() - began < 1.0
            cluster.append(T, 1, batch(first, 20))
            the_loop().network.heal(frozen)
            ledger.take(await read(consumer, 20))
        await ledger.read_to(consumer, 60)


async def test_a_broker_that_is_frozen_from_the_start_holds_up_its_own_partitions_only() -> None:
    async with Cluster(brokers=3) as cluster:
        fill(cluster, 20, 3)
        network = the_loop().network
        held = cluster.faults.hold("ListOffsets", broker=2, times=None)
        async with reading(cluster, request_timeout=10.0) as consumer:
            began = the_loop().time()
            seen = await read(consumer, 40)
            assert the_loop().time() - began < 1.0
            assert set(offsets(seen)) == {0, 2}
            network.freeze(cluster.brokers[2].address)
            held.release()
            assert await consumer.poll(timeout=1.0) == []
            network.heal(cluster.brokers[2].address)
            assert offsets(await read(consumer, 20)) == {1: list(range(20))}


async def test_a_lookup_follows_its_leader_from_a_frozen_broker() -> None:
    async with Cluster(brokers=3) as cluster:
        fill(cluster, 20, 3)
        cluster.faults.drop("ListOffsets", broker=2, times=None)
        settings = {"metadata_max_age": 0.5, "request_timeout": 25.0, "api_timeout": 60.0}
        async with reading(cluster, **settings) as consumer:
            await read(consumer, 40)
            cluster.move_leader(T, 1, 3)
            began = the_loop().time()
            assert offsets(await read(consumer, 20)) == {1: list(range(20))}
            assert the_loop().time() - began < 2.0


# Brokers that lie


def out_of_range(_: Any, response: Any) -> None:
    for part in parts_of(response):
        part.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        part.records = None


async def test_resets_that_lead_out_of_range_again_are_not_repeated_in_a_rush() -> None:
    async with scene(30, retry_backoff=0.1, retry_backoff_max=1.0) as (cluster, consumer):
        await quiet(consumer)
        cluster.faults.rewrite("Fetch", out_of_range, times=None)
        cluster.requests.clear()
        consumer.resume()
        assert await consumer.poll(timeout=20.0) == []
        assert 15 < cluster.requests.count("ListOffsets") < 40
        assert cluster.requests.count("Fetch") < 40
        cluster.faults.clear()
        assert offsets(await read(consumer, 30)) == {0: list(range(30))}


async def test_a_preferred_follower_that_refuses_is_not_retried_in_a_rush() -> None:
    settings = {"client_rack": "a", "retry_backoff": 0.1, "retry_backoff_max": 1.0}
    async with scene(30, **settings) as (cluster, consumer):
        await quiet(consumer)

        def prefer(_: Any, response: Any) -> None:
            for part in parts_of(response):
                part.preferred_read_replica = 2
                part.records = None

        cluster.faults.rewrite("Fetch", prefer, broker=1, times=None)
        cluster.faults.rewrite("Fetch", out_of_range, broker=2, times=None)
        cluster.requests.clear()
        consumer.resume()
        assert await consumer.poll(timeout=20.0) == []
        assert cluster.requests.count("Fetch") < 120
        cluster.faults.clear()
        assert offsets(await read(consumer, 30)) == {0: list(range(30))}

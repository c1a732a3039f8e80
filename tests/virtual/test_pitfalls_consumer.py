"""Pitfalls of positions, seeks and fetch sessions: whole consumers on virtual time."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.errors import KafkaError
from kclient.testing import Cluster, run_virtually
from tests.unit.consumer.log_bytes import batch
from tests.virtual.consumer_scene import (
    Ledger,
    P,
    Q,
    T,
    fetches,
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
from tests.virtual.cut_short import cut_short

# 33: the position moves only when a record is handed over


@pytest.mark.parametrize("seed", range(3))
def test_pitfall_33_calls_cut_short_skip_and_repeat_nothing(seed: int) -> None:
    outcome = run_virtually(cut_short(seed, 2000, troubles=False), seed=seed)
    assert outcome.cut > 300
    assert outcome.records > 1000


def test_pitfall_33_calls_cut_short_with_a_deserializer_skip_and_repeat_nothing() -> None:
    run = cut_short(7, 2000, troubles=False, value_deserializer=lambda _, data: int(data))
    assert run_virtually(run, seed=7).cut > 300


async def test_pitfall_33_the_position_is_the_offset_after_the_last_record_handed_over() -> None:
    async with scene(30) as (_, consumer):
        assert await consumer.position(P) == 0
        seen = []
        async for record in consumer:  # the others of its batch are taken, but not handed over
            seen.append(record.offset)
            assert consumer.positions() == {P: record.offset + 1}
            assert await consumer.position(P) == record.offset + 1
            if len(seen) == 13:
                break
        assert offsets(await consumer.poll(max_records=4)) == {0: [13, 14, 15, 16]}
        assert consumer.positions() == {P: 17}
        table = await consumer.poll_arrow()
        assert table.column("offset").to_pylist()[0] == 17
        assert consumer.positions() == {P: 17 + table.num_rows}


async def test_pitfall_33_what_a_loop_holds_is_handed_over_by_a_poll_after_it() -> None:
    async with scene(30) as (_, consumer):
        async for record in consumer:
            if record.offset == 4:
                break
        assert offsets(await read(consumer, 25)) == {0: list(range(5, 30))}


# 35: seek, pause and resume while a fetch is in flight


async def test_pitfall_35_a_response_for_the_position_before_a_seek_is_dropped() -> None:
    async with scene(30) as (cluster, consumer):
        await read(consumer, 30)
        for back in (5, 29, 0, 30):
            end = cluster.end_offset(T)
            held = cluster.faults.hold("Fetch", after=True)
            cluster.append(T, 0, batch(end, 10))
            await until(lambda held=held: held.held)
            consumer.seek(P, back)
            held.release()
            assert offsets(await read(consumer, end + 10 - back)) == {0: [*range(back, end + 10)]}


async def test_pitfall_35_what_was_buffered_for_the_position_before_a_seek_is_dropped() -> None:
    async with scene(90, max_partition_fetch_bytes=500) as (_, consumer):
        for back in (0, 20, 21, 9, 70):
            consumer.seek(P, 40)
            assert offsets(await read(consumer, 3)) == {0: [40, 41, 42]}
            await asyncio.sleep(0.2)  # more is buffered behind it
            consumer.seek(P, back)
            assert consumer.positions() == {P: back}
            assert offsets(await read(consumer, 15)) == {0: list(range(back, back + 15))}


async def test_pitfall_35_an_error_for_the_position_before_a_seek_is_dropped() -> None:
    async with scene(30) as (cluster, consumer):
        await read(consumer, 30)
        await quiet(consumer)
        consumer.seek(P, 12)
        held = cluster.faults.hold("Fetch", after=True)
        cluster.faults.error("Fetch", ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic=T)
        consumer.resume()
        await until(lambda: held.held)
        consumer.seek(P, 11)
        consumer.seek(P, 13)
        held.release()
        await asyncio.sleep(1.0)
        assert consumer.positions() == {P: 13}
        assert offsets(await read(consumer, 17)) == {0: list(range(13, 30))}


async def test_pitfall_35_a_paused_partition_gives_nothing_that_is_buffered_or_on_its_way() -> None:
    async with scene(50, 2, brokers=1) as (cluster, consumer):
        await asyncio.sleep(0.5)  # both are buffered
        consumer.pause(P)
        assert set(offsets(await read(consumer, 50))) == {1}
        held = cluster.faults.hold("Fetch", after=True)
        await until(lambda: held.held)
        consumer.resume(P)
        consumer.pause(Q)
        cluster.append(T, 1, batch(50, 5))
        held.release()
        assert offsets(await read(consumer, 50)) == {0: list(range(50))}
        assert await consumer.poll(timeout=1.0) == []
        consumer.resume()
        assert offsets(await read(consumer, 5)) == {1: list(range(50, 55))}


async def test_pitfall_35_resuming_what_is_not_paused_changes_nothing() -> None:
    async with scene(60, max_partition_fetch_bytes=500) as (cluster, consumer):
        ledger = Ledger(1)
        while ledger.taken < 60:
            ledger.take(await consumer.poll(max_records=3, timeout=1.0))
            before = cluster.requests.count("Fetch"), consumer.health().buffered_bytes
            consumer.resume()
            consumer.resume(P)
            assert (cluster.requests.count("Fetch"), consumer.health().buffered_bytes) == before
            assert consumer.paused == frozenset()
            ledger.check_positions(consumer)


# 48: a reset by policy only where the leader reports the position as out of range


def prefer(broker: int) -> Any:
    """Name ``broker`` as the replica to read from (KIP-392), and give nothing."""

    def change(_: Any, response: Any) -> None:
        for part in parts_of(response):
            part.preferred_read_replica = broker
            part.records = None

    return change


def out_of_range(_: Any, response: Any) -> None:
    for part in parts_of(response):
        part.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        part.records = None


async def test_pitfall_48_a_follower_that_is_behind_does_not_reset_the_position() -> None:
    async with scene(30, client_rack="a") as (cluster, consumer):
        await read(consumer, 30)
        await quiet(consumer)
        consumer.seek(P, 20)
        cluster.faults.rewrite("Fetch", prefer(2), broker=1)
        refused = cluster.faults.rewrite("Fetch", out_of_range, broker=2)
        consumer.resume(P)
        assert offsets(await read(consumer, 10)) == {0: list(range(20, 30))}
        assert refused.hits == 1
        assert cluster.requests.count("ListOffsets") == 1  # at the start


async def test_pitfall_48_the_leader_that_reports_it_is_believed() -> None:
    async with scene(30) as (cluster, consumer):
        await read(consumer, 5)
        cluster.delete_records(T, 0, 20)
        consumer.seek(P, 10)
        assert offsets(await read(consumer, 10)) == {0: list(range(20, 30))}


async def test_pitfall_48_a_stale_response_for_an_old_position_resets_nothing() -> None:
    async with scene(30) as (cluster, consumer):
        await read(consumer, 30)
        await quiet(consumer)
        consumer.seek(P, 1000)
        held = cluster.faults.hold("Fetch", after=True)
        consumer.resume()
        await until(lambda: held.held)
        consumer.seek(P, 25)
        held.release()
        assert offsets(await read(consumer, 5)) == {0: list(range(25, 30))}
        assert cluster.requests.count("ListOffsets") == 1


async def test_pitfall_48_a_broker_that_led_before_resets_nothing() -> None:
    async with scene(30, metadata_max_age=0.2) as (cluster, consumer):
        await read(consumer, 30)
        stale = cluster.faults.rewrite("Fetch", out_of_range, broker=1, times=None)
        held = cluster.faults.hold("Fetch", after=True, broker=1)
        slow = cluster.faults.hold("Fetch", after=True, broker=2)
        cluster.append(T, 0, batch(30, 5))
        await until(lambda: held.held)
        cluster.move_leader(T, 0, 2)
        await until(lambda: slow.held)
        held.release()
        await until(lambda: stale.hits)
        await asyncio.sleep(0.05)
        slow.release()
        assert offsets(await read(consumer, 5)) == {0: list(range(30, 35))}
        assert cluster.requests.count("ListOffsets") == 1


async def test_pitfall_48_out_of_range_waits_for_what_a_loop_has_not_handed_over() -> None:
    async with scene(30) as (cluster, consumer):
        seen = []
        async for record in consumer:
            seen.append(record.offset)
            if record.offset == 9:
                refused = cluster.faults.rewrite("Fetch", out_of_range)
                cluster.append(T, 0, batch(30, 5))
                await until(lambda fault=refused: fault.hits)  # the fetch ahead of it
                await asyncio.sleep(0.05)
            if len(seen) == 35:
                break
        assert seen == list(range(35))


# 49: fetch sessions


def lose(code: ErrorCode) -> Any:
    """The response of a broker that has evicted the session, or sees it in another epoch."""

    def change(_: Any, response: Any) -> None:
        response.error_code = code
        response.session_id = 0
        response.responses = []

    return change


@pytest.mark.parametrize(
    "code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH]
)
async def test_pitfall_49_a_lost_session_costs_one_full_fetch_at_once(code: ErrorCode) -> None:
    async with scene(10, 2, brokers=1, retry_backoff=5.0, retry_backoff_max=5.0) as (
        cluster,
        consumer,
    ):
        await read(consumer, 20)
        await asyncio.sleep(0.5)
        cluster.requests.clear()
        began = the_loop().time()
        cluster.faults.rewrite("Fetch", lose(code))
        await until(lambda: cluster.requests.count("Fetch") == 2)
        cluster.append(T, 0, batch(10, 5))
        assert offsets(await read(consumer, 5)) == {0: list(range(10, 15))}
        assert the_loop().time() - began < 0.5
        await asyncio.sleep(0.5)
        full = [one for one in fetches(cluster) if one.session_epoch == 0]
        assert len(full) == 1
        assert sum(len(topic.partitions) for topic in full[0].topics) == 2


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.FETCH_SESSION_ID_NOT_FOUND]
)
async def test_pitfall_49_an_error_of_the_response_as_a_whole_backs_off(code: ErrorCode) -> None:
    async with scene(10, retry_backoff=0.1, retry_backoff_max=1.0) as (cluster, consumer):
        await read(consumer, 10)
        cluster.requests.clear()
        cluster.faults.error("Fetch", code, times=None)
        await asyncio.sleep(10.0)
        times = [served.at for served in cluster.requests.of("Fetch")]
        assert 10 <= len(times) <= 20
        assert min(b - a for a, b in itertools.pairwise(times[-5:])) > 0.7
        cluster.faults.clear()
        cluster.append(T, 0, batch(10, 5))
        try:
            seen = await consumer.poll(timeout=5.0)
        except KafkaError:  # the error of all that time may be raised, once
            seen = await consumer.poll(timeout=5.0)
        assert offsets(seen) == {0: list(range(10, 15))}


async def test_pitfall_49_forgotten_partitions_are_really_sent_and_no_longer_come() -> None:
    async with scene(10, 3, brokers=1) as (cluster, consumer):
        await read(consumer, 30)
        consumer.pause(Q)
        cluster.requests.clear()
        await asyncio.sleep(0.5)
        forgotten = [
            index
            for one in fetches(cluster)
            for topic in one.forgotten_topics_data
            for index in topic.partitions
        ]
        assert forgotten == [1]
        [session] = cluster.brokers[1].sessions._sessions.values()
        assert sorted(key.partition for key in session.partitions) == [0, 2]
        consumer.resume(Q)
        cluster.append(T, 1, batch(10, 5))
        assert offsets(await read(consumer, 5)) == {1: list(range(10, 15))}


async def test_pitfall_49_two_consumers_that_fight_for_one_slot_both_read_on() -> None:
    configs = {"max.incremental.fetch.session.cache.slots": 1}
    async with Cluster(brokers=1, broker_configs=configs) as cluster:
        fill(cluster, 200, 2)
        settings = {"max_partition_fetch_bytes": 300}
        async with reading(cluster, **settings) as one, reading(cluster, **settings) as two:
            ledgers = Ledger(2), Ledger(2)
            await asyncio.gather(ledgers[0].read_to(one, 200), ledgers[1].read_to(two, 200))


async def test_pitfall_49_a_lost_response_breaks_the_session_and_loses_nothing() -> None:
    async with scene(60, 2, brokers=1, max_partition_fetch_bytes=500) as (_, consumer):
        ledger = Ledger(2)
        for _ in range(5):
            ledger.take(await consumer.poll(max_records=7, timeout=1.0))
            the_loop().network.cut("broker-1:9092")
            await asyncio.sleep(0.05)
        await ledger.read_to(consumer, 60)
        refused = consumer.metrics().get("consumer.fetch_refusals", 0)
        assert refused == 0, "a full fetch follows, and no broker has to ask for it"


async def test_pitfall_49_a_moved_leader_leaves_the_session_of_the_former_one() -> None:
    async with scene(40, 2, max_partition_fetch_bytes=500) as (cluster, consumer):
        ledger = Ledger(2)
        for leader in (2, 3, 1, 2):
            ledger.take(await consumer.poll(max_records=7, timeout=1.0))
            lead(cluster, 0, leader)
            await asyncio.sleep(0.3)
        await ledger.read_to(consumer, 40)

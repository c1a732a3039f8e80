"""Records for partitions that a topic was grown by, or will be: they wait a while.

A broker may lag behind, and a response that was in flight describes a time before the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import kclient
from kclient.broker_errors import UnknownTopicOrPartition
from kclient.errors import FlushFailed, KafkaError, MetadataTimedOut, RowsRejected
from kclient.record import partition_of_key
from kclient.testing import Cluster, run_virtually
from tests.virtual.relay import now

pa = pytest.importorskip("pyarrow")

QUICK: dict[str, Any] = {"linger": 0.0}
SEEDS = 12


@asynccontextmanager
async def two_partitions(
    brokers: int = 1, **settings: Any
) -> AsyncIterator[tuple[Cluster, kclient.Producer[Any, Any]]]:
    """A cluster with a topic of two partitions, and a producer that knows it."""
    async with Cluster(brokers=brokers) as cluster:
        cluster.create_topic("t", partitions=2)
        async with kclient.Producer(cluster.bootstrap, **QUICK, **settings) as producer:
            await producer.send("t", b"x", partition=0)
            yield cluster, producer


async def one_of_three_lags(way: str) -> None:
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", partitions=2)
        async with kclient.Producer(cluster.bootstrap, **QUICK) as producer:
            for partition in (0, 1):
                await producer.send("t", b"x", partition=partition)
            await asyncio.sleep(1.0)
            cluster.brokers[2].freeze_metadata()
            cluster.add_partitions("t", 4)
            await asyncio.sleep(1.0)
            if way == "send":
                assert (await producer.send("t", b"y", partition=3)).offset == 0
            else:
                rows = pa.table({"value": [b"y"], "partition": pa.array([3], pa.int32())})
                assert (await producer.send_arrow("t", rows)) == 1
            cluster.brokers[2].thaw_metadata()
        assert cluster.log("t", 3).high_watermark == 1


@pytest.mark.parametrize("way", ["send", "send_arrow"])
def test_one_broker_that_lags_behind_fails_no_record_for_a_new_partition(way: str) -> None:
    for seed in range(SEEDS):
        run_virtually(one_of_three_lags(way), seed=seed)


async def test_a_response_that_was_in_flight_fails_no_record_for_a_new_partition() -> None:
    async with two_partitions(metadata_max_age=1.0) as (cluster, producer):
        held = cluster.faults.hold("Metadata", after=True)
        await held.wait_hits()
        cluster.add_partitions("t", 4)
        late = producer.send("t", b"y", partition=3)
        held.release()
        assert (await late).offset == 0


@pytest.mark.parametrize("brokers", [1, 3])
@pytest.mark.parametrize("way", ["send", "enqueue", "send_many", "send_arrow"])
async def test_a_missing_partition_is_reported_after_ten_seconds(brokers: int, way: str) -> None:
    async with two_partitions(brokers, delivery_timeout=30.0, max_block=30.0) as (
        cluster,
        producer,
    ):
        started, asked = now(), len(cluster.requests.of("Metadata"))
        with pytest.raises(
            KafkaError, match=r"partition 7 of topic t .* has 2, 0 to 1"
        ) as reported:
            if way == "send_many":
                await producer.send_many("t", [kclient.Outgoing(b"y", partition=7)])
            elif way == "send_arrow":
                rows = pa.table({"value": [b"y"], "partition": pa.array([7], pa.int32())})
                await producer.send_arrow("t", rows)
            else:
                await getattr(producer, way)("t", b"y", partition=7)
        assert type(reported.value) is (RowsRejected if way == "send_arrow" else MetadataTimedOut)
        assert reported.value.maybe_written is not True
        assert 10.0 <= now() - started <= 11.0
        assert len(cluster.requests.of("Metadata")) - asked < 25
        assert producer.metrics()["producer.buffered_bytes"] == 0


async def test_a_record_that_waits_for_a_partition_holds_up_no_other() -> None:
    async with two_partitions() as (_, producer):
        lost = producer.send("t", b"y", partition=2)
        started = now()
        await producer.send("t", b"x", partition=0)
        await producer.send("t", b"x", key=b"k")
        await producer.send("t", b"x")
        assert now() - started < 1.0
        assert not lost.done()
        assert lost.cancel()


async def test_records_for_a_new_partition_keep_their_order() -> None:
    async with two_partitions() as (cluster, producer):
        early = [producer.send("t", b"%d" % number, partition=3) for number in range(20)]
        await asyncio.sleep(2.0)
        cluster.add_partitions("t", 4)
        late: list[Any] = []
        while not early[0].done():
            late.append(producer.send("t", b"late %d" % len(late), partition=3))
            await asyncio.sleep(0.05)
        offsets = [(await one).offset for one in (*early, *late)]
        assert offsets == list(range(20 + len(late)))


async def test_very_many_records_fail_and_none_is_forgotten() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=1)
        async with kclient.Producer(cluster.bootstrap, **QUICK) as producer:
            await producer.send("t", b"x")
            lost = [producer.send("t", b"%d" % number, partition=1) for number in range(5000)]
            with pytest.raises(FlushFailed, match="5,000"):
                await producer.flush()
            assert all(isinstance(one.exception(), MetadataTimedOut) for one in lost)


async def a_word_of_long_ago() -> None:
    async with Cluster(brokers=3) as cluster:
        async with kclient.Producer(cluster.bootstrap, **QUICK, request_timeout=3.0) as producer:
            with pytest.raises(UnknownTopicOrPartition):
                await producer.send("t", b"x")
            cluster.brokers[2].freeze_metadata()
            cluster.create_topic("t", partitions=2)
            await asyncio.sleep(20.0)
            slow = [cluster.faults.hold("Metadata", times=None, broker=one) for one in (1, 3)]
            late = producer.send("t", b"y")
            await asyncio.sleep(8.0)
            for one in slow:
                one.release()
                one.remove()
            try:
                await late
            finally:
                cluster.brokers[2].thaw_metadata()


def test_a_response_from_before_a_record_does_not_count_for_its_topic() -> None:
    """Brokers rightly reported that there was none; since it exists only one, which lags, did."""
    failed: list[KafkaError] = []
    for seed in range(6):
        try:
            run_virtually(a_word_of_long_ago(), seed=seed)
        except KafkaError as error:
            failed.append(error)
    assert not failed


async def longest_absence(seed: int) -> float:
    """For how long a view lacks a topic that one of three brokers doesn't know."""
    async with Cluster(brokers=3) as cluster:
        async with kclient.Producer(cluster.bootstrap, metadata_max_age=10.0) as producer:
            cluster.brokers[2].freeze_metadata()
            cluster.create_topic("t", partitions=1)
            metadata = producer._core.metadata
            metadata.add_topic("t")
            await metadata.wait_for_topic("t", 60.0)
            longest, there = 0.0, now()
            for _ in range(2000):
                await asyncio.sleep(0.1)
                if metadata.view.partition_count("t"):
                    there = now()
                longest = max(longest, now() - there)
            cluster.brokers[2].thaw_metadata()
            return longest


def test_a_topic_that_one_broker_does_not_know_is_soon_back() -> None:
    """Without any request: what is wanted and was there is requested until that is sure."""
    absences = [run_virtually(longest_absence(seed), seed=seed) for seed in range(SEEDS)]
    assert 0.0 < max(absences) < 2.0


async def looked_for_by_one_that_lags() -> int:
    """Partitions of an existing topic, requested while only a broker that lags responds."""
    async with Cluster(brokers=3) as cluster:
        async with kclient.Producer(cluster.bootstrap, request_timeout=3.0) as producer:
            await asyncio.sleep(1.0)
            cluster.brokers[2].freeze_metadata()
            cluster.create_topic("t", partitions=2)
            slow = [cluster.faults.hold("Metadata", times=None, broker=one) for one in (1, 3)]
            looking = asyncio.ensure_future(producer.partitions_for("t"))
            await asyncio.sleep(8.0)
            for one in slow:
                one.release()
                one.remove()
            try:
                return len(await looking)
            finally:
                cluster.brokers[2].thaw_metadata()


def test_a_call_believes_one_of_several_brokers_after_twice_as_long() -> None:
    found = [run_virtually(looked_for_by_one_that_lags(), seed=seed) for seed in range(6)]
    assert found == [2] * 6


# A topic that was grown while the producer had no records for it

KEYS = [b"key-%d" % n for n in range(60)]


async def burst(producer: kclient.Producer[Any, Any], way: str) -> None:
    if way == "send":
        await asyncio.gather(*[producer.send("t", b"v", key=key) for key in KEYS])
    elif way == "send_many":
        await producer.send_many("t", [(key, b"v") for key in KEYS])
    else:
        rows = pa.table({"key": KEYS, "value": [b"v"] * len(KEYS)})
        await producer.send_arrow("t", rows)


@pytest.mark.parametrize("way", ["send", "send_many", "send_arrow"])
async def test_after_an_idle_time_keys_go_by_the_partitions_that_there_are_then(way: str) -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=1)
        async with kclient.Producer(cluster.bootstrap, **QUICK) as producer:
            await producer.send("t", b"x", key=b"k")
            await asyncio.sleep(20 * 60.0)  # it isn't requested any more
            cluster.add_partitions("t", 6)
            await asyncio.sleep(5 * 60.0)
            await burst(producer, way)
            assert producer.health().ok
        found = {p: {r.key for r in cluster.records("t", p)} - {b"k"} for p in range(6)}
        wanted = {p: {k for k in KEYS if partition_of_key(k, 6) == p} for p in range(6)}
        assert found == wanted


async def test_after_an_idle_time_numbers_go_on_where_they_were() -> None:
    """The log still knows this producer."""
    async with two_partitions() as (cluster, producer):
        await asyncio.sleep(25 * 60.0)
        for number in range(3):
            assert (await producer.send("t", b"y", partition=0)).offset == 1 + number
        batches = cluster.log("t", 0).batches
        assert [(b.producer_epoch, b.base_sequence) for b in batches] == [(0, n) for n in range(4)]

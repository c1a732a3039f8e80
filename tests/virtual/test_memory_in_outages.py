"""What producers and consumers hold while brokers are unreachable: bounded, and nothing is lost.

Producers write as fast as they can through outages of three kinds. Virtual time, so the seconds are
exact; memory is that of the Python heap.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import kclient
from kclient.error_codes import ErrorCode
from kclient.errors import BufferFull, KafkaError
from kclient.testing import Cluster, MemoryNet, VirtualLoop
from kclient.types import OffsetAndMetadata, TopicPartition
from tests.unit.consumer.log_bytes import batch

T = "flights"
MIB = 1024 * 1024
BUDGET = 2 * MIB
OUTAGES = ("freeze", "refuse", "blackhole")
SETTINGS: dict[str, Any] = {
    "buffer_memory": BUDGET,
    "max_block": 1.0,
    "max_parked": 1000,
    "delivery_timeout": 300.0,
    # Half-open connections and attempts are noticed by their time-outs only.
    "request_timeout": 2.0,
    "connection_setup_timeout": 1.0,
    "connection_setup_timeout_max": 2.0,
}


def network() -> MemoryNet:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.network


def begin(outage: str) -> None:
    """Make all brokers unreachable; ``heal`` ends each kind."""
    net = network()
    getattr(net, outage)()
    if outage == "refuse":
        net.cut()


def now() -> float:
    return asyncio.get_running_loop().time()


@contextlib.asynccontextmanager
async def producing(partitions: int = 6, **settings: Any) -> AsyncIterator[tuple[Cluster, Any]]:
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic(T, partitions=partitions)
        async with kclient.Producer(cluster.bootstrap, **{**SETTINGS, **settings}) as producer:
            await producer.partitions_for(T)
            await producer.send(T, b"first")
            yield cluster, producer


@contextlib.contextmanager
def heap() -> Iterator[list[int]]:
    """Gives the bytes by which the heap grew at most, as the only item of a list, at the end."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        grown: list[int] = []
        yield grown
        _, peak = tracemalloc.get_traced_memory()
        grown.append(peak - before)
    finally:
        tracemalloc.stop()


def written(cluster: Cluster, partitions: int = 6) -> list[bytes]:
    """Values in the log, but for the first one."""
    found = [r.value for n in range(partitions) for r in cluster.records(T, n)]
    return sorted(value for value in found if value != b"first")  # type: ignore[type-var]


def number(index: int) -> bytes:
    return b"%07d" % index + b"." * 93


async def insist(
    producer: Any, accepted: list[Any], until: float, way: str, pause: float = 0.001
) -> None:
    """Write as fast as ``way`` takes it, with a ``pause`` behind each hundred records."""
    while now() < until:
        index = len(accepted)
        try:
            if way == "send":
                accepted.append(producer.send(T, number(index), key=b"%d" % index))
            else:
                accepted.append(await producer.enqueue(T, number(index), key=b"%d" % index))
        except BufferFull:
            await asyncio.sleep(0.01)
        if index % 100 == 0:
            await asyncio.sleep(pause)


@pytest.mark.parametrize("way", ["send", "enqueue"])
@pytest.mark.parametrize(
    ("outage", "partitions"), [*((outage, 6) for outage in OUTAGES), ("refuse", 300)]
)
async def test_what_is_accepted_in_an_outage_is_bounded_and_arrives_after_it(
    outage: str, way: str, partitions: int
) -> None:
    async with producing(partitions) as (cluster, producer):
        accepted: list[Any] = []
        begin(outage)
        with heap() as grown:
            await insist(producer, accepted, now() + 8.0, way)
            health = producer.health()
        assert 0.95 * BUDGET < health.buffered_bytes <= BUDGET + 4096
        assert health.parked_records <= 1000
        # What we measure holds the deliveries that the test keeps, too.
        assert grown[0] - 200 * len(accepted) <= 1.5 * BUDGET + 16 * MIB
        network().heal()
        healed = now()
        await accepted[len(accepted) // 2]
        meta = await asyncio.wait_for(producer.send(T, b"first"), 5.0)
        assert meta.offset >= 0 and now() - healed < 5.0
        await producer.flush()
        assert written(cluster, partitions) == [number(index) for index in range(len(accepted))]


@pytest.mark.parametrize(
    "outage",
    [OUTAGES[0], *(pytest.param(outage, marks=pytest.mark.long) for outage in OUTAGES[1:])],
)
async def test_the_rate_is_back_within_five_seconds(outage: str) -> None:
    async with producing() as (cluster, producer):

        async def rate(until: float) -> int:
            before = sum(cluster.end_offset(T, n) for n in range(6))
            await insist(producer, [], until, "enqueue", pause=0.005)
            return sum(cluster.end_offset(T, n) for n in range(6)) - before

        usual = await rate(now() + 1.0)
        begin(outage)
        await rate(now() + 5.0)
        network().heal()
        await rate(now() + 3.0)
        assert await rate(now() + 1.0) >= 0.9 * usual


@pytest.mark.parametrize("outage", OUTAGES)
async def test_enqueue_fails_at_max_block(outage: str) -> None:
    async with producing(max_block=7.0) as (_, producer):
        begin(outage)
        began = now()
        with pytest.raises(BufferFull, match="max_block=7"):
            while True:
                began = now()
                await producer.enqueue(T, b"x" * 1000)
        assert 6.5 <= now() - began <= 7.5
        network().heal()


@pytest.mark.parametrize("outage", OUTAGES)
async def test_send_queues_waiting_records_up_to_its_bounds_and_never_waits(outage: str) -> None:
    async with producing() as (_, producer):
        begin(outage)
        began, most = now(), 0
        with pytest.raises(BufferFull, match="max_parked=1,000"):
            while True:
                producer.send(T, b"x" * 100)
                most = max(most, producer.health().parked_records)
        assert most == 1000 and now() == began
        with pytest.raises(BufferFull):
            producer.send(T, b"x" * 100)
        network().heal()


@pytest.mark.parametrize("outage", OUTAGES)
async def test_large_waiting_records_take_up_to_a_quarter_of_the_budget(outage: str) -> None:
    async with producing() as (_, producer):
        begin(outage)
        taken = 0
        with pytest.raises(BufferFull, match="at most 524,288 bytes"):
            while True:
                producer.send(T, b"x" * 20_000)
                taken += 20_000
        assert BUDGET <= taken <= 1.25 * BUDGET
        network().heal()


@pytest.mark.parametrize("outage", OUTAGES)
async def test_waiting_calls_that_are_cancelled_leave_nothing_behind(outage: str) -> None:
    """A service that sets a time-out around each call, in an outage of a minute."""
    async with producing(max_block=60.0) as (_, producer):
        begin(outage)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                while True:
                    await producer.enqueue(T, b"x" * 1000)
        with heap() as grown:
            for _ in range(5000):  # 15 s of max_block's 60
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.003):
                        await producer.enqueue(T, b"x" * 1000)
        assert producer.health().parked_records == 0
        assert grown[0] < MIB
        network().heal()


@pytest.mark.parametrize("outage", OUTAGES)
async def test_reads_and_calls_that_fail_for_minutes_pile_nothing_up(outage: str) -> None:
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic(T, partitions=6)
        settings: Any = {"auto_offset_reset": "earliest", "request_timeout": 2.0}
        async with (
            kclient.Consumer(cluster.bootstrap, T, **settings) as consumer,
            kclient.Admin(cluster.bootstrap, api_timeout=1.0, request_timeout=0.5) as admin,
        ):
            await consumer.poll(timeout=0.5)
            begin(outage)
            with heap() as grown:
                until = now() + 300.0
                while now() < until:
                    with contextlib.suppress(KafkaError):
                        await consumer.poll(timeout=0.5)
                    with contextlib.suppress(KafkaError):
                        await admin.list_topics()
            assert grown[0] < 4 * MIB
            network().heal()


async def test_commits_without_a_coordinator_are_bounded_and_cancelled_one_by_one() -> None:
    """As many as a commit for each record makes; all others have their outcomes in the end."""
    partition, calls = TopicPartition(T, 0), 10_000
    async with Cluster() as cluster:
        cluster.create_topic(T)
        lookup, missing = "FindCoordinator", ErrorCode.COORDINATOR_NOT_AVAILABLE
        fault = cluster.faults.error(lookup, missing, times=None)
        async with kclient.Consumer(cluster.bootstrap, group="g") as consumer:
            consumer.assign([partition])
            with heap() as grown:
                outcomes = []
                for offset in range(calls):
                    outcomes.append(consumer.commit_nowait({partition: offset}))
                    if not offset % 100:
                        await asyncio.sleep(0.1)
            assert grown[0] < calls * 400
            dropped = [outcomes.pop(index) for index in (calls - 1, calls // 2, 0)]
            for outcome in dropped:
                outcome.cancel()
            waiting = asyncio.create_task(asyncio.wait_for(outcomes.pop(), 0.5))
            await asyncio.wait([waiting])
            assert isinstance(waiting.exception(), TimeoutError)
            assert not any(outcome.done() for outcome in outcomes)
            fault.remove()
            assert set(await asyncio.gather(*outcomes)) == {None}
            assert await consumer.committed([partition]) == {
                partition: OffsetAndMetadata(calls - 1)
            }
            assert all(outcome.cancelled() for outcome in dropped)
            assert cluster.requests.count("OffsetCommit") == 2  # the first one waited alone


@pytest.mark.parametrize("fetch_bytes", [1, 10_000, MIB, 50 * MIB])
async def test_a_consumer_that_is_not_polled_keeps_its_bound(fetch_bytes: int) -> None:
    """Whatever it fetches: one response may be in flight per broker when the bound is reached."""
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic(T, partitions=12)
        data = batch(0, 10, value_bytes=10_000)
        for index in range(12):
            for _ in range(40):
                cluster.append(T, index, data)
        settings: Any = {
            "auto_offset_reset": "earliest",
            "buffer_memory": BUDGET,
            "fetch_max_bytes": fetch_bytes,
            "max_partition_fetch_bytes": fetch_bytes,
        }
        async with kclient.Consumer(cluster.bootstrap, T, **settings) as consumer:
            await consumer.position(TopicPartition(T, 0))
            with heap() as grown:
                await asyncio.sleep(60.0)
            buffered = consumer.health().buffered_bytes
            assert buffered <= BUDGET + 3 * max(min(fetch_bytes, 8 * MIB), 110_000)
            assert grown[0] <= 3 * buffered + 4 * MIB
            count = 0
            while count < 4800:
                count += len(await consumer.poll(timeout=5.0))

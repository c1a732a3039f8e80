"""Brokers err, lose answers, move and vanish: nothing is lost, doubled or reordered."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

import kclient
from kclient.error_codes import ErrorCode
from kclient.errors import BackgroundTaskDied, DeliveryTimedOut, FlushFailed, KafkaError
from kclient.hooks import BatchRetried, Event, MetadataUpdated
from kclient.testing import Cluster

QUICK = {"retry_backoff": 0.01, "retry_backoff_max": 0.05, "reconnect_backoff": 0.01}


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(brokers=3) as running:
        running.create_topic("t", partitions=1)
        yield running


def values(cluster: Cluster, partition: int = 0, topic: str = "t") -> list[bytes]:
    return [record.value for record in cluster.records(topic, partition) if record.value]


def numbers(count: int) -> list[bytes]:
    return [b"%05d" % i for i in range(count)]


class Events:
    """Keeps what observers are told."""

    def __init__(self) -> None:
        self.seen: list[Event] = []

    def observe(self, event: Event, /) -> None:
        self.seen.append(event)

    def count(self, kind: type[Event]) -> int:
        return sum(type(event) is kind for event in self.seen)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    ],
)
@pytest.mark.parametrize("place", [1, 3])
async def test_errors_that_pass_are_survived(cluster: Cluster, code: ErrorCode, place: int) -> None:
    async with kclient.Producer(cluster.bootstrap, batch_size=500, **QUICK) as out:
        if place > 1:
            await out.send_many("t", numbers(50))
        cluster.faults.error("Produce", code, times=place)
        assert await out.send_many("t", numbers(1000)) == 1000
    assert values(cluster)[-1000:] == numbers(1000)
    assert len(values(cluster)) == (1050 if place > 1 else 1000)


@pytest.mark.parametrize(
    "code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
)
async def test_errors_after_the_append_double_nothing(cluster: Cluster, code: ErrorCode) -> None:
    async with kclient.Producer(cluster.bootstrap, batch_size=500, **QUICK) as out:
        await out.send_many("t", numbers(10))
        cluster.faults.error("Produce", code, times=5, after=True)
        await out.send_many("t", numbers(1000))
    assert values(cluster) == numbers(10) + numbers(1000)


async def written_without_an_answer(
    cluster: Cluster, out: kclient.Producer[Any, Any], value: bytes
) -> kclient.Delivery:
    """Send ``value`` and return when it is in the log and the answer lost."""
    cut = cluster.faults.close("Produce", after=True)
    delivery = out.send("t", value)
    async with asyncio.timeout(5):
        while True:
            if cut.hits:
                break
            await asyncio.sleep(0)
    assert values(cluster)[-1] == value
    return delivery


async def test_a_broker_that_forgot_what_it_wrote_is_never_given_it_twice(
    cluster: Cluster,
) -> None:
    async with kclient.Producer(cluster.bootstrap, linger=0.0, **QUICK) as out:
        await out.send("t", b"0")
        delivery = await written_without_an_answer(cluster, out, b"1")
        cluster.faults.error("Produce", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        with pytest.raises(KafkaError, match="could write it twice") as caught:
            await delivery
        assert caught.value.maybe_written is True
        await out.send("t", b"2")
    assert values(cluster) == [b"0", b"1", b"2"]


async def test_unknown_producer_without_a_log_start_is_asked_again_and_doubles_nothing(
    cluster: Cluster,
) -> None:
    async with kclient.Producer(cluster.bootstrap, linger=0.0, **QUICK) as out:
        await out.send("t", b"0")
        delivery = await written_without_an_answer(cluster, out, b"1")
        cluster.faults.error("Produce", ErrorCode.UNKNOWN_PRODUCER_ID)  # its log start is -1
        assert (await delivery).offset == 1
    assert values(cluster) == [b"0", b"1"]


@pytest.mark.parametrize("after", [False, True])
async def test_cut_connections_lose_and_double_nothing(cluster: Cluster, after: bool) -> None:
    async with kclient.Producer(cluster.bootstrap, batch_size=500, **QUICK) as out:
        await out.send_many("t", numbers(10))
        for _ in range(5):
            cluster.faults.close("Produce", after=after)
            await out.send_many("t", numbers(300))
    assert values(cluster) == numbers(10) + numbers(300) * 5


async def test_silent_brokers_are_given_up_and_the_records_sent_again(cluster: Cluster) -> None:
    async with kclient.Producer(cluster.bootstrap, request_timeout=0.3, **QUICK) as out:
        await out.send_many("t", numbers(10))
        cluster.faults.drop("Produce", after=True)
        await out.send_many("t", numbers(100))
    assert values(cluster) == numbers(10) + numbers(100)


async def test_a_moved_leader_is_found_and_order_kept(cluster: Cluster) -> None:
    async with kclient.Producer(cluster.bootstrap, batch_size=500, **QUICK) as out:
        sending = asyncio.create_task(out.send_many("t", numbers(5000)))
        for leader in (1, 2, 3, 1, 2):
            await asyncio.sleep(0.01)
            cluster.move_leader("t", 0, leader)
        assert await sending == 5000
    assert values(cluster) == numbers(5000)


async def test_a_leader_hint_saves_the_metadata_request(cluster: Cluster) -> None:
    events = Events()
    settings: Any = {"linger": 0.0, "retry_backoff": 10.0, "retry_backoff_max": 10.0}
    async with kclient.Producer(cluster.bootstrap, **settings, observers=[events]) as out:
        await out.send("t", b"0")
        refreshes = out.metrics().get("metadata.refreshes", 0)
        leader = cluster.leader("t")
        cluster.move_leader("t", 0, leader % 3 + 1)
        started = time.monotonic()
        await out.send("t", b"1")
        assert time.monotonic() - started < 5.0  # less than one back-off
        assert out.metrics().get("metadata.refreshes", 0) == refreshes
    assert events.count(BatchRetried) == 1
    assert events.count(MetadataUpdated) >= 1
    assert values(cluster) == [b"0", b"1"]


async def test_a_crashed_leader_is_survived(cluster: Cluster) -> None:
    async with kclient.Producer(cluster.bootstrap, batch_size=500, **QUICK) as out:
        await out.send_many("t", numbers(100))
        sending = asyncio.create_task(out.send_many("t", numbers(3000)))
        await asyncio.sleep(0.005)
        await cluster.crash(cluster.leader("t"))
        async with asyncio.timeout(20):
            assert await sending == 3000
    assert values(cluster) == numbers(100) + numbers(3000)


async def test_a_recreated_topic_gets_the_records_that_follow(cluster: Cluster) -> None:
    async with kclient.Producer(cluster.bootstrap, linger=0.0, **QUICK) as out:
        for _ in range(10):
            await out.send("t", b"old")
        cluster.delete_topic("t")
        cluster.create_topic("t", partitions=1)
        async with asyncio.timeout(10):
            metas = [await out.send("t", b"new") for _ in range(10)]
    assert values(cluster) == [b"new"] * 10
    assert [meta.offset for meta in metas] == list(range(10))


async def test_a_vanished_topic_times_out_and_says_so(cluster: Cluster) -> None:
    async with kclient.Producer(cluster.bootstrap, delivery_timeout=0.5, **QUICK) as out:
        await out.send("t", b"v")
        cluster.delete_topic("t")
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC"):
            await out.send("t", b"v")


async def test_random_faults_lose_double_and_reorder_nothing(cluster: Cluster) -> None:
    rng = random.Random(20261121)
    cluster.create_topic("many", partitions=6)
    codes = [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.CORRUPT_MESSAGE,
    ]

    async def trouble() -> None:
        for _ in range(60):  # not for ever: the last batch meets a fault each time it tries
            await asyncio.sleep(0.003)
            if any(fault.active for fault in cluster.faults):
                continue
            what = rng.random()
            if what < 0.4:
                code = rng.choice(codes)
                after = code in codes[1:3] and rng.random() < 0.5
                cluster.faults.error("Produce", code, after=after)
            elif what < 0.7:
                cluster.faults.close("Produce", after=rng.random() < 0.5)
            else:
                cluster.move_leader("many", rng.randrange(6), rng.randrange(3) + 1)

    async with kclient.Producer(cluster.bootstrap, batch_size=2000, **QUICK) as out:
        troubling = asyncio.create_task(trouble())
        pairs = [(b"%d" % (i % 50), b"%05d" % i) for i in range(40_000)]
        async with asyncio.timeout(60):
            assert await out.send_many("many", pairs) == 40_000
        troubling.cancel()
    cluster.faults.clear()
    by_key: dict[Any, list[bytes]] = {}
    for partition in range(6):
        for record in cluster.records("many", partition):
            by_key.setdefault(record.key, []).append(record.value)
    assert sum(map(len, by_key.values())) == 40_000
    assert all(found == sorted(set(found)) for found in by_key.values())


async def test_expired_records_never_land_elsewhere(cluster: Cluster) -> None:
    """What CVE-2026-35554 was about: bytes of an expired batch must not be used for another one."""
    topics = [cluster.create_topic(f"t{i}", partitions=2) for i in range(20)]
    settings = {**QUICK, "delivery_timeout": 0.15, "batch_size": 1000, "linger": 0.002}
    deliveries = []
    async with kclient.Producer(cluster.bootstrap, **settings) as out:
        for name in topics:
            await out.partitions_for(name)
        for round_number in range(15):
            held = cluster.faults.hold("Produce", times=4)
            for name in topics:
                for partition in (0, 1):
                    value = f"{name}/{partition}/{round_number}".encode()
                    deliveries.append(
                        (name, partition, value, out.send(name, value, partition=partition))
                    )
            await asyncio.sleep(0.05)
            held.release()
        outcomes = await asyncio.gather(*(d for *_, d in deliveries), return_exceptions=True)
    late = sum(isinstance(outcome, DeliveryTimedOut) for outcome in outcomes)
    for name in topics:
        for partition in (0, 1):
            there = values(cluster, partition, name)
            assert all(v.startswith(f"{name}/{partition}/".encode()) for v in there)
            assert len(set(there)) == len(there)
    for (name, partition, value, _), outcome in zip(deliveries, outcomes, strict=True):
        written = value in values(cluster, partition, name)
        if isinstance(outcome, BaseException):
            assert outcome.maybe_written or not written
        else:
            assert written
    assert late < len(deliveries)


async def test_failure_reports_are_honest_under_held_requests(cluster: Cluster) -> None:
    settings = {**QUICK, "delivery_timeout": 0.2, "linger": 0.0, "batch_size": 500}
    async with kclient.Producer(cluster.bootstrap, **settings) as out:
        await out.send("t", b"first")
        held = cluster.faults.hold("Produce", after=True)  # appended, the answer is kept back
        deliveries = [out.send("t", b"%d" % i + b"." * 100) for i in range(60)]
        outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
        there = set(values(cluster))
        assert all(isinstance(outcome, DeliveryTimedOut) for outcome in outcomes)
        assert {outcome.maybe_written for outcome in outcomes} == {True, False}  # type: ignore[union-attr]
        for i, outcome in enumerate(outcomes):
            if outcome.maybe_written is False:  # type: ignore[union-attr]
                assert b"%d" % i + b"." * 100 not in there
        held.release()
        assert (await out.send("t", b"last")).offset > 0
    assert values(cluster)[-1] == b"last"


async def test_memory_stays_bounded_in_an_outage_and_all_is_delivered_after_it(
    cluster: Cluster,
) -> None:
    settings = {**QUICK, "buffer_memory": 100_000, "batch_size": 10_000, "max_block": None}
    async with kclient.Producer(cluster.bootstrap, **settings) as out:
        await out.send("t", b"00000")
        held = cluster.faults.hold("Produce", times=None)
        taken = 0

        async def feed() -> None:
            nonlocal taken
            for value in numbers(5000):
                await out.enqueue("t", value + b"." * 95)
                taken += 1

        feeding = asyncio.create_task(feed())
        await asyncio.sleep(0.2)
        assert 700 < taken < 900
        assert out.health().buffered_bytes <= 100_000
        held.release()
        await feeding
    assert len(values(cluster)) == 5001


async def test_enqueue_fails_after_max_block_in_an_outage(cluster: Cluster) -> None:
    settings = {**QUICK, "buffer_memory": 20_000, "batch_size": 5000, "max_block": 0.3}
    async with kclient.Producer(cluster.bootstrap, **settings) as out:
        await out.send("t", b"v")
        held = cluster.faults.hold("Produce", times=None)
        started = time.monotonic()
        with pytest.raises(kclient.errors.BufferFull, match=r"max_block=0\.3"):
            while True:
                await out.enqueue("t", b"x" * 200)
        assert 0.25 < time.monotonic() - started < 5.0
        held.release()


async def test_throttled_producers_wait_and_deliver(cluster: Cluster) -> None:
    async with kclient.Producer(cluster.bootstrap, linger=0.0) as out:
        cluster.faults.throttle("Produce", 0.3)
        await out.send("t", b"0")
        started = time.monotonic()
        await out.send("t", b"1")
        assert time.monotonic() - started > 0.2
    assert values(cluster) == [b"0", b"1"]


async def test_a_refused_producer_id_fails_every_record_with_the_reason(cluster: Cluster) -> None:
    cluster.faults.error("InitProducerId", ErrorCode.CLUSTER_AUTHORIZATION_FAILED, times=None)
    async with kclient.Producer(cluster.bootstrap) as out:
        for _ in range(2):
            with pytest.raises(kclient.errors.BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
                await out.send("t", b"v")
    async with kclient.Producer(cluster.bootstrap, idempotence=False) as out:
        await out.send("t", b"v")


async def test_a_refusal_that_is_taken_back_costs_only_what_waited(cluster: Cluster) -> None:
    refusal = cluster.faults.error(
        "InitProducerId", ErrorCode.CLUSTER_AUTHORIZATION_FAILED, times=None
    )
    async with kclient.Producer(cluster.bootstrap) as out:
        with pytest.raises(kclient.errors.BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await out.send("t", b"early")
        cluster.faults.remove(refusal)
        await out.send("t", b"late")
    assert values(cluster) == [b"late"]


@pytest.mark.parametrize("identity", [(-1, 0), (5, -1)])
async def test_a_producer_id_that_cannot_be_is_asked_for_again(
    cluster: Cluster, identity: tuple[int, int]
) -> None:
    def lie(request: Any, response: Any) -> None:
        response.producer_id, response.producer_epoch = identity

    fault = cluster.faults.rewrite("InitProducerId", lie, times=2)
    async with kclient.Producer(cluster.bootstrap, **QUICK) as out:
        await out.send("t", b"v")
        assert out.health().producer_id not in (None, -1, 5)
    assert fault.hits == 2


async def test_a_producer_id_that_comes_late_holds_up_but_loses_nothing(cluster: Cluster) -> None:
    cluster.faults.error("InitProducerId", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=3)
    async with kclient.Producer(cluster.bootstrap, **QUICK) as out:
        await out.send_many("t", numbers(100))
    assert values(cluster) == numbers(100)


async def test_stale_numbers_of_one_partition_leave_the_others_alone(cluster: Cluster) -> None:
    cluster.create_topic("p", partitions=4)
    async with kclient.Producer(cluster.bootstrap, linger=0.0, **QUICK) as out:
        for partition in range(4):
            await out.send("p", b"0", partition=partition)
        cluster.faults.error(
            "Produce", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, topic="p", partition=2
        )
        await asyncio.gather(*(out.send("p", b"1", partition=p) for p in range(4)))
        assert out.health().producer_epoch == 1
    assert [values(cluster, p, "p") for p in range(4)] == [[b"0", b"1"]] * 4


async def test_the_death_of_the_sender_reaches_whoever_waits(cluster: Cluster) -> None:
    out = kclient.Producer(cluster.bootstrap)
    await out.start()
    held = cluster.faults.hold("Produce", times=None)
    waiting = [out.send("t", b"v"), out.send("nowhere", b"v")]
    await asyncio.sleep(0.05)
    task = next(t for t in asyncio.all_tasks() if t.get_name() == "kclient:producer-sender")
    task.cancel()
    async with asyncio.timeout(1):
        for delivery in waiting:
            with pytest.raises(BackgroundTaskDied, match="producer-sender"):
                await delivery
    with pytest.raises(BackgroundTaskDied):
        out.send("t", b"v")
    held.release()
    await out.close()


async def test_a_defect_in_an_answers_handling_fails_the_client_and_not_the_connection(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = kclient.Producer(cluster.bootstrap)
    await out.start()

    def broken(*args: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(out._settlement, "answered", broken)
    async with asyncio.timeout(5):
        with pytest.raises(BackgroundTaskDied):
            await out.send("t", b"v")
    with pytest.raises(BackgroundTaskDied):
        out.send("t", b"v")
    await out.close()


async def test_failed_batches_raise_at_the_end_of_the_block(cluster: Cluster) -> None:
    with pytest.raises(FlushFailed):
        async with kclient.Producer(cluster.bootstrap) as out:
            cluster.faults.error("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            out.enqueue_nowait("t", b"v")

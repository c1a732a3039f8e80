"""Brokers err, lose responses, move and crash: nothing is lost, duplicated or reordered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import kclient
from kclient.error_codes import ErrorCode
from kclient.errors import BackgroundTaskDied, DeliveryTimedOut, FlushFailed
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


async def test_expired_records_never_land_elsewhere(cluster: Cluster) -> None:
    """CVE-2026-35554: bytes of an expired batch must not be reused for another one."""
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
        held = cluster.faults.hold("Produce", after=True)  # appended, the response is held
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


async def test_a_defect_in_response_handling_fails_the_client_and_not_the_connection(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = kclient.Producer(cluster.bootstrap)
    await out.start()

    def broken(*args: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(out._response_handler, "response_received", broken)
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

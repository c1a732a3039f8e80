"""kclient's own clients under each wire fault and each hook: no loss, no duplicates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import kclient
from kclient.error_codes import ErrorCode
from kclient.protocol.messages.produce import ProduceResponse
from kclient.testing import Cluster, Fault, Faults, RequestInfo
from tests.embedded.flights import reading

T = "flights"
QUICK: Any = {"request_timeout": 0.5, "retry_backoff": 0.02, "retry_backoff_max": 0.1}
COUNT = 12


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with asyncio.timeout(60), Cluster(brokers=2) as one:
        one.create_topic(T, assignments=[[1, 2]])
        yield one


FAULTS: dict[str, Callable[[Faults, str], Fault]] = {
    "lost requests": lambda faults, api: faults.lose_requests(api, 2),
    "lost answers": lambda faults, api: faults.lose_answers(api, 2),
    "a request that is cut": lambda faults, api: faults.cut_request(api, byte=40),
    "an answer that is cut": lambda faults, api: faults.cut_answer(api, byte=17),
    "a reset": lambda faults, api: faults.cut_answer(api, byte=17, reset=True),
    "an answer without a body": lambda faults, api: faults.cut_answer(api, byte=4),
    "an answer that comes twice": lambda faults, api: faults.repeat(api),
    "an answer that is kept": lambda faults, api: faults.reorder(api),
    "an answer that trickles": lambda faults, api: faults.trickle(api, 2000),
    "bytes that are no frame": lambda faults, api: faults.answer_bytes(
        api, b"\xff\xff\xff\xff", framed=False
    ),
    "a frame that is no answer": lambda faults, api: faults.answer_bytes(api, b"\xff", after=True),
    "a hook that does nothing": lambda faults, api: faults.on(api, lambda info: None),
    "an answer with too little": lambda faults, api: faults.on(
        api, lambda info: b"\0\0", at="after_append", times=1
    ),
    "several at once": lambda faults, api: [
        faults.delay(api, 0.05, times=3),
        faults.error(api, ErrorCode.UNKNOWN_SERVER_ERROR),
        faults.lose_requests(api),
        faults.delay(api, 0.05, after=True),
        faults.cut_answer(api, byte=9),
    ][-1],
}


@pytest.mark.parametrize("kind", FAULTS)
async def test_a_producer_writes_each_record_once(cluster: Cluster, kind: str) -> None:
    fault = FAULTS[kind](cluster.faults, "Produce")
    async with kclient.Producer(cluster.bootstrap, **QUICK) as producer:
        for number in range(COUNT):
            await producer.send(T, b"%d" % number, partition=0)
    assert fault.hits >= 1
    assert [one.value for one in cluster.records(T)] == [b"%d" % one for one in range(COUNT)]


@pytest.mark.parametrize("kind", FAULTS)
async def test_a_consumer_reads_each_record_once(cluster: Cluster, kind: str) -> None:
    async with kclient.Producer(cluster.bootstrap) as producer:
        for number in range(COUNT):
            await producer.send(T, b"%d" % number, partition=0)
    fault = FAULTS[kind](cluster.faults, "Fetch")
    seen: list[bytes | None] = []
    async with reading(cluster, request_timeout=0.5) as consumer:
        while len(seen) < COUNT:
            seen += [one.value for one in await consumer.poll(timeout=5.0)]
        await fault.wait_hits()
        assert not await consumer.poll(timeout=0.2)
    assert seen == [b"%d" % one for one in range(COUNT)]


@pytest.mark.parametrize("kind", FAULTS)
async def test_clients_start_and_learn_of_topics(cluster: Cluster, kind: str) -> None:
    for api in ("ApiVersions", "Metadata"):
        FAULTS[kind](cluster.faults, api)
    async with kclient.Producer(cluster.bootstrap, **QUICK) as producer:
        await producer.send(T, b"1", partition=0)
    assert len(cluster.records(T)) == 1


async def test_a_leader_that_crashes_once_a_record_is_written(cluster: Cluster) -> None:
    async def crash(info: RequestInfo) -> None:
        await cluster.crash(info.broker)

    cluster.faults.on("Produce", crash, at="after_append", times=1)
    async with kclient.Producer(cluster.bootstrap, **QUICK) as producer:
        for number in range(3):
            await producer.send(T, b"%d" % number, partition=0)
    assert cluster.leader(T) == 2
    assert [one.value for one in cluster.records(T)] == [b"0", b"1", b"2"]


async def test_responses_of_a_pipeline_in_reverse_order(cluster: Cluster) -> None:
    cluster.create_topic("other", assignments=[[1, 2]] * 3)
    fault = cluster.faults.reorder("Produce", count=3)
    async with kclient.Producer(cluster.bootstrap, linger=0.0, **QUICK) as producer:
        sent = [
            producer.enqueue_nowait("other", b"%d" % number, partition=number % 3)
            for number in range(9)
        ]
        for delivery in sent:
            await delivery
    assert fault.hits == 1
    values = {one.value for index in range(3) for one in cluster.records("other", index)}
    assert values == {b"%d" % number for number in range(9)}
    assert sum(cluster.end_offset("other", index) for index in range(3)) == 9


async def test_a_hook_may_respond_for_the_broker(cluster: Cluster) -> None:
    def busy(info: RequestInfo) -> ProduceResponse | None:
        response = info.response
        assert isinstance(response, ProduceResponse)
        response.responses[0].partition_responses[0].error_code = ErrorCode.REQUEST_TIMED_OUT
        return response

    cluster.faults.on("Produce", busy, at="after_append", times=2)
    async with kclient.Producer(cluster.bootstrap, **QUICK) as producer:
        await producer.send(T, b"1", partition=0)
    assert len(cluster.records(T)) == 1
    errors = [one.errors for one in cluster.requests.of("Produce")]
    assert errors[:2] == [[ErrorCode.REQUEST_TIMED_OUT]] * 2


async def test_a_hanging_leader_that_comes_to_itself(cluster: Cluster) -> None:
    setup = {"connection_setup_timeout": 0.3, "connection_setup_timeout_max": 0.3}
    async with kclient.Producer(cluster.bootstrap, **QUICK, **setup) as producer:
        await producer.send(T, b"0", partition=0)
        with cluster.faults.hang(broker=1) as fault:
            waiting = asyncio.ensure_future(producer.send(T, b"1", partition=0))
            await fault.wait_hits(2)
            assert not waiting.done()
        await waiting
    assert [one.value for one in cluster.records(T)] == [b"0", b"1"]


async def test_a_broker_out_of_reach(cluster: Cluster) -> None:
    async with kclient.Producer(cluster.bootstrap, **QUICK) as producer:
        with cluster.faults.unavailable(broker=1) as fault:
            waiting = asyncio.ensure_future(producer.send(T, b"1", partition=0))
            await fault.wait_hits(2)
            cluster.move_leader(T, 0, 2)
            await waiting
    assert cluster.requests.of("Produce", broker=1) == []
    assert len(cluster.records(T)) == 1

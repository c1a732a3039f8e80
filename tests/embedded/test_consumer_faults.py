"""The consumer when brokers err, stall, move, send garbage and crash: no loss, no duplicates."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

import kclient
from kclient.broker_errors import TopicAuthorizationFailed
from kclient.error_codes import ErrorCode
from kclient.types import TopicPartition
from tests.behaviours.reading import offsets, read
from tests.embedded.flights import P, T, fetches, fill, reading
from tests.unit.consumer.log_bytes import batch


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[kclient.testing.Cluster]:
    async with kclient.testing.Cluster(brokers=3) as running:
        yield running


# Sessions


async def test_a_session_lost_twice_in_a_row_passes_without_an_error(cluster: Any) -> None:
    fill(cluster, 10)

    def lose(request: Any, response: Any) -> None:
        response.error_code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        response.session_id = 0
        response.responses = []

    async with reading(cluster, retry_backoff=0.01) as consumer:
        await read(consumer, 10)
        fault = cluster.faults.rewrite("Fetch", lose, times=2)
        cluster.append(T, 0, batch(10, 5))
        assert offsets(await read(consumer, 5)) == {0: [10, 11, 12, 13, 14]}
        assert fault.hits == 2


async def test_brokers_without_free_session_slots_are_read_all_the_same() -> None:
    configs = {"max.incremental.fetch.session.cache.slots": 0}
    async with kclient.testing.Cluster(brokers=1, broker_configs=configs) as cluster:
        fill(cluster, 50, partitions=2)
        async with reading(cluster, max_partition_fetch_bytes=300) as consumer:
            assert offsets(await read(consumer, 100)) == {n: list(range(50)) for n in (0, 1)}


async def test_closing_frees_the_slot_of_the_session(cluster: Any) -> None:
    fill(cluster, 10)
    async with reading(cluster) as consumer:
        await read(consumer, 10)
    last = fetches(cluster)[-1]
    assert (last.session_epoch, last.topics) == (-1, [])
    assert last.session_id != 0


# Leaders


async def test_a_leader_that_names_its_successor_spares_a_metadata_request(cluster: Any) -> None:
    fill(cluster, 20)
    async with reading(cluster, retry_backoff=5.0, retry_backoff_max=5.0) as consumer:
        await read(consumer, 20)
        asked = cluster.requests.count("Metadata")
        cluster.move_leader(T, 0, 2)
        cluster.append(T, 0, batch(20, 5))
        async with asyncio.timeout(2.0):
            assert offsets(await read(consumer, 5)) == {0: list(range(20, 25))}
        assert cluster.requests.count("Metadata") == asked


async def test_a_leader_that_names_itself_is_not_asked_in_a_rush(cluster: Any) -> None:
    fill(cluster, 20)

    def confuse(_: Any, response: Any) -> None:
        for topic in response.responses:
            for part in topic.partitions:
                part.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                part.records = None
                part.current_leader.leader_id = 1
                part.current_leader.leader_epoch = 0

    cluster.faults.rewrite("Fetch", confuse, times=4)
    async with reading(cluster, retry_backoff=0.05) as consumer:
        assert offsets(await read(consumer, 20)) == {0: list(range(20))}
        times = [one.at for one in cluster.requests.of("Fetch")[:5]]
        assert min(b - a for a, b in itertools.pairwise(times)) > 0.03


async def test_requests_carry_the_leader_epoch(cluster: Any) -> None:
    fill(cluster, 10)
    cluster.move_leader(T, 0, 2)
    async with reading(cluster) as consumer:
        await read(consumer, 10)
        [part] = fetches(cluster)[0].topics[0].partitions
        assert part.current_leader_epoch == cluster.leader_epoch(T, 0) > 0


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
async def test_passing_errors_are_waited_out(cluster: Any, code: ErrorCode) -> None:
    fill(cluster, 30)
    async with reading(cluster, max_partition_fetch_bytes=300) as consumer:
        seen = await read(consumer, 10)
        cluster.faults.error("Fetch", code, times=3, topic=T)
        seen += await read(consumer, 10)
        cluster.faults.error("Fetch", code, times=3)  # of the response as a whole
        seen += await read(consumer, 10)
        assert offsets(seen) == {0: list(range(30))}


async def test_a_refusal_reaches_the_user_and_the_others_go_on(cluster: Any) -> None:
    fill(cluster, 40, partitions=2)
    cluster.faults.error(
        "Fetch", ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None, topic=T, partition=1
    )
    async with reading(cluster) as consumer:
        seen, refused = [], 0
        while len(seen) < 40 or refused < 2:
            try:
                seen += await consumer.poll(max_records=7, timeout=5.0)
            except TopicAuthorizationFailed as error:
                assert error.topic_partition == TopicPartition(T, 1)
                refused += 1
        assert offsets(seen) == {0: list(range(40))}
        cluster.faults.clear()
        assert offsets(await read_past_errors(consumer, 40)) == {1: list(range(40))}


async def read_past_errors(consumer: Any, count: int) -> list[Any]:
    seen: list[Any] = []
    async with asyncio.timeout(20.0):
        while len(seen) < count:
            try:
                seen += await consumer.poll(timeout=5.0)
            except TopicAuthorizationFailed:
                continue
    return seen


# Connections and brokers


async def test_a_broker_that_goes_and_comes_back_is_read_on(cluster: Any) -> None:
    fill(cluster, 20, partitions=2)
    async with reading(cluster) as consumer:
        await read(consumer, 40)
        await cluster.stop(2)
        cluster.append(T, 0, batch(20, 5))
        assert offsets(await read(consumer, 5)) == {0: list(range(20, 25))}
        await cluster.restart(2)
        cluster.append(T, 1, batch(20, 5))
        assert offsets(await read(consumer, 5)) == {1: list(range(20, 25))}


async def test_garbage_instead_of_a_response_is_raised_and_reading_goes_on(cluster: Any) -> None:
    fill(cluster, 10)

    def garbage(request: Any, response: Any) -> bytes:
        return b"\x00\x00\x00\x01\x00" + b"\xff" * 50

    async with reading(cluster) as consumer:
        await consumer.position(P)
        cluster.faults.rewrite("Fetch", garbage, times=1)
        seen: list[Any] = []
        errors: list[Exception] = []
        async with asyncio.timeout(10.0):
            while len(seen) < 10:
                try:
                    seen += await consumer.poll(timeout=1.0)
                except kclient.KafkaError as error:
                    errors.append(error)
        assert offsets(seen) == {0: list(range(10))}

"""The consumer when brokers err, stall, move, lie and go: nothing is lost, nothing comes twice."""

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


async def test_requests_of_a_session_name_changes_only(cluster: Any) -> None:
    fill(cluster, 10, partitions=3)
    cluster.move_leader(T, 1, 1)
    cluster.move_leader(T, 2, 1)
    async with reading(cluster) as consumer:
        await read(consumer, 30)
        await cluster.requests.wait_count("Fetch", 4)
        first, *others = fetches(cluster)
        assert sum(len(topic.partitions) for topic in first.topics) == 3
        assert first.session_epoch == 0
        assert [one.session_epoch for one in others[:3]] == [1, 2, 3]
        assert sum(len(topic.partitions) for one in others[1:] for topic in one.topics) == 0


async def test_paused_partitions_are_forgotten_by_the_broker(cluster: Any) -> None:
    fill(cluster, 10, partitions=3)
    cluster.move_leader(T, 1, 1)
    cluster.move_leader(T, 2, 1)
    async with reading(cluster) as consumer:
        await read(consumer, 30)
        consumer.pause(TopicPartition(T, 1))
        cluster.requests.clear()
        await cluster.requests.wait_count("Fetch", 3)
        forgotten = [
            index
            for one in fetches(cluster)
            for topic in one.forgotten_topics_data
            for index in topic.partitions
        ]
        assert forgotten == [1]


@pytest.mark.parametrize(
    "code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH]
)
async def test_a_lost_session_costs_one_full_fetch(cluster: Any, code: ErrorCode) -> None:
    fill(cluster, 10)

    def lose(request: Any, response: Any) -> None:
        response.error_code = code
        response.session_id = 0
        response.responses = []

    async with reading(cluster) as consumer:
        await read(consumer, 10)
        cluster.requests.clear()
        cluster.faults.rewrite("Fetch", lose)
        cluster.append(T, 0, batch(10, 5))
        assert offsets(await read(consumer, 5)) == {0: [10, 11, 12, 13, 14]}
        full = [one for one in fetches(cluster) if one.session_epoch == 0]
        assert len(full) == 1


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


async def test_brokers_without_room_for_sessions_are_read_all_the_same() -> None:
    configs = {"max.incremental.fetch.session.cache.slots": 0}
    async with kclient.testing.Cluster(brokers=1, broker_configs=configs) as cluster:
        fill(cluster, 50, partitions=2)
        async with reading(cluster, max_partition_fetch_bytes=300) as consumer:
            assert offsets(await read(consumer, 100)) == {n: list(range(50)) for n in (0, 1)}


async def test_two_consumers_that_fight_for_one_slot_both_read_on() -> None:
    configs = {"max.incremental.fetch.session.cache.slots": 1}
    async with kclient.testing.Cluster(brokers=1, broker_configs=configs) as cluster:
        fill(cluster, 100)
        settings = {"max_partition_fetch_bytes": 300}
        async with reading(cluster, **settings) as one, reading(cluster, **settings) as two:
            first, second = await asyncio.gather(read(one, 100), read(two, 100))
            assert offsets(first) == offsets(second) == {0: list(range(100))}


# Leaders


async def test_a_moved_leader_is_followed(cluster: Any) -> None:
    fill(cluster, 50)
    async with reading(cluster, max_partition_fetch_bytes=300) as consumer:
        seen = await read(consumer, 20)
        cluster.move_leader(T, 0, 2)
        seen += await read(consumer, 20)
        cluster.move_leader(T, 0, 3)
        cluster.append(T, 0, batch(50, 10))
        seen += await read(consumer, 20)
        assert offsets(seen) == {0: list(range(60))}


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
        cluster.faults.error("Fetch", code, times=3)  # of the answer as a whole
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


async def test_an_unknown_preferred_replica_does_not_strand_the_partition(cluster: Any) -> None:
    fill(cluster, 30)

    def mislead(_: Any, response: Any) -> None:
        for topic in response.responses:
            for part in topic.partitions:
                part.preferred_read_replica = 77

    cluster.faults.rewrite("Fetch", mislead, times=5)
    async with reading(cluster, max_partition_fetch_bytes=300, client_rack="a") as consumer:
        assert offsets(await read(consumer, 30)) == {0: list(range(30))}


async def test_a_preferred_replica_that_refuses_sends_back_to_the_leader(cluster: Any) -> None:
    fill(cluster, 30)

    def prefer(_: Any, response: Any) -> None:
        for topic in response.responses:
            for part in topic.partitions:
                part.preferred_read_replica = 2
                part.records = None

    cluster.faults.rewrite("Fetch", prefer, broker=1)
    cluster.faults.error("Fetch", ErrorCode.OFFSET_OUT_OF_RANGE, broker=2, topic=T)
    async with reading(cluster, client_rack="a") as consumer:
        assert offsets(await read(consumer, 30)) == {0: list(range(30))}
        served = [one for one in cluster.requests.of("Fetch") if one.request.session_epoch >= 0]
        assert [one.broker for one in served][:3] == [1, 2, 1]


async def test_a_preferred_replica_that_is_down_sends_back_to_the_leader(cluster: Any) -> None:
    fill(cluster, 30)

    def prefer(_: Any, response: Any) -> None:
        for topic in response.responses:
            for part in topic.partitions:
                part.preferred_read_replica = 2
                part.records = None

    async with reading(cluster, client_rack="a", connection_setup_timeout=1.0) as consumer:
        cluster.faults.close("Fetch", broker=2, times=None)
        cluster.faults.rewrite("Fetch", prefer, broker=1)
        assert offsets(await read(consumer, 30)) == {0: list(range(30))}


async def test_a_preferred_replica_that_refuses_everything_sends_back_to_the_leader(
    cluster: Any,
) -> None:
    fill(cluster, 30)

    def prefer(_: Any, response: Any) -> None:
        for topic in response.responses:
            for part in topic.partitions:
                part.preferred_read_replica = 2
                part.records = None

    cluster.faults.rewrite("Fetch", prefer, broker=1)
    cluster.faults.error("Fetch", ErrorCode.UNKNOWN_SERVER_ERROR, broker=2, times=None)
    async with reading(cluster, client_rack="a") as consumer:
        assert offsets(await read(consumer, 30)) == {0: list(range(30))}


# Connections and brokers


async def test_a_connection_that_breaks_under_a_fetch_loses_nothing(cluster: Any) -> None:
    fill(cluster, 100, partitions=2)
    cluster.faults.close("Fetch", times=4, after=True)
    async with reading(cluster, max_partition_fetch_bytes=400) as consumer:
        assert offsets(await read(consumer, 200)) == {n: list(range(100)) for n in (0, 1)}
        assert consumer.metrics()["consumer.fetch_failures"] >= 4


async def test_a_broker_that_hangs_does_not_hold_up_the_others(cluster: Any) -> None:
    fill(cluster, 20, partitions=2)
    cluster.faults.drop("Fetch", broker=1, times=1)
    async with reading(cluster, request_timeout=4.0) as consumer:
        loop = asyncio.get_running_loop()
        began = loop.time()
        first = await read(consumer, 20)
        assert loop.time() - began < 3.5
        assert set(offsets(first)) == {1}
        assert offsets(await read(consumer, 20)) == {0: list(range(20))}  # after its timeout


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


async def test_an_answer_to_an_old_position_is_dropped(cluster: Any) -> None:
    fill(cluster, 30)
    async with reading(cluster) as consumer:
        await read(consumer, 30)
        held = cluster.faults.hold("Fetch", after=True)
        cluster.append(T, 0, batch(30, 10))
        async with asyncio.timeout(5.0):
            while not held.hits:  # noqa: ASYNC110 - nothing tells when an answer is held
                await asyncio.sleep(0.001)
        consumer.seek(P, 5)
        held.release()
        assert offsets(await read(consumer, 35)) == {0: list(range(5, 40))}


async def test_garbage_instead_of_an_answer_is_told_and_got_over(cluster: Any) -> None:
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

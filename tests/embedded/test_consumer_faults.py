"""The consumer when brokers err, stall, move, lie and go: nothing is lost, nothing comes twice."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

import kclient
from kclient.broker_errors import OffsetOutOfRange, TopicAuthorizationFailed
from kclient.error_codes import ErrorCode
from kclient.errors import CorruptRecord, DecompressionFailed, LogTruncated
from kclient.record import Compression
from kclient.types import TopicPartition
from tests.behaviours.reading import offsets, read
from tests.unit.consumer.log_bytes import batch, control, corrupted, gapped

T = "flights"
P = TopicPartition(T, 0)
QUICK: Any = {
    "auto_offset_reset": "earliest",
    "fetch_max_wait": 0.1,
    "retry_backoff": 0.02,
    "retry_backoff_max": 0.1,
}


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[kclient.testing.Cluster]:
    async with kclient.testing.Cluster(brokers=3) as running:
        yield running


def fill(cluster: Any, count: int, partitions: int = 1, *, per_batch: int = 10) -> None:
    """Create the topic, with ``count`` records in each partition."""
    cluster.create_topic(T, partitions=partitions, replication_factor=len(cluster.brokers))
    for index in range(partitions):
        for first in range(0, count, per_batch):
            cluster.append(T, index, batch(first, per_batch))


@asynccontextmanager
async def reading(cluster: Any, *topics: str, **settings: Any) -> AsyncIterator[Any]:
    async with kclient.Consumer(
        cluster.bootstrap, *(topics or (T,)), **{**QUICK, **settings}
    ) as consumer:
        yield consumer


def fetches(cluster: Any) -> list[Any]:
    return [served.request for served in cluster.requests.of("Fetch")]


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


async def test_closing_frees_the_slot_of_the_session(cluster: Any) -> None:
    fill(cluster, 10)
    async with reading(cluster) as consumer:
        await read(consumer, 10)
    last = fetches(cluster)[-1]
    assert (last.session_epoch, last.topics) == (-1, [])
    assert last.session_id != 0


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


# Bad data


async def test_corruption_on_the_way_is_healed_by_fetching_again(cluster: Any) -> None:
    fill(cluster, 10)
    cluster.faults.corrupt_fetch(T)
    async with reading(cluster) as consumer:
        with pytest.raises(CorruptRecord, match=r"flights-0.*offset 0.*CRC") as failed:
            await consumer.poll(timeout=5.0)
        assert failed.value.topic_partition == P
        assert await consumer.position(P) == 0
        assert offsets(await read(consumer, 10)) == {0: list(range(10))}


async def test_corruption_in_the_log_is_raised_by_every_poll_and_can_be_sought_past(
    cluster: Any,
) -> None:
    cluster.create_topic(T, partitions=2)
    cluster.append(T, 0, batch(0, 3) + corrupted(batch(3, 4)) + batch(7, 2))
    cluster.append(T, 1, batch(0, 3))
    async with reading(cluster) as consumer:
        seen = []
        while len(seen) < 6:
            try:
                seen += await consumer.poll(timeout=5.0)
            except CorruptRecord:
                continue
        assert offsets(seen) == {0: [0, 1, 2], 1: [0, 1, 2]}
        for _ in range(3):
            with pytest.raises(CorruptRecord, match=r"position stays at 3.*seek to 7") as failed:
                await consumer.poll(timeout=5.0)
            assert failed.value.offset == 3
            assert await consumer.position(P) == 3
        cluster.append(T, 1, batch(3, 1))
        others: list[Any] = []
        while not others:
            try:
                others = await consumer.poll(timeout=1.0)
            except CorruptRecord:
                continue
        assert offsets(others) == {1: [3]}
        consumer.seek(P, 7)
        assert offsets(await read(consumer, 2)) == {0: [7, 8]}


async def test_corruption_does_not_make_the_consumer_spin(cluster: Any) -> None:
    cluster.create_topic(T)
    cluster.append(T, 0, corrupted(batch(0, 3)))
    async with reading(cluster, retry_backoff=0.1, retry_backoff_max=0.3) as consumer:
        loop = asyncio.get_running_loop()
        until = loop.time() + 1.5
        raised = 0
        while loop.time() < until:
            try:
                await consumer.poll(timeout=0.1)
            except CorruptRecord:
                raised += 1
        assert 3 <= raised <= 10
        assert cluster.requests.count("Fetch") <= 2 * raised + 2


async def test_corruption_is_seen_by_loops_and_columns_as_well(cluster: Any) -> None:
    cluster.create_topic(T)
    cluster.append(T, 0, batch(0, 2) + corrupted(batch(2, 2)) + batch(4, 1))
    async with reading(cluster) as consumer:
        seen = []
        with pytest.raises(CorruptRecord):
            async for record in consumer:
                seen.append(record.offset)  # noqa: PERF401 - it ends by an error
        assert seen == [0, 1]
        assert await consumer.position(P) == 2
        with pytest.raises(CorruptRecord):
            await consumer.poll_arrow(timeout=5.0)
        consumer.seek(P, 4)
        async for record in consumer:
            assert record.offset == 4
            break


async def test_a_bomb_is_refused_by_the_cap_and_names_the_place(cluster: Any) -> None:
    cluster.create_topic(T)
    bomb = batch(0, 400, codec=Compression.GZIP, value_bytes=20_000)
    cluster.append(T, 0, bomb + batch(400, 2))
    async with reading(cluster, decompression_cap=2 * 1024 * 1024) as consumer:
        with pytest.raises(DecompressionFailed, match=r"flights-0.*offset 0") as failed:
            await consumer.poll(timeout=10.0)
        assert failed.value.topic_partition == P
        assert await consumer.position(P) == 0
        consumer.seek(P, 400)
        assert offsets(await read(consumer, 2)) == {0: [400, 401]}


async def test_large_compressed_batches_are_inflated_in_a_thread_in_order(cluster: Any) -> None:
    cluster.create_topic(T)
    for first in range(0, 300, 100):
        data = batch(first, 100, codec=Compression.GZIP, value_bytes=30_000)
        cluster.append(T, 0, data)
    async with reading(cluster) as consumer:
        assert offsets(await read(consumer, 300)) == {0: list(range(300))}
    async with reading(cluster) as consumer:
        await consumer.poll(timeout=0.01)  # a thread may be under way when it closes


async def test_compacted_gaps_and_markers_are_passed(cluster: Any) -> None:
    cluster.create_topic(T)
    cluster.append(T, 0, gapped(batch(0, 2), 9))
    cluster.append(T, 0, control(10, 1, 1))
    cluster.append(T, 0, batch(20, 1))
    cluster.append(T, 0, gapped(batch(21, 1), 5))
    async with reading(cluster) as consumer:
        assert offsets(await read(consumer, 4)) == {0: [0, 1, 20, 21]}
        async with asyncio.timeout(5.0):
            while await consumer.position(P) < 27:
                assert await consumer.poll(timeout=0.05) == []
        consumer.seek(P, 5)  # where no record is
        assert offsets(await read(consumer, 2)) == {0: [20, 21]}


# The log moves


async def test_records_deleted_before_the_position_reset_it_by_policy(cluster: Any) -> None:
    fill(cluster, 50)
    async with reading(cluster, max_partition_fetch_bytes=300) as consumer:
        await read(consumer, 10)
        consumer.pause()
        cluster.delete_records(T, 0, 40)
        consumer.seek(P, 20)
        consumer.resume()
        assert offsets(await read(consumer, 10)) == {0: list(range(40, 50))}


async def test_deleted_records_that_are_buffered_are_still_given(cluster: Any) -> None:
    fill(cluster, 50)
    async with reading(cluster, auto_offset_reset="none") as consumer:
        consumer.seek(P, 0)
        seen = await read(consumer, 10)
        cluster.delete_records(T, 0, 50)
        seen += await read(consumer, 40)
        assert offsets(seen) == {0: list(range(50))}


async def test_a_log_cut_below_the_position_is_told_with_the_offset(cluster: Any) -> None:
    fill(cluster, 30)
    async with reading(cluster, auto_offset_reset="none", metadata_max_age=0.3) as consumer:
        consumer.seek(P, 0)
        await read(consumer, 30)
        cut(cluster, 10)
        with pytest.raises(LogTruncated, match="cut at offset 10") as failed:
            await poll_until_error(consumer)
        assert failed.value.offset == 10
        assert await consumer.position(P) == 30
        consumer.seek(P, 10)
        assert [r.value for r in await read(consumer, 3)] == [b"10", b"11", b"12"]


async def test_a_log_cut_below_the_position_is_resumed_where_it_parts(cluster: Any) -> None:
    fill(cluster, 30)
    async with reading(cluster, metadata_max_age=0.3) as consumer:
        await read(consumer, 30)
        cut(cluster, 10)
        assert offsets(await read(consumer, 30)) == {0: list(range(10, 40))}
        assert consumer.metrics()["consumer.truncations"] == 1


def cut(cluster: Any, offset: int) -> None:
    """An unclean election: the new leader has nothing from ``offset`` on, and goes its own way."""
    cluster.log(T, 0).truncate(offset)
    cluster.move_leader(T, 0, 2)
    cluster.append(T, 0, batch(offset, 30))


async def poll_until_error(consumer: Any) -> None:
    async with asyncio.timeout(10.0):
        while True:
            await consumer.poll(timeout=0.2)


async def test_a_leader_that_only_moved_is_no_truncation(cluster: Any) -> None:
    fill(cluster, 30)
    async with reading(cluster, auto_offset_reset="none") as consumer:
        consumer.seek(P, 0)
        await read(consumer, 30)
        for broker in (2, 3, 1, 2):
            cluster.move_leader(T, 0, broker)
            cluster.append(T, 0, batch(cluster.end_offset(T, 0), 5))
            assert len(await read(consumer, 5)) == 5
        assert "consumer.truncations" not in consumer.metrics()


async def test_a_validation_that_is_refused_does_not_reset_the_position(cluster: Any) -> None:
    fill(cluster, 30)
    async with reading(cluster) as consumer:
        await read(consumer, 30)
        cluster.faults.error("OffsetForLeaderEpoch", ErrorCode.FENCED_LEADER_EPOCH, times=2)
        cluster.move_leader(T, 0, 3)
        cluster.append(T, 0, batch(30, 5))
        assert offsets(await read(consumer, 5)) == {0: list(range(30, 35))}


async def test_a_lookup_that_fails_for_a_while_is_repeated(cluster: Any) -> None:
    fill(cluster, 10)
    cluster.faults.error("ListOffsets", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=3)
    async with reading(cluster) as consumer:
        assert offsets(await read(consumer, 10)) == {0: list(range(10))}


async def test_out_of_range_from_a_lookup_for_good_is_told(cluster: Any) -> None:
    fill(cluster, 10)
    cluster.faults.error("ListOffsets", ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=1)
    async with reading(cluster) as consumer:
        with pytest.raises(TopicAuthorizationFailed, match="flights-0"):
            await consumer.poll(timeout=5.0)
        assert offsets(await read(consumer, 10)) == {0: list(range(10))}


async def test_an_offset_out_of_range_is_raised_again_and_again_but_not_in_a_rush(
    cluster: Any,
) -> None:
    fill(cluster, 10)
    async with reading(cluster, auto_offset_reset="none", retry_backoff=0.1) as consumer:
        consumer.seek(P, 99)
        for _ in range(3):
            with pytest.raises(OffsetOutOfRange):
                await consumer.poll(timeout=5.0)
        assert cluster.requests.count("Fetch") <= 5

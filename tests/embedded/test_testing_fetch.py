"""Fetch, ListOffsets and OffsetForLeaderEpoch on the embedded cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.fetch import FetchRequest
from kclient.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kclient.record.reader import read_batches
from kclient.testing import Cluster
from kclient.types import OffsetSpec
from tests.unit.testing.batches import ABORT, COMMIT, NOW, batch_bytes, marker
from tests.unit.testing.calls import fetch, list_offsets, produce
from tests.unit.testing.raw_peer import RawPeer

LONG_MS = 50_000
"""A wait that a test never sits out."""


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with asyncio.timeout(60), Cluster(brokers=3) as one:
        one.create_topic("t", assignments=[[1, 2], [1, 2], [2, 3]])
        yield one


@pytest.fixture
async def peer(cluster: Cluster) -> AsyncIterator[RawPeer]:
    """Speaks to broker 1, which leads partitions 0 and 1."""
    async with RawPeer.to(cluster.brokers[1].address) as one:
        yield one


def parts(response: Any) -> list[Any]:
    return [part for topic in response.responses for part in topic.partitions]


async def part(peer: RawPeer, request: FetchRequest, version: int = 12) -> Any:
    """The answer for the one partition that is asked for."""
    (only,) = parts(await peer.call(request, version))
    return only


def bases(part: Any) -> list[int]:
    return [batch.base_offset for batch in read_batches(memoryview(part.records))]


async def test_whole_batches_come_from_the_one_that_holds_the_offset(
    cluster: Cluster, peer: RawPeer
) -> None:
    for _ in range(3):
        cluster.append("t", 0, batch_bytes(2))
    got = await part(peer, fetch("t", 0, offset=3))
    assert bases(got) == [2, 4]
    assert (got.high_watermark, got.last_stable_offset, got.log_start_offset) == (6, 6, 0)


async def test_topics_are_named_by_id_from_v13_on(cluster: Cluster, peer: RawPeer) -> None:
    cluster.append("t", 0, batch_bytes())
    response = await peer.call(fetch(cluster.topic_id("t"), 0), 17)
    assert response.responses[0].topic_id == cluster.topic_id("t")
    assert bases(parts(response)[0]) == [0]
    unknown = await part(peer, fetch(b"\1" * 16, 0), 17)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("offset", [-1, 3, 100])
async def test_an_offset_outside_is_out_of_range(
    cluster: Cluster, peer: RawPeer, offset: int
) -> None:
    cluster.append("t", 0, batch_bytes(2))
    got = await part(peer, fetch("t", 0, offset=offset, max_wait_ms=LONG_MS))
    assert (got.error_code, got.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


async def test_deleted_records_are_out_of_range(cluster: Cluster, peer: RawPeer) -> None:
    cluster.append("t", 0, batch_bytes(5))
    cluster.delete_records("t", 0, 3)
    assert (await part(peer, fetch("t", 0, offset=2))).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await part(peer, fetch("t", 0, offset=3))).log_start_offset == 3


async def test_the_first_batch_of_all_comes_whatever_the_limits(
    cluster: Cluster, peer: RawPeer
) -> None:
    for index in (0, 1):
        cluster.append("t", index, batch_bytes(1, value=b"x" * 1000))
    first, second = parts(await peer.call(fetch("t", 0, 1, max_bytes=1), 12))
    assert (bases(first), bases(second)) == ([0], [])
    first, second = parts(await peer.call(fetch("t", 0, 1, partition_max_bytes=1), 12))
    assert (bases(first), bases(second)) == ([0], [])


async def test_the_brokers_own_limit_holds() -> None:
    async with Cluster(1, broker_configs={"fetch.max.bytes": 1024}) as cluster:
        cluster.create_topic("t")
        for _ in range(5):
            cluster.append("t", 0, batch_bytes(1, value=b"x" * 500))
        async with RawPeer.to(cluster.bootstrap) as peer:
            assert bases(await part(peer, fetch("t", 0))) == [0]


async def test_a_wait_ends_when_data_comes(cluster: Cluster, peer: RawPeer) -> None:
    correlation = peer.write(fetch("t", 0, 1, max_wait_ms=LONG_MS), 12)
    await cluster.requests.wait_count("Fetch", 1)
    async with RawPeer.to(cluster.brokers[1].address) as producer:
        await producer.call(produce("t", batch_bytes(), partition=1), 9)
    first, second = parts(await peer.read(FetchRequest, 12, correlation))
    assert (bases(first), bases(second)) == ([], [0])


async def test_a_wait_ends_when_there_is_enough(cluster: Cluster, peer: RawPeer) -> None:
    data = batch_bytes()
    cluster.append("t", 0, data)
    correlation = peer.write(fetch("t", 0, max_wait_ms=LONG_MS, min_bytes=len(data) * 3), 12)
    await cluster.requests.wait_count("Fetch", 1)
    cluster.append("t", 0, data)
    cluster.append("t", 0, data)
    (got,) = parts(await peer.read(FetchRequest, 12, correlation))
    assert bases(got) == [0, 1, 2]
    assert cluster.log("t").listener_count == 0


async def test_a_wait_for_committed_records_goes_on_until_they_are(
    cluster: Cluster, peer: RawPeer
) -> None:
    correlation = peer.write(fetch("t", 0, max_wait_ms=LONG_MS, isolation=1), 12)
    await cluster.requests.wait_count("Fetch", 1)
    cluster.append("t", 0, batch_bytes(2, producer=(5, 0, 0), transactional=True))
    async with RawPeer.to(cluster.brokers[1].address) as other:
        await other.call(list_offsets("t", -1), 8)
    assert cluster.log("t").listener_count == 1
    cluster.append("t", 0, marker(COMMIT, 5))
    (got,) = parts(await peer.read(FetchRequest, 12, correlation))
    assert bases(got) == [0, 2]


async def test_records_below_min_isr_are_not_read(cluster: Cluster) -> None:
    configs = {"min.insync.replicas": 2}
    cluster.create_topic("m", assignments=[[1, 2]], configs=configs)
    await cluster.stop(2)
    async with RawPeer.to(cluster.brokers[1].address) as peer:
        await peer.call(produce("m", batch_bytes(), acks=1), 9)
        got = await part(peer, fetch("m", 0))
        assert (got.error_code, bases(got), got.high_watermark) == (0, [], 0)
        await cluster.restart(2)
        assert bases(await part(peer, fetch("m", 0, max_wait_ms=5000))) == [0]


async def test_a_wait_ends_in_time(peer: RawPeer) -> None:
    began = time.monotonic()
    assert bases(await part(peer, fetch("t", 0, max_wait_ms=100))) == []
    assert time.monotonic() - began >= 0.09


async def test_a_wait_ends_when_the_leader_moves(cluster: Cluster, peer: RawPeer) -> None:
    correlation = peer.write(fetch("t", 0, max_wait_ms=LONG_MS, leader_epoch=0), 17 - 5)
    await cluster.requests.wait_count("Fetch", 1)
    cluster.move_leader("t", 0, 2)
    (got,) = parts(await peer.read(FetchRequest, 12, correlation))
    assert got.error_code == ErrorCode.FENCED_LEADER_EPOCH


async def test_a_wait_ends_when_the_topic_goes(cluster: Cluster, peer: RawPeer) -> None:
    correlation = peer.write(fetch("t", 0, max_wait_ms=LONG_MS), 12)
    await cluster.requests.wait_count("Fetch", 1)
    cluster.delete_topic("t")
    (got,) = parts(await peer.read(FetchRequest, 12, correlation))
    assert got.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_wait_is_let_go_with_its_connection(cluster: Cluster) -> None:
    log = cluster.log("t")
    async with RawPeer.to(cluster.brokers[1].address) as peer:
        peer.write(fetch("t", 0, max_wait_ms=LONG_MS), 12)
        await cluster.requests.wait_count("Fetch", 1)
        assert log.listener_count == 1
    await cluster.brokers[1].wait_unconnected()
    assert log.listener_count == 0


async def test_no_wait_when_something_is_wrong(cluster: Cluster, peer: RawPeer) -> None:
    first, second = parts(await peer.call(fetch("t", 0, 9, max_wait_ms=LONG_MS), 12))
    assert (first.error_code, second.error_code) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (-1, ErrorCode.NONE),
        (0, ErrorCode.FENCED_LEADER_EPOCH),
        (1, ErrorCode.NONE),
        (2, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
async def test_the_leader_epoch_is_checked(cluster: Cluster, epoch: int, code: ErrorCode) -> None:
    cluster.move_leader("t", 0, 2)
    async with RawPeer.to(cluster.brokers[2].address) as peer:
        assert (await part(peer, fetch("t", 0, leader_epoch=epoch))).error_code == code


async def test_a_follower_may_be_read_from_v11_on(cluster: Cluster) -> None:
    cluster.append("t", 0, batch_bytes())
    async with RawPeer.to(cluster.brokers[2].address) as peer:
        assert bases(await part(peer, fetch("t", 0), 11)) == [0]
        old = await part(peer, fetch("t", 0), 10)
        assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_broker_without_a_replica_hints_at_the_leader(
    cluster: Cluster, peer: RawPeer
) -> None:
    response = await peer.call(fetch(cluster.topic_id("t"), 2), 16)
    (got,) = parts(response)
    assert got.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (got.current_leader.leader_id, got.current_leader.leader_epoch) == (2, 0)
    assert [node.port for node in response.node_endpoints] == [cluster.brokers[2].port]


async def test_a_session_is_told_news_only(cluster: Cluster, peer: RawPeer) -> None:
    opened = await peer.call(fetch("t", 0, 1, session=(0, 0)), 12)
    session = opened.session_id
    assert session != 0
    assert len(parts(opened)) == 2
    assert parts(await peer.call(fetch(None, session=(session, 1)), 12)) == []
    cluster.append("t", 1, batch_bytes())
    (told,) = parts(await peer.call(fetch(None, session=(session, 2)), 12))
    assert (told.partition_index, bases(told)) == (1, [0])
    again = await peer.call(fetch(None, session=(session, 2)), 12)
    assert again.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


async def test_sessions_are_gone_after_a_restart(cluster: Cluster, peer: RawPeer) -> None:
    session = (await peer.call(fetch("t", 0, session=(0, 0)), 12)).session_id
    await cluster.restart(1)
    async with RawPeer.to(cluster.brokers[1].address) as again:
        response = await again.call(fetch(None, session=(session, 1)), 12)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_without_slots_there_is_no_session() -> None:
    configs = {"max.incremental.fetch.session.cache.slots": 0}
    async with Cluster(1, broker_configs=configs) as cluster:
        cluster.create_topic("t")
        async with RawPeer.to(cluster.bootstrap) as peer:
            assert (await peer.call(fetch("t", 0, session=(0, 0)), 12)).session_id == 0


async def test_read_committed_ends_at_the_last_stable_offset(
    cluster: Cluster, peer: RawPeer
) -> None:
    cluster.append("t", 0, batch_bytes())
    cluster.append("t", 0, batch_bytes(2, producer=(5, 0, 0), transactional=True))
    cluster.append("t", 0, batch_bytes())
    got = await part(peer, fetch("t", 0, isolation=1))
    assert (bases(got), got.high_watermark, got.last_stable_offset) == ([0], 4, 1)
    assert got.aborted_transactions == []
    assert bases(await part(peer, fetch("t", 0))) == [0, 1, 3]


async def test_read_committed_is_told_what_was_aborted(cluster: Cluster, peer: RawPeer) -> None:
    cluster.append("t", 0, batch_bytes(2, producer=(5, 0, 0), transactional=True))
    cluster.append("t", 0, marker(ABORT, 5))
    got = await part(peer, fetch("t", 0, isolation=1))
    assert (bases(got), got.last_stable_offset) == ([0, 2], 3)
    assert [(one.producer_id, one.first_offset) for one in got.aborted_transactions] == [(5, 0)]
    assert (await part(peer, fetch("t", 0))).aborted_transactions is None


async def test_a_log_that_diverged_is_told_where(cluster: Cluster, peer: RawPeer) -> None:
    cluster.append("t", 0, batch_bytes(3))
    cluster.move_leader("t", 0, 2)
    cluster.move_leader("t", 0, 1)
    cluster.append("t", 0, batch_bytes(3))
    got = await part(peer, fetch("t", 0, offset=5, last_epoch=0))
    assert (got.diverging_epoch.epoch, got.diverging_epoch.end_offset) == (0, 3)
    assert bases(await part(peer, fetch("t", 0, offset=3, last_epoch=0))) == [3]


async def found(peer: RawPeer, timestamp: int, **options: Any) -> tuple[int, int, int, int]:
    version = 9 if timestamp == OffsetSpec.LATEST_TIERED else 8
    response = await peer.call(list_offsets("t", timestamp, **options), version)
    one = response.topics[0].partitions[0]
    return one.error_code, one.offset, one.timestamp, one.leader_epoch


@pytest.mark.parametrize(
    ("timestamp", "answer"),
    [
        (OffsetSpec.LATEST, (0, 6, -1, 1)),
        (OffsetSpec.EARLIEST, (0, 1, -1, 0)),
        (OffsetSpec.EARLIEST_LOCAL, (0, 1, -1, 0)),
        (OffsetSpec.LATEST_TIERED, (0, -1, -1, -1)),
        (OffsetSpec.MAX_TIMESTAMP, (0, 5, NOW + 52, 1)),
        (0, (0, 1, NOW + 1, 0)),
        (NOW + 2, (0, 2, NOW + 2, 0)),
        (NOW + 3, (0, 3, NOW + 50, 1)),
        (NOW + 53, (0, -1, -1, -1)),
        (-77, (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)),
    ],
)
async def test_offsets_are_looked_up(
    cluster: Cluster, timestamp: int, answer: tuple[int, int, int, int]
) -> None:
    cluster.append("t", 0, batch_bytes(3))
    cluster.move_leader("t", 0, 2)
    cluster.append("t", 0, batch_bytes(3, timestamp=NOW + 50))
    cluster.delete_records("t", 0, 1)
    async with RawPeer.to(cluster.brokers[2].address) as peer:
        assert await found(peer, timestamp) == answer


async def test_the_latest_offset_of_read_committed_is_the_stable_one(
    cluster: Cluster, peer: RawPeer
) -> None:
    cluster.append("t", 0, batch_bytes(2))
    cluster.append("t", 0, batch_bytes(2, producer=(5, 0, 0), transactional=True))
    assert (await found(peer, OffsetSpec.LATEST, isolation=1))[1] == 2
    assert (await found(peer, OffsetSpec.LATEST))[1] == 4


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"partition": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 2}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"leader_epoch": 5}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
async def test_a_lookup_is_the_leaders_matter(
    peer: RawPeer, options: dict[str, int], code: ErrorCode
) -> None:
    assert await found(peer, OffsetSpec.LATEST, **options) == (code, -1, -1, -1)


async def test_a_partition_that_is_asked_for_twice_is_invalid(peer: RawPeer) -> None:
    request = list_offsets("t", OffsetSpec.LATEST)
    request.topics[0].partitions *= 2
    response = await peer.call(request, 8)
    codes = [one.error_code for one in response.topics[0].partitions]
    assert codes == [ErrorCode.INVALID_REQUEST]


async def test_the_end_of_an_epoch_is_told(cluster: Cluster, peer: RawPeer) -> None:
    cluster.append("t", 0, batch_bytes(3))
    cluster.move_leader("t", 0, 2)
    cluster.move_leader("t", 0, 1)
    cluster.append("t", 0, batch_bytes(1))
    wanted = [OffsetForLeaderPartition(0, -1, epoch) for epoch in (0, 1, 2, 3)]
    wanted.append(OffsetForLeaderPartition(2, -1, 0))
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic("t", wanted)])
    response = await peer.call(request, 4)
    answers = [
        (one.error_code, one.leader_epoch, one.end_offset) for one in response.topics[0].partitions
    ]
    assert answers == [
        (0, 0, 3),
        (0, 0, 3),
        (0, 2, 4),
        (0, -1, -1),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1),
    ]

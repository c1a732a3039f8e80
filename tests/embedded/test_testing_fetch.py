"""Fetch on the embedded cluster, beside what `tests/conformance` compares with Apache Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.fetch import FetchRequest
from kclient.record.message_set import read_batches
from kclient.testing import Cluster
from tests.unit.testing.batches import COMMIT, batch_bytes, marker
from tests.unit.testing.calls import fetch, list_offsets
from tests.unit.testing.raw_peer import RawPeer

LONG_MS = 50_000
"""A wait that no test lasts for."""


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with asyncio.timeout(60), Cluster(brokers=3) as one:
        one.create_topic("t", assignments=[[1, 2], [1, 2], [2, 3]])
        yield one


@pytest.fixture
async def peer(cluster: Cluster) -> AsyncIterator[RawPeer]:
    """A peer of broker 1, which leads partitions 0 and 1."""
    async with RawPeer.to(cluster.brokers[1].address) as one:
        yield one


def parts(response: Any) -> list[Any]:
    return [part for topic in response.responses for part in topic.partitions]


async def part(peer: RawPeer, request: FetchRequest, version: int = 12) -> Any:
    """The response for the one partition of the request."""
    (only,) = parts(await peer.call(request, version))
    return only


def bases(part: Any) -> list[int]:
    return [batch.base_offset for batch in read_batches(memoryview(part.records))]


async def test_the_brokers_own_limit_holds() -> None:
    async with Cluster(1, broker_configs={"fetch.max.bytes": 1024}) as cluster:
        cluster.create_topic("t")
        for _ in range(5):
            cluster.append("t", 0, batch_bytes(1, value=b"x" * 500))
        async with RawPeer.to(cluster.bootstrap) as peer:
            assert bases(await part(peer, fetch("t", 0))) == [0]


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


async def test_a_wait_ends_when_the_leader_moves(cluster: Cluster, peer: RawPeer) -> None:
    correlation = peer.write(fetch("t", 0, max_wait_ms=LONG_MS, leader_epoch=0), 17 - 5)
    await cluster.requests.wait_count("Fetch", 1)
    cluster.move_leader("t", 0, 2)
    (got,) = parts(await peer.read(FetchRequest, 12, correlation))
    assert got.error_code == ErrorCode.FENCED_LEADER_EPOCH


async def test_a_wait_is_released_with_its_connection(cluster: Cluster) -> None:
    log = cluster.log("t")
    async with RawPeer.to(cluster.brokers[1].address) as peer:
        peer.write(fetch("t", 0, max_wait_ms=LONG_MS), 12)
        await cluster.requests.wait_count("Fetch", 1)
        assert log.listener_count == 1
    await cluster.brokers[1].wait_unconnected()
    assert log.listener_count == 0


async def test_sessions_are_lost_in_a_restart(cluster: Cluster, peer: RawPeer) -> None:
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


async def test_the_diverging_epoch_of_a_log_is_reported(cluster: Cluster, peer: RawPeer) -> None:
    cluster.append("t", 0, batch_bytes(3))
    cluster.move_leader("t", 0, 2)
    cluster.move_leader("t", 0, 1)
    cluster.append("t", 0, batch_bytes(3))
    got = await part(peer, fetch("t", 0, offset=5, last_epoch=0))
    assert (got.diverging_epoch.epoch, got.diverging_epoch.end_offset) == (0, 3)
    assert bases(await part(peer, fetch("t", 0, offset=3, last_epoch=0))) == [3]

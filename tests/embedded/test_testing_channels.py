"""Connections of the embedded cluster that send very many requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from kclient.protocol.headers import encode_request
from kclient.protocol.messages.api_versions import ApiVersionsRequest
from kclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from kclient.protocol.messages.metadata import MetadataRequest
from kclient.testing import Cluster
from tests.unit.testing.raw_peer import RawPeer

ASKED = encode_request(FindCoordinatorRequest("g"), 0, 7, "many")


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with asyncio.timeout(60), Cluster(brokers=1) as one:
        yield one


async def test_other_connections_are_served_between_the_requests_of_one(cluster: Cluster) -> None:
    count = 4000
    async with RawPeer.to(cluster.bootstrap) as many, RawPeer.to(cluster.bootstrap) as one:
        many.write_bytes(ASKED * count)
        one.write(ApiVersionsRequest(), 0)
        await one.read_frame()
        assert cluster.requests.count("FindCoordinator") < count / 2
        for _ in range(count):
            assert (await many.read_frame())[:4] == b"\0\0\0\7"
    assert cluster.requests.count("FindCoordinator") == count


async def test_requests_of_a_peer_that_left_are_not_carried_out(cluster: Cluster) -> None:
    held = cluster.faults.hold("ApiVersions")
    async with RawPeer.to(cluster.bootstrap) as peer:
        peer.write(ApiVersionsRequest(), 0)
        peer.write_bytes(ASKED * 20_000)  # so many that the broker stops reading before the end
        await held.wait_hits()
        async with RawPeer.to(cluster.bootstrap) as witness:
            for _ in range(50):
                await witness.call(FindCoordinatorRequest("w"), 0)
        peer.abort()
    cluster.requests.clear()
    held.release()
    await cluster.brokers[1].wait_unconnected()
    assert cluster.requests.count("FindCoordinator") < 10


async def test_a_peer_that_reads_late_gets_all_responses_in_order(cluster: Cluster) -> None:
    count = 300
    cluster.create_topic("wide", partitions=400)
    async with RawPeer.to(cluster.bootstrap) as peer:
        asked = [peer.write(MetadataRequest(None), 9) for _ in range(count)]
        async with RawPeer.to(cluster.bootstrap) as witness:
            for _ in range(50):
                await witness.call(ApiVersionsRequest(), 0)
        for correlation in asked:
            assert (await peer.read_frame())[:4] == correlation.to_bytes(4, "big")

"""A removed fault releases at once what it holds, in order, and leaves no timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kclient.protocol.messages.api_versions import ApiVersionsRequest
from kclient.testing import Cluster, Fault, Faults, run_virtually
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import fetch, produce
from tests.unit.testing.raw_peer import RawPeer

Scene = Callable[[Cluster], Coroutine[Any, Any, None]]
LONG = 1000.0
ENDS: dict[str, Callable[[Faults, Fault], None]] = {
    "remove": lambda faults, fault: fault.remove(),
    "clear": lambda faults, fault: faults.clear(),
    "release": lambda faults, fault: fault.release(),
    "with": lambda faults, fault: fault.__exit__(None, None, None),
}


def run(scene: Scene) -> None:
    async def main() -> None:
        async with Cluster(brokers=2) as cluster:
            cluster.create_topic("t", assignments=[[1, 2]])
            await asyncio.sleep(1.0)
            await scene(cluster)

    run_virtually(main())


def now() -> float:
    return asyncio.get_running_loop().time()


def values(cluster: Cluster) -> list[bytes | None]:
    return [one.value for one in cluster.records("t")]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("after", [False, True])
def test_a_delay_that_ends_releases_requests_in_order(end: str, after: bool) -> None:
    async def scene(cluster: Cluster) -> None:
        fault = cluster.faults.delay("Produce", LONG, times=None, after=after)
        peers = [RawPeer.to(cluster.brokers[1].address) for _ in range(3)]
        for number, peer in enumerate(peers):
            await peer.__aenter__()
            peer.write(produce("t", batch_bytes(value=b"%d" % number), acks=1), 9)
            await fault.wait_hits(number + 1)
        assert (fault.held, len(values(cluster))) == (3, 3 if after else 0)
        began = now()
        ENDS[end](cluster.faults, fault)
        assert (fault.held, fault.active) == (0, False)
        for peer in peers:
            await peer.read_frame()
            await peer.__aexit__()
        assert now() - began < 1
        assert values(cluster) == [b"0", b"1", b"2"]

    run(scene)


def test_a_delay_that_was_used_up_is_still_taken_back() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.faults.delay("Produce", LONG, times=1)
        async with RawPeer.to(cluster.brokers[1].address) as peer:
            peer.write(produce("t", batch_bytes(), acks=1), 9)
            await cluster.requests.wait_for("Produce")
            cluster.faults.hold("Fetch")  # ended faults are dropped when another one is added
            began = now()
            cluster.faults.clear()
            await peer.read_frame()
            assert now() - began < 1

    run(scene)


def test_a_delay_releases_its_request_when_it_expires() -> None:
    async def scene(cluster: Cluster) -> None:
        fault = cluster.faults.delay("ApiVersions", 5.0)
        async with RawPeer.to(cluster.brokers[1].address) as peer:
            began = now()
            await peer.call(ApiVersionsRequest(), 0)
            assert now() - began == pytest.approx(5.0, abs=0.1)
        assert (fault.hits, fault.held) == (1, 0)

    run(scene)


def test_a_delay_forgets_a_request_whose_connection_has_closed() -> None:
    async def scene(cluster: Cluster) -> None:
        fault = cluster.faults.delay("ApiVersions", LONG)
        async with RawPeer.to(cluster.brokers[1].address) as peer:
            peer.write(ApiVersionsRequest(), 0)
            await fault.wait_hits()
            assert fault.held == 1
        await cluster.brokers[1].wait_unconnected()
        assert fault.held == 0

    run(scene)


def test_a_follower_is_slow_no_longer() -> None:
    async def scene(cluster: Cluster) -> None:
        slow = cluster.slow_follower(2, LONG)
        async with RawPeer.to(cluster.brokers[1].address) as peer:
            await peer.call(produce("t", batch_bytes(), acks=1), 9)
            await slow.wait_hits()
            await peer.call(produce("t", batch_bytes(), acks=1), 9)
            assert cluster.log("t", broker=2).end_offset == 1
            began = now()
            slow.remove()
            await peer.call(produce("t", batch_bytes(), acks=-1), 9)
            assert now() - began < 1
        assert cluster.log("t", broker=2).end_offset == 3

    run(scene)


@pytest.mark.parametrize("end", ENDS)
def test_a_trickle_that_ends_sends_the_rest(end: str) -> None:
    async def scene(cluster: Cluster) -> None:
        fault = cluster.faults.trickle("ApiVersions", 1, times=None)
        async with RawPeer.to(cluster.brokers[1].address) as peer:
            first = peer.write(ApiVersionsRequest(), 0)
            behind = peer.write(ApiVersionsRequest(), 0)
            await fault.wait_hits()
            await asyncio.sleep(6.0)  # some bytes are on their way
            began = now()
            ENDS[end](cluster.faults, fault)
            await peer.read(ApiVersionsRequest, 0, first)
            await peer.read(ApiVersionsRequest, 0, behind)
            assert now() - began < 1
        assert fault.held == 0

    run(scene)


def test_responses_that_are_held_for_reordering_are_sent() -> None:
    async def scene(cluster: Cluster) -> None:
        fault = cluster.faults.reorder("ApiVersions", count=5)
        async with RawPeer.to(cluster.brokers[1].address) as peer:
            sent = [peer.write(ApiVersionsRequest(), 0) for _ in range(2)]
            await cluster.requests.wait_count("ApiVersions", 2)
            fault.remove()
            for correlation in reversed(sent):
                await peer.read(ApiVersionsRequest, 0, correlation)

    run(scene)


def test_clear_removes_all_faults_before_it_releases_requests() -> None:
    """A request that one removed fault releases doesn't meet another fault that is removed, too."""

    async def scene(cluster: Cluster) -> None:
        first = cluster.faults.delay("ApiVersions", LONG)
        second = cluster.faults.close("ApiVersions")
        async with RawPeer.to(cluster.brokers[1].address) as peer:
            correlation = peer.write(ApiVersionsRequest(), 0)
            await first.wait_hits()
            cluster.faults.clear()
            await peer.read(ApiVersionsRequest, 0, correlation)
        assert (first.hits, second.hits) == (1, 0)

    run(scene)


def test_a_long_fetch_goes_on_waiting_when_its_delay_ends() -> None:
    async def scene(cluster: Cluster) -> None:
        fault = cluster.faults.delay("Fetch", LONG)
        async with RawPeer.to(cluster.brokers[1].address) as peer:
            peer.write(fetch("t", 0, max_wait_ms=3000), 12)
            await fault.wait_hits()
            began = now()
            fault.remove()
            await peer.read_frame()
            assert now() - began == pytest.approx(3.0, abs=0.2)

    run(scene)

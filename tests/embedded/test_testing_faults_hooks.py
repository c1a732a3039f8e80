"""Hooks of a test at points of a request: before, after the append, after the reply."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kclient.errors import InvalidArgument
from kclient.protocol.messages.api_versions import ApiVersionsRequest
from kclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from kclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kclient.protocol.messages.produce import ProduceResponse
from kclient.testing import Cluster, RequestInfo
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import fetch, produce
from tests.unit.testing.raw_peer import RawPeer

ASKED = ApiVersionsRequest()


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with asyncio.timeout(60), Cluster(brokers=2) as one:
        one.create_topic("t", assignments=[[1, 2]])
        yield one


@pytest.fixture
async def peer(cluster: Cluster) -> AsyncIterator[RawPeer]:
    async with RawPeer.to(cluster.brokers[1].address) as one:
        yield one


async def test_hooks_see_the_request_at_each_point(cluster: Cluster, peer: RawPeer) -> None:
    seen: list[tuple[str, RequestInfo, int]] = []

    def note(at: str) -> Any:
        return lambda info: seen.append((at, info, cluster.end_offset("t")))

    for at in ("after_reply", "after_append", "before"):
        cluster.faults.on("Produce", note(at), at=at)  # type: ignore[arg-type]
    await peer.call(produce("t", batch_bytes(2)), 9)
    assert [(at, end) for at, _, end in seen] == [
        ("before", 0),
        ("after_append", 2),
        ("after_reply", 2),
    ]
    before, appended, replied = (info for _, info, _ in seen)
    assert (before.broker, before.api, before.api_key, before.version) == (1, "Produce", 0, 9)
    assert (before.client_id, before.correlation_id, before.replica_id) == ("raw", 1, -1)
    assert before.connection == cluster.requests.of("Produce")[0].connection
    assert before.request.topic_data[0].name == "t"
    assert before.response is None
    assert isinstance(appended.response, ProduceResponse)
    assert replied.response is appended.response


async def test_a_hook_sees_the_records_before_they_are_written(
    cluster: Cluster, peer: RawPeer
) -> None:
    seen = []
    data = batch_bytes(2)
    cluster.faults.on(
        "Produce",
        lambda info: seen.append(bytes(info.request.topic_data[0].partition_data[0].records)),
    )
    await peer.call(produce("t", data), 9)
    assert seen == [data]
    assert cluster.requests.of("Produce")[0].request.topic_data[0].partition_data[0].records is None


async def test_a_response_before_is_sent_and_nothing_is_carried_out(
    cluster: Cluster, peer: RawPeer
) -> None:
    cluster.faults.on("Produce", lambda info: ProduceResponse(throttle_time_ms=1), times=1)
    response = await peer.call(produce("t", batch_bytes()), 9)
    assert (response.throttle_time_ms, response.responses) == (1, [])
    assert cluster.end_offset("t") == 0
    await peer.call(produce("t", batch_bytes()), 9)
    assert cluster.end_offset("t") == 1


async def test_bytes_after_the_append_are_the_response(cluster: Cluster, peer: RawPeer) -> None:
    cluster.faults.on("Produce", lambda info: b"\1\2", at="after_append")
    peer.write(produce("t", batch_bytes()), 9)
    assert await peer.read_frame() == b"\1\2"
    assert cluster.end_offset("t") == 1


async def test_a_response_after_the_append_ends_a_wait(cluster: Cluster, peer: RawPeer) -> None:
    seen = []

    def answer(info: RequestInfo) -> bytes:
        seen.append(info.response)
        return b"\1\2"

    cluster.faults.on("Fetch", answer, at="after_append", times=1)
    peer.write(fetch("t", 0, max_wait_ms=1 << 30), 12)
    assert await peer.read_frame() == b"\1\2"
    assert seen == [None]  # it waited for records
    await peer.call(produce("t", batch_bytes()), 9)  # which no fetch waits for any more
    await peer.call(ASKED, 0)


async def test_what_a_hook_returns_after_the_reply_is_ignored(
    cluster: Cluster, peer: RawPeer
) -> None:
    fault = cluster.faults.on(None, lambda info: b"\1\2", at="after_reply")
    for _ in range(2):
        await peer.call(ASKED, 0)
    assert fault.hits == 2


async def test_after_the_reply_is_reached_without_one(cluster: Cluster, peer: RawPeer) -> None:
    seen = []
    cluster.faults.on("Produce", lambda info: seen.append(info.response), at="after_reply")
    peer.write(produce("t", batch_bytes(), acks=0), 9)
    await peer.call(ASKED, 0)
    assert (seen, cluster.end_offset("t")) == ([None], 1)


async def test_the_request_waits_for_a_coroutine(cluster: Cluster, peer: RawPeer) -> None:
    go_on = asyncio.Event()

    async def wait(info: RequestInfo) -> None:
        await go_on.wait()

    fault = cluster.faults.on("Produce", wait)
    correlation = peer.write(produce("t", batch_bytes()), 9)
    behind = peer.write(ASKED, 0)
    await fault.wait_hits()
    assert (cluster.end_offset("t"), cluster.requests.count("ApiVersions")) == (0, 0)
    go_on.set()
    assert (await peer.read_frame())[:4] == correlation.to_bytes(4, "big")
    assert (await peer.read_frame())[:4] == behind.to_bytes(4, "big")
    assert cluster.end_offset("t") == 1


async def test_a_coroutine_may_respond_and_others_are_served_meanwhile(
    cluster: Cluster, peer: RawPeer
) -> None:
    async def answer(info: RequestInfo) -> MetadataResponse:
        async with RawPeer.to(cluster.brokers[2].address) as other:
            return await other.call(MetadataRequest([]), 9)  # type: ignore[no-any-return]

    cluster.faults.on("Metadata", answer, broker=1)
    cluster.faults.on("Metadata", answer, at="after_append", broker=1)
    assert len((await peer.call(MetadataRequest([]), 9)).brokers) == 2


async def test_a_waiting_response_that_comes_meanwhile_is_not_lost(
    cluster: Cluster, peer: RawPeer
) -> None:
    arrived = asyncio.Event()

    async def wait(info: RequestInfo) -> None:
        await arrived.wait()

    fault = cluster.faults.on("Fetch", wait, at="after_append")
    correlation = peer.write(fetch("t", 0, max_wait_ms=1 << 30), 12)
    await fault.wait_hits()
    async with RawPeer.to(cluster.brokers[1].address) as other:
        await other.call(produce("t", batch_bytes(3)), 9)
        await other.call(ASKED, 0)
    arrived.set()
    response = await peer.read(type(fetch("t", 0)), 12, correlation)
    assert response.responses[0].partitions[0].high_watermark == 3


async def test_a_hook_may_crash_its_own_broker(cluster: Cluster) -> None:
    done = asyncio.Event()

    async def crash(info: RequestInfo) -> None:
        await cluster.crash(info.broker)
        done.set()

    cluster.faults.on("Produce", crash, at="after_append", times=1)
    async with RawPeer.to(cluster.brokers[1].address) as peer:
        peer.write(produce("t", batch_bytes()), 9)
        assert await peer.read_end() == b""
    await done.wait()
    assert not cluster.brokers[1].running
    assert cluster.leader("t") == 2


async def test_removing_a_fault_cancels_its_coroutines_and_lets_requests_go_on(
    cluster: Cluster, peer: RawPeer
) -> None:
    cancelled = []

    async def wait(info: RequestInfo) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(info)
            raise

    correlation = peer.write(produce("t", batch_bytes()), 9)
    with cluster.faults.on("Produce", wait) as fault:
        await fault.wait_hits()
        await asyncio.sleep(0)  # the coroutine begins
    assert (await peer.read_frame())[:4] == correlation.to_bytes(4, "big")
    assert len(cancelled) == 1


async def test_a_coroutine_may_take_its_own_fault_back(cluster: Cluster, peer: RawPeer) -> None:
    async def once(info: RequestInfo) -> None:
        cluster.faults.clear()
        await asyncio.sleep(0)
        seen.append(info.correlation_id)

    seen: list[int] = []
    cluster.faults.on("ApiVersions", once)
    for _ in range(2):
        await peer.call(ASKED, 0)
    assert seen == [1]


async def test_closing_the_cluster_ends_coroutines() -> None:
    async def wait(info: RequestInfo) -> None:
        await asyncio.Event().wait()

    async with Cluster(brokers=1) as cluster:
        fault = cluster.faults.on("ApiVersions", wait)
        async with RawPeer.to(cluster.bootstrap) as peer:
            peer.write(ASKED, 0)
            await fault.wait_hits()
    # the fixture of all tests demands that no task is left


@pytest.mark.parametrize("at", ["before", "after_append", "after_reply"])
@pytest.mark.parametrize("waits", [False, True])
async def test_what_a_hook_raises_closes_the_connection_and_reaches_the_test(
    at: Any, waits: bool
) -> None:
    def fails(info: RequestInfo) -> None:
        raise AssertionError("not what I expected")

    async def fails_later(info: RequestInfo) -> None:
        await asyncio.sleep(0)
        fails(info)

    with pytest.raises(AssertionError, match="not what I expected"):
        async with asyncio.timeout(10), Cluster(brokers=1) as cluster:
            cluster.faults.on("ApiVersions", fails_later if waits else fails, at=at)
            async with RawPeer.to(cluster.bootstrap) as peer:
                peer.write(ASKED, 0)
                peer.write(FindCoordinatorRequest("g"), 0)
                await peer.read_end()
            assert cluster.requests.count("FindCoordinator") == 0
    await cluster.close()  # it is raised once


async def test_the_first_error_names_the_others(cluster: Cluster) -> None:
    def fails(info: RequestInfo) -> None:
        raise ValueError(info.api)

    cluster.faults.on(None, fails)
    for request in (ASKED, FindCoordinatorRequest("g")):
        async with RawPeer.to(cluster.brokers[1].address) as peer:
            peer.write(request, 0)
            await peer.read_end()
    with pytest.raises(ValueError, match="ApiVersions") as caught:
        cluster.faults.check()
    assert "FindCoordinator" in caught.value.__notes__[0]


async def test_what_is_no_response_is_refused(cluster: Cluster, peer: RawPeer) -> None:
    cluster.faults.on("ApiVersions", lambda info: "yes")  # type: ignore[arg-type,return-value]
    peer.write(ASKED, 0)
    assert await peer.read_end() == b""
    with pytest.raises(InvalidArgument, match="must return a response, bytes or None, not str"):
        cluster.faults.check()


async def test_after_the_append_is_before_the_replication(cluster: Cluster, peer: RawPeer) -> None:
    seen: list[tuple[int, int, int]] = []

    def note(info: RequestInfo) -> None:
        log = cluster.log("t")
        (part,) = info.response.responses[0].partition_responses
        seen.append((log.end_offset, log.high_watermark, part.base_offset))

    cluster.faults.on("Produce", note, at="after_append")
    with cluster.faults.hold("Fetch", replica=2, times=None) as fetches:
        correlation = peer.write(produce("t", batch_bytes()), 9)
        await fetches.wait_hits()
        await cluster.requests.wait_for("Produce")
        assert seen == [(1, 0, 0)]
        assert cluster.requests.of("Produce")[0].answered_at is None
    assert (await peer.read_frame())[:4] == correlation.to_bytes(4, "big")
    assert cluster.log("t").high_watermark == 1
    assert cluster.requests.count("Fetch") == 0
    assert cluster.requests.count("Fetch", replicas=True) > 0

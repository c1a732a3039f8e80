"""Which requests a fault is for, the one-liners, and what the request log has of responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.errors import InvalidArgument
from kclient.protocol.messages.api_versions import ApiVersionsRequest
from kclient.protocol.messages.fetch import FetchRequest, FetchResponse, ReplicaState
from kclient.protocol.messages.list_offsets import ListOffsetsRequest
from kclient.protocol.messages.metadata import MetadataRequest
from kclient.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kclient.testing import Cluster
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import fetch, list_offsets, produce
from tests.unit.testing.raw_peer import RawPeer

ASKED = ApiVersionsRequest()
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with asyncio.timeout(60), Cluster(brokers=3) as one:
        one.create_topic("t", assignments=[[1]])
        yield one


@pytest.fixture
async def peer(cluster: Cluster) -> AsyncIterator[RawPeer]:
    async with RawPeer.to(cluster.brokers[1].address) as one:
        yield one


async def code(peer: RawPeer, version: int = 9) -> int:
    """The error code of one record produced."""
    response = await peer.call(produce("t", batch_bytes()), version)
    answer: int = response.responses[0].partition_responses[0].error_code
    return answer


def of_replica(node_id: int, version: int = 12) -> FetchRequest:
    asked = fetch("t", 0)
    if version >= 15:
        asked.topics = []
        asked.replica_state = ReplicaState(node_id)
    else:
        asked.replica_id = node_id
    return asked


async def test_a_fault_may_be_for_one_version(cluster: Cluster, peer: RawPeer) -> None:
    cluster.faults.error("Produce", NOT_LEADER, times=None, version=8)
    assert [await code(peer, version) for version in (7, 8, 9)] == [0, NOT_LEADER, 0]


async def test_a_fault_may_be_for_one_connection(cluster: Cluster, peer: RawPeer) -> None:
    await peer.call(ASKED, 0)
    (served,) = cluster.requests
    cluster.faults.error("Produce", NOT_LEADER, times=None, connection=served.connection)
    async with RawPeer.to(cluster.brokers[1].address) as other:
        assert await code(other) == 0
    assert await code(peer) == NOT_LEADER


async def test_a_fault_may_have_any_condition(cluster: Cluster, peer: RawPeer) -> None:
    cluster.faults.error(
        "Produce", NOT_LEADER, times=None, when=lambda info: info.correlation_id % 2 == 0
    )
    assert [await code(peer) for _ in range(4)] == [0, NOT_LEADER, 0, NOT_LEADER]


async def test_a_condition_that_fails_means_no_and_reaches_the_test(
    cluster: Cluster, peer: RawPeer
) -> None:
    fault = cluster.faults.close("Produce", when=lambda info: info.nothing)  # type: ignore[attr-defined]
    assert await code(peer) == 0
    assert fault.hits == 0
    with pytest.raises(AttributeError, match="nothing"):
        cluster.faults.check()


@pytest.mark.parametrize("version", [12, 17])
async def test_requests_of_followers_are_left_alone_unless_asked_for(
    cluster: Cluster, peer: RawPeer, version: int
) -> None:
    everyone = cluster.faults.on("Fetch", lambda info: None, replica="any")
    clients = cluster.faults.on(None, lambda info: None)
    second = cluster.faults.on("Fetch", lambda info: None, replica=2)
    third = cluster.faults.on("Fetch", lambda info: None, replica=3)
    await peer.call(of_replica(2, version), version)
    assert [one.hits for one in (everyone, clients, second, third)] == [1, 0, 1, 0]
    await peer.call(of_replica(-1, version), version)
    assert [one.hits for one in (everyone, clients, second, third)] == [2, 1, 1, 0]


async def test_the_log_keeps_requests_of_followers_apart(cluster: Cluster, peer: RawPeer) -> None:
    for node_id in (-1, 2, -1):
        await peer.call(of_replica(node_id), 12)
    await peer.call(ListOffsetsRequest(2, 0, []), 8)
    await peer.call(OffsetForLeaderEpochRequest(-2, []), 4)
    log = cluster.requests
    assert [one.replica_id for one in log.of("Fetch")] == [-1, -1]
    assert [one.replica_id for one in log.of("Fetch", replicas=True)] == [-1, 2, -1]
    assert (log.count("Fetch"), log.count("Fetch", replicas=True)) == (2, 3)
    assert [one.api for one in log] == ["Fetch", "Fetch", "OffsetForLeaderEpoch"]
    assert [one.api for one in log.all(replicas=True)] == [
        *("Fetch", "Fetch", "Fetch"),
        *("ListOffsets", "OffsetForLeaderEpoch"),
    ]
    assert (await log.wait_for("ListOffsets", replicas=True)).replica_id == 2


@pytest.mark.parametrize("version", [12, 17])
async def test_a_fetch_is_also_of_the_topics_that_its_session_remembers(
    cluster: Cluster, peer: RawPeer, version: int
) -> None:
    cluster.create_topic("u", assignments=[[1]])
    topic = cluster.topic_id("t") if version >= 13 else "t"
    session = (await peer.call(fetch(topic, 0, session=(0, 0)), version)).session_id
    assert session
    of_t = cluster.faults.on("Fetch", lambda info: None, topic="t", partition=0)
    others = [
        cluster.faults.on("Fetch", lambda info: None, topic="t", partition=1),
        cluster.faults.on("Fetch", lambda info: None, topic="u"),
    ]
    await peer.call(fetch(None, session=(session, 1)), version)
    await peer.call(fetch(None, session=(session + 1, 1)), version)
    assert (of_t.hits, [one.hits for one in others]) == (1, [0, 0])


@pytest.mark.parametrize("api", ["Metadata", "ListOffsets", "Fetch"])
async def test_an_error_after_what_only_reads_is_one_all_the_same(
    cluster: Cluster, peer: RawPeer, api: str
) -> None:
    fault = cluster.faults.error(api, NOT_LEADER, after=True)
    asked = {
        "Metadata": (MetadataRequest(None), 9),
        "ListOffsets": (list_offsets("t", -1), 8),
        "Fetch": (fetch("t", 0), 12),
    }
    for errors in ([NOT_LEADER], []):
        await peer.call(*asked[api])
        assert cluster.requests.of(api)[-1].errors == errors
    assert fault.hits == 1


async def test_faults_that_never_acted_are_reported(cluster: Cluster, peer: RawPeer) -> None:
    used, unused = cluster.faults.hold("Fetch"), cluster.faults.throttle("Fetch", 0.001)
    used.release()
    hook = cluster.faults.on("ApiVersions", lambda info: None)
    await peer.call(ASKED, 0)
    assert hook.hits == 1
    assert cluster.faults.unused == [unused]


async def test_a_wait_for_hits_that_cannot_come_is_refused(cluster: Cluster, peer: RawPeer) -> None:
    fault = cluster.faults.on("ApiVersions", lambda info: None, times=2)
    with pytest.raises(InvalidArgument, match="2 times"):
        await fault.wait_hits(3)
    await peer.call(ASKED, 0)
    with pytest.raises(InvalidArgument, match="count"):
        await fault.wait_hits("1")  # type: ignore[arg-type]
    waiting = asyncio.ensure_future(fault.wait_hits(2))
    await asyncio.sleep(0)
    fault.remove()
    with pytest.raises(InvalidArgument, match="removed, 1 hit"):
        await waiting
    await fault.wait_hits(1)


async def test_lost_requests_and_lost_responses_differ_in_the_log(cluster: Cluster) -> None:
    for number, lose in enumerate((cluster.faults.lose_requests, cluster.faults.lose_answers)):
        lose("Produce")
        async with RawPeer.to(cluster.brokers[1].address) as peer:
            peer.write(produce("t", batch_bytes()), 9)
            assert await peer.read_end() == b""
        assert cluster.end_offset("t") == number


async def test_a_hanging_broker_takes_connections_and_sends_no_response(cluster: Cluster) -> None:
    with cluster.faults.hang(broker=1):
        async with RawPeer.to(cluster.brokers[1].address) as peer:
            peer.write(ASKED, 0)
            await cluster.requests.wait_for("ApiVersions", broker=1)
        async with RawPeer.to(cluster.brokers[2].address) as other:
            await other.call(ASKED, 0)
    async with RawPeer.to(cluster.brokers[1].address) as peer:
        await peer.call(ASKED, 0)
    first, *others = cluster.requests
    assert first.answered_at is None
    assert all(one.answered_at is not None for one in others)


async def test_an_unavailable_broker_closes_connections(cluster: Cluster) -> None:
    with cluster.faults.unavailable(broker=1) as fault:
        for _ in range(2):
            async with RawPeer.to(cluster.brokers[1].address) as peer:
                peer.write(ASKED, 0)
                assert await peer.read_end() == b""
    assert fault.hits == 2
    async with RawPeer.to(cluster.brokers[1].address) as peer:
        await peer.call(ASKED, 0)


async def test_the_log_has_the_responses(cluster: Cluster, peer: RawPeer) -> None:
    cluster.faults.error("Produce", NOT_LEADER)
    first, second = await peer.call(produce("t", batch_bytes()), 9), await code(peer)
    refused, sound = cluster.requests.of("Produce")
    assert refused.response == first
    assert (refused.errors, sound.errors, second) == ([NOT_LEADER], [], 0)
    assert refused.answered_at is not None
    assert refused.at <= refused.answered_at <= sound.at


async def test_a_response_object_of_a_test_may_be_sent_again(
    cluster: Cluster, peer: RawPeer
) -> None:
    await code(peer)
    real = await peer.call(fetch("t", 0), 12)
    answer = FetchResponse(responses=real.responses)
    cluster.faults.rewrite("Fetch", lambda request, response: answer, times=2)
    for _ in range(2):
        again = await peer.call(fetch("t", 0), 12)
        assert again.responses[0].partitions[0].records == batch_bytes_of(real)


def batch_bytes_of(response: FetchResponse) -> bytes:
    return bytes(response.responses[0].partitions[0].records or b"")


async def test_waiting_for_a_request_looks_at_those_that_came(
    cluster: Cluster, peer: RawPeer
) -> None:
    await peer.call(ASKED, 0)
    assert (await cluster.requests.wait_for("ApiVersions")).correlation_id == 1
    cluster.requests.clear()
    waiting = asyncio.ensure_future(
        cluster.requests.wait_for(lambda one: one.api == "Metadata", broker=2)
    )
    await peer.call(MetadataRequest([]), 9)
    async with RawPeer.to(cluster.brokers[2].address) as other:
        await other.call(MetadataRequest([]), 9)
    assert (await waiting).broker == 2


async def test_waiting_for_a_response(cluster: Cluster, peer: RawPeer) -> None:
    held = cluster.faults.hold("ApiVersions", after=True)
    peer.write(ASKED, 0)
    waiting = asyncio.ensure_future(cluster.requests.wait_for("ApiVersions", answered=True))
    await held.wait_hits()
    await asyncio.sleep(0)
    assert not waiting.done()
    held.release()
    assert (await waiting).response is not None


async def test_a_wait_whose_condition_fails_raises_and_leaves_nothing(
    cluster: Cluster, peer: RawPeer
) -> None:
    waiting = asyncio.ensure_future(
        cluster.requests.wait_for(lambda one: one.nothing)  # type: ignore[attr-defined]
    )
    await asyncio.sleep(0)
    await peer.call(ASKED, 0)
    with pytest.raises(AttributeError, match="nothing"):
        await waiting
    await peer.call(ASKED, 0)


async def test_waiting_for_hits_can_be_cancelled(cluster: Cluster, peer: RawPeer) -> None:
    fault = cluster.faults.on("ApiVersions", lambda info: None)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await fault.wait_hits()
    await peer.call(ASKED, 0)
    await fault.wait_hits(1)


@pytest.mark.parametrize("kind", ["when", "rewrite", "on", "wait_for"])
async def test_pytests_own_outcomes_reach_the_test_from_any_function(
    cluster: Cluster, peer: RawPeer, kind: str
) -> None:
    def fail(*_: object) -> Any:
        pytest.fail("never ask that")

    waiting = None
    if kind == "when":
        cluster.faults.close("ApiVersions", when=fail)
    elif kind == "rewrite":
        cluster.faults.rewrite("ApiVersions", fail)
    elif kind == "on":
        cluster.faults.on("ApiVersions", fail)
    else:
        waiting = asyncio.ensure_future(cluster.requests.wait_for(fail))
        await asyncio.sleep(0)
    if kind in ("rewrite", "on"):
        peer.write(ASKED, 0)
        assert await peer.read_end() == b""
    else:
        await peer.call(ASKED, 0)
    with pytest.raises(pytest.fail.Exception, match="never ask that"):
        cluster.faults.check()
        if waiting is not None:
            await waiting

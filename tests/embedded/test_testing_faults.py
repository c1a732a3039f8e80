"""Faults: brokers that err, stall, drop and rewrite responses on purpose."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.errors import CorruptRecord, InvalidArgument, ProtocolError
from kclient.protocol.messages.api_versions import ApiVersionsRequest
from kclient.protocol.messages.describe_cluster import DescribeClusterRequest
from kclient.protocol.messages.fetch import FetchRequest
from kclient.protocol.messages.init_producer_id import InitProducerIdRequest
from kclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kclient.protocol.messages.produce import ProduceRequest
from kclient.protocol.primitives import ZERO_UUID
from kclient.record.message_set import read_batches
from kclient.testing import Cluster
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import fetch, list_offsets, produce
from tests.unit.testing.raw_peer import RawPeer

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with asyncio.timeout(60), Cluster(brokers=2) as one:
        one.create_topic("t", assignments=[[1, 2], [1, 2]])
        one.create_topic("u", assignments=[[1]])
        yield one


@pytest.fixture
async def peer(cluster: Cluster) -> AsyncIterator[RawPeer]:
    async with RawPeer.to(cluster.brokers[1].address) as one:
        yield one


async def code(peer: RawPeer, topic: str = "t", partition: int = 0) -> int:
    """The error code of one record produced."""
    response = await peer.call(produce(topic, batch_bytes(), partition=partition), 9)
    answer: int = response.responses[0].partition_responses[0].error_code
    return answer


async def test_an_error_is_returned_as_often_as_requested(cluster: Cluster, peer: RawPeer) -> None:
    fault = cluster.faults.error("Produce", NOT_LEADER, times=2)
    assert [await code(peer) for _ in range(3)] == [NOT_LEADER, NOT_LEADER, 0]
    assert cluster.end_offset("t") == 1
    assert (fault.hits, fault.active) == (2, False)


async def test_an_error_after_the_append_leaves_the_record_in_the_log(
    cluster: Cluster, peer: RawPeer
) -> None:
    lost = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    cluster.faults.error(ProduceRequest, lost, after=True)
    assert await code(peer) == lost
    assert cluster.end_offset("t") == 1


async def test_an_error_may_be_for_one_topic_or_partition(cluster: Cluster, peer: RawPeer) -> None:
    fault = cluster.faults.error("Produce", NOT_LEADER, times=None, topic="t", partition=1)
    assert await code(peer) == 0
    assert await code(peer, "u") == 0
    assert await code(peer, partition=1) == NOT_LEADER
    assert fault.hits == 1


async def test_an_error_may_be_for_one_broker_or_client(cluster: Cluster, peer: RawPeer) -> None:
    cluster.faults.error("Produce", NOT_LEADER, times=None, broker=2)
    cluster.faults.error("Produce", NOT_LEADER, times=None, client_id="other")
    assert await code(peer) == 0
    async with RawPeer.to(cluster.brokers[1].address, "other") as other:
        assert await code(other) == NOT_LEADER


async def test_errors_without_entries_concern_the_whole_request(
    cluster: Cluster, peer: RawPeer
) -> None:
    cluster.faults.error("InitProducerId", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    cluster.faults.error("DescribeCluster", ErrorCode.UNKNOWN_SERVER_ERROR)
    assert (await peer.call(InitProducerIdRequest(None), 4)).error_code == 14
    assert (await peer.call(DescribeClusterRequest(), 0)).error_code == -1
    assert (await peer.call(InitProducerIdRequest(None), 4)).error_code == 0


async def test_errors_reach_metadata_offsets_and_fetches(cluster: Cluster, peer: RawPeer) -> None:
    cluster.faults.error("Metadata", ErrorCode.LEADER_NOT_AVAILABLE, topic="t")
    cluster.faults.error("ListOffsets", ErrorCode.OFFSET_NOT_AVAILABLE, topic="t")
    cluster.faults.error("Fetch", ErrorCode.OFFSET_OUT_OF_RANGE, topic="t")
    asked = [MetadataRequestTopic(ZERO_UUID, name) for name in ("t", "u")]
    metadata = await peer.call(MetadataRequest(asked), 12)
    assert [one.error_code for one in metadata.topics] == [5, 0]
    offsets = await peer.call(list_offsets("t", -1), 8)
    assert offsets.topics[0].partitions[0].error_code == 78
    fetched = await peer.call(fetch("t", 0, 1), 12)
    assert [one.error_code for one in fetched.responses[0].partitions] == [1, 1]


async def test_a_fetch_error_without_a_topic_is_for_the_whole_response(
    cluster: Cluster, peer: RawPeer
) -> None:
    cluster.faults.error("Fetch", ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    refused = await peer.call(fetch("t", 0), 12)
    assert (refused.error_code, refused.responses) == (70, [])
    assert (await peer.call(fetch("t", 0), 12)).error_code == 0


async def test_an_error_reaches_partitions_that_only_the_session_remembers(
    cluster: Cluster, peer: RawPeer
) -> None:
    session = (await peer.call(fetch("t", 0, 1, session=(0, 0)), 12)).session_id
    cluster.faults.error("Fetch", NOT_LEADER, topic="t", partition=1)
    reported = await peer.call(fetch(None, session=(session, 1)), 12)
    (part,) = reported.responses[0].partitions
    assert (part.partition_index, part.error_code) == (1, NOT_LEADER)


async def test_a_closed_connection_before_or_after(cluster: Cluster) -> None:
    for after in (False, True):
        cluster.faults.close("Produce", after=after)
        async with RawPeer.to(cluster.brokers[1].address) as peer:
            peer.write(produce("t", batch_bytes()), 9)
            assert await peer.read_end() == b""
        assert cluster.end_offset("t") == int(after)


async def test_a_dropped_response_leaves_the_connection_open_and_deaf(cluster: Cluster) -> None:
    cluster.faults.drop("Produce", after=True, topic="t")
    async with RawPeer.to(cluster.brokers[1].address) as peer:
        peer.write(produce("t", batch_bytes()), 9)
        peer.write(ApiVersionsRequest(), 0)
        await cluster.requests.wait_count("Produce", 1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await peer.read_frame()
    assert cluster.end_offset("t") == 1
    assert cluster.requests.count("ApiVersions") == 0


async def test_a_held_request_goes_on_when_released(cluster: Cluster, peer: RawPeer) -> None:
    fault = cluster.faults.hold("Produce")
    correlation = peer.write(produce("t", batch_bytes(3)), 9)
    behind = peer.write(ApiVersionsRequest(), 0)
    await cluster.requests.wait_count("Produce", 1)
    assert (fault.held, cluster.end_offset("t")) == (1, 0)
    fault.release()
    assert cluster.end_offset("t") == 3
    await peer.read(ProduceRequest, 9, correlation)
    await peer.read(ApiVersionsRequest, 0, behind)


async def test_a_held_request_keeps_its_bytes_while_more_arrive(
    cluster: Cluster, peer: RawPeer
) -> None:
    fault = cluster.faults.hold("Produce", topic="t")
    first = peer.write(produce("t", batch_bytes(1, value=b"first" * 2000)), 9)
    await cluster.requests.wait_count("Produce", 1)  # it came alone
    others = [
        peer.write(produce("u", batch_bytes(1, value=b"other" * 20_000)), 9) for _ in range(8)
    ]
    async with RawPeer.to(cluster.brokers[1].address) as witness:
        for _ in range(20):  # loop iterations in which the other requests arrive
            await witness.call(ApiVersionsRequest(), 0)
    fault.release()
    for correlation in (first, *others):
        response = await peer.read(ProduceRequest, 9, correlation)
        assert response.responses[0].partition_responses[0].error_code == 0
    assert cluster.records("t")[0].value == b"first" * 2000
    assert len(cluster.records("u")) == 8


async def test_a_request_whose_response_is_held_was_carried_out(
    cluster: Cluster, peer: RawPeer
) -> None:
    fault = cluster.faults.hold("Produce", after=True)
    correlation = peer.write(produce("t", batch_bytes()), 9)
    await cluster.requests.wait_count("Produce", 1)
    assert cluster.end_offset("t") == 1
    cluster.faults.remove(fault)
    await peer.read(ProduceRequest, 9, correlation)


async def test_a_held_request_goes_with_its_connection(cluster: Cluster) -> None:
    fault = cluster.faults.hold("Produce")
    async with RawPeer.to(cluster.brokers[1].address) as peer:
        peer.write(produce("t", batch_bytes()), 9)
        await cluster.requests.wait_count("Produce", 1)
    await cluster.brokers[1].wait_unconnected()
    assert fault.held == 0
    fault.release()
    assert cluster.end_offset("t") == 0


async def test_a_delay_takes_its_time(cluster: Cluster, peer: RawPeer) -> None:
    cluster.faults.delay("Produce", 0.05)
    began = time.monotonic()
    assert await code(peer) == 0
    assert time.monotonic() - began >= 0.045


async def test_a_throttle_is_reported_and_kept(cluster: Cluster, peer: RawPeer) -> None:
    cluster.faults.throttle("Produce", 0.5)
    began = time.monotonic()
    response = await peer.call(produce("t", batch_bytes()), 9)
    assert response.throttle_time_ms == 500
    assert time.monotonic() - began < 0.5
    await peer.call(ApiVersionsRequest(), 0)
    assert time.monotonic() - began >= 0.49


async def test_a_response_can_be_rewritten(cluster: Cluster, peer: RawPeer) -> None:
    def forget_broker(request: MetadataRequest, response: Any) -> None:
        response.brokers = response.brokers[:1]

    cluster.faults.rewrite("Metadata", forget_broker)
    assert len((await peer.call(MetadataRequest([]), 12)).brokers) == 1
    assert len((await peer.call(MetadataRequest([]), 12)).brokers) == 2


async def test_a_response_can_be_any_bytes(cluster: Cluster, peer: RawPeer) -> None:
    cluster.faults.rewrite("Metadata", lambda request, response: b"\xde\xad")
    peer.write(MetadataRequest([]), 12)
    assert await peer.read_frame() == b"\xde\xad"


async def test_a_rewrite_that_fails_closes_the_connection_and_fails_the_check(
    cluster: Cluster, peer: RawPeer
) -> None:
    cluster.faults.rewrite("Metadata", lambda request, response: response.nothing)
    peer.write(MetadataRequest([]), 12)
    assert await peer.read_end() == b""
    with pytest.raises(AttributeError, match="nothing"):
        cluster.faults.check()


@pytest.mark.parametrize("answer", [3, "text", [b"x"]])
async def test_a_rewrite_to_no_response_closes_the_connection_and_fails_the_check(
    cluster: Cluster, peer: RawPeer, answer: Any
) -> None:
    cluster.faults.rewrite("Metadata", lambda request, response: answer)
    peer.write(MetadataRequest([]), 12)
    assert await peer.read_end() == b""
    kind = type(answer).__name__
    with pytest.raises(InvalidArgument, match=f"a response, bytes or None, not an? {kind}"):
        cluster.faults.check()


@pytest.mark.parametrize("what", [3, None, "Produce"])
def test_only_a_fault_can_be_taken_back(what: Any) -> None:
    faults = Cluster(1).faults
    kept = faults.hang()
    with pytest.raises(InvalidArgument, match=f"fault={what!r} must be a Fault"):
        faults.remove(what)
    faults.remove(kept)
    faults.remove(kept)
    assert not faults


async def test_a_response_that_cannot_be_encoded_reaches_the_test(
    cluster: Cluster, peer: RawPeer
) -> None:
    def spoil(request: MetadataRequest, response: Any) -> None:
        response.controller_id = "one"

    cluster.faults.rewrite("Metadata", spoil)
    peer.write(MetadataRequest([]), 12)
    assert await peer.read_end() == b""
    with pytest.raises(ProtocolError, match="controller_id"):
        cluster.faults.check()


@pytest.mark.parametrize("version", [12, 17])
async def test_a_corrupt_fetch_harms_the_response_and_not_the_log(
    cluster: Cluster, peer: RawPeer, version: int
) -> None:
    cluster.append("t", 0, batch_bytes())
    fault = cluster.faults.corrupt_fetch("t")
    topic = cluster.topic_id("t") if version >= 13 else "t"
    await peer.call(fetch(topic, 1), version)
    assert fault.hits == 0  # nothing of that partition was in there
    for sound in (False, True):
        response = await peer.call(fetch(topic, 0), version)
        (batch,) = read_batches(memoryview(response.responses[0].partitions[0].records))
        if sound:
            batch.check_crc()
        else:
            with pytest.raises(CorruptRecord):
                batch.check_crc()


async def test_clearing_takes_all_back(cluster: Cluster, peer: RawPeer) -> None:
    cluster.faults.error("Produce", NOT_LEADER, times=None)
    held = cluster.faults.hold("Fetch", times=None)
    correlation = peer.write(fetch("t", 0), 12)
    await cluster.requests.wait_count("Fetch", 1)
    cluster.faults.clear()
    await peer.read(FetchRequest, 12, correlation)
    assert await code(peer) == 0
    assert (held.held, bool(cluster.faults)) == (0, False)


async def test_faults_act_in_the_order_in_which_they_were_added(
    cluster: Cluster, peer: RawPeer
) -> None:
    cluster.faults.error("Produce", NOT_LEADER)
    cluster.faults.error("Produce", ErrorCode.KAFKA_STORAGE_ERROR)
    assert [await code(peer) for _ in range(3)] == [NOT_LEADER, 56, 0]

"""Brokers that replicate, when a wake-up could get lost, and what many partitions cost."""

from __future__ import annotations

import asyncio

import pytest

from kclient.error_codes import ErrorCode
from kclient.hooks import DialTarget
from kclient.protocol.headers import encode_request
from kclient.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kclient.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kclient.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from kclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from kclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kclient.testing import Cluster, VirtualLoop, run_virtually
from kclient.testing.handlers import logs
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import list_offsets, produce
from tests.unit.testing.raw_peer import RawPeer
from tests.virtual.test_replication import LEADER, SESSION, SOON, now, on, watermarks, write

FOR_EVER_MS = 0x7FFFFFFF


async def reign(cluster: Cluster, node_id: int) -> None:
    """Make that broker the controller: it has the oldest session once the others have restarted."""
    while cluster.controller_id != node_id:
        await cluster.restart(cluster.controller_id)


# What followers learn


def test_a_follower_with_a_session_learns_the_watermark_of_a_new_partition() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        cluster.create_topic("u", assignments=[[2, 3, 1]])
        await asyncio.sleep(SOON)
        assert await write(cluster, 5) is ErrorCode.NONE
        cluster.disconnect(1, 3)
        await asyncio.sleep(2 * SOON)
        cluster.move_leader("t", 0, 2)
        await asyncio.sleep(SOON)
        cluster.reconnect()
        await asyncio.sleep(2 * SOON)
        assert watermarks(cluster) == [5, 5, 5]


async def write_to_v(cluster: Cluster) -> None:
    async with RawPeer.to(cluster.brokers[1].address) as peer:
        await peer.call(produce("v", batch_bytes(1), acks=LEADER), 12)


def test_a_joiner_that_is_refused_is_waited_for_no_more() -> None:
    @on(brokers=4)
    async def _(cluster: Cluster) -> None:
        await reign(cluster, 4)
        cluster.create_topic("v", assignments=[[1, 2, 3]])
        await asyncio.sleep(SOON)
        cluster.disconnect(1, 3)
        await write_to_v(cluster)
        await asyncio.sleep(40.0)
        assert cluster.isr("v") == (1, 2)
        cluster.disconnect(1, 4)
        cluster.reconnect(1, 3)
        await asyncio.sleep(3.0)
        await cluster.crash(3)
        await write_to_v(cluster)
        await asyncio.sleep(SOON)
        cluster.reconnect()
        await asyncio.sleep(2 * SOON)
        assert cluster.high_watermark("v") == cluster.end_offset("v") == 2


def test_a_broker_that_restarted_and_did_not_fetch_since_is_not_in_sync() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        await cluster.crash(3)
        cluster.disconnect(1, 3)
        if cluster.controller_id == 1:
            cluster.move_controller()
        await cluster.restart(3, in_sync_within=0)
        began = now()
        assert await write(cluster) is ErrorCode.NONE
        assert (cluster.isr("t"), now() - began < SOON) == ((1, 2), True)
        cluster.reconnect()
        await cluster.wait_in_sync()
        assert cluster.isr("t") == (1, 2, 3)


def test_a_broker_that_lost_only_its_session_is_in_sync_as_soon_as_it_has_another() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        if cluster.controller_id == 3:
            cluster.move_controller()
        cluster.isolate(3)
        cluster.reconnect(1, 3)
        cluster.reconnect(2, 3)
        await asyncio.sleep(SESSION + SOON)
        assert cluster.isr("t") == (1, 2)
        cluster.reconnect()
        await asyncio.sleep(SOON)
        assert cluster.isr("t") == (1, 2, 3)


def test_a_coordinators_responses_amid_an_image_lose_none_of_it() -> None:
    configs = {
        "group.initial.rebalance.delay.ms": 600_000,
        "offsets.topic.num.partitions": 1,
    }

    async def main() -> None:
        async with Cluster(4, broker_configs=configs) as cluster:
            async with RawPeer.to(cluster.brokers[1].address) as peer:
                await peer.call(FindCoordinatorRequest("g", 0), 3)
            await reign(cluster, 4)
            cluster.move_coordinator("g", 1)
            cluster.create_topic("t", assignments=[[1, 2, 3]])
            await asyncio.sleep(SOON)
            await join_and_create(cluster)
            cluster.disconnect(1, 3)
            await write(cluster, 2, acks=LEADER)
            cluster.disconnect(1, 4)
            await cluster.crash(3)
            cluster.move_coordinator("g", 2)
            cluster.reconnect(1, 4)
            await asyncio.sleep(5.0)
            assert "new" in cluster.topics
            assert watermarks(cluster)[:2] == [2, 2]

    run_virtually(main())


async def join_and_create(cluster: Cluster) -> None:
    """On one connection a JoinGroup that waits, and behind it a CreateTopics."""
    protocols = [JoinGroupRequestProtocol("range", b"")]
    join = JoinGroupRequest("g", 300_000, 600_000, "", None, "consumer", protocols)
    create = CreateTopicsRequest([CreatableTopic("new", 1, 1)], 1000)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    host, port = cluster.brokers[1].address.split(":")
    transport, _ = await loop.dialer.dial(DialTarget(host, int(port)), asyncio.Protocol)
    assert isinstance(transport, asyncio.WriteTransport)
    transport.write(encode_request(join, 3, 1, "x") + encode_request(create, 5, 2, "x"))
    await asyncio.sleep(SOON)


# Sessions


def test_a_follower_that_connects_again_and_again_has_one_session() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        for _ in range(20):
            cluster.disconnect(1, 2)
            await asyncio.sleep(0.1)
            cluster.reconnect(1, 2)
            await asyncio.sleep(0.1)
            await cluster.crash(3)
            await cluster.restart(3)
        assert len(cluster.brokers[1].sessions) == 2


def test_a_client_that_claims_to_be_a_follower_on_the_client_listener_has_no_privilege() -> None:
    @on(max_incremental_fetch_session_cache_slots=3)
    async def _(cluster: Cluster) -> None:
        topic = FetchTopic(
            topic_id=cluster.topic_id("t"), partitions=[FetchPartition(0, -1, 0, -1, 0, 10)]
        )
        broker = cluster.brokers[1]
        async with RawPeer.to(broker.address) as peer:
            for node_id in range(7, 27):
                state = ReplicaState(node_id, -1)
                request = FetchRequest(
                    replica_state=state, max_wait_ms=0, session_epoch=0, topics=[topic]
                )
                await peer.call(request, 17)
        assert len(broker.sessions) <= 5
        async with RawPeer.to(broker.address) as peer:
            request = FetchRequest(
                replica_state=ReplicaState(2, -1),
                max_wait_ms=1000,
                min_bytes=1,
                session_epoch=-1,
                topics=[topic],
            )
            await peer.call(request, 17)


# Requests


def test_a_reader_of_what_is_committed_finds_its_end_after_an_election() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        cluster.append("t", 0, batch_bytes(3))
        cluster.append("t", 0, batch_bytes(2, producer=(5, 0, 0), transactional=True))
        cluster.append("t", 0, batch_bytes(3))
        cluster.move_leader("t", 0, 2)
        await asyncio.sleep(SOON)
        async with RawPeer.to(cluster.brokers[2].address) as peer:
            response = await peer.call(list_offsets("t", -1, isolation=1), 7)
        part = response.topics[0].partitions[0]
        assert (part.error_code, part.offset) == (0, 3)


def delete(*offsets: int) -> DeleteRecordsRequest:
    partitions = [DeleteRecordsPartition(index, offset) for index, offset in enumerate(offsets)]
    return DeleteRecordsRequest([DeleteRecordsTopic("d", partitions)], 3000)


def test_partitions_whose_deletion_is_done_report_it_when_others_are_late() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        cluster.create_topic("d", assignments=[[1, 2], [1, 2]])
        for index in (0, 1):
            cluster.append("d", index, batch_bytes(5))
        await asyncio.sleep(SOON)
        async with RawPeer.to(cluster.brokers[1].address) as peer:
            await peer.call(delete(3), 2)
            await asyncio.sleep(SOON)
            cluster.disconnect(1, 2)
            response = await peer.call(delete(3, 3), 2)
        assert [(one.error_code, one.low_watermark) for one in response.topics[0].partitions] == [
            (0, 3),
            (ErrorCode.REQUEST_TIMED_OUT, 0),
        ]


def test_a_deletion_looks_at_all_its_partitions_a_few_times_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0
    low_watermark = logs.low_watermark

    def counted(*given: object) -> int:
        nonlocal looks
        looks += 1
        return low_watermark(*given)  # type: ignore[arg-type]

    @on()
    async def _(cluster: Cluster) -> None:
        cluster.create_topic("d", assignments=[[1, 2, 3]] * 200)
        for index in range(200):
            cluster.append("d", index, batch_bytes(3))
        await asyncio.sleep(SOON)
        monkeypatch.setattr(logs, "low_watermark", counted)
        async with RawPeer.to(cluster.brokers[1].address) as peer:
            response = await peer.call(delete(*[3] * 200), 2)
        assert all(one.error_code == 0 for one in response.topics[0].partitions)
        assert looks <= 2000

"""DeleteRecords on several brokers, on virtual time: what it waits for, and how it ends."""

from __future__ import annotations

import asyncio

import pytest

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kclient.testing import Cluster
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.raw_peer import RawPeer
from tests.virtual.test_replication import SESSION, SOON, now, on, write

SECONDS = 5.0


async def delete(
    cluster: Cluster, *offsets: int, seconds: float = SECONDS, broker: int = 1
) -> list[tuple[ErrorCode, int]]:
    """Delete records of t's partitions: code and low watermark of each."""
    wanted = [DeleteRecordsPartition(index, offset) for index, offset in enumerate(offsets)]
    request = DeleteRecordsRequest([DeleteRecordsTopic("t", wanted)], int(seconds * 1000))
    async with RawPeer.to(cluster.brokers[broker].address) as peer:
        response = await peer.call(request, 2)
    return [(ErrorCode(one.error_code), one.low_watermark) for one in response.topics[0].partitions]


async def filled(cluster: Cluster) -> None:
    for _ in range(3):
        assert await write(cluster, 2) is ErrorCode.NONE
    await asyncio.sleep(SOON)


def starts(cluster: Cluster) -> list[int]:
    return [cluster.log("t", broker=one).start_offset for one in cluster.replicas("t")]


def test_all_followers_have_deleted_when_the_response_comes_which_is_soon() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        await filled(cluster)
        began = now()
        assert await delete(cluster, 3) == [(ErrorCode.NONE, 3)]
        assert starts(cluster) == [3, 3, 3]
        assert now() - began < 0.1
        assert await delete(cluster, 2) == [(ErrorCode.NONE, 3)]


def test_followers_due_to_learn_the_high_watermark_later_learn_of_a_deletion_now() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        await filled(cluster)
        assert await write(cluster, 2) is ErrorCode.NONE
        began = now()
        assert await delete(cluster, 3) == [(ErrorCode.NONE, 3)]
        assert now() - began < 0.1


def test_a_slow_follower_is_waited_for() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        await filled(cluster)
        cluster.slow_follower(3, 2.0)
        await asyncio.sleep(SOON)
        began = now()
        assert await delete(cluster, 3) == [(ErrorCode.NONE, 3)]
        assert starts(cluster) == [3, 3, 3]
        assert 1.5 < now() - began < SECONDS


def test_a_follower_out_of_reach_times_it_out_and_deletes_later() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        await filled(cluster)
        cluster.disconnect(1, 3)
        began = now()
        assert await delete(cluster, 3) == [(ErrorCode.REQUEST_TIMED_OUT, 0)]
        assert now() - began == pytest.approx(SECONDS, abs=0.1)
        assert starts(cluster) == [3, 3, 0]
        assert await delete(cluster, 3, seconds=0) == [(ErrorCode.REQUEST_TIMED_OUT, 0)]
        cluster.reconnect()
        await asyncio.sleep(SOON)
        assert await delete(cluster, 3, seconds=0) == [(ErrorCode.NONE, 3)]
        assert starts(cluster) == [3, 3, 3]


def test_it_ends_with_the_follower_that_is_back_in_time() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        await filled(cluster)
        cluster.disconnect(1, 3)
        began = now()
        deleting = asyncio.ensure_future(delete(cluster, 3))
        await asyncio.sleep(2.0)
        cluster.reconnect()
        assert await deleting == [(ErrorCode.NONE, 3)]
        assert now() - began < SECONDS


def test_a_broker_that_is_down_is_not_waited_for() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        await filled(cluster)
        await cluster.stop(3)
        assert await delete(cluster, 3, seconds=0.5) == [(ErrorCode.NONE, 3)]


def test_what_a_test_deleted_behind_the_brokers_back_is_no_obstacle() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        await filled(cluster)
        cluster.delete_records("t", 0, 2)
        assert await delete(cluster, 4) == [(ErrorCode.NONE, 4)]
        cluster.delete_records("t", 0, 5)
        assert await delete(cluster, 5) == [(ErrorCode.NONE, 5)]


@pytest.mark.parametrize("step", ["election", "deletion"])
def test_what_becomes_of_the_partition_meanwhile_leaves_it_to_its_time_as_in_kafka(
    step: str,
) -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        await filled(cluster)
        cluster.disconnect(1, 3)
        began = now()
        deleting = asyncio.ensure_future(delete(cluster, 3))
        await asyncio.sleep(1.0)
        if step == "election":
            assert cluster.move_controller() == 2, "whom all reach"
            cluster.move_leader("t", 0, 2)
            assert await write(cluster) is ErrorCode.NONE
        else:
            cluster.delete_topic("t")
        assert await deleting == [(ErrorCode.REQUEST_TIMED_OUT, 0)]
        assert now() - began == pytest.approx(SECONDS, abs=0.1)


def test_with_the_last_partition_others_are_seen_that_are_led_no_more() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        await filled(cluster)
        cluster.add_partitions("t", 2)
        cluster.move_leader("t", 1, 1)
        cluster.append("t", 1, batch_bytes(2))
        await asyncio.sleep(SOON)
        cluster.disconnect(1, 3)
        deleting = asyncio.ensure_future(delete(cluster, 3, 1))
        await asyncio.sleep(1.0)
        cluster.move_leader("t", 0, 2)
        cluster.reconnect()
        assert await deleting == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1), (ErrorCode.NONE, 1)]


def test_nothing_is_left_of_a_client_that_disconnects() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        await filled(cluster)
        cluster.disconnect(1, 3)
        deleting = asyncio.ensure_future(delete(cluster, 3))
        await asyncio.sleep(1.0)
        replica_manager, log = cluster.brokers[1].replica_manager, cluster.log("t", broker=1)
        assert (len(replica_manager.deletions), log.listener_count) == (1, 1)
        deleting.cancel()
        await asyncio.sleep(1.0)
        assert (len(replica_manager.deletions), log.listener_count) == (0, 0)


@pytest.mark.parametrize("how", ["stop", "crash"])
def test_a_leader_that_goes_down_leaves_nothing_either(how: str) -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        await filled(cluster)
        cluster.disconnect(1, 3)
        deleting = asyncio.ensure_future(delete(cluster, 3))
        await asyncio.sleep(1.0)
        replica_manager, log = cluster.brokers[1].replica_manager, cluster.log("t", broker=1)
        await (cluster.stop(1) if how == "stop" else cluster.crash(1))
        assert (len(replica_manager.deletions), log.listener_count) == (0, 0)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await deleting


def test_a_follower_without_a_session_is_not_waited_for_once_the_high_watermark_moves() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        await filled(cluster)
        cluster.isolate(3)
        deleting = asyncio.ensure_future(delete(cluster, 3, seconds=60.0))
        await asyncio.sleep(SESSION)
        assert not deleting.done()
        assert await write(cluster) is ErrorCode.NONE
        assert await deleting == [(ErrorCode.NONE, 3)]


def test_a_leader_that_is_left_alone_sees_it_with_the_next_record() -> None:
    @on(2)
    async def _(cluster: Cluster) -> None:
        await filled(cluster)
        cluster.isolate(2)
        deleting = asyncio.ensure_future(delete(cluster, 3, seconds=60.0))
        await asyncio.sleep(SESSION)
        assert not deleting.done()
        assert await write(cluster) is ErrorCode.NONE
        assert await deleting == [(ErrorCode.NONE, 3)]


def test_what_happens_to_other_partitions_has_no_effect() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        await filled(cluster)
        cluster.create_topic("u", assignments=[[1, 2]])
        cluster.isolate(3)
        deleting = asyncio.ensure_future(delete(cluster, 3, seconds=20.0))
        await asyncio.sleep(SESSION)
        cluster.append("u", 0, batch_bytes(2))
        await asyncio.sleep(SOON)
        assert cluster.log("u", broker=2).end_offset == 2
        assert await deleting == [(ErrorCode.REQUEST_TIMED_OUT, 0)]

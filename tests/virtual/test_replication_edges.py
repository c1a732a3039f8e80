"""Brokers that replicate, in odd moments: no session, topics that go, leaders that come back."""

from __future__ import annotations

import asyncio

import pytest

from kclient.error_codes import ErrorCode
from kclient.testing import Cluster, run_virtually
from kclient.testing.replica import Replica
from tests.unit.testing.batches import batch_bytes, stored
from tests.unit.testing.calls import fetch
from tests.unit.testing.raw_peer import RawPeer
from tests.virtual.test_replication import (
    LEADER,
    SESSION,
    SOON,
    ends,
    now,
    on,
    watermarks,
    write,
)

RACKS = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


# Followers' fetches


def test_followers_have_their_sessions_beside_the_slots_of_clients() -> None:
    @on(max_incremental_fetch_session_cache_slots=0)
    async def _(cluster: Cluster) -> None:
        assert await write(cluster) is ErrorCode.NONE
        await asyncio.sleep(SOON)
        assert watermarks(cluster) == [1, 1, 1]
        sessions = cluster.brokers[1].sessions
        assert len(sessions) == 2
        async with RawPeer.to(cluster.brokers[1].address) as peer:
            topic_id = cluster.brokers[1].image.topics["t"].topic_id
            response = await peer.call(fetch(topic_id, 0, session=(0, 0)), 17)
        assert response.session_id == 0, "a client has none"


def test_a_follower_that_is_refused_as_a_whole_tries_again_after_a_while() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        refused = cluster.faults.error(
            "Fetch", ErrorCode.KAFKA_STORAGE_ERROR, times=None, broker=1, replica="any"
        )
        await write(cluster, acks=LEADER)
        await asyncio.sleep(20.0)
        assert 2 <= refused.hits < 100
        cluster.faults.remove(refused)
        await asyncio.sleep(2 * SOON)
        assert (ends(cluster), watermarks(cluster)) == ([1, 1, 1], [1, 1, 1])


def test_news_of_a_deleted_topic_does_not_keep_followers_busy() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        cluster.create_topic("gone", assignments=[[1, 2, 3]])
        await asyncio.sleep(SOON)
        cluster.disconnect(1, 3)
        await write(cluster, acks=LEADER)
        cluster.append("gone", 0, batch_bytes(1))
        cluster.delete_topic("gone")
        cluster.reconnect()
        assert await write(cluster) is ErrorCode.NONE
        await asyncio.sleep(SESSION)
        assert cluster.brokers[1].replica_manager.follower_state(3).news == {}


def test_a_watermark_that_moves_with_the_isr_reaches_the_followers() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        cluster.disconnect(1, 3)
        await write(cluster, acks=LEADER)
        await asyncio.sleep(31.0)
        assert cluster.isr("t") == (1, 2)
        assert watermarks(cluster)[:2] == [1, 1]


# What a producer waits for


def test_deleting_a_topic_ends_the_waits_for_its_followers() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        cluster.disconnect(1, 3)
        waiting = asyncio.create_task(write(cluster))
        await asyncio.sleep(SOON)
        began = now()
        cluster.delete_topic("t")
        assert await waiting is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert now() - began < SOON


def test_a_broker_that_is_down_reports_nothing_of_its_own_appends() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        reported: list[ErrorCode] = []
        cluster.disconnect(1, 3)
        batch = stored()
        cluster.brokers[1].replica_manager.append_internal("t", 0, batch, reported.append)
        await cluster.crash(1)
        await asyncio.sleep(20.0)
        assert reported == []


# Cleaning


def test_a_log_is_cleaned_by_its_present_leader() -> None:
    @on(brokers=2)
    async def _(cluster: Cluster) -> None:
        configs = {"retention.ms": 1000, "segment.ms": 1000}
        cluster.create_topic("r", assignments=[[1, 2]], configs=configs)
        await cluster.wait_in_sync()
        cluster.append("r", 0, batch_bytes(1, timestamp=cluster.brokers[1].wall_ms()))
        await asyncio.sleep(SOON)
        await cluster.crash(1)
        await asyncio.sleep(3600.0)
        async with RawPeer.to(cluster.brokers[2].address) as peer:
            await peer.call(fetch(cluster.brokers[2].image.topics["r"].topic_id, 0), 17)
        assert (cluster.leader("r"), cluster.log("r").start_offset) == (2, 1)


# Racks


def test_a_reader_that_is_sent_to_another_replica_does_not_wait_first() -> None:
    async def main() -> None:
        async with Cluster(2, broker_configs=RACKS, racks=["a", "b"]) as cluster:
            cluster.create_topic("t", assignments=[[1, 2]])
            await asyncio.sleep(SOON)
            request = fetch(cluster.brokers[1].image.topics["t"].topic_id, 0, max_wait_ms=5000)
            request.rack_id = "b"
            began = now()
            async with RawPeer.to(cluster.brokers[1].address) as peer:
                response = await peer.call(request, 17)
            assert response.responses[0].partitions[0].preferred_read_replica == 2
            assert now() - began < 1.0

    run_virtually(main())


def test_readers_in_other_racks_learn_at_once_of_what_is_committed() -> None:
    async def main() -> None:
        async with Cluster(3, broker_configs=RACKS, racks=["a", "b", "c"]) as cluster:
            cluster.create_topic("t", assignments=[[1, 2, 3]])
            await asyncio.sleep(SOON)
            for count in range(1, 6):
                assert await write(cluster) is ErrorCode.NONE
                await asyncio.sleep(0.05)
                assert watermarks(cluster) == [count] * 3

    run_virtually(main())


# Coming back


def test_a_leader_that_comes_back_cut_off_leads_nothing() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        assert await write(cluster) is ErrorCode.NONE
        await cluster.crash(1)
        cluster.isolate(1)
        await cluster.restart(1, in_sync_within=0)
        assert await write(cluster, acks=LEADER, broker=1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert ends(cluster) == [1, 1, 1]
        cluster.reconnect()
        await asyncio.sleep(SESSION)
        await cluster.wait_in_sync()
        cluster.move_leader("t", 0, 1)
        assert await write(cluster) is ErrorCode.NONE
        assert ends(cluster) == [2, 2, 2]


def test_a_broker_that_comes_back_to_many_partitions_is_taken_in_by_few_images() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        cluster.create_topic("many", partitions=300, replication_factor=3)
        await cluster.wait_in_sync()
        await cluster.crash(3)
        before = cluster.brokers[1].image.version
        await cluster.restart(3)
        await cluster.wait_in_sync()
        assert cluster.statistics().isr_expands == 301
        assert cluster.brokers[1].image.version - before <= 10


def test_an_append_looks_at_its_own_followers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    next_lag = Replica.next_lag

    def counted(replica: Replica, lag: float) -> float | None:
        nonlocal looks
        looks += 1
        return next_lag(replica, lag)

    @on()
    async def _(cluster: Cluster) -> None:
        cluster.create_topic("many", assignments=[[1, 2, 3]] * 200)
        await cluster.wait_in_sync()
        cluster.disconnect(1, 3)
        monkeypatch.setattr(Replica, "next_lag", counted)
        for index in range(200):
            cluster.brokers[1].replica_manager.append(replica_of(cluster, index), stored(), None)
        assert looks <= 400
        await asyncio.sleep(60.0)
        assert all(cluster.isr("many", index) == (1, 2) for index in range(200))


def replica_of(cluster: Cluster, index: int) -> Replica:
    found = cluster.brokers[1].replicas.get("many", index)
    assert found is not None
    return found

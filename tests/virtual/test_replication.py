"""Brokers that replicate, on virtual time: what acks=all waits for, elections, what is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kclient.error_codes import ErrorCode
from kclient.errors import BrokerError
from kclient.testing import Cluster, Deadlock, run_virtually
from kclient.types import TopicPartition
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import fetch, produce
from tests.unit.testing.raw_peer import RawPeer

ALL, LEADER = -1, 1
SOON = 1.0
"""Seconds within which followers have replicated everything."""
SESSION = 9.5
"""Seconds after which a broker that can't be reached has lost its session."""


def on(
    brokers: int = 3, **configs: object
) -> Callable[[Callable[[Cluster], Awaitable[None]]], None]:
    """Run a scene with a cluster that has a topic t, its leader broker 1."""

    def run(scene: Callable[[Cluster], Awaitable[None]]) -> None:
        async def main() -> None:
            given = {name.replace("_", "."): value for name, value in configs.items()}
            async with Cluster(brokers, broker_configs=given) as cluster:
                cluster.create_topic("t", assignments=[list(range(1, brokers + 1))])
                await asyncio.sleep(SOON)
                await scene(cluster)

        run_virtually(main())

    return run


async def write(cluster: Cluster, count: int = 1, *, acks: int = ALL, broker: int = 0) -> ErrorCode:
    """Send a batch to the leader, or to a broker that may still consider itself the leader."""
    address = cluster.brokers[broker or cluster.leader("t")].address
    async with RawPeer.to(address) as peer:
        response = await peer.call(produce("t", batch_bytes(count), acks=acks), 12)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def ends(cluster: Cluster) -> list[int]:
    """Where each replica's log ends."""
    return [cluster.log("t", broker=one).end_offset for one in cluster.replicas("t")]


def watermarks(cluster: Cluster) -> list[int]:
    return [cluster.log("t", broker=one).high_watermark for one in cluster.replicas("t")]


def now() -> float:
    return asyncio.get_running_loop().time()


# What a producer waits for


def test_all_replicas_have_what_was_written_and_learn_that_it_is_committed() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        assert await write(cluster, 3) is ErrorCode.NONE
        assert ends(cluster) == [3, 3, 3]
        await asyncio.sleep(SOON)
        assert watermarks(cluster) == [3, 3, 3]


def test_acks_all_waits_for_a_slow_follower_and_acks_1_does_not() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        slow = cluster.slow_follower(3, 2.0)
        began = now()
        assert await write(cluster, acks=LEADER) is ErrorCode.NONE
        assert now() - began < 0.5
        assert await write(cluster) is ErrorCode.NONE
        assert 1.5 < now() - began < 5.0
        cluster.faults.remove(slow)


# In sync, and not


def test_a_follower_that_is_cut_off_leaves_the_isr_and_comes_back() -> None:
    @on(replica_lag_time_max_ms=20_000)
    async def _(cluster: Cluster) -> None:
        cluster.disconnect(1, 3)
        assert await write(cluster) is ErrorCode.REQUEST_TIMED_OUT
        assert cluster.isr("t") == (1, 2, 3)
        await asyncio.sleep(14.0)
        assert cluster.isr("t") == (1, 2, 3)
        await asyncio.sleep(2.0)
        assert cluster.isr("t") == (1, 2)
        assert cluster.under_replicated == [TopicPartition("t", 0)]
        assert cluster.high_watermark("t") == 1
        cluster.reconnect()
        await cluster.wait_in_sync()
        assert (cluster.isr("t"), cluster.under_replicated) == ((1, 2, 3), [])
        tally = cluster.statistics()
        assert (tally.isr_shrinks, tally.isr_expands, tally.elections) == (1, 1, 0)


def test_a_follower_that_is_down_catches_up_when_it_is_back() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        await cluster.crash(3)
        assert cluster.isr("t") == (1, 2)
        for _ in range(5):
            assert await write(cluster) is ErrorCode.NONE
        assert ends(cluster) == [5, 5, 0]
        await cluster.restart(3)
        assert (cluster.isr("t"), ends(cluster)) == ((1, 2, 3), [5, 5, 5])


def test_a_steady_stream_keeps_a_slow_follower_in_sync() -> None:
    @on(replica_lag_time_max_ms=5_000)
    async def _(cluster: Cluster) -> None:
        cluster.slow_follower(3, 1.0)
        for _ in range(200):
            assert await write(cluster, acks=LEADER) is ErrorCode.NONE
            await asyncio.sleep(0.1)
        assert cluster.isr("t") == (1, 2, 3)
        assert cluster.statistics().isr_shrinks == 0


def test_records_that_are_deleted_are_removed_from_all_replicas() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        await write(cluster, 2)
        await write(cluster, 3)
        await asyncio.sleep(SOON)
        cluster.delete_records("t", 0, 2)
        await asyncio.sleep(SOON)
        starts = [cluster.log("t", broker=one).start_offset for one in (1, 2, 3)]
        assert (starts, ends(cluster)) == ([2, 2, 2], [5, 5, 5])


def test_a_follower_behind_the_leaders_start_begins_there() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        await write(cluster)
        await cluster.crash(3)
        for _ in range(4):
            await write(cluster)
        cluster.delete_records("t", 0, 4)
        await cluster.restart(3)
        log = cluster.log("t", broker=3)
        assert (log.start_offset, log.end_offset) == (4, 5)
        assert cluster.isr("t") == (1, 2, 3)


# Leadership


def test_an_isolated_leader_is_replaced_after_its_session_and_loses_what_only_it_had() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        assert await write(cluster) is ErrorCode.NONE
        cluster.isolate(1)
        assert await write(cluster, 2, acks=LEADER, broker=1) is ErrorCode.NONE
        await asyncio.sleep(8.0)
        assert cluster.leader("t") == 1
        await asyncio.sleep(SESSION - 8.0)
        assert (cluster.leader("t"), cluster.leader_epoch("t"), cluster.isr("t")) == (2, 1, (2, 3))
        assert await write(cluster, broker=1) is ErrorCode.REQUEST_TIMED_OUT
        assert await write(cluster) is ErrorCode.NONE
        assert ends(cluster) == [4, 2, 2]
        cluster.reconnect(1)
        await cluster.wait_in_sync()
        assert ends(cluster) == [2, 2, 2]
        assert [one.leader_epoch for one in cluster.log("t", broker=1).batches] == [0, 1]
        assert cluster.statistics().truncations == 1
        assert await write(cluster, broker=1) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_leader_that_was_replaced_unawares_commits_nothing() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        cluster.isolate(1)
        await asyncio.sleep(SESSION)
        for _ in range(8):  # longer than replica.lag.time.max.ms: it can't shrink the ISR alone
            assert await write(cluster, broker=1) is ErrorCode.REQUEST_TIMED_OUT
        assert cluster.log("t", broker=1).high_watermark == 0
        assert cluster.isr("t") == (2, 3)


def test_the_last_one_in_sync_is_waited_for() -> None:
    @on(brokers=2)
    async def _(cluster: Cluster) -> None:
        await cluster.crash(2)
        await write(cluster)
        await cluster.crash(1)
        await cluster.restart(2, in_sync_within=0)
        assert cluster.offline == [TopicPartition("t", 0)]
        with pytest.raises(BrokerError):
            cluster.elect_leader("t")
        await cluster.restart(1)
        assert (cluster.offline, cluster.leader("t")) == ([], 1)
        await cluster.wait_in_sync()
        assert ends(cluster) == [1, 1]
        assert cluster.statistics().unclean_elections == 0


def test_an_unclean_election_loses_what_was_committed_only_if_it_is_requested() -> None:
    @on(brokers=2)
    async def _(cluster: Cluster) -> None:
        await cluster.crash(2)
        assert await write(cluster) is ErrorCode.NONE
        await cluster.crash(1)
        await cluster.restart(2, in_sync_within=0)
        cluster.elect_leader("t", unclean=True)
        assert (cluster.leader("t"), cluster.isr("t")) == (2, (2,))
        assert await write(cluster, 2) is ErrorCode.NONE
        await cluster.restart(1)
        assert ends(cluster) == [2, 2]
        assert cluster.log("t", broker=1).batches[0].leader_epoch == cluster.leader_epoch("t")
        tally = cluster.statistics()
        assert (tally.unclean_elections, tally.truncations) == (1, 1)


def test_unclean_elections_that_are_allowed_need_no_request() -> None:
    @on(brokers=2, unclean_leader_election_enable="true")
    async def _(cluster: Cluster) -> None:
        await cluster.crash(2)
        await write(cluster)
        await cluster.crash(1)
        await cluster.restart(2, in_sync_within=0)
        assert cluster.leader("t") == 2
        assert cluster.statistics().unclean_elections == 1


# Controllers


def test_a_controller_that_is_cut_off_is_replaced_after_its_session() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        first = cluster.controller_id
        cluster.isolate(first)
        await asyncio.sleep(SESSION)
        second = cluster.controller_id
        assert second != first
        cluster.create_topic("u", assignments=[[2, 3]])
        assert "u" not in cluster.brokers[first].image.topics
        cluster.reconnect()
        assert "u" in cluster.brokers[first].image.topics
        assert cluster.controller_id == second


# Brokers that come and go


def test_brokers_are_added_and_removed() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        added = await cluster.add_broker(rack="r")
        cluster.create_topic("u", assignments=[[1, added]])
        await cluster.wait_in_sync()
        assert cluster.isr("u") == (1, added)
        cluster.delete_topic("u")
        await cluster.remove_broker(added)
        assert sorted(cluster.brokers) == [1, 2, 3]
        assert added not in cluster.brokers[1].image.brokers
        assert await write(cluster) is ErrorCode.NONE


def test_a_cluster_in_which_nothing_happens_sets_no_timer() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            cluster.create_topic("t", partitions=6, replication_factor=3)
            assert await write(cluster) is ErrorCode.NONE
            await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run_virtually(main())


def test_all_replicas_are_cleaned() -> None:
    @on()
    async def _(cluster: Cluster) -> None:
        cluster.create_topic("c", replication_factor=3, configs={"cleanup.policy": "compact"})
        for _ in range(4):
            cluster.append("c", 0, batch_bytes(2, key=b"same"))
        await asyncio.sleep(SOON)
        (result,) = cluster.clean("c")
        assert result is not None
        kept = {
            tuple(batch.base_offset for batch in cluster.log("c", broker=one).batches)
            for one in (1, 2, 3)
        }
        assert len(kept) == 1
        assert sum(len(one) for one in kept) < 4


def test_a_consumer_is_sent_to_the_follower_in_its_rack_which_serves_it() -> None:
    async def main() -> None:
        configs = {
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"
        }
        async with Cluster(3, broker_configs=configs, racks=["a", "b", "c"]) as cluster:
            cluster.create_topic("t", assignments=[[1, 2, 3]])
            assert await write(cluster, 3) is ErrorCode.NONE
            await asyncio.sleep(SOON)
            topic_id = cluster.brokers[1].image.topics["t"].topic_id
            preferred = []
            for rack in ("a", "c", "nowhere"):
                request = fetch(topic_id, 0)
                request.rack_id = rack
                async with RawPeer.to(cluster.brokers[1].address) as peer:
                    response = await peer.call(request, 17)
                preferred.append(response.responses[0].partitions[0].preferred_read_replica)
            assert preferred == [-1, 3, -1]
            request.rack_id = "c"
            async with RawPeer.to(cluster.brokers[3].address) as peer:
                response = await peer.call(request, 17)
            part = response.responses[0].partitions[0]
            assert (part.error_code, part.high_watermark) == (0, 3)
            assert part.records

    run_virtually(main())

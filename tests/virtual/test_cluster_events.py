"""``cluster.events`` on virtual time: the race for the claim, elections and ISRs."""

from __future__ import annotations

import asyncio

import pytest

from kclient.errors import RequestTimedOut
from kclient.testing import (
    BrokerDown,
    BrokerFenced,
    BrokerUp,
    Cluster,
    ClusterEvent,
    ControllerElected,
    ControllerLost,
    CoordinatorElected,
    IsrExpanded,
    IsrShrunk,
    LeaderElected,
    LeaderLost,
    LogTruncated,
    run_virtually,
)
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import produce
from tests.unit.testing.raw_peer import RawPeer

SESSION = 9.0
"""``broker.session.timeout.ms``, in seconds."""


def now() -> float:
    return asyncio.get_running_loop().time()


def test_brokers_race_for_one_claim_and_the_others_watch() -> None:
    async def scene() -> None:
        async with Cluster(3) as cluster:
            assert list(cluster.events) == [
                BrokerUp(1, 0),
                ControllerElected(1, 1),
                BrokerUp(2, 1),
                BrokerUp(3, 2),
            ]
            cluster.events.clear()
            assert cluster.move_controller() == 2
            await cluster.crash(2)
            assert list(cluster.events) == [
                ControllerLost(1, 1),
                ControllerElected(2, 2),
                BrokerDown(2, 1),
                ControllerLost(2, 2),
                ControllerElected(1, 3),
            ]

    run_virtually(scene())


def test_a_crash_reports_the_lost_broker_the_new_leader_and_the_return_to_the_isr() -> None:
    async def scene() -> None:
        async with Cluster(3) as cluster:
            cluster.create_topic("t", assignments=[[3, 1, 2]])
            cluster.events.clear()
            await cluster.crash(3)
            assert list(cluster.events) == [
                BrokerDown(3, 2),
                IsrShrunk("t", 0, (1, 2), (3,)),
                LeaderElected("t", 0, 1, 1),
            ]
            cluster.events.clear()
            await cluster.restart(3)
            assert list(cluster.events) == [
                BrokerUp(3, 3),
                IsrExpanded("t", 0, (1, 2, 3), (3,)),
            ]

    run_virtually(scene())


def test_a_broker_that_is_isolated_is_fenced_when_its_session_is_over() -> None:
    async def scene() -> None:
        async with Cluster(3) as cluster:
            cluster.create_topic("t", assignments=[[1, 2, 3]])
            cluster.events.clear()
            began = now()
            cluster.isolate(1)
            elected = await cluster.events.wait_for(LeaderElected)
            assert elected == LeaderElected("t", 0, 2, 1)
            assert elected.at == now() == pytest.approx(began + SESSION)
            assert [*cluster.events][:3] == [
                BrokerFenced(1, 0),
                ControllerLost(1, 1),
                ControllerElected(2, 2),
            ]

    run_virtually(scene())


def test_a_partition_without_a_leader_is_lost_until_an_unclean_election() -> None:
    async def scene() -> None:
        async with Cluster(3) as cluster:
            cluster.create_topic("t", assignments=[[2, 1]])
            await cluster.crash(1)
            await cluster.crash(2)
            assert cluster.events.of(LeaderLost) == [LeaderLost("t", 0, 1)]
            await cluster.restart(1, in_sync_within=0)
            cluster.elect_leader("t", unclean=True)
            assert cluster.events.of(LeaderElected) == [LeaderElected("t", 0, 1, 2, unclean=True)]

    run_virtually(scene())


def test_what_a_former_leader_wrote_alone_is_truncated_when_it_is_back() -> None:
    async def scene() -> None:
        async with Cluster(2, broker_configs={"replica.lag.time.max.ms": 60_000}) as cluster:
            cluster.create_topic("t", assignments=[[1, 2]])
            cluster.isolate(1)
            async with RawPeer.to(cluster.brokers[1].address) as peer:
                await peer.call(produce("t", batch_bytes(3), acks=1), 12)
            await cluster.events.wait_for(LeaderElected)
            cluster.reconnect()
            truncated = await cluster.events.wait_for(LogTruncated)
            assert truncated == LogTruncated("t", 0, 1, end_offset=0, count=3)

    run_virtually(scene())


def test_a_moved_coordinator_is_reported_as_such() -> None:
    async def scene() -> None:
        async with Cluster(3) as cluster:
            cluster.move_coordinator("audit", 1)
            cluster.events.clear()
            after = cluster.coordinator("audit") % 3 + 1
            cluster.move_coordinator("audit", after)
            (moved,) = cluster.events.of(CoordinatorElected)
            assert (moved.leader, moved.unclean) == (after, False)
            assert cluster.coordinator("audit") == after

    run_virtually(scene())


def test_a_listener_is_called_at_the_moment_and_its_errors_end_the_cluster() -> None:
    async def scene() -> None:
        leaders: list[int] = []

        async with Cluster(3) as cluster:
            cluster.create_topic("t", assignments=[[1, 2, 3]])

            def look(event: ClusterEvent) -> None:
                if isinstance(event, LeaderElected):
                    leaders.append(cluster.leader("t"))
                    raise LookupError("seen")

            cluster.events.listen(look)
            cluster.move_leader("t", 0, 3)
            assert leaders == [3]

    with pytest.raises(LookupError, match="seen"):
        run_virtually(scene())


def test_a_wait_is_over_in_time() -> None:
    async def scene() -> None:
        async with Cluster(1) as cluster:
            began = now()
            with pytest.raises(RequestTimedOut, match="no IsrShrunk within 3 s"):
                await cluster.events.wait_for(IsrShrunk, timeout=3.0)
            assert now() - began == pytest.approx(3.0)

    run_virtually(scene())

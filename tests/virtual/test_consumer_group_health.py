"""A consumer that can't join its group reports that: to its caller in poll, and in ``health()``."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

import kclient
from kclient.error_codes import ErrorCode
from kclient.errors import ConsumerStalled
from kclient.testing import Cluster, run_virtually
from kclient.types import TopicPartition
from tests.virtual.consumer_scene import T, fill, the_loop, until
from tests.virtual.group_scene import GROUP, SETTINGS, Reader, settled

REFUSED = {
    "FindCoordinator": ErrorCode.COORDINATOR_NOT_AVAILABLE,
    "JoinGroup": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    "SyncGroup": ErrorCode.REBALANCE_IN_PROGRESS,
}


def member(cluster: Cluster, **settings: Any) -> Any:
    return kclient.Consumer(cluster.bootstrap, T, group=GROUP, **{**SETTINGS, **settings})


@pytest.mark.parametrize("api", REFUSED)
@pytest.mark.parametrize("timeout", [1.0, None])
def test_a_consumer_that_cannot_join_reports_it_again_and_again_until_it_can(
    api: str, timeout: float | None
) -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            fill(cluster, 5, 1)
            cluster.faults.error(api, REFUSED[api], times=None)
            async with member(cluster, api_timeout=20.0) as consumer:
                reported: list[float] = []
                while len(reported) < 3:
                    try:
                        assert await consumer.poll(timeout=timeout) == []
                    except ConsumerStalled as error:
                        reported.append(the_loop().time())
                        assert GROUP in str(error)
                        assert REFUSED[api].name in str(error)
                        assert error.retriable
                        assert not consumer.health().ok
                gaps = [later - sooner for sooner, later in itertools.pairwise(reported)]
                assert all(20.0 <= gap <= 26.0 for gap in gaps)
                cluster.faults.clear()
                assert len(await consumer.poll(timeout=None)) == 5
                assert consumer.health().ok

    run_virtually(main())


def test_a_coordinator_that_is_unreachable_for_minutes_is_reported_and_survived() -> None:
    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            fill(cluster, 20, 4)
            reader = await Reader(cluster, api_timeout=20.0, request_timeout=5.0).start()
            await settled(reader)
            await until(lambda: reader.seen == 80)
            assert reader.errors == []
            net = the_loop().network
            for name in ("broker-1", "broker-2", "broker-3"):
                net.freeze(name)
            await asyncio.sleep(180.0)
            stalled = [error for error in reader.errors if "not been in group" in str(error)]
            assert 5 <= len(stalled) <= 9
            assert all(isinstance(error, ConsumerStalled) for error in stalled)
            assert reader.reported("lost") == [[0, 1, 2, 3]]
            health = reader.consumer.health()
            assert not health.ok
            assert not health.group.joined
            assert health.group.last_error
            net.heal()
            await settled(reader)
            reader.errors.clear()
            await asyncio.sleep(60.0)
            assert reader.errors == []
            assert reader.consumer.health().ok

    run_virtually(main())


def test_waiting_for_the_others_of_a_rebalance_is_no_trouble() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            fill(cluster, 5, 2)
            async with member(cluster) as slow, member(cluster, api_timeout=10.0) as consumer:
                assert await slow.poll(timeout=None)
                waiting = asyncio.create_task(consumer.poll(timeout=None))
                await asyncio.sleep(200.0)
                assert not waiting.done()
                await slow.poll(timeout=5.0)
                await slow.close()
                assert await waiting

    run_virtually(main())


def test_health_reports_the_membership_the_calls_and_the_commits() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            fill(cluster, 5, 1)
            consumer = member(cluster, enable_auto_commit=False)
            assert consumer.health().group is None or not consumer.health().group.joined
            async with consumer:
                await consumer.poll(timeout=None)
                await consumer.commit()
                await asyncio.sleep(10.0)
                health = consumer.health()
                assert health.ok
                assert health.group.joined
                assert health.group.state == "STABLE"
                assert health.last_poll_age == pytest.approx(10.0, abs=0.1)
                assert health.last_commit_age == pytest.approx(10.0, abs=0.1)
                assert health.last_commit_error is None
                polling = asyncio.create_task(consumer.poll(timeout=5.0))
                await asyncio.sleep(2.0)
                assert consumer.health().last_poll_age == 0.0
                await polling
                cluster.faults.error("OffsetCommit", ErrorCode.GROUP_AUTHORIZATION_FAILED)
                with pytest.raises(kclient.KafkaError):
                    await consumer.commit({TopicPartition(T, 0): 3})
                assert "GROUP_AUTHORIZATION_FAILED" in consumer.health().last_commit_error
                await consumer.unsubscribe()
                health = consumer.health()
                assert (health.group, health.last_poll_age) == (None, None)
                assert health.ok

    run_virtually(main())

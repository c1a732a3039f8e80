"""A client whose cluster moves, lags, lies and goes down, on real loopback sockets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import kclient
from kclient.broker_errors import LeaderNotAvailable, NotLeaderOrFollower
from kclient.cluster.calls import AnyNode, LeaderTarget
from kclient.cluster.core import ClientCore
from kclient.cluster.offset_lookup import list_offsets
from kclient.config import CommonConfig
from kclient.error_codes import ErrorCode
from kclient.errors import ClientClosed, MetadataTimedOut, ProtocolError, RequestTimedOut
from kclient.protocol.messages.api_versions import ApiVersionsRequest
from kclient.testing import Cluster
from kclient.types import OffsetAndTimestamp, OffsetSpec, TopicPartition

KEY = TopicPartition("orders", 0)


@asynccontextmanager
async def core_of(cluster: Cluster, **settings: Any) -> AsyncIterator[ClientCore]:
    core = ClientCore(CommonConfig.of(None, {"bootstrap": cluster.bootstrap, **settings}))
    await core.start()
    try:
        yield core
    finally:
        await core.close()


async def look_up(core: ClientCore, timeout: float = 10.0) -> object:
    return (await list_offsets(core, {KEY: OffsetSpec.LATEST}, timeout=timeout))[KEY]


async def ask_leader(core: ClientCore, timeout: float = 10.0) -> Any:
    request = ApiVersionsRequest(client_software_name="kclient", client_software_version="1")
    return await core.calls.call(LeaderTarget(*KEY), request, max_version=3, timeout=timeout)


async def test_a_moved_leader_is_followed() -> None:
    async with Cluster(3) as cluster, core_of(cluster) as core:
        cluster.create_topic("orders")
        assert isinstance(await look_up(core), OffsetAndTimestamp)
        old = core.metadata.view.leader(*KEY)
        new = next(n for n in cluster.brokers if n != old)
        epoch = core.metadata.view.leader_epoch(*KEY)
        cluster.move_leader(*KEY, new)
        started = time.monotonic()
        assert isinstance(await look_up(core), OffsetAndTimestamp)
        assert time.monotonic() - started < 5.0
        assert core.metadata.view.leader(*KEY) == new
        assert core.metadata.view.leader_epoch(*KEY) > epoch


async def test_a_crashed_leader_is_replaced() -> None:
    async with Cluster(3) as cluster, core_of(cluster) as core:
        cluster.create_topic("orders")
        await look_up(core)
        await cluster.crash(cluster.leader(*KEY))
        started = time.monotonic()
        assert isinstance(await look_up(core), OffsetAndTimestamp)
        assert time.monotonic() - started < 5.0


async def test_a_leader_that_keeps_refusing_makes_no_storm() -> None:
    async with Cluster(1) as cluster, core_of(cluster) as core:
        cluster.create_topic("orders")
        await look_up(core)
        cluster.faults.error("ListOffsets", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=None)
        before = len(cluster.requests.of("Metadata"))
        found = await look_up(core, timeout=3.0)
        assert isinstance(found, RequestTimedOut)
        assert isinstance(found.__cause__, NotLeaderOrFollower)
        # One at once, then with back-off: 0.1, 0.1, 0.2, 0.4, 0.8, 1.0 s.
        assert len(cluster.requests.of("Metadata")) - before <= 10


async def test_many_calls_that_find_a_stale_view_share_the_refresh() -> None:
    async with Cluster(2) as cluster, core_of(cluster) as core:
        cluster.create_topic("orders")
        await look_up(core)
        cluster.faults.error("ListOffsets", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=200)
        before = len(cluster.requests.of("Metadata"))
        found = await asyncio.gather(*(look_up(core) for _ in range(200)))
        assert all(isinstance(one, OffsetAndTimestamp) for one in found)
        assert len(cluster.requests.of("Metadata")) - before <= 5


async def test_a_broker_with_an_old_view_can_not_turn_the_epoch_back() -> None:
    async with Cluster(2) as cluster, core_of(cluster) as core:
        cluster.create_topic("orders")
        for _ in range(3):
            now = cluster.leader(*KEY)
            cluster.move_leader(*KEY, next(n for n in cluster.brokers if n != now))
        await core.metadata.wait_for_topic("orders", 5.0)
        leader, epoch = core.metadata.view.leader(*KEY), core.metadata.view.leader_epoch(*KEY)
        assert epoch >= 3

        def stale(request: Any, response: Any) -> None:
            for topic in response.topics:
                topic.partitions[0].leader_epoch = 0
                topic.partitions[0].leader_id = 3 - topic.partitions[0].leader_id

        cluster.faults.rewrite("Metadata", stale, times=3)
        for _ in range(3):
            version = core.metadata.view.version
            core.metadata.request_update()
            view = await core.metadata.wait_newer(version, 5.0)
            assert (view.leader(*KEY), view.leader_epoch(*KEY)) == (leader, epoch)


async def test_a_topic_that_a_broker_forgets_for_a_moment_comes_back() -> None:
    async with Cluster(1) as cluster, core_of(cluster) as core:
        cluster.create_topic("orders")
        await core.metadata.wait_for_topic("orders", 5.0)
        cluster.faults.error("Metadata", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, times=2)
        version = core.metadata.view.version
        core.metadata.request_update("orders")
        view = await core.metadata.wait_newer(version, 5.0)
        assert view.partition_count("orders") is None
        assert isinstance(await look_up(core), OffsetAndTimestamp)


async def test_an_answer_without_brokers_is_not_believed() -> None:
    async with Cluster(2) as cluster, core_of(cluster) as core:

        def empty(request: Any, response: Any) -> None:
            response.brokers.clear()

        cluster.faults.rewrite("Metadata", empty, times=2)
        brokers, version = core.metadata.view.brokers, core.metadata.view.version
        core.metadata.request_update()
        view = await core.metadata.wait_newer(version, 5.0)
        assert view.brokers == brokers
        assert core.metrics()["metadata.failures"] == 2


async def test_garbage_instead_of_metadata_is_a_failure_and_no_death() -> None:
    async with Cluster(1) as cluster, core_of(cluster) as core:
        cluster.faults.rewrite("Metadata", lambda request, response: b"\0\0", times=1)
        version = core.metadata.view.version
        core.metadata.request_update()
        await core.metadata.wait_newer(version, 5.0)
        core.check_usable()
        assert core.metrics()["metadata.failures"] >= 1


async def test_all_brokers_gone_is_a_typed_error_in_time_and_their_return_is_noticed() -> None:
    async with Cluster(2) as cluster, core_of(cluster) as core:
        cluster.create_topic("orders")
        await look_up(core)
        for broker in cluster.brokers:
            await cluster.crash(broker)
        started = time.monotonic()
        with pytest.raises(RequestTimedOut, match="refused"):
            await ask_leader(core, timeout=1.5)
        assert time.monotonic() - started < 5.0
        assert not core.health().ok
        for broker in cluster.brokers:
            await cluster.restart(broker)
        assert isinstance(await look_up(core), OffsetAndTimestamp)


async def test_a_hung_broker_does_not_hold_up_the_others() -> None:
    async with Cluster(3) as cluster, core_of(cluster, request_timeout=1.0) as core:
        for name in ("one", "two", "three"):
            cluster.create_topic(name)
        keys = [TopicPartition(name, 0) for name in ("one", "two", "three")]
        for number, key in enumerate(keys, 1):
            cluster.move_leader(*key, number)
        await list_offsets(core, dict.fromkeys(keys, OffsetSpec.LATEST))
        cluster.faults.drop("ListOffsets", broker=2, times=1)
        started = time.monotonic()
        found = await list_offsets(core, dict.fromkeys(keys, OffsetSpec.LATEST), timeout=10.0)
        assert all(isinstance(one, OffsetAndTimestamp) for one in found.values())
        assert time.monotonic() - started < 6.0


async def test_a_leaderless_partition_is_waited_for() -> None:
    async with Cluster(1) as cluster, core_of(cluster) as core:
        cluster.create_topic("orders")

        def leaderless(request: Any, response: Any) -> None:
            for topic in response.topics:
                topic.partitions[0].leader_id = -1
                topic.partitions[0].error_code = ErrorCode.LEADER_NOT_AVAILABLE

        fault = cluster.faults.rewrite("Metadata", leaderless, times=None)
        found = await look_up(core, timeout=0.7)
        assert isinstance(found, RequestTimedOut)
        assert isinstance(found.__cause__, LeaderNotAvailable)
        cluster.faults.remove(fault)
        assert isinstance(await look_up(core), OffsetAndTimestamp)


async def test_a_silent_cluster_ends_waits_for_metadata_in_time() -> None:
    async with Cluster(1) as cluster, core_of(cluster, request_timeout=0.5) as core:
        cluster.faults.drop("Metadata", times=None)
        with pytest.raises(MetadataTimedOut, match="topic orders after 1 s"):
            await core.metadata.wait_for_topic("orders", 1.0)


async def test_close_is_quick_whatever_is_under_way() -> None:
    async with Cluster(1) as cluster, core_of(cluster) as core:
        cluster.faults.drop("Metadata", times=None)
        waiting = [
            asyncio.create_task(core.metadata.wait_for_topic("orders", 60.0)),
            asyncio.create_task(ask_leader(core, 60.0)),
            asyncio.create_task(
                core.calls.call(AnyNode(), ApiVersionsRequest(), timeout=60.0, max_version=2)
            ),
        ]
        await cluster.requests.wait_count("Metadata", 2)
        started = time.monotonic()
        await core.close()
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert time.monotonic() - started < 5.0
        assert isinstance(ends[0], ClientClosed)
        assert isinstance(ends[1], ClientClosed)


async def test_a_small_client_makes_small_requests_and_none_when_idle() -> None:
    async with Cluster(3) as cluster, core_of(cluster) as core:
        for number in range(50):
            cluster.create_topic(f"other-{number}")
        cluster.create_topic("orders")
        await core.metadata.wait_for_topic("orders", 5.0)
        asked = [r.request for r in cluster.requests.of("Metadata")]
        assert [len(request.topics) for request in asked] == [0, 1]
        await asyncio.sleep(0.3)
        assert len(cluster.requests.of("Metadata")) == 2


async def test_an_admin_survives_a_crashed_controller() -> None:
    async with Cluster(3) as cluster, kclient.Admin(cluster.bootstrap) as admin:
        await cluster.crash(cluster.controller_id)
        made = await admin.create_topics([kclient.NewTopic("late", 1, 1)], timeout=10.0)
        assert "late" in made
        assert "late" in cluster.topics


async def test_a_lost_answer_of_a_creation_is_told_with_the_error_that_follows() -> None:
    async with Cluster(1) as cluster, kclient.Admin(cluster.bootstrap) as admin:
        cluster.faults.close("CreateTopics", after=True)
        with pytest.raises(kclient.errors.BrokerError, match="TOPIC_ALREADY_EXISTS") as error:
            await admin.create_topics([kclient.NewTopic("late", 1, 1)])
        assert "may have taken effect" in " ".join(error.value.__notes__)


async def test_a_controller_that_moves_is_found_by_admin() -> None:
    async with Cluster(3) as cluster, kclient.Admin(cluster.bootstrap) as admin:
        cluster.faults.error("CreateTopics", ErrorCode.NOT_CONTROLLER, times=2)
        assert await admin.create_topics([kclient.NewTopic("late", 2, 1)])
        assert cluster.partition_count("late") == 2


async def test_only_the_topic_that_failed_is_created_again() -> None:
    async with Cluster(1) as cluster, kclient.Admin(cluster.bootstrap) as admin:
        code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        cluster.faults.error("CreateTopics", code, topic="two", times=1)
        await admin.create_topics([kclient.NewTopic(n, 1, 1) for n in ("one", "two")])
        asked = [[t.name for t in r.request.topics] for r in cluster.requests.of("CreateTopics")]
        assert asked == [["one", "two"], ["two"]]


async def test_a_broker_that_hears_late_of_a_new_topic_is_waited_for() -> None:
    async with Cluster(2) as cluster, kclient.Admin(cluster.bootstrap) as admin:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        late = cluster.faults.error("Metadata", code, broker=2, topic="late", times=3)
        await admin.create_topics([kclient.NewTopic("late", 1, 1)])
        assert late.hits == 3


async def test_a_malformed_answer_to_admin_is_a_typed_error() -> None:
    async with Cluster(1) as cluster, kclient.Admin(cluster.bootstrap) as admin:
        cluster.faults.rewrite("DescribeCluster", lambda request, response: b"\0\0\0\1\0\xff")
        with pytest.raises((ProtocolError, RequestTimedOut)):
            await admin.describe_cluster(timeout=2.0)
        assert await admin.describe_cluster()

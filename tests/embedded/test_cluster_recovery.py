"""A client whose brokers move, lag, send garbage and crash, on real loopback sockets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import kclient
from kclient.broker_errors import LeaderNotAvailable
from kclient.cluster.core import ClientCore
from kclient.cluster.offset_lookup import list_offsets
from kclient.config import CommonConfig
from kclient.error_codes import ErrorCode
from kclient.errors import MetadataTimedOut, ProtocolError, RequestTimedOut
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


async def test_a_crashed_leader_is_replaced() -> None:
    async with Cluster(3) as cluster, core_of(cluster) as core:
        cluster.create_topic("orders")
        await look_up(core)
        await cluster.crash(cluster.leader(*KEY))
        started = time.monotonic()
        assert isinstance(await look_up(core), OffsetAndTimestamp)
        assert time.monotonic() - started < 5.0


async def test_many_calls_with_a_stale_view_wait_for_the_same_refresh() -> None:
    async with Cluster(2) as cluster, core_of(cluster) as core:
        cluster.create_topic("orders")
        await look_up(core)
        cluster.faults.error("ListOffsets", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=200)
        before = len(cluster.requests.of("Metadata"))
        found = await asyncio.gather(*(look_up(core) for _ in range(200)))
        assert all(isinstance(one, OffsetAndTimestamp) for one in found)
        assert len(cluster.requests.of("Metadata")) - before <= 5


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


async def test_garbage_instead_of_metadata_is_a_failure_and_no_death() -> None:
    async with Cluster(1) as cluster, core_of(cluster) as core:
        cluster.faults.rewrite("Metadata", lambda request, response: b"\0\0", times=1)
        version = core.metadata.view.version
        core.metadata.request_update()
        await core.metadata.wait_newer(version, 5.0)
        core.check_usable()
        assert core.metrics()["metadata.failures"] >= 1


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


async def test_an_admin_survives_a_crashed_controller() -> None:
    async with Cluster(3) as cluster, kclient.Admin(cluster.bootstrap) as admin:
        await cluster.crash(cluster.controller_id)
        made = await admin.create_topics([kclient.NewTopic("late", 1, 1)], timeout=10.0)
        assert "late" in made
        assert "late" in cluster.topics


async def test_a_lost_creation_response_is_noted_on_the_error_that_follows() -> None:
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


async def test_a_malformed_response_to_admin_is_a_typed_error() -> None:
    async with Cluster(1) as cluster, kclient.Admin(cluster.bootstrap) as admin:
        cluster.faults.rewrite("DescribeCluster", lambda request, response: b"\0\0\0\1\0\xff")
        with pytest.raises((ProtocolError, RequestTimedOut)):
            await admin.describe_cluster(timeout=2.0)
        assert await admin.describe_cluster()

"""What a client learns of the cluster, and how it fails to, on every kind of broker."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kclient.admin import Admin, NewTopic
from kclient.broker_errors import TopicAlreadyExists, UnknownTopicOrPartition
from kclient.cluster.calls import AnyNode, ControllerTarget, LeaderTarget, NodeTarget, Target
from kclient.cluster.core import ClientCore
from kclient.cluster.offset_lookup import list_offsets
from kclient.config import CommonConfig
from kclient.errors import (
    BackgroundTaskDied,
    BootstrapFailed,
    ClientClosed,
    NoCommonVersion,
    RequestTimedOut,
    WrongContext,
)
from kclient.protocol.messages.api_versions import ApiVersionsRequest
from kclient.protocol.messages.describe_cluster import DescribeClusterRequest
from kclient.types import OffsetSpec, TopicPartition


@asynccontextmanager
async def core_of(broker: Any, **settings: Any) -> AsyncIterator[ClientCore]:
    core = ClientCore(CommonConfig.of(None, {"bootstrap": broker.bootstrap, **settings}))
    await core.start()
    try:
        yield core
    finally:
        await core.close()


async def create_again(client: Admin, new: NewTopic) -> None:
    """With ZooKeeper, a deletion goes on in the background after brokers show it."""
    async with asyncio.timeout(20):
        while True:
            try:
                await client.create_topics([new])
                return
            except TopicAlreadyExists:
                await asyncio.sleep(0.05)


async def test_the_cluster_is_described(admin: Any, broker: Any) -> None:
    client: Admin = await admin()
    found = await client.describe_cluster()
    assert found.cluster_id
    assert found.controller in found.brokers
    assert [b.node_id for b in found.brokers] == sorted({b.node_id for b in found.brokers})
    assert not any(b.fenced for b in found.brokers)
    addresses = {b.connection_string for b in found.brokers}
    assert addresses & {a.strip() for a in broker.bootstrap.split(",")}


async def test_start_gives_brokers_and_no_topic_that_nobody_asked_for(broker: Any) -> None:
    async with core_of(broker) as core:
        assert core.metadata.view.brokers
        assert core.metadata.view.controller_id in core.metadata.view.brokers
        assert not core.metadata.view.topics
        core.check_usable()


async def test_a_topic_that_is_waited_for_has_leaders_epochs_and_id(
    broker: Any, topic: Any
) -> None:
    name = await topic(partitions=3)
    async with core_of(broker) as core:
        found = await core.metadata.wait_for_topic(name, 10.0)
        view = core.metadata.view
        assert len(found.partitions) == view.partition_count(name) == 3
        for index in range(3):
            assert view.leader(name, index) in view.brokers
            assert (view.leader_epoch(name, index) >= 0) == (broker.version >= (2, 4, 0))
        assert (view.topic_id(name) is not None) == (broker.version >= (2, 8, 0))


async def test_an_unknown_topic_is_a_typed_error_in_bounded_time_and_is_not_created(
    broker: Any, admin: Any
) -> None:
    name = f"typo-{secrets.token_hex(4)}"
    async with core_of(broker) as core:
        started = time.monotonic()
        with pytest.raises(UnknownTopicOrPartition, match=name):
            await core.metadata.wait_for_topic(name, 30.0, grace=0.3)
        assert time.monotonic() - started < 5.0
        core.check_usable()
    client: Admin = await admin()
    assert name not in {t.name for t in await client.list_topics()}


async def test_a_topic_created_later_is_found_by_who_waits(broker: Any, topic: Any) -> None:
    async with core_of(broker) as core:
        name = await topic()
        waiting = core.metadata.wait_for_topic(name, 10.0)
        assert (await waiting).name == name


async def test_growth_is_seen_after_a_refresh(broker: Any, topic: Any, admin: Any) -> None:
    name = await topic(partitions=1)
    client: Admin = await admin()
    async with core_of(broker) as core:
        await core.metadata.wait_for_topic(name, 10.0)
        await client.create_partitions({name: 4})
        version = core.metadata.view.version
        core.metadata.request_update(name)
        view = await core.metadata.wait_newer(version, 10.0)
        assert view.partition_count(name) == 4


async def test_a_topic_created_again_has_a_new_id_and_is_taken(
    broker: Any, topic: Any, admin: Any
) -> None:
    if broker.version < (2, 8, 0):
        async with core_of(broker) as core:
            await core.metadata.wait_for_topic(await topic(), 10.0)
            assert not any(t.topic_id != bytes(16) for t in core.metadata.view.topics.values())
        return
    name = await topic(partitions=3)
    client: Admin = await admin()
    async with core_of(broker) as core:
        old = (await core.metadata.wait_for_topic(name, 10.0)).topic_id
        await client.delete_topics([name])
        await create_again(client, NewTopic(name, partitions=1, replication_factor=1))
        version = core.metadata.view.version
        core.metadata.request_update(name)
        view = await core.metadata.wait_newer(version, 10.0)
        assert view.topic_id(name) not in (None, old)
        assert view.partition_count(name) == 1


@pytest.mark.parametrize("target", ["any", "node", "controller", "leader"])
async def test_every_kind_of_target_answers(broker: Any, topic: Any, target: str) -> None:
    name = await topic()
    async with core_of(broker) as core:
        targets: dict[str, Target] = {
            "any": AnyNode(),
            "node": NodeTarget(min(core.metadata.view.brokers)),
            "controller": ControllerTarget(),
            "leader": LeaderTarget(name, 0),
        }
        request = ApiVersionsRequest(client_software_name="kclient", client_software_version="1")
        response = await core.calls.call(
            targets[target], request, max_version=3, check=lambda r: r.error_code
        )
        assert response.api_keys


async def test_an_api_that_the_broker_lacks_is_a_typed_error(broker: Any) -> None:
    async with core_of(broker) as core:
        call = core.calls.call(AnyNode(), DescribeClusterRequest())
        if broker.version < (2, 8, 0):
            with pytest.raises(NoCommonVersion, match="DescribeCluster"):
                await call
        else:
            assert (await call).cluster_id == core.metadata.view.cluster_id


async def test_offsets_are_looked_up_for_a_consumer(broker: Any, topic: Any) -> None:
    key = TopicPartition(await topic(), 0)
    async with core_of(broker) as core:
        found = await list_offsets(core, {key: OffsetSpec.EARLIEST}, timeout=10.0)
        assert found[key].offset == 0  # type: ignore[union-attr]


async def test_a_node_that_does_not_exist_ends_at_the_deadline(broker: Any) -> None:
    async with core_of(broker) as core:
        started = time.monotonic()
        with pytest.raises(RequestTimedOut, match="no broker 4711"):
            await core.calls.call(NodeTarget(4711), DescribeClusterRequest(), timeout=0.5)
        assert 0.4 < time.monotonic() - started < 5.0


async def test_the_death_of_an_internal_task_reaches_the_next_call(broker: Any) -> None:
    async with core_of(broker) as core:
        waiting = asyncio.create_task(core.metadata.wait_newer(10**9, 30.0))
        await asyncio.sleep(0)

        async def crash() -> None:
            raise ZeroDivisionError("a bug")

        started = time.monotonic()
        core.spawn(crash(), "sender")
        with pytest.raises(BackgroundTaskDied, match="sender"):
            await waiting
        with pytest.raises(BackgroundTaskDied):
            core.check_usable()
        assert time.monotonic() - started < 5.0
        assert core.health().state == "failed"


async def test_a_client_is_bound_to_its_loop_and_thread(broker: Any) -> None:
    async with core_of(broker) as core:

        def use() -> str:
            with pytest.raises(WrongContext) as error:
                core.check_usable()
            return str(error.value)

        assert "thread" in await asyncio.to_thread(use)
        core.check_usable()


async def test_a_closed_client_says_so_and_closes_again(broker: Any) -> None:
    async with core_of(broker) as core:
        await core.close()
        with pytest.raises(ClientClosed):
            core.check_usable()
        with pytest.raises(ClientClosed):
            await core.calls.call(AnyNode(), DescribeClusterRequest())
        with pytest.raises(ClientClosed):
            await core.metadata.wait_for_topic("anything", 1.0)
        with pytest.raises(ClientClosed):
            await core.start()
        await core.close()
        assert core.health().state == "closed"


async def test_a_refused_address_beside_a_good_one_does_no_harm(broker: Any) -> None:
    bootstrap = f"127.0.0.1:1,{broker.bootstrap}"
    core = ClientCore(CommonConfig.of(None, {"bootstrap": bootstrap}))
    await core.start()
    assert core.metadata.view.brokers
    await core.close()


async def test_health_and_metrics_report_how_it_is(broker: Any) -> None:
    async with core_of(broker) as core:
        health = core.health()
        assert health.ok
        assert health.brokers == len(core.metadata.view.brokers)
        assert health.metadata_age is not None
        assert health.tasks == ("kclient:metadata",)
        assert any(c.state == "ready" for c in health.connections)
        assert core.metrics()["metadata.refreshes"] >= 1


async def test_bootstrap_addresses_that_are_no_brokers_are_named_in_time() -> None:
    bootstrap = "127.0.0.1:1,no-such-host.invalid:9092"
    started = time.monotonic()
    with pytest.raises(BootstrapFailed) as error:
        async with Admin(bootstrap, bootstrap_timeout=1.0):
            pass
    assert time.monotonic() - started < 6.0
    first, second = str(error.value).partition("within 1 s: ")[2].split("; ")
    assert "127.0.0.1:1" in first
    assert "no-such-host.invalid:9092" in second

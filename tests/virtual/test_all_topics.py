"""All topics of a cluster, as clients that subscribe by pattern watch them."""

from __future__ import annotations

import asyncio

import kclient
from kclient.testing import Cluster
from tests.virtual.relay import READ, core_of, now, read, refresh, sent_in_order


def lists(cluster: Cluster) -> int:
    """How often all topics were requested."""
    return sum(one.request.topics is None for one in cluster.requests.of("Metadata"))


async def test_topics_that_come_and_go_are_noticed_by_age_and_on_request() -> None:
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", partitions=2)
        async with core_of(cluster, metadata_max_age=60.0) as core:
            core.metadata.watch_all()
            assert list((await refresh(core)).listed) == ["t"]
            cluster.create_topic("u", partitions=3)
            view = await refresh(core)
            assert sorted(view.listed) == ["t", "u"]
            assert view.partition_count("u") == 3
            cluster.delete_topic("t")
            started = now()
            while "t" in core.metadata.view.topics:
                await core.metadata.wait_newer(core.metadata.view.version, 120.0)
            assert now() - started <= 61.0
            before = lists(cluster)
            await asyncio.sleep(630.0)
            assert lists(cluster) - before == 10


async def test_what_a_watcher_wants_by_name_is_kept_through_the_crash_of_a_leader() -> None:
    """While a new leader is awaited, no request for all topics is sent."""
    async with Cluster(brokers=3) as cluster:
        for name in ("t", "u", "v"):
            cluster.create_topic(name, assignments=[[1, 2, 3]])
        async with (
            kclient.Producer(cluster.bootstrap) as producer,
            kclient.Consumer(cluster.bootstrap, "t", **READ) as consumer,
        ):
            metadata = consumer._engine.core.metadata
            metadata.watch_all()
            await refresh(consumer)
            await sent_in_order(producer, 3)
            assert len(await read(consumer, 3)) == 3
            before = lists(cluster)
            await cluster.brokers[1].crash()
            await sent_in_order(producer, 3, first=3)
            assert len(await read(consumer, 3)) == 3
            assert metadata.view.leader("t", 0) == 2
            assert lists(cluster) == before
            assert set(metadata.view.listed) == {"t", "u", "v"}
            metadata.unwatch_all()
            await refresh(consumer)
            assert set(metadata.view.topics) == {"t"}


async def test_a_client_of_one_topic_among_many_requests_that_one_in_small_requests() -> None:
    async with Cluster(brokers=1) as cluster:
        for number in range(50):
            cluster.create_topic(f"topic-{number}")
        async with core_of(cluster) as core:
            core.metadata.add_topic("topic-7")
            await core.metadata.wait_for_topic("topic-7", 5.0)
            await asyncio.sleep(3600.0)
            assert list(core.metadata.view.topics) == ["topic-7"]
            asked = [one.request for one in cluster.requests.of("Metadata")]
            assert lists(cluster) == 0
            assert all(len(one.encode(13)) <= 1024 for one in asked)

"""What a consumer does with a new view of the cluster: as little as there is news in it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from kclient.broker_errors import LeaderNotAvailable
from kclient.consumer.fetch_scheduler import FetchScheduler
from kclient.consumer.partition_state import PartitionState
from kclient.consumer.subscription import Subscription
from kclient.testing import Cluster
from kclient.types import TopicPartition
from tests.support.views import with_brokers
from tests.unit.consumer.log_bytes import batch
from tests.virtual.consumer_scene import P, Q, T, fill, lead, offsets, read, reading, scene, until

OTHER = "ferries"


class Looks:
    """Which partitions were routed and compared with a view."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.routed: list[TopicPartition] = []
        self.seen: list[TopicPartition] = []
        route, see = FetchScheduler.route, Subscription.update_metadata

        def noted_route(plan: FetchScheduler, state: PartitionState, now: float) -> None:
            self.routed.append(state.topic_partition)
            route(plan, state, now)

        def noted_see(own: Subscription, state: PartitionState, *reported: Any) -> bool:
            self.seen.append(state.topic_partition)
            return see(own, state, *reported)

        patch.setattr(FetchScheduler, "route", noted_route)
        patch.setattr(Subscription, "update_metadata", noted_see)


def version_of(consumer: Any) -> int:
    version: int = consumer._engine.core.metadata.view.version
    return version


async def test_views_without_news_look_at_no_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scene(3, 200, metadata_max_age=0.2) as (_, consumer):
        await read(consumer, 600)
        looks, version = Looks(monkeypatch), version_of(consumer)
        await until(lambda: version_of(consumer) >= version + 5)
        assert (looks.routed, looks.seen) == ([], [])


async def test_only_the_topic_of_which_a_view_has_news_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Cluster(brokers=2) as cluster:
        fill(cluster, 3, 5)
        cluster.create_topic(OTHER, partitions=50, replication_factor=2)
        async with reading(cluster, T, OTHER, metadata_max_age=0.2) as consumer:
            await read(consumer, 15)
            looks = Looks(monkeypatch)
            lead(cluster, 0, 2)
            cluster.append(T, 0, batch(3, 2))
            assert offsets(await read(consumer, 2)) == {0: [3, 4]}
            await asyncio.sleep(1.0)
            assert {partition.topic for partition in looks.seen + looks.routed} == {T}


async def test_an_epoch_that_rose_is_news_though_the_leader_is_the_same() -> None:
    async with scene(3, brokers=2, metadata_max_age=0.2) as (cluster, consumer):
        await read(consumer, 3)
        (state,) = consumer._engine.subscription
        before = state.leader_epoch
        lead(cluster, 0, 2)
        lead(cluster, 0, 1)
        await until(lambda: state.leader_epoch == before + 2)
        cluster.append(T, 0, batch(3, 2))
        assert offsets(await read(consumer, 2)) == {0: [3, 4]}


async def test_a_broker_that_comes_back_into_the_view_is_fetched_from_again() -> None:
    async with scene(5, 2, brokers=2) as (cluster, consumer):
        await read(consumer, 10)
        engine = consumer._engine
        view, plan = engine.core.metadata.view, engine.fetcher.plan
        engine._view_changed(with_brokers(view, {1: view.brokers[1]}))
        assert dict.fromkeys(plan.unrouted) == {Q: None}
        assert [state.node_id for state in engine.subscription] == [1, None]
        engine._view_changed(view)
        assert plan.unrouted == {}
        cluster.append(T, 1, batch(5, 3))
        assert offsets(await read(consumer, 3)) == {1: [5, 6, 7]}


async def test_a_partition_in_the_view_is_reported_once_when_it_is_assigned() -> None:
    async with scene(5, 2) as (cluster, consumer):
        await read(consumer, 10)
        engine = consumer._engine
        consumer.unassign()
        reported: list[TopicPartition] = []
        change = engine.subscription._on_change

        def noted(states: Sequence[PartitionState]) -> None:
            reported.extend(state.topic_partition for state in states)
            change(states)

        engine.subscription._on_change = noted
        consumer.assign([P, Q])
        assert reported == [P, Q]
        assert [state.node_id for state in engine.subscription] == [1, 2]
        assert {state.topic_id for state in engine.subscription} == {cluster.topic_id(T)}
        engine.subscription._on_change = change
        assert offsets(await read(consumer, 10)) == {0: [*range(5)], 1: [*range(5)]}


async def test_a_partition_that_is_not_there_yet_is_read_once_it_is() -> None:
    async with scene(5, metadata_max_age=0.2) as (cluster, consumer):
        await read(consumer, 5)
        late = TopicPartition(T, 2)
        consumer.assign([P, late])
        await asyncio.sleep(1.0)
        cluster.add_partitions(T, 3)
        cluster.append(T, 2, batch(0, 4))
        assert offsets(await read(consumer, 4)) == {2: [0, 1, 2, 3]}


async def test_each_partition_of_a_topic_without_a_response_is_reported_after_patience() -> None:
    async with scene(1) as (_, consumer):
        await read(consumer, 1)
        engine = consumer._engine
        engine.subscription.assign(TopicPartition("nowhere", index) for index in range(3))
        states, waiting = list(engine.subscription), engine.fetcher.plan.unrouted
        assert list(waiting) == [state.topic_partition for state in states]
        end = max(waiting.values()) + engine.config.api_timeout
        engine.offsets._report_unrouted(end - 0.001)
        assert not engine.subscription.has_error
        engine.offsets._report_unrouted(end)
        assert [type(state.error) for state in states] == [LeaderNotAvailable] * 3

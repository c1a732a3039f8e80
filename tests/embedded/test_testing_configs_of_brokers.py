"""Configurations of single brokers, which apply to the logs of that broker alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kclient.testing import Cluster
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import produce
from tests.unit.testing.raw_peer import RawPeer

BROKER, SET, DELETE = 4, 0, 1
MOST = "message.max.bytes"


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with asyncio.timeout(60), Cluster(brokers=3) as one:
        one.create_topic("one", assignments=[[1]])
        one.create_topic("two", assignments=[[2]])
        one.create_topic("mine", assignments=[[2]], configs={"max.message.bytes": 1_000_000})
        yield one


async def alter(cluster: Cluster, name: str, value: str | None, asked: int = 2) -> int:
    entry = AlterableConfig(MOST, DELETE if value is None else SET, value)
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER, name, [entry])])
    async with RawPeer.to(cluster.brokers[asked].address) as peer:
        (reported,) = (await peer.call(request, 1)).responses
    return int(reported.error_code)


async def written(cluster: Cluster, topic: str) -> int:
    leader = cluster.brokers[cluster.leader(topic)]
    async with RawPeer.to(leader.address) as peer:
        answer = await peer.call(produce(topic, batch_bytes(40)), 9)
    return int(answer.responses[0].partition_responses[0].error_code)


async def test_what_is_set_on_one_broker_counts_on_that_one_alone(cluster: Cluster) -> None:
    assert await alter(cluster, "2", "100") == 0
    assert await written(cluster, "two") == ErrorCode.MESSAGE_TOO_LARGE
    assert await written(cluster, "one") == 0
    assert await written(cluster, "mine") == 0, "what the topic says itself comes first"
    cluster.create_topic("late", assignments=[[2]])
    assert await written(cluster, "late") == ErrorCode.MESSAGE_TOO_LARGE
    assert await alter(cluster, "2", None) == 0
    for topic in ("one", "two", "mine", "late"):
        assert await written(cluster, topic) == 0


async def test_one_broker_may_allow_what_all_others_do_not(cluster: Cluster) -> None:
    assert await alter(cluster, "", "100") == 0
    assert await alter(cluster, "2", "1000000") == 0
    assert await written(cluster, "one") == ErrorCode.MESSAGE_TOO_LARGE
    assert await written(cluster, "two") == 0
    await cluster.restart(2)
    assert await written(cluster, "two") == 0
    assert await alter(cluster, "2", None) == 0
    assert await written(cluster, "two") == ErrorCode.MESSAGE_TOO_LARGE


async def test_a_broker_that_hears_nothing_goes_by_what_it_knows(cluster: Cluster) -> None:
    cluster.disconnect(1, 2)  # and 1 is the controller
    assert await alter(cluster, "", "100", asked=1) == 0
    assert cluster.brokers[3].config.value(MOST) == 100
    assert cluster.brokers[2].config.value(MOST) != 100
    assert await written(cluster, "two") == 0
    assert await alter(cluster, "2", "1", asked=2) == ErrorCode.NOT_CONTROLLER
    cluster.reconnect()
    assert cluster.brokers[2].config.value(MOST) == 100
    assert await written(cluster, "two") == ErrorCode.MESSAGE_TOO_LARGE

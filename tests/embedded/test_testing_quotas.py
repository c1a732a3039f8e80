"""Quotas of clients: whose counts, for how long clients are throttled, and who isn't."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

import kclient
from kclient.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from kclient.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kclient.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from kclient.testing import Cluster, ClusterSecurity, ErrorCode, run_virtually
from kclient.testing.quota_rules import Entity
from kclient.testing.quotas import PRODUCER, Rate, quota_of
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import fetch, produce
from tests.unit.testing.raw_peer import RawPeer
from tests.unit.testing.sasl_peer import logged_in


def request_of(names: Mapping[str, str | None], **values: float) -> AlterClientQuotasRequest:
    entity = [RequestEntityData(*one) for one in names.items()]
    ops = [OpData(key, value) for key, value in values.items()]
    return AlterClientQuotasRequest([RequestEntryData(entity, ops)])


async def limit(cluster: Cluster, names: Mapping[str, str | None], **values: float) -> int:
    """Set quotas of an entity, and return the code."""
    async with RawPeer.to(cluster.bootstrap) as peer:
        found = await peer.call(request_of(names, **values), 1)
    return int(found.entries[0].error_code)


ALICE, APP = ("user", "alice"), ("client-id", "app")
ANY_USER, ANY_ID = ("user", None), ("client-id", None)
LEVELS: tuple[tuple[Entity, tuple[str, str]], ...] = (
    ((APP, ALICE), ("alice", "app")),
    ((ANY_ID, ALICE), ("alice", "app")),
    ((ALICE,), ("alice", "")),
    ((APP, ANY_USER), ("alice", "app")),
    ((ANY_ID, ANY_USER), ("alice", "app")),
    ((ANY_USER,), ("alice", "")),
    ((APP,), ("", "app")),
    ((ANY_ID,), ("", "app")),
)
"""From the most special one on, and whose rate each limits."""


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_the_most_special_quota_counts(level: int) -> None:
    quotas: dict[Entity, dict[str, float]] = {
        entity: {PRODUCER: float(index)}
        for index, (entity, _) in enumerate(LEVELS)
        if index >= level
    }
    if level:
        quotas[LEVELS[level - 1][0]] = {"consumer_byte_rate": 1.0}
    assert quota_of(quotas, PRODUCER, ("alice", "app")) == (LEVELS[level][1], float(level))


def test_others_have_none() -> None:
    quotas: dict[Entity, dict[str, float]] = {
        (APP, ALICE): {PRODUCER: 1.0},
        (APP,): {PRODUCER: 1.0},
    }
    assert quota_of(quotas, PRODUCER, ("bob", "other")) is None
    assert quota_of(quotas, PRODUCER, ("bob", "")) is None


def test_a_rate_is_over_ten_whole_windows_and_the_current_one() -> None:
    rate = Rate(11, 1000)
    rate.record(10_000, 0)
    assert rate.throttle_ms(1000, 0) == 0
    rate.record(500, 0)
    assert rate.throttle_ms(1000, 0) == 500
    assert rate.throttle_ms(1000, 999) == 0  # 10.999 s by then
    rate.record(3000, 5000)
    assert rate.throttle_ms(1000, 5000) == 3500
    assert rate.throttle_ms(1000, 11_000) == 0  # the first window's are gone
    rate.record(9_000, 12_000)
    assert rate.throttle_ms(1000, 12_000) == 2000


async def produced(peer: RawPeer, size: int, acks: int = -1) -> Any:
    request = produce("flights", batch_bytes(value=bytes(size)), acks=acks)
    return await peer.call(request, 9) if acks else peer.write(request, 9)


def test_a_connection_that_is_throttled_is_not_read() -> None:
    async def scene() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic("flights")
            loop = asyncio.get_running_loop()
            await limit(cluster, {"client-id": "raw"}, producer_byte_rate=1000.0)
            async with RawPeer.to(cluster.bootstrap) as peer:
                found = await produced(peer, 12_000)
                assert 2_000 < found.throttle_time_ms < 2_300
                begun = loop.time()
                await peer.call(fetch("flights", 0), 12)
                assert loop.time() - begun > 2.0
            async with RawPeer.to(cluster.bootstrap) as peer:
                await produced(peer, 1000, acks=0)
                begun = loop.time()
                await peer.call(fetch("flights", 0), 12)
                assert loop.time() - begun > 0.5

    run_virtually(scene())


async def test_each_broker_counts_by_itself_and_anew_after_a_restart() -> None:
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("flights", assignments=[[1], [2]])
        await limit(cluster, {"user": "ANONYMOUS"}, producer_byte_rate=1000.0)

        async def throttled(node_id: int) -> bool:
            async with RawPeer.to(cluster.brokers[node_id].address) as peer:
                request = produce("flights", batch_bytes(value=bytes(9_000)), partition=node_id - 1)
                return bool((await peer.call(request, 9)).throttle_time_ms)

        assert [await throttled(one) for one in (1, 1, 2, 2)] == [False, True] * 2
        await cluster.restart(1)
        assert not await throttled(1)


async def test_a_quota_of_a_user_is_for_all_connections_of_that_login() -> None:
    users = {"alice": "secret", "bob": "secret"}
    async with Cluster(brokers=1, security=ClusterSecurity(users)) as cluster:
        cluster.create_topic("flights")

        async def throttled(user: str) -> bool:
            async with logged_in(cluster, user, "secret") as peer:
                return bool((await produced(peer, 9_000)).throttle_time_ms)

        async with logged_in(cluster, "alice", "secret") as peer:
            await peer.call(request_of({"user": "alice"}, producer_byte_rate=1000.0), 1)
        assert [await throttled(one) for one in ("alice", "bob", "alice", "bob")] == [
            False,
            False,
            True,
            False,
        ]


async def test_followers_have_no_quota() -> None:
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("flights", replication_factor=3)
        await limit(cluster, {"client-id": None}, consumer_byte_rate=1.0)
        async with RawPeer.to(cluster.brokers[cluster.leader("flights")].address) as peer:
            for _ in range(3):
                assert (await produced(peer, 100_000)).throttle_time_ms == 0


def test_clients_are_as_fast_as_their_quotas_allow_and_see_no_error() -> None:
    """10 kB a second, of which 100 kB may be saved up; who has sent those at once waits twice."""

    async def scene() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic("flights")
            quotas = {"producer_byte_rate": 10_000.0, "consumer_byte_rate": 10_000.0}
            assert await limit(cluster, {"client-id": None}, **quotas) == 0
            loop = asyncio.get_running_loop()
            begun = loop.time()
            async with kclient.Producer(cluster.bootstrap) as producer:
                for _ in range(100):
                    await producer.send("flights", bytes(4_000))
            assert 25.0 < loop.time() - begun < 90.0
            begun, count = loop.time(), 0
            async with kclient.Consumer(
                cluster.bootstrap, "flights", auto_offset_reset="earliest"
            ) as consumer:
                while count < 100:
                    count += len(await consumer.poll(timeout=5.0))
            assert 25.0 < loop.time() - begun < 90.0

    run_virtually(scene())


def test_changes_of_the_cluster_are_refused_until_there_is_quota_again() -> None:
    async def scene() -> None:
        async with Cluster(brokers=3) as cluster:
            await limit(cluster, {"client-id": "admin"}, controller_mutation_rate=1.0)
            loop = asyncio.get_running_loop()
            async with RawPeer.to(cluster.bootstrap, "admin") as peer:
                codes = [await created(peer, f"t-{one}", 6) for one in range(3)]
                assert codes == [0, 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
                begun = loop.time()
                assert await created(peer, "t-4", 1) == 0
                assert loop.time() - begun == pytest.approx(1.0, abs=0.1)
            async with RawPeer.to(cluster.bootstrap, "another") as peer:
                assert await created(peer, "t-5", 100) == 0

    run_virtually(scene())


async def created(peer: RawPeer, name: str, partitions: int) -> int:
    found = await peer.call(CreateTopicsRequest([CreatableTopic(name, partitions, 1)]), 7)
    return int(found.topics[0].error_code)


@pytest.mark.parametrize("after", [False, True])
async def test_a_fault_is_each_entity_s_outcome(after: bool) -> None:
    async with Cluster(brokers=1) as cluster, RawPeer.to(cluster.bootstrap) as peer:
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        cluster.faults.error("AlterClientQuotas", code, after=after)
        assert await limit(cluster, {"user": "alice"}, request_percentage=5.0) == code
        everyone = DescribeClientQuotasRequest([], strict=False)
        assert len((await peer.call(everyone, 1)).entries) == after
        cluster.faults.error("DescribeClientQuotas", code)
        assert (await peer.call(everyone, 1)).error_code == code

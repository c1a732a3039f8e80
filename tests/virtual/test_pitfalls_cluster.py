"""Pitfalls of metadata on virtual time: what brokers report late, wrongly, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kclient
from kclient.error_codes import ErrorCode
from kclient.errors import MetadataTimedOut
from kclient.protocol.messages.metadata import MetadataResponseBroker
from kclient.testing import Cluster
from tests.virtual.relay import (
    READ,
    core_of,
    network,
    now,
    numbers,
    read,
    refresh,
    sent_in_order,
    values,
)

# 52: leader epochs


async def test_pitfall_52_leader_epochs_do_not_go_back() -> None:
    """A broker that lags behind can't lead us back to an old leader."""
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", assignments=[[1, 2]])
        async with core_of(cluster) as core:
            await core.metadata.wait_for_topic("t", 5.0)
            cluster.brokers[3].freeze_metadata()
            for leader in (2, 1, 2):
                cluster.move_leader("t", 0, leader)
            while (await refresh(core)).leader_epoch("t", 0) != 3:
                pass
            cluster.requests.clear()
            for _ in range(9):
                view = await refresh(core)
                assert (view.leader("t", 0), view.leader_epoch("t", 0)) == (2, 3)
            assert cluster.requests.of("Metadata", broker=3)


async def test_pitfall_52_a_producer_and_a_consumer_stay_with_the_new_leader() -> None:
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", assignments=[[1, 2]])
        async with (
            kclient.Producer(cluster.bootstrap) as producer,
            kclient.Consumer(cluster.bootstrap, "t", **READ) as consumer,
        ):
            await sent_in_order(producer, 5)
            assert await read(consumer, 5) == numbers(5)
            cluster.brokers[3].freeze_metadata()
            cluster.move_leader("t", 0, 2)
            await sent_in_order(producer, 5, first=5)
            assert await read(consumer, 5) == numbers(10)[5:]
            cluster.requests.clear()
            for turn in range(6):
                for client in (producer, consumer):
                    assert (await refresh(client)).leader("t", 0) == 2
                await sent_in_order(producer, 2, first=10 + 2 * turn)
                assert len(await read(consumer, 2)) == 2
            assert cluster.requests.of("Metadata", broker=3)
            assert not cluster.requests.of("Produce", broker=1)
        assert values(cluster) == numbers(22)


async def test_pitfall_52_a_response_without_epochs_is_accepted_in_a_roll() -> None:
    """Brokers before 2.4 report no epoch that can be trusted; their leaders still count."""
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignments=[[1, 2]])
        async with kclient.Producer(cluster.bootstrap) as producer:
            await sent_in_order(producer, 2)
            for _ in range(3):
                cluster.move_leader("t", 0, 3 - cluster.leader("t"))
            await sent_in_order(producer, 2, first=2)
            for broker in (1, 2):
                cluster.brokers[broker].speak("Metadata", 0, 8)
                cluster.brokers[broker].speak("Produce", 3, 8)
                await cluster.restart(broker)
            cluster.move_leader("t", 0, 3 - cluster.leader("t"))
            await sent_in_order(producer, 2, first=4)
            view = await refresh(producer)
            assert (view.leader("t", 0), view.leader_epoch("t", 0)) == (cluster.leader("t"), -1)
        assert values(cluster) == numbers(6)


# 53: the topic is created again


async def test_pitfall_53_a_new_topic_id_forgets_epochs_and_partitions_of_the_old_one() -> None:
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignments=[[1, 2], [2, 1]])
        async with core_of(cluster) as core:
            for _ in range(5):
                cluster.move_leader("t", 0, 3 - cluster.leader("t"))
            await core.metadata.wait_for_topic("t", 5.0)
            assert core.metadata.view.leader_epoch("t", 0) == 5
            cluster.delete_topic("t")
            cluster.create_topic("t", assignments=[[2]])
            view = await refresh(core)
            assert (view.leader("t", 0), view.leader_epoch("t", 0)) == (2, 0)
            assert view.partition_count("t") == 1
            assert view.topic_id("t") == cluster.topic_id("t")


async def test_pitfall_53_a_consumer_starts_over_in_a_topic_that_was_created_again() -> None:
    """No fetch requests an offset of the old log from the new one; with fewer partitions, too."""
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=2)
        async with (
            kclient.Producer(cluster.bootstrap) as producer,
            kclient.Consumer(cluster.bootstrap, "t", **READ) as consumer,
        ):
            for partition in (0, 1):
                await sent_in_order(producer, 50, partition=partition)
            assert len(await read(consumer, 100)) == 100
            cluster.delete_topic("t")
            cluster.create_topic("t", partitions=1)
            cluster.requests.clear()
            new_id = cluster.topic_id("t")
            await sent_in_order(producer, 3)
            assert await read(consumer, 3) == numbers(3)
            asked = [
                part.fetch_offset
                for served in cluster.requests.of("Fetch")
                for topic in served.request.topics
                if topic.topic_id == new_id
                for part in topic.partitions
            ]
            assert asked
            assert max(asked) <= 3


async def test_pitfall_53_a_consumer_is_not_thrown_back_by_a_broker_that_lags_behind() -> None:
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", assignments=[[1]])
        async with (
            kclient.Producer(cluster.bootstrap) as producer,
            kclient.Consumer(cluster.bootstrap, "t", **READ) as consumer,
        ):
            await sent_in_order(producer, 3)
            assert await read(consumer, 3) == numbers(3)
            cluster.brokers[3].freeze_metadata()
            cluster.delete_topic("t")
            cluster.create_topic("t", assignments=[[1]])
            await sent_in_order(producer, 3)
            assert await read(consumer, 3) == numbers(3)
            cluster.requests.clear()
            for turn in range(1, 8):
                view = await refresh(consumer)
                assert view.topic_id("t") == cluster.topic_id("t")
                await sent_in_order(producer, 1, first=2 + turn)
                assert await read(consumer, 1) == [b"%d" % (2 + turn)]
            assert cluster.requests.of("Metadata", broker=3)


# 54: no storms, no empty views, and a way back when every address has changed


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE])
async def test_pitfall_54_a_leader_that_keeps_refusing_makes_no_storm(code: ErrorCode) -> None:
    """The metadata names it again and again: refreshes thin out to one a second."""
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", partitions=10)
        refused = cluster.faults.error("Produce", code, times=None, topic="t")
        async with kclient.Producer(cluster.bootstrap, delivery_timeout=300.0) as producer:
            deliveries = [producer.send("t", b"v", partition=n % 10) for n in range(100)]
            await asyncio.sleep(5.0)
            cluster.requests.clear()
            await asyncio.sleep(60.0)
            assert 30 <= cluster.requests.count("Metadata") <= 80
            assert cluster.requests.count("Produce") <= 10 * 80
            cluster.faults.remove(refused)
            for delivery in deliveries:
                await delivery


async def test_pitfall_54_a_response_without_brokers_changes_nothing() -> None:
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignments=[[1, 2]])
        async with kclient.Producer(cluster.bootstrap, metadata_max_age=1.0) as producer:
            await sent_in_order(producer, 1)

            def empty(request: Any, response: Any) -> None:
                response.brokers.clear()

            lie = cluster.faults.rewrite("Metadata", empty, times=None)
            known = producer._core.metadata.view
            for number in range(1, 31):
                await asyncio.sleep(1.0)
                await sent_in_order(producer, 1, first=number)
            assert producer._core.metadata.view is known
            assert lie.hits >= 10
            assert lie.hits <= 60  # and that is no storm
            assert "no brokers" in str(producer.health().client.metadata_error)
            cluster.faults.remove(lie)
            await asyncio.sleep(3.0)
            assert producer.health().client.metadata_error is None
        assert values(cluster) == numbers(31)


async def test_pitfall_54_when_all_addresses_changed_the_bootstrap_name_is_looked_up() -> None:
    """KIP-899: the name stands for other machines now, and so does each broker's own address."""
    async with Cluster(brokers=3) as cluster:
        net = network()
        net.set_name("kafka", "broker-1", "broker-2", "broker-3")
        cluster.create_topic("t", assignments=[[1, 2, 3]])
        async with (
            kclient.Producer("kafka:9092") as producer,
            kclient.Consumer("kafka:9092", "t", **READ) as consumer,
        ):
            await sent_in_order(producer, 5)
            assert await read(consumer, 5) == numbers(5)
            for broker in (1, 2, 3):
                await cluster.move(broker, host=f"new-{broker}", port=9092)
            net.set_name("kafka", "new-3", "new-1", "new-2")
            begun = now()
            await sent_in_order(producer, 5, first=5)
            assert await read(consumer, 5) == numbers(10)[5:]
            assert now() - begun < 10.0
        assert values(cluster) == numbers(10)


async def test_pitfall_54_brokers_that_hang_are_left_for_the_bootstrap_name_in_time() -> None:
    """KIP-1102: each known broker would use up its time-out; the trigger is their common limit."""
    async with Cluster(brokers=1) as cluster:
        net = network()
        net.set_name("kafka", "broker-1")
        cluster.create_topic("t")

        def crowd(request: Any, response: Any) -> None:
            response.brokers += [
                MetadataResponseBroker(node_id=number, host=f"hangs-{number}", port=9092, rack=None)
                for number in range(2, 30)
            ]

        cluster.faults.rewrite("Metadata", crowd, times=None)
        net.blackhole("hangs")
        for number in range(2, 30):
            net.blackhole(f"hangs-{number}")
        async with core_of(
            cluster, bootstrap="kafka:9092", metadata_recovery_rebootstrap_trigger=60.0
        ) as core:
            await cluster.move(1, host="elsewhere", port=9092)
            net.set_name("kafka", "elsewhere")
            cluster.faults.clear()
            begun, seen = now(), core.metadata.view.version
            core.metadata.request_update()
            view = await core.metadata.wait_newer(seen, 600.0)
            # The trigger, and the time-outs of the attempts that it may not cut short.
            assert 60.0 <= now() - begun <= 60.0 + 2 * 30.0
            assert [broker.host for broker in view.brokers.values()] == ["elsewhere"]


async def test_pitfall_54_rebootstrap_required_leads_back_at_once() -> None:
    """KIP-1102: a broker may request it itself."""
    async with Cluster(brokers=3) as cluster:
        net = network()
        net.set_name("kafka", "broker-2")
        async with core_of(cluster, bootstrap="kafka:9092") as core:
            await refresh(core)
            required = {"left": 2}

            def go_away(request: Any, response: Any) -> None:
                if required["left"]:
                    required["left"] -= 1
                    response.error_code = ErrorCode.REBOOTSTRAP_REQUIRED
                    response.brokers = []
                    response.topics = []

            cluster.faults.rewrite("Metadata", go_away, times=None)
            await asyncio.sleep(60.0)
            begun, seen = now(), core.metadata.view.version
            core.metadata.request_update()
            await core.metadata.wait_newer(seen, 10.0)
            assert now() - begun < 2.0
            [bootstrap] = [c for c in core.network.snapshot() if c.node_id == -1]
            assert bootstrap.idle_for is not None
            assert bootstrap.idle_for < 2.0
            assert core.health().ok


async def test_pitfall_54_without_any_broker_waits_end_with_a_typed_error() -> None:
    async with Cluster(brokers=2) as cluster, core_of(cluster) as core:
        cluster.create_topic("t")
        for broker in (1, 2):
            await cluster.crash(broker)
        begun = now()
        with pytest.raises(MetadataTimedOut, match="refused"):
            await core.metadata.wait_for_topic("t", 30.0)
        assert now() - begun == pytest.approx(30.0, abs=0.1)
        # Both brokers by id and by bootstrap address, each at most once a second in the end.
        assert len(network().dials) <= 4 * 40
        for broker in (1, 2):
            await cluster.restart(broker)
        assert await core.metadata.wait_for_topic("t", 30.0)

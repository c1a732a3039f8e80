"""Brokers that stop and start, topics made by tests, and a cluster that leaves nothing behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kclient.clock import SystemClock
from kclient.errors import BrokerError, InvalidConfig
from kclient.protocol.headers import encode_request
from kclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kclient.protocol.primitives import ZERO_UUID
from kclient.testing import Cluster, LoopProbe, TopicDefaults
from tests.support.holds import held, run_held
from tests.support.yardstick import NOMINAL, yardstick
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import fetch, produce
from tests.unit.testing.raw_peer import RawPeer


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with asyncio.timeout(60), Cluster(brokers=3) as one:
        yield one


async def metadata(address: str, *topics: str, auto_create: bool = False) -> Any:
    asked = [MetadataRequestTopic(ZERO_UUID, name) for name in topics]
    async with RawPeer.to(address) as peer:
        return await peer.call(MetadataRequest(asked, auto_create), 12)


async def test_every_broker_has_an_address_of_its_own(cluster: Cluster) -> None:
    addresses = cluster.bootstrap.split(",")
    assert len(set(addresses)) == 3
    for address in addresses:
        got = await metadata(address)
        assert [(one.node_id, f"{one.host}:{one.port}") for one in got.brokers] == list(
            enumerate(addresses, 1)
        )
        assert got.cluster_id == cluster.cluster_id
        assert got.controller_id == cluster.controller_id == 1


async def test_racks_are_reported() -> None:
    async with Cluster(2, racks=["a", None]) as cluster:
        got = await metadata(cluster.bootstrap)
    assert [one.rack for one in got.brokers] == ["a", None]


def test_an_unknown_broker_config_is_refused() -> None:
    with pytest.raises(InvalidConfig):
        Cluster(1, broker_configs={"nope": 1})


async def test_starting_and_closing_twice_is_fine() -> None:
    cluster = Cluster(2)
    await cluster.start()
    bootstrap = cluster.bootstrap
    await cluster.start()
    assert cluster.bootstrap == bootstrap
    await cluster.close()
    await cluster.close()
    assert not cluster.brokers[1].running


async def test_what_was_written_can_be_read_after_the_close() -> None:
    async with Cluster(1) as cluster:
        cluster.create_topic("t")
        async with RawPeer.to(cluster.bootstrap) as peer:
            await peer.call(produce("t", batch_bytes(2)), 9)
    assert len(cluster.records("t")) == 2


async def test_closing_ends_what_waits(cluster: Cluster) -> None:
    cluster.create_topic("t")
    async with RawPeer.to(cluster.brokers[1].address) as peer:
        peer.write(fetch("t", 0, max_wait_ms=600_000), 12)
        await cluster.requests.wait_count("Fetch", 1)
        began = time.monotonic()
        await cluster.close()
        assert time.monotonic() - began < 5
        assert await peer.read_end() == b""


async def test_closing_is_bounded_where_a_client_does_not_read(cluster: Cluster) -> None:
    cluster.create_topic("t", configs={"max.message.bytes": 20_000_000})
    cluster.append("t", 0, batch_bytes(1, value=b"x" * 10_000_000))
    reader, writer = await asyncio.open_connection(
        cluster.brokers[1].host, cluster.brokers[1].port, limit=1
    )
    writer.write(encode_request(fetch("t", 0, max_bytes=1), 12, 1, "x"))
    await cluster.requests.wait_count("Fetch", 1)
    began = time.monotonic()
    await cluster.close()
    assert time.monotonic() - began < 3
    writer.transport.abort()
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await reader.readexactly(20_000_000)


async def test_a_broker_that_stops_sends_its_responses_first(cluster: Cluster) -> None:
    cluster.create_topic("t")
    async with RawPeer.to(cluster.brokers[1].address) as peer:
        correlation = peer.write(produce("t", batch_bytes()), 9)
        await cluster.requests.wait_count("Produce", 1)
        await cluster.stop(1)
        await peer.read(type(produce("t", None)), 9, correlation)
        assert await peer.read_end() == b""


async def test_a_crashed_broker_resets_its_connections_and_refuses_new_ones(
    cluster: Cluster,
) -> None:
    address = cluster.brokers[1].address
    async with RawPeer.to(address) as peer:
        await peer.call(MetadataRequest([]), 12)
        await cluster.crash(1)
        assert await peer.read_end() == b""
    with pytest.raises(ConnectionRefusedError):
        await metadata(address)


async def test_a_broker_comes_back_on_its_port_with_its_records(cluster: Cluster) -> None:
    cluster.create_topic("t", assignments=[[1]])
    cluster.append("t", 0, batch_bytes(3))
    port = cluster.brokers[1].port
    await cluster.crash(1)
    assert cluster.leader("t") == -1
    got = await metadata(cluster.brokers[2].address, "t")
    assert got.topics[0].partitions[0].error_code == 5  # LEADER_NOT_AVAILABLE
    await cluster.restart(1)
    assert cluster.brokers[1].port == port
    assert (cluster.leader("t"), cluster.leader_epoch("t")) == (1, 2)
    assert len(cluster.records("t")) == 3


async def test_topics_are_made_grown_and_deleted(cluster: Cluster) -> None:
    assert cluster.create_topic("t", partitions=2, replication_factor=2) == "t"
    cluster.add_partitions("t", 5)
    assert (cluster.topics, cluster.partition_count("t")) == (["t"], 5)
    first = cluster.topic_id("t")
    cluster.delete_topic("t")
    assert cluster.topics == []
    cluster.create_topic("t")
    assert cluster.topic_id("t") != first
    assert cluster.partition_count("t") == 1


async def test_what_a_client_could_not_do_is_refused(cluster: Cluster) -> None:
    with pytest.raises(BrokerError, match="INVALID_TOPIC_EXCEPTION"):
        cluster.create_topic("a b")
    with pytest.raises(BrokerError, match="INVALID_REPLICATION_FACTOR"):
        cluster.create_topic("t", replication_factor=4)
    for refused in (cluster.delete_topic, cluster.topic_id, cluster.partition_count):
        with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            refused("nope")
    cluster.create_topic("t", partitions=2)
    with pytest.raises(BrokerError, match="INVALID_PARTITIONS"):
        cluster.add_partitions("t", 1)
    with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE"):
        cluster.delete_records("t", 0, 1)
    with pytest.raises(BrokerError, match="REPLICA_NOT_AVAILABLE"):
        cluster.create_topic("u", assignments=[[1]])
        cluster.move_leader("u", 0, 2)


async def test_defaults_of_topics_are_the_clusters() -> None:
    async with Cluster(2, topic_defaults=TopicDefaults(3, 1)) as cluster:
        cluster.create_topic("t")
        assert cluster.partition_count("t") == 3
        got = await metadata(cluster.bootstrap, "t")
    assert [part.replica_nodes for part in got.topics[0].partitions] == [[1], [2], [1]]


async def test_topics_are_made_on_demand_only_where_that_is_on() -> None:
    async with Cluster(1, auto_create_topics=True) as cluster:
        assert (await metadata(cluster.bootstrap, "t")).topics[0].error_code == 3
        asked = await metadata(cluster.bootstrap, "t", auto_create=True)
        assert asked.topics[0].error_code == 3  # UNKNOWN_TOPIC_OR_PARTITION: as Kafka does at first
        assert (await metadata(cluster.bootstrap, "t")).topics[0].error_code == 0
        bad = await metadata(cluster.bootstrap, "a b", auto_create=True)
        assert bad.topics[0].error_code == 17
    async with Cluster(1) as cluster:
        asked = await metadata(cluster.bootstrap, "t", auto_create=True)
        assert asked.topics[0].error_code == 3
        assert cluster.topics == []


async def test_the_clock_gives_the_times_of_records() -> None:
    class Fixed(SystemClock):
        def wall_ms(self) -> int:
            return 12_345

    async with Cluster(1, clock=Fixed()) as cluster:
        cluster.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
        async with RawPeer.to(cluster.bootstrap) as peer:
            await peer.call(produce("t", batch_bytes()), 9)
        assert cluster.records("t")[0].timestamp == 12_345


async def test_the_same_seed_gives_the_same_ids() -> None:
    facts = []
    for seed in (1, 1, 2):
        async with Cluster(1, seed=seed) as cluster:
            cluster.create_topic("t")
            facts.append((cluster.cluster_id, cluster.topic_id("t")))
    assert facts[0] == facts[1]
    assert facts[0] != facts[2]


async def test_three_brokers_are_up_within_300_ms_of_cpu() -> None:
    costs = []
    for _ in range(3):
        unit, began = yardstick(), time.process_time()
        async with Cluster(3):
            costs.append((time.process_time() - began) / unit)
    assert min(costs) * NOMINAL < 0.3


async def fetch_a_lot() -> None:
    async with Cluster(1) as cluster:
        cluster.create_topic("t", partitions=30)
        data = batch_bytes(9000, value=b"x" * 100)
        for index in range(30):
            cluster.append("t", index, data)
        host, port = cluster.brokers[1].host, cluster.brokers[1].port
        reader, writer = await asyncio.open_connection(host, port)
        with LoopProbe() as probe:
            writer.write(encode_request(fetch("t", *range(30), max_bytes=50 << 20), 12, 1, "x"))
            left = 8 * len(data)  # what the brokers' own limit allows for
            while left > 0:  # in small pieces: the probe is to measure the broker, not this reader
                left -= len(await reader.read(1 << 16))
        writer.transport.abort()
    held(probe)


def test_large_fetches_do_not_hold_the_loop() -> None:
    run_held(fetch_a_lot)

"""Brokers of the embedded cluster that move, swap addresses, lag, or serve fewer versions."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from kclient import Producer
from kclient.error_codes import ErrorCode
from kclient.errors import BrokerError, InvalidArgument
from kclient.protocol.messages.api_versions import ApiVersionsRequest
from kclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kclient.protocol.primitives import ZERO_UUID
from kclient.testing import Cluster
from tests.unit.testing.raw_peer import RawPeer


async def asked(address: str, *topics: str, version: int = 12) -> Any:
    names = [MetadataRequestTopic(ZERO_UUID, name) for name in topics]
    async with RawPeer.to(address) as peer:
        return await peer.call(MetadataRequest(names, False), version)


def addresses(cluster: Cluster) -> dict[int, str]:
    return {node_id: broker.address for node_id, broker in cluster.brokers.items()}


async def test_a_broker_moves_and_keeps_what_it_has() -> None:
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignments=[[1]])
        before = addresses(cluster)
        await cluster.move(1)
        assert cluster.brokers[1].address != before[1]
        assert cluster.brokers[2].address == before[2]
        reported = await asked(before[2], "t")
        assert {f"{b.host}:{b.port}" for b in reported.brokers} == {*addresses(cluster).values()}
        assert reported.topics[0].partitions[0].leader_id == 1
        with pytest.raises(ConnectionError):
            await asked(before[1])
        await cluster.restart(1)
        assert (await asked(cluster.brokers[1].address)).brokers == reported.brokers


async def test_a_broker_moves_to_another_host() -> None:
    async with Cluster(brokers=1) as cluster:
        await cluster.move(1, host="127.0.0.2")
        assert cluster.brokers[1].host == "127.0.0.2"
        assert (await asked(cluster.bootstrap)).brokers[0].host == "127.0.0.2"


@pytest.mark.parametrize("host", ["nowhere.invalid", None])
async def test_a_broker_that_cannot_move_is_down_and_the_note_has_the_remedy(
    host: str | None,
) -> None:
    async with Cluster(brokers=2) as cluster:
        old, taken = cluster.brokers[1].address, cluster.brokers[2].port
        with pytest.raises(OSError) as caught:
            await cluster.move(1, host=host, port=taken)
        assert caught.value.__notes__ == [
            f"broker 1 can't listen at {host or '127.0.0.1'}:{taken}; it is down, and its address "
            f"is still {old}: restart(1) brings it back there, move(1) elsewhere"
        ]
        assert not cluster.brokers[1].running
        await cluster.restart(1)
        assert (await asked(old)).brokers


async def test_a_broker_whose_port_was_taken_meanwhile_comes_back_elsewhere() -> None:
    async with Cluster(brokers=2) as cluster:
        await cluster.crash(1)
        host, port = cluster.brokers[1].host, cluster.brokers[1].port
        with socket.create_server((host, port)):
            with pytest.raises(OSError) as caught:
                await cluster.restart(1)
            assert (
                f"broker 1 can't listen at {host}:{port}; it is down" in caught.value.__notes__[0]
            )
            await cluster.move(1)
        assert cluster.brokers[1].running
        assert cluster.brokers[1].port != port


async def test_two_brokers_swap_their_addresses() -> None:
    async with Cluster(brokers=3) as cluster:
        before = addresses(cluster)
        await cluster.swap_addresses(1, 3)
        assert addresses(cluster) == {1: before[3], 2: before[2], 3: before[1]}
        async with RawPeer.to(before[3]) as peer:
            await peer.call(MetadataRequest([], False), 12)
        assert cluster.requests.of("Metadata")[-1].broker == 1


async def test_a_broker_with_frozen_metadata_lags_behind_until_thawed() -> None:
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignments=[[1, 2]])
        old_id = cluster.topic_id("t")
        cluster.brokers[2].freeze_metadata()
        cluster.delete_topic("t")
        cluster.create_topic("t", assignments=[[2, 1], [2, 1]])
        cluster.create_topic("u")
        await cluster.move(1)
        now, then = (
            await asked(cluster.brokers[1].address, "t", "u"),
            await asked(cluster.brokers[2].address, "t", "u"),
        )
        assert (len(now.topics[0].partitions), now.topics[0].topic_id) == (
            2,
            cluster.topic_id("t"),
        )
        assert (len(then.topics[0].partitions), then.topics[0].topic_id) == (1, old_id)
        assert then.topics[0].partitions[0].leader_id == 1
        assert then.topics[1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert then.brokers != now.brokers
        cluster.brokers[2].thaw_metadata()
        assert (await asked(cluster.brokers[2].address, "t", "u")).topics == now.topics


async def test_a_broker_speaks_less_than_another_one() -> None:
    async with Cluster(brokers=2) as cluster:
        cluster.brokers[1].speak("Metadata", 2, 5)
        said = {}
        for node_id, address in addresses(cluster).items():
            async with RawPeer.to(address) as peer:
                reported = await peer.call(ApiVersionsRequest(), 0)
                said[node_id] = next(k for k in reported.api_keys if k.api_key == 3)
        assert (said[1].min_version, said[1].max_version) == (2, 5)
        assert said[2].max_version > 5
        assert await asked(cluster.brokers[1].address, version=5)
        with pytest.raises((ConnectionError, EOFError)):
            await asked(cluster.brokers[1].address, version=6)


async def test_an_older_apiversions_is_asked_for_in_version_0() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.brokers[1].speak("ApiVersions", 0, 2)
        async with RawPeer.to(cluster.bootstrap) as peer:
            reported = await peer.read(ApiVersionsRequest, 0, peer.write(ApiVersionsRequest(), 4))
        assert reported.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(k.api_key, k.max_version) for k in reported.api_keys] == [(18, 2)]


async def test_versions_that_are_not_served_are_refused() -> None:
    async with Cluster(brokers=1) as cluster:
        for lowest, highest in ((0, 99), (5, 4), (-1, 2)):
            with pytest.raises(InvalidArgument, match="within 0 to 13"):
                cluster.brokers[1].speak("Metadata", lowest, highest)


async def test_the_coordinator_of_a_transactional_id_moves_with_its_open_transaction() -> None:
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("t")
        assert cluster.transaction_coordinator("x") == -1
        cluster.move_transaction_coordinator("x", 2)
        assert cluster.transaction_coordinator("x") == 2
        async with Producer(cluster.bootstrap, transactional_id="x") as producer:
            assert cluster.requests.of("InitProducerId")[-1].broker == 2
            async with producer.transaction() as txn:
                await txn.send("t", b"one")
                cluster.move_transaction_coordinator("x", 3)
                await txn.send("t", b"two")
        assert cluster.transaction_coordinator("x") == 3
        assert cluster.requests.of("EndTxn")[-1].broker == 3
        assert [one.value for one in cluster.records("t")] == [b"one", b"two"]
        assert cluster.log("t").transactions.first_open_offset is None


async def test_only_a_replica_in_sync_becomes_coordinator_of_a_transactional_id() -> None:
    factors = {"transaction.state.log.replication.factor": 1, "transaction.state.log.min.isr": 1}
    async with Cluster(brokers=2, broker_configs=factors) as cluster:
        cluster.brokers[1].transactions.find("x")
        home = cluster.transaction_coordinator("x")
        with pytest.raises(BrokerError, match="REPLICA_NOT_AVAILABLE"):
            cluster.move_transaction_coordinator("x", 3 - home)
        assert cluster.transaction_coordinator("x") == home

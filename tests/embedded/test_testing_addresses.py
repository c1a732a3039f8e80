"""Clusters at fixed addresses, for development against one."""

from __future__ import annotations

import asyncio
import socket

import pytest

import kclient
from kclient.errors import InvalidArgument
from kclient.testing import Cluster, MemoryNet, ThreadedCluster
from tests.embedded.config_requests import BROKER, shown
from tests.support.free_ports import ports_in_a_row
from tests.unit.testing.raw_peer import RawPeer


async def test_brokers_are_at_the_port_and_those_behind_it() -> None:
    port = ports_in_a_row(3)
    async with asyncio.timeout(60), Cluster(3, port=port) as cluster:
        assert cluster.bootstrap.split(",") == [f"127.0.0.1:{port + index}" for index in range(3)]
        cluster.create_topic("t")
        await cluster.crash(1)
        await cluster.restart(1)
        assert cluster.brokers[1].port == port
        async with kclient.Admin(cluster.bootstrap) as admin:
            seen = await admin.describe_cluster()
        assert sorted(one.port for one in seen.brokers) == [port, port + 1, port + 2]


async def test_a_cluster_may_start_again_at_once_where_one_was() -> None:
    port = ports_in_a_row(1)
    for _ in range(2):
        async with asyncio.timeout(60), Cluster(1, port=port) as cluster:
            async with kclient.Admin(cluster.bootstrap) as admin:
                await admin.describe_cluster()


async def test_the_given_host_is_advertised_to_clients() -> None:
    async with asyncio.timeout(60), Cluster(2, host="127.0.0.2") as cluster:
        assert all(one.startswith("127.0.0.2:") for one in cluster.bootstrap.split(","))
        async with kclient.Admin(cluster.bootstrap) as admin:
            seen = await admin.describe_cluster()
        assert {one.host for one in seen.brokers} == {"127.0.0.2"}


async def test_an_ipv6_address_is_in_brackets_wherever_a_port_follows() -> None:
    async with asyncio.timeout(60), Cluster(2, host="::1") as cluster:
        broker = cluster.brokers[1]
        assert broker.host == "::1"
        assert broker.address == f"[::1]:{broker.port}"
        assert all(one.startswith("[::1]:") for one in cluster.bootstrap.split(","))
        cluster.create_topic("t")
        async with (
            kclient.Producer(cluster.bootstrap) as producer,
            kclient.Admin(cluster.bootstrap) as admin,
            RawPeer(broker.host, broker.port) as peer,
        ):
            assert (await producer.send("t", b"0")).offset == 0
            known = {one.address for one in producer.health().client.nodes}
            assert known == set(cluster.bootstrap.split(","))
            assert {one.host for one in (await admin.describe_cluster()).brokers} == {"::1"}
            reported = await shown(peer, BROKER, "1", "listeners")
        assert reported[0] == f"PLAINTEXT://{broker.address}"
        port = broker.port
        await cluster.crash(1)
        with socket.create_server(("::1", port), family=socket.AF_INET6):
            with pytest.raises(OSError, match=str(port)) as caught:
                await cluster.restart(1)
        assert f"broker 1 can't listen at [::1]:{port}" in caught.value.__notes__[0]


def test_a_threaded_cluster_gives_ipv6_addresses_in_brackets() -> None:
    with ThreadedCluster(Cluster(1, host="::1")) as cluster:
        assert cluster.bootstrap == f"[::1]:{cluster.brokers[1].port}"


async def test_a_port_that_is_taken_fails_the_start_and_frees_the_others() -> None:
    port = ports_in_a_row(2)
    with socket.create_server(("127.0.0.1", port + 1)):
        with pytest.raises(OSError, match=str(port + 1)) as caught:
            await Cluster(2, port=port).start()
        (note,) = caught.value.__notes__
        assert f"broker 2 can't listen at 127.0.0.1:{port + 1}, so the cluster isn't" in note
        assert "port=0 finds free ports" in note
        socket.create_server(("127.0.0.1", port)).close()


async def test_a_port_in_memory_that_is_taken_is_named() -> None:
    async with asyncio.timeout(60), Cluster(2, network=MemoryNet(), port=9092) as cluster:
        taken = cluster.brokers[2].port
        with pytest.raises(OSError, match="broker-1:9092 is listened at already") as caught:
            await Cluster(1, network=cluster._shared.network, port=9092).start()
        assert "broker 1 can't listen at port 9092, so" in caught.value.__notes__[0]
        assert cluster.brokers[2].port == taken


async def test_a_broker_that_cannot_be_added_for_its_port_is_not_there() -> None:
    port = ports_in_a_row(2)
    async with asyncio.timeout(60), Cluster(1, port=port) as cluster:
        with socket.create_server(("127.0.0.1", port + 1)):
            with pytest.raises(OSError) as caught:
                await cluster.add_broker()
        note = f"no broker was added: 2 can't listen at 127.0.0.1:{port + 1}"
        assert caught.value.__notes__ == [note]
        assert list(cluster.brokers) == [1]
        assert await cluster.add_broker() == 2


async def test_brokers_on_a_network_in_memory_have_the_ports_that_were_asked_for() -> None:
    async with asyncio.timeout(60), Cluster(2, network=MemoryNet(), port=9092) as cluster:
        assert cluster.bootstrap == "broker-1:9092,broker-2:9093"


@pytest.mark.parametrize("port", [-1, 65_534, 65_536, True, "9092", None])
def test_ports_that_cannot_be_are_refused(port: int) -> None:
    with pytest.raises(InvalidArgument, match=r"0 \(any that is free\) or 1 to 65533"):
        Cluster(3, port=port)
    Cluster(3, port=65_533)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", None])
def test_hosts_that_clients_cannot_connect_to_are_refused(host: str) -> None:
    with pytest.raises(InvalidArgument, match="clients connect to"):
        Cluster(1, host=host)

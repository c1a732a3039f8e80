"""``health()`` reports by broker the last success, the last error, and what is in flight."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import kclient
from kclient.testing import Cluster, MemoryNet
from tests.virtual.pool import Pool


def net() -> MemoryNet:
    loop: Any = asyncio.get_running_loop()
    found: MemoryNet = loop.network
    return found


async def test_each_broker_has_its_last_success_and_its_last_error() -> None:
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignments=[[1], [2]])
        async with kclient.Producer(cluster.bootstrap, request_timeout=1.0) as producer:
            await asyncio.gather(*(producer.send("t", b"v", partition=p) for p in range(2)))
            await asyncio.sleep(10.0)
            nodes = {node.node_id: node for node in producer.health().client.nodes}
            assert {1, 2} <= nodes.keys()
            for node_id in (1, 2):
                node = nodes[node_id]
                assert node.ok
                assert node.address == f"broker-{node_id}:9092"
                assert node.connections >= 1
                assert node.last_success_age == pytest.approx(10.0, abs=0.1)
                assert (node.last_error, node.last_error_age) == (None, None)
                assert node.in_flight == node.waiting == node.failures == 0

            net().freeze("broker-1")
            delivery = producer.send("t", b"w", partition=0)
            await asyncio.sleep(0.5)
            node = next(n for n in producer.health().client.nodes if n.node_id == 1)
            assert node.in_flight == 1
            await asyncio.sleep(1.0)  # the request timed out, and so the connection is closed
            node = next(n for n in producer.health().client.nodes if n.node_id == 1)
            assert not node.ok
            assert "timed out" in str(node.last_error)
            assert node.last_error_age is not None
            assert node.last_error_age < 1.0

            net().heal("broker-1")
            await delivery
            await asyncio.sleep(3.0)
            node = next(n for n in producer.health().client.nodes if n.node_id == 1)
            assert node.ok
            assert node.last_success_age is not None
            assert node.last_success_age < 5.0
            assert node.last_error is not None  # what happened is still reported, with its age
            assert node.last_error_age is not None
            assert node.last_error_age > node.last_success_age
            assert node.retry_in == 0.0


async def test_requests_that_wait_for_a_connection_are_counted() -> None:
    async with Cluster(brokers=1) as cluster, kclient.Admin(cluster.bootstrap) as admin:
        await admin.list_topics()
        net().blackhole("broker-1")
        net().cut("broker-1")
        await asyncio.sleep(2.0)
        asking = asyncio.create_task(admin.describe_cluster())
        await asyncio.sleep(0.3)
        nodes = admin.health().nodes
        assert sum(node.waiting for node in nodes) == 1
        assert not any(node.connections for node in nodes)
        net().heal()
        await asking


async def test_it_names_every_task_and_none_after_close() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        consumer = kclient.Consumer(cluster.bootstrap, "t", auto_offset_reset="earliest")
        await consumer.start()
        await consumer.poll(timeout=0.2)
        named = set(consumer.health().client.tasks)
        mine = asyncio.current_task()
        assert named == {task.get_name() for task in asyncio.all_tasks() if task is not mine}
        assert named == {"kclient:metadata", "kclient:offsets", "kclient:fetch-1"}
        await consumer.close()
        assert consumer.health().client.tasks == ()
        assert consumer.health().client.nodes == ()


# What services show: a repr, and plain JSON


def plain(client: Any) -> dict[str, Any]:
    """Its health as another program reads it; the repr has the same name and state."""
    health = client.health()
    reported: dict[str, Any] = health.to_dict()
    assert json.loads(json.dumps(reported, allow_nan=False)) == reported
    assert reported["ok"] is health.ok
    core = reported.get("client", reported)
    assert repr(client).startswith(f"<kclient.{type(client).__name__} {core['name']!r} ")
    assert f"' {core['state']} bootstrap=" in repr(client)
    return reported


def clients(bootstrap: str) -> list[Any]:
    """One of each kind, and a consumer in a group; none is started."""
    named: dict[str, Any] = {"client_id": "app"}
    reading: dict[str, Any] = {**named, "auto_offset_reset": "earliest"}
    return [
        kclient.Admin(bootstrap, **named),
        kclient.Producer(bootstrap, **named),
        kclient.Consumer(bootstrap, "t", **reading),
        kclient.Consumer(bootstrap, "t", group="g", **reading),
        kclient.GroupMember(bootstrap, group="m", protocol=Pool(), **named),
    ]


def state_of(client: Any) -> str:
    reported = plain(client)
    return str(reported.get("client", reported)["state"])


async def broken() -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("which", range(5))
async def test_health_is_plain_json_and_the_repr_has_the_state_throughout(which: int) -> None:
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", partitions=3)
        client = clients(cluster.bootstrap)[which]
        assert state_of(client) == "new"
        starting = asyncio.create_task(client.start())
        await asyncio.sleep(0)
        assert state_of(client) == "starting"
        await starting
        assert state_of(client) == "running"
        await asyncio.sleep(5.0)
        net().freeze("broker-1")
        net().cut("broker-2")
        net().refuse("broker-2")
        await asyncio.sleep(60.0)
        reported = plain(client)
        assert [node["last_error"] for node in reported.get("client", reported)["nodes"]].count(
            None
        ) < 4
        net().heal()
        core = client._engine.core if isinstance(client, kclient.Consumer) else client._core
        core.spawn(broken(), "broken", endless=True)
        await asyncio.sleep(1.0)
        assert state_of(client) == "failed"
        await client.close()
        assert state_of(client) == "closed"


async def test_the_health_of_a_consumer_has_its_partitions_by_name() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=2)
        revoked = asyncio.Event()

        async def hangs(_: object) -> None:
            await revoked.wait()

        async with kclient.Consumer(
            cluster.bootstrap, "t", group="g", auto_offset_reset="earliest", on_assigned=hangs
        ) as consumer:
            polling = asyncio.create_task(consumer.poll(timeout=30.0))
            await asyncio.sleep(10.0)
            callback = plain(consumer)["callback"]
            assert (callback["name"], callback["partitions"]) == ("on_assigned", ["t-0", "t-1"])
            revoked.set()
            await polling
            reported = plain(consumer)
            assert reported["partitions"].keys() == {"t-0", "t-1"}
            assert reported["partitions"]["t-0"]["phase"] == "FETCHING"
            assert reported["group"]["state"] == "STABLE"
            assert reported["ok"]


@pytest.mark.parametrize(
    ("bootstrap", "text"),
    [
        ("kafka", "bootstrap=kafka:9092>"),
        ("[::1]:9093, b:1", "bootstrap=[::1]:9093,b:1>"),
    ],
)
def test_a_repr_has_the_bootstrap_addresses_and_no_secret(bootstrap: str, text: str) -> None:
    for client in clients(bootstrap):
        assert repr(client).endswith(text)
    assert repr(clients(bootstrap)[1]).startswith("<kclient.Producer 'app producer-")


async def test_a_partition_that_fails_again_and_again_is_not_ok() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=2)
        async with kclient.Consumer(cluster.bootstrap, "t") as consumer:
            lost, sound = (kclient.TopicPartition("t", index) for index in range(2))
            consumer.seek(lost, 999)
            consumer.seek(sound, 0)
            reported = 0
            for _ in range(10):
                try:
                    assert await consumer.poll(timeout=1.0) == []
                except kclient.errors.OffsetOutOfRange:
                    reported += 1
            assert reported >= 3
            assert not consumer.health().ok
            assert consumer.health().partitions[lost].failures >= 3
            consumer.pause(lost)
            assert consumer.health().ok
            consumer.resume(lost)
            consumer.seek(lost, 0)
            await asyncio.sleep(1.0)
            assert consumer.health().ok

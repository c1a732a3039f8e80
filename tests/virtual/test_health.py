"""``health()`` tells by broker when it last answered, how it last failed, and what is under way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kclient
from kclient.testing import Cluster, MemoryNet


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
            assert node.last_error is not None  # what happened is still told, with its age
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

"""A request that waits for another lane's dial is not forgotten.

Not when metadata moves nodes meanwhile, nor when the dial fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import pytest

from kclient.clock import SystemClock
from kclient.config import AdminConfig
from kclient.errors import BrokerUnreachable, ConnectionLost
from kclient.hooks import Counters, Hooks
from kclient.network import Lane, NetworkClient, Node
from kclient.protocol.messages.metadata import MetadataRequest
from kclient.testing import Cluster, MemoryNet, VirtualLoop
from tests.support.unsupervised import Unsupervised


def network() -> MemoryNet:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.network


@contextlib.asynccontextmanager
async def client_of(bootstrap: str) -> AsyncIterator[NetworkClient]:
    client = NetworkClient(
        AdminConfig.of(None, {"bootstrap": bootstrap}),
        clock=SystemClock(),
        supervisor=Unsupervised(),
        hooks=Hooks(),
        counters=Counters(),
        rng=random.Random(1),
        dialer=network(),
    )
    await client.start()
    try:
        yield client
    finally:
        await client.close(1.0)


async def fails(client: NetworkClient, node_id: int) -> None:
    """From now on one connection at a time is dialed there; none comes up."""
    try:
        await client.send(node_id, MetadataRequest())
    except BrokerUnreachable:
        return
    raise AssertionError("it was reached")


async def test_a_node_that_moves_from_an_address_that_another_one_probes_is_dialed_at_once() -> (
    None
):
    async with Cluster(brokers=1), client_of("gone:9092") as client:
        await fails(client, -1)
        network().blackhole("gone")
        await asyncio.sleep(2.0)
        probe = client.send(-1, MetadataRequest())
        client.update_nodes([Node(1, "gone", 9092)])
        waiting = client.send(1, MetadataRequest())
        assert not client.can_send(1, Lane.FETCH)
        ready: list[tuple[int, Lane]] = []
        client.add_ready_listener(lambda node_id, lane: ready.append((node_id, lane)))
        await asyncio.sleep(0.1)
        assert not probe.done
        client.update_nodes([Node(1, "broker-1", 9092)])
        assert (1, Lane.FETCH) in ready
        async with asyncio.timeout(0.5):
            await waiting


async def test_two_nodes_that_swap_addresses_while_both_are_dialed_are_dialed_again() -> None:
    async with Cluster(brokers=2), client_of("gone:9092") as client:
        client.update_nodes([Node(1, "broker-1", 9092), Node(2, "broker-2", 9092)])
        network().refuse()
        await fails(client, 1)
        await fails(client, 2)
        network().heal()
        network().blackhole()
        await asyncio.sleep(2.0)
        waiting = [client.send(node_id, MetadataRequest()) for node_id in (1, 2)]
        await asyncio.sleep(0.1)
        network().heal()
        client.update_nodes([Node(1, "broker-2", 9092), Node(2, "broker-1", 9092)])
        async with asyncio.timeout(0.5):
            for future in waiting:
                await future


async def test_an_address_that_a_node_left_while_it_dialed_is_dialed_for_the_waiter() -> None:
    async with Cluster(brokers=2), client_of("broker-1:9092") as client:
        client.update_nodes([Node(1, "broker-1", 9092), Node(2, "broker-2", 9092)])
        network().refuse()
        await fails(client, 1)
        network().heal()
        network().blackhole()
        await asyncio.sleep(2.0)
        dialed = client.send(1, MetadataRequest())
        waiting = client.send(-1, MetadataRequest())
        await asyncio.sleep(0.1)
        network().heal()
        client.update_nodes([Node(2, "broker-2", 9092)])
        async with asyncio.timeout(0.5):
            await waiting
        assert dialed.done


@pytest.mark.parametrize("absent", [False, True], ids=["moved", "away in between"])
async def test_a_new_address_waits_only_a_moment_for_missing_responses_of_the_old_one(
    absent: bool,
) -> None:
    async with Cluster(brokers=2), client_of("broker-1:9092") as client:
        client.update_nodes([Node(1, "broker-1", 9092)])
        await client.send(1, MetadataRequest())
        network().freeze("broker-1")
        old = client.send(1, MetadataRequest())
        if absent:
            client.update_nodes([])
            await asyncio.sleep(5.0)
        client.update_nodes([Node(1, "broker-2", 9092)])
        async with asyncio.timeout(1.5):
            await client.send(1, MetadataRequest())
        assert isinstance(old.error, ConnectionLost)
        assert old.error.maybe_written
        assert client.connection_error(1) is None  # it has no bearing on the new one


async def test_a_response_of_the_old_address_in_that_moment_is_taken() -> None:
    async with Cluster(brokers=2) as cluster, client_of("broker-1:9092") as client:
        client.update_nodes([Node(1, "broker-1", 9092)])
        await client.send(1, MetadataRequest())
        cluster.faults.delay("Metadata", 0.5, times=1)
        old = client.send(1, MetadataRequest())
        await asyncio.sleep(0.1)
        client.update_nodes([Node(1, "broker-2", 9092)])
        async with asyncio.timeout(1.0):
            await client.send(1, MetadataRequest())
        assert old.succeeded
        await asyncio.sleep(2.0)
        assert client.is_connected(1)  # and the bound of the old connection is over with it


async def test_a_lane_refused_while_another_dialed_is_notified_after_that_failed() -> None:
    async with Cluster(brokers=1), client_of("gone:9092") as client:
        client.update_nodes([Node(1, "broker-1", 9092)])
        network().refuse()
        await fails(client, 1)
        await asyncio.sleep(2.0)
        ready: list[Lane] = []
        client.add_ready_listener(lambda node_id, lane: ready.append(lane))
        probe = client.send(1, MetadataRequest())
        assert not client.can_send(1, Lane.PRODUCE)
        with contextlib.suppress(BrokerUnreachable):
            await probe
        assert Lane.PRODUCE not in ready
        await asyncio.sleep(client.retry_at(1) - asyncio.get_running_loop().time() + 0.01)
        assert Lane.PRODUCE in ready
        assert client.can_send(1, Lane.PRODUCE)


async def test_a_lane_refused_in_a_back_off_is_notified_of_its_end() -> None:
    async with Cluster(brokers=1), client_of("gone:9092") as client:
        client.update_nodes([Node(1, "broker-1", 9092)])
        network().refuse()
        await fails(client, 1)
        ready: list[Lane] = []
        client.add_ready_listener(lambda node_id, lane: ready.append(lane))
        assert not client.can_send(1, Lane.PRODUCE)
        await asyncio.sleep(1.0)
        assert Lane.PRODUCE in ready

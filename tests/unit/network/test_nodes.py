"""The address book and the choice of a node: moved, removed, least loaded, idle."""

from __future__ import annotations

import asyncio

from kclient.errors import (
    BrokerUnreachable,
)
from kclient.hooks import ConnectionClosed
from kclient.network import Lane, Node
from kclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
)
from tests.unit.network.bench import (
    FIRST,
    Bench,
    CapacityWaiter,
    Held,
    connected,
    outcome,
)
from tests.unit.network.scripted_broker import (
    ScriptedBroker,
    silent_but_for_versions,
)


class TestNodes:
    async def test_brokers_are_dialed_at_their_address(self, bench: Bench) -> None:
        async with ScriptedBroker() as one, ScriptedBroker() as two:
            client = await bench.client(one)
            client.update_nodes([Node(1, *one.address), Node(2, *two.address, rack="b")])
            await connected(client, 1)
            await connected(client, 2)
            assert (len(one.sessions), len(two.sessions)) == (1, 1)
            assert [node.node_id for node in client.book.nodes.values()] == [1, 2]
            assert [node.node_id for node in client.bootstrap_nodes] == [-1]

    async def test_two_ids_at_one_address_have_connections_of_their_own(self, bench: Bench) -> None:
        async with ScriptedBroker() as broker:
            client = await bench.client(broker)
            client.update_nodes([Node(1, *broker.address), Node(2, *broker.address)])
            await connected(client, 1)
            await connected(client, 2)
            assert len(broker.sessions) == 2

    async def test_a_moved_broker_finishes_and_is_dialed_again(self, bench: Bench) -> None:
        script = Held()
        async with ScriptedBroker(script) as old, ScriptedBroker() as new:
            client = await bench.client(old)
            client.update_nodes([Node(1, *old.address)])
            under_way = client.send(1, MetadataRequest())
            await old.until(lambda: script.held)
            client.update_nodes([Node(1, *new.address)])
            later = client.send(1, MetadataRequest())
            assert not later.done
            script.release()
            assert isinstance(await under_way, MetadataResponse)
            assert isinstance(await later, MetadataResponse)
            assert len(new.requests) == 2

    async def test_a_broker_that_moves_while_dialed_is_dialed_at_its_new_address(
        self, bench: Bench
    ) -> None:
        async with ScriptedBroker(silent_but_for_versions) as old, ScriptedBroker() as new:
            client = await bench.client(old)
            client.update_nodes([Node(1, *old.address)])
            future = client.send(1, MetadataRequest())
            client.update_nodes([Node(1, *new.address)])
            assert isinstance(await future, MetadataResponse)
            assert new.requests

    async def test_a_broker_that_left_finishes_and_is_closed(self, bench: Bench) -> None:
        script = Held()
        async with ScriptedBroker(script) as broker:
            client = await bench.client(broker)
            client.update_nodes([Node(1, *broker.address)])
            under_way = client.send(1, MetadataRequest())
            await broker.until(lambda: script.held)
            client.update_nodes([])
            assert isinstance(await outcome(client.send(1, MetadataRequest())), BrokerUnreachable)
            script.release()
            assert isinstance(await under_way, MetadataResponse)
            waiter = CapacityWaiter(client)
            await waiter.until(lambda: client.snapshot() == [])

    async def test_a_broker_that_left_in_back_off_leaves_nothing(self, bench: Bench) -> None:
        async with ScriptedBroker() as broker:
            address = broker.address
        client = await bench.client(address)
        client.update_nodes([Node(1, *address)])
        await outcome(client.send(1, MetadataRequest()))
        client.update_nodes([])
        assert client.snapshot() == []
        assert client.retry_at(1) == 0.0


class TestLeastLoaded:
    async def test_prefers_connected_over_dialable(self, bench: Bench) -> None:
        async with ScriptedBroker() as broker:
            client = await bench.client(broker)
            client.update_nodes([Node(n, *broker.address) for n in range(5)])
            await connected(client, 3)
            assert {client.least_loaded() for _ in range(20)} == {3}

    async def test_prefers_the_one_with_less_in_flight(self, bench: Bench) -> None:
        script = Held()
        async with ScriptedBroker(script) as broker:
            client = await bench.client(broker)
            client.update_nodes([Node(1, *broker.address), Node(2, *broker.address)])
            futures = [client.send(node, MetadataRequest()) for node in (1, 1, 1, 2)]
            await broker.until(lambda: len(script.held) == 4)
            assert {client.least_loaded() for _ in range(20)} == {2}
            script.release()
            for future in futures:
                await future

    async def test_spreads_over_nodes_that_are_alike(self, bench: Bench) -> None:
        client = await bench.client(("127.0.0.1", 1))
        client.update_nodes([Node(n, "127.0.0.1", 1) for n in range(3)])
        assert {client.least_loaded() for _ in range(100)} == {0, 1, 2}

    async def test_takes_bootstrap_nodes_while_no_broker_is_known(self, bench: Bench) -> None:
        client = await bench.client(("127.0.0.1", 1), ("127.0.0.1", 2))
        assert {client.least_loaded() for _ in range(100)} == {-1, -2}

    async def test_goes_back_to_bootstrap_nodes_when_no_broker_can_be_asked(
        self, bench: Bench
    ) -> None:
        async with ScriptedBroker() as gone:
            address = gone.address
        async with ScriptedBroker() as broker:
            client = await bench.client(broker, reconnect_backoff=30.0, reconnect_backoff_max=30.0)
            client.update_nodes([Node(1, *address)])
            await outcome(client.send(1, MetadataRequest()))
            assert client.least_loaded() == FIRST

    async def test_is_none_when_no_node_can_be_asked(self, bench: Bench) -> None:
        async with ScriptedBroker() as gone:
            address = gone.address
        client = await bench.client(address, reconnect_backoff=30.0, reconnect_backoff_max=30.0)
        await outcome(client.send(FIRST, MetadataRequest()))
        assert client.least_loaded() is None

    async def test_chooses_only_from_those_it_is_given(self, bench: Bench) -> None:
        client = await bench.client(("127.0.0.1", 1))
        client.update_nodes([Node(n, "127.0.0.1", 1) for n in range(3)])
        assert {client.least_loaded([2]) for _ in range(20)} == {2}
        assert client.least_loaded([]) is None
        assert client.least_loaded([99]) is None


class TestIdle:
    async def test_an_unused_connection_closes_without_blame(self, bench: Bench) -> None:
        async with ScriptedBroker() as broker:
            client = await bench.client(broker, connections_max_idle=0.1)
            await connected(client, lane=Lane.FETCH)
            waiter = CapacityWaiter(client)
            await waiter.until(lambda: not client.is_connected(FIRST, Lane.FETCH))
            assert client.retry_at(FIRST) == 0.0
            assert client.can_send(FIRST, Lane.FETCH)
            closed = bench.recorder.of(ConnectionClosed)
            assert "unused" in closed[0].reason
            await connected(client, lane=Lane.FETCH)
            assert len(broker.sessions) == 2

    async def test_expires_least_recently_used_first_and_never_busy_ones(
        self, bench: Bench
    ) -> None:
        script = Held()
        async with ScriptedBroker(script) as broker:
            client = await bench.client(broker)
            client.update_nodes([Node(n, *broker.address) for n in (1, 2, 3)])
            for node_id in (2, 1):
                future = client.send(node_id, MetadataRequest(), lane=Lane.FETCH)
                await broker.until(lambda: script.held)
                script.release()
                await future
            busy = client.send(3, MetadataRequest(), lane=Lane.FETCH)
            await broker.until(lambda: script.held)
            now = asyncio.get_running_loop().time()
            client.selector.expire_idle(now + 539.0)
            assert all(client.is_connected(n, Lane.FETCH) for n in (1, 2, 3))
            client.selector.expire_idle(now + 541.0)
            order = [event.node_id for event in bench.recorder.of(ConnectionClosed)]
            assert order == [2, 1]
            assert client.is_connected(3, Lane.FETCH)
            script.release()
            await busy

    async def test_general_and_bootstrap_connections_expire_sooner(self, bench: Bench) -> None:
        async with ScriptedBroker() as broker:
            client = await bench.client(broker)
            client.update_nodes([Node(1, *broker.address)])
            await connected(client, FIRST, Lane.FETCH)
            await connected(client, 1, Lane.GENERAL)
            await connected(client, 1, Lane.FETCH)
            now = asyncio.get_running_loop().time()
            client.selector.expire_idle(now + 31.0)
            assert not client.is_connected(FIRST, Lane.FETCH)
            assert not client.is_connected(1, Lane.GENERAL)
            assert client.is_connected(1, Lane.FETCH)

    async def test_closed_by_the_broker_between_requests_is_just_dialed_again(
        self, bench: Bench
    ) -> None:
        async with ScriptedBroker() as broker:
            client = await bench.client(broker, reconnect_backoff=0.001)
            await connected(client)
            waiter = CapacityWaiter(client)
            broker.sessions[0].hang_up()
            await waiter.until(lambda: not client.is_connected(FIRST))
            await connected(client)
            assert len(broker.sessions) == 2

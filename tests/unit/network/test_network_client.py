"""When a request may be sent: in-flight limits, throttling, full transports, backoff."""

from __future__ import annotations

import asyncio

import pytest

from kclient.errors import (
    BrokerUnreachable,
    ClientClosed,
    RequestTimedOut,
)
from kclient.hooks import ConnectionClosed, Throttled
from kclient.network import Capacity, Lane, Node
from kclient.network.node_connection import NodeConnection
from kclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.unit.network.bench import (
    FIRST,
    Bench,
    CapacityWaiter,
    Held,
    all_answered,
    connected,
    outcome,
)
from tests.unit.network.scripted_broker import (
    API_VERSIONS,
    METADATA,
    Received,
    ScriptedBroker,
    Session,
    good_answer,
)


class TestThrottling:
    async def test_mutes_the_connection_after_the_response_and_reports_when_it_is_over(
        self, bench: Bench
    ) -> None:
        def throttles(session: Session, request: Received) -> None:
            if request.api_key == API_VERSIONS:
                good_answer(session, request)
            else:
                milliseconds = 100 if len(session.broker.asked(METADATA)) == 1 else 0
                session.reply(request, MetadataResponse(throttle_time_ms=milliseconds))

        async with ScriptedBroker(throttles) as broker:
            client = await bench.client(broker)
            await connected(client)
            loop = asyncio.get_running_loop()
            muted = loop.time()
            assert not client.can_send(FIRST)
            assert client.can_send(FIRST, Lane.FETCH)
            waiter = CapacityWaiter(client)
            second = client.send(FIRST, MetadataRequest())
            await connected(client, lane=Lane.FETCH)
            assert not second.done
            await second
            assert loop.time() - muted >= 0.08
            assert waiter.calls
            assert bench.recorder.of(Throttled)[0].seconds == 0.1

    async def test_listeners_are_notified_of_its_end_though_nothing_waits(
        self, bench: Bench
    ) -> None:
        def throttles(session: Session, request: Received) -> None:
            if request.api_key == API_VERSIONS:
                good_answer(session, request)
            else:
                session.reply(request, MetadataResponse(throttle_time_ms=50))

        async with ScriptedBroker(throttles) as broker:
            client = await bench.client(broker)
            await connected(client)
            waiter = CapacityWaiter(client)
            await waiter.until(lambda: client.can_send(FIRST) is Capacity.NOW)


class TestSpace:
    async def test_the_produce_lane_has_the_configured_limit(self, bench: Bench) -> None:
        script = Held()
        async with ScriptedBroker(script) as broker:
            client = await bench.client(broker, max_in_flight=3)
            futures = [client.send(FIRST, MetadataRequest(), lane=Lane.PRODUCE) for _ in range(5)]
            await broker.until(lambda: len(script.held) == 3)
            assert client.in_flight(FIRST, Lane.PRODUCE) == 5
            assert not client.can_send(FIRST, Lane.PRODUCE)
            script.release(1)
            await broker.until(lambda: len(script.held) == 3)
            script.release()
            await broker.until(lambda: len(script.held) == 1)
            script.release()
            assert await all_answered(futures)

    async def test_listeners_are_notified_of_capacity_after_a_refusal(self, bench: Bench) -> None:
        script = Held()
        async with ScriptedBroker(script) as broker:
            client = await bench.client(broker, max_in_flight=1)
            future = client.send(FIRST, MetadataRequest(), lane=Lane.PRODUCE)
            await broker.until(lambda: script.held)
            assert not client.can_send(FIRST, Lane.PRODUCE)
            waiter = CapacityWaiter(client)
            script.release()
            await waiter.until(lambda: client.can_send(FIRST, Lane.PRODUCE))
            assert waiter.calls == [(FIRST, Lane.PRODUCE)]
            await future

    async def test_listeners_are_notified_of_ready_and_of_lost(self, bench: Bench) -> None:
        async with ScriptedBroker() as broker:
            client = await bench.client(broker)
            waiter = CapacityWaiter(client)
            await connected(client)
            assert waiter.calls == [(FIRST, Lane.GENERAL)]
            broker.sessions[0].reset()
            await waiter.until(lambda: len(waiter.calls) >= 2)
            assert not client.is_connected(FIRST)

    async def test_can_send_counts_what_waits_while_dialing(self, bench: Bench) -> None:
        async with ScriptedBroker() as broker:
            client = await bench.client(broker, max_in_flight=2)
            assert client.can_send(FIRST, Lane.PRODUCE) is Capacity.ONCE_CONNECTED
            first = client.send(FIRST, MetadataRequest(), lane=Lane.PRODUCE)
            assert client.can_send(FIRST, Lane.PRODUCE)
            second = client.send(FIRST, MetadataRequest(), lane=Lane.PRODUCE)
            assert not client.can_send(FIRST, Lane.PRODUCE)
            await first
            await second

    async def test_a_peer_that_does_not_read_stops_the_sender(self, bench: Bench) -> None:
        """Once the transport's buffer is full, nothing more is written to it."""

        def deaf(session: Session, request: Received) -> None:
            good_answer(session, request)
            if request.api_key == API_VERSIONS:
                session.stop_reading()

        async with ScriptedBroker(deaf) as broker:
            client = await bench.client(broker, send_buffer=65_536)
            big = MetadataRequest(
                topics=[MetadataRequestTopic(name="t" * 200) for _ in range(2000)]
            )
            futures = [client.send(FIRST, big, timeout=60.0) for _ in range(20)]
            waiter = CapacityWaiter(client)
            await waiter.until(lambda: client.is_connected(FIRST))
            node_connection = client._connections[FIRST, Lane.GENERAL]
            await broker.until(lambda: broker.sessions)
            assert node_connection.channel is not None
            assert node_connection.channel.full_since is not None
            assert node_connection.waiting
            assert not client.can_send(FIRST)
            assert node_connection.channel.bytes_out < 10 * 400_000
            broker.sessions[0].go_on_reading()
            for future in futures:
                assert isinstance(await future, MetadataResponse)

    async def test_a_peer_that_takes_no_bytes_is_left_although_no_response_is_due(
        self, bench: Bench
    ) -> None:
        """Requests without a response have no deadline that could detect a half-open peer."""

        def deaf(session: Session, request: Received) -> None:
            good_answer(session, request)
            if request.api_key == API_VERSIONS and len(broker.sessions) == 1:
                session.stop_reading()

        async with ScriptedBroker(deaf) as broker:
            client = await bench.client(
                broker, send_buffer=65_536, request_timeout=0.3, reconnect_backoff=0.0
            )
            waiter = CapacityWaiter(client)
            big = MetadataRequest(
                topics=[MetadataRequestTopic(name="t" * 200) for _ in range(2000)]
            )
            client.send(FIRST, big, expect_response=False)
            await waiter.until(lambda: client.is_connected(FIRST))
            while client.can_send(FIRST):
                client.send(FIRST, big, expect_response=False)
                await asyncio.sleep(0)
            assert client.in_flight(FIRST) == 0
            await waiter.until(lambda: client.can_send(FIRST))
            assert await outcome(client.send(FIRST, big, expect_response=False)) is None
            reasons = [event.reason for event in bench.recorder.of(ConnectionClosed)]
            assert any("took no bytes for 0.3 s" in reason for reason in reasons)

    async def test_unread_bytes_do_not_hold_up_the_close(self, bench: Bench) -> None:
        """A retired connection with a full transport is closed with the client."""

        def deaf(session: Session, request: Received) -> None:
            good_answer(session, request)
            session.stop_reading()

        async with ScriptedBroker(deaf) as broker:
            client = await bench.client(broker, send_buffer=65_536)
            client.update_nodes([Node(1, *broker.address)])
            waiter = CapacityWaiter(client)
            big = MetadataRequest(
                topics=[MetadataRequestTopic(name="t" * 200) for _ in range(2000)]
            )
            client.send(1, big, expect_response=False)
            await waiter.until(lambda: client.is_connected(1))
            while client.can_send(1):
                client.send(1, big, expect_response=False)
                await asyncio.sleep(0)
            channel = client._connections[1, Lane.GENERAL].channel
            client.update_nodes([])  # it waits for requests in flight, of which there are none
            assert not client.is_connected(1)
            assert channel is not None
            assert not channel.gone
            await client.close(0.1)
            assert channel.gone


class TestBackOff:
    async def test_a_listener_that_accepts_and_hangs_up_is_not_stormed(self, bench: Bench) -> None:
        async with ScriptedBroker(greet=lambda session: session.hang_up()) as broker:
            client = await bench.client(broker)
            loop = asyncio.get_running_loop()
            ends = loop.time() + 1.0
            while loop.time() < ends:
                error = await outcome(client.send(FIRST, MetadataRequest()))
                assert isinstance(error, BrokerUnreachable)
            # At 0, 50, 150, 350, 750 ms: five, and jitter.
            assert 4 <= len(broker.sessions) <= 7

    async def test_waits_until_the_back_off_is_over_and_then_dials(self, bench: Bench) -> None:
        broker = ScriptedBroker()
        async with broker:
            pass
        client = await bench.client(broker, reconnect_backoff=0.05, reconnect_backoff_max=0.05)
        assert isinstance(await outcome(client.send(FIRST, MetadataRequest())), BrokerUnreachable)
        waiting = client.send(FIRST, MetadataRequest())
        assert not waiting.done
        async with broker:
            assert isinstance(await waiting, MetadataResponse)
            assert client.retry_at(FIRST) == 0.0

    async def test_after_a_failure_one_lane_probes_and_the_others_follow(
        self, bench: Bench
    ) -> None:
        broker = ScriptedBroker()
        async with broker:
            pass
        client = await bench.client(broker, reconnect_backoff=0.05, reconnect_backoff_max=0.05)
        assert isinstance(await outcome(client.send(FIRST, MetadataRequest())), BrokerUnreachable)
        held: list[tuple[Session, Received]] = []
        broker.script = lambda session, request: held.append((session, request))
        async with broker:
            futures = [client.send(FIRST, MetadataRequest(), lane=lane) for lane in Lane]
            await broker.until(lambda: held)
            assert len(broker.sessions) == 1
            broker.script = good_answer
            good_answer(*held[0])
            assert await all_answered(futures)
            assert len(broker.sessions) == 4

    async def test_lanes_that_wait_for_a_probe_cost_nothing_meanwhile(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broker = ScriptedBroker(lambda session, request: None)
        async with broker:
            pass
        client = await bench.client(broker, reconnect_backoff=0.02, reconnect_backoff_max=0.02)
        await outcome(client.send(FIRST, MetadataRequest()))
        turns = 0
        on_timer = NodeConnection._on_timer

        def counted(node_connection: NodeConnection) -> None:
            nonlocal turns
            turns += 1
            on_timer(node_connection)

        monkeypatch.setattr(NodeConnection, "_on_timer", counted)
        async with broker:
            futures = [client.send(FIRST, MetadataRequest(), lane=lane) for lane in Lane]
            await broker.until(lambda: broker.requests)
            last = client.send(FIRST, MetadataRequest(), timeout=0.1)
            assert isinstance(await outcome(last), RequestTimedOut)
            assert turns < 20
            await client.close(1.0)
            assert all(isinstance(future.error, ClientClosed) for future in futures)

    async def test_a_probe_that_is_abandoned_is_taken_over_by_another_lane(
        self, bench: Bench
    ) -> None:
        broker = ScriptedBroker(lambda session, request: None)
        async with broker:
            pass
        client = await bench.client(broker, reconnect_backoff=0.02, reconnect_backoff_max=0.02)
        await outcome(client.send(FIRST, MetadataRequest()))
        async with broker:
            futures = [client.send(FIRST, MetadataRequest(), lane=lane) for lane in Lane]
            await broker.until(lambda: broker.requests)
            broker.script = good_answer
            (probing,) = (
                node_connection
                for node_connection in client._connections.values()
                if node_connection.channel is not None
            )
            probing.retire("it moved")
            assert await all_answered(futures)

    async def test_capacity_on_a_lane_is_reported_after_another_lanes_probe(
        self, bench: Bench
    ) -> None:
        broker = ScriptedBroker()
        async with broker:
            pass
        client = await bench.client(broker, reconnect_backoff=0.02, reconnect_backoff_max=0.02)
        await outcome(client.send(FIRST, MetadataRequest()))
        assert not client.can_send(FIRST, Lane.PRODUCE)
        waiter = CapacityWaiter(client)
        async with broker:
            await connected(client)
            await waiter.until(lambda: (FIRST, Lane.PRODUCE) in waiter.calls)
            assert client.can_send(FIRST, Lane.PRODUCE)

    async def test_a_failed_probe_fails_all_lanes_that_wait(self, bench: Bench) -> None:
        async with ScriptedBroker() as broker:
            address = broker.address
        client = await bench.client(address, reconnect_backoff=0.05)
        await outcome(client.send(FIRST, MetadataRequest()))
        futures = [client.send(FIRST, MetadataRequest(), lane=lane) for lane in Lane]
        for future in futures:
            assert isinstance(await outcome(future), BrokerUnreachable)

    async def test_listeners_are_notified_of_the_end_of_the_back_off(self, bench: Bench) -> None:
        async with ScriptedBroker() as broker:
            address = broker.address
        client = await bench.client(address, reconnect_backoff=0.05)
        await outcome(client.send(FIRST, MetadataRequest()))
        assert not client.can_send(FIRST)
        waiter = CapacityWaiter(client)
        await waiter.until(lambda: client.can_send(FIRST))

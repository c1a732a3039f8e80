"""Closing a client, and what it reports until then: hooks, counters, snapshot, log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kclient.errors import (
    ClientClosed,
)
from kclient.hooks import ConnectionClosed, ConnectionOpened, DialTarget, RequestCompleted
from kclient.network import Lane, RequestFuture
from kclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
)
from tests.unit.network.bench import (
    CLOSE_TIMEOUT,
    FIRST,
    Bench,
    CapacityWaiter,
    Held,
    connected,
    outcome,
)
from tests.unit.network.scripted_broker import (
    METADATA,
    Received,
    ScriptedBroker,
    Session,
    good_answer,
    silent_but_for_versions,
)


class SilentDialer:
    """Opens a transport but never completes the dial, and drops it when it is cancelled."""

    def __init__(self) -> None:
        self.made = asyncio.Event()

    async def dial(
        self, target: DialTarget, protocol_factory: Callable[[], asyncio.BaseProtocol]
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        protocol_factory().connection_made(SilentTransport())
        self.made.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


class SilentTransport(asyncio.Transport):
    """Accepts every call and never reports ``connection_lost``."""

    def write(self, data: object) -> None:
        """Discard the data."""

    def close(self) -> None:
        """Do nothing."""

    def abort(self) -> None:
        """Do nothing."""


class TestClosing:
    async def test_fails_what_is_in_flight_and_what_waits(self, bench: Bench) -> None:
        script = Held()
        async with ScriptedBroker(script) as broker:
            client = await bench.client(broker, max_in_flight=1)
            written, waiting = (
                client.send(FIRST, MetadataRequest(), lane=Lane.PRODUCE) for _ in "ab"
            )
            await broker.until(lambda: script.held)
            await client.close(1.0)
            for future, maybe_written in ((written, True), (waiting, False)):
                assert isinstance(future.error, ClientClosed)
                assert future.error.maybe_written is maybe_written

    async def test_after_it_nothing_is_sent(self, bench: Bench) -> None:
        async with ScriptedBroker() as broker:
            client = await bench.client(broker)
            await connected(client)
            await client.close(1.0)
            error = await outcome(client.send(FIRST, MetadataRequest()))
            assert isinstance(error, ClientClosed)
            assert not client.can_send(FIRST)
            with pytest.raises(ClientClosed):
                await client.start()
            await client.close(1.0)

    async def test_before_start_nothing_is_sent(self, bench: Bench) -> None:
        client = await bench.client(("127.0.0.1", 1))
        client._running = False
        error = await outcome(client.send(FIRST, MetadataRequest()))
        assert isinstance(error, ClientClosed)
        assert "not started" in str(error)

    async def test_what_was_written_still_leaves(self, bench: Bench) -> None:
        async with ScriptedBroker(silent_but_for_versions) as broker:
            client = await bench.client(broker)
            await client.send(FIRST, MetadataRequest(), expect_response=False)
            await client.close(5.0)
            await broker.until(lambda: broker.asked(METADATA))

    async def test_is_bounded_with_a_peer_that_does_not_read(self, bench: Bench) -> None:
        def deaf(session: Session, request: Received) -> None:
            good_answer(session, request)
            session.stop_reading()

        async with ScriptedBroker(deaf) as broker:
            client = await bench.client(broker, send_buffer=4096)
            big = MetadataRequest(
                topics=[MetadataRequestTopic(name="t" * 200) for _ in range(20_000)]
            )
            future = client.send(FIRST, big, timeout=60.0)
            waiter = CapacityWaiter(client)
            await waiter.until(lambda: client.is_connected(FIRST))
            loop = asyncio.get_running_loop()
            started = loop.time()
            await client.close(0.1)
            assert loop.time() - started < 3.0
            assert isinstance(future.error, ClientClosed)

    async def test_while_dialing_leaves_nothing_open(self, bench: Bench) -> None:
        async with ScriptedBroker(lambda session, request: None) as broker:
            client = await bench.client(broker)
            future = client.send(FIRST, MetadataRequest())
            await client.close(1.0)
            assert isinstance(future.error, ClientClosed)

    async def test_during_the_handshake_leaves_nothing_open(self, bench: Bench) -> None:
        async with ScriptedBroker(lambda session, request: None) as broker:
            client = await bench.client(broker)
            future = client.send(FIRST, MetadataRequest())
            await broker.until(lambda: broker.requests)
            await client.close(1.0)
            assert isinstance(future.error, ClientClosed)

    async def test_is_bounded_where_a_cancelled_dial_never_reports_its_end(
        self, bench: Bench
    ) -> None:
        """As with uvloop: connection_made, then a cancelled dial, and no connection_lost."""
        dialer = SilentDialer()
        client = await bench.client(("silent", 1), dialer=dialer)
        future = client.send(FIRST, MetadataRequest())
        await dialer.made.wait()
        async with asyncio.timeout(CLOSE_TIMEOUT):
            await client.close(0.1)
        assert isinstance(await outcome(future), ClientClosed)

    async def test_in_back_off_leaves_no_timer(self, bench: Bench) -> None:
        async with ScriptedBroker() as broker:
            address = broker.address
        client = await bench.client(address, reconnect_backoff=30.0, reconnect_backoff_max=30.0)
        await outcome(client.send(FIRST, MetadataRequest()))
        waiting = client.send(FIRST, MetadataRequest())
        await client.close(1.0)
        assert isinstance(waiting.error, ClientClosed)

    async def test_a_listener_that_sends_again_is_refused(self, bench: Bench) -> None:
        async with ScriptedBroker(silent_but_for_versions) as broker:
            client = await bench.client(broker)
            again: list[RequestFuture[Any]] = []
            future = client.send(FIRST, MetadataRequest())
            future.add_listener(lambda _: again.append(client.send(FIRST, MetadataRequest())))
            await broker.until(lambda: broker.asked(METADATA))
            await client.close(1.0)
            assert isinstance(again[0].error, ClientClosed)


class TestTelling:
    async def test_hooks_observe_connections_and_requests(self, bench: Bench) -> None:
        async with ScriptedBroker() as broker:
            client = await bench.client(broker)
            await connected(client)
            await client.close(1.0)
        (opened,) = bench.recorder.of(ConnectionOpened)
        (completed,) = bench.recorder.of(RequestCompleted)
        (closed,) = bench.recorder.of(ConnectionClosed)
        assert (opened.node_id, opened.lane) == (FIRST, "general")
        assert opened.address == f"127.0.0.1:{broker.port}"
        assert (completed.api, completed.version, completed.error) == ("Metadata", 12, None)
        assert completed.request_bytes > 0
        assert completed.response_bytes > 0
        assert completed.seconds >= 0.0
        assert closed.established
        assert closed.in_flight == 0

    async def test_counters_count(self, bench: Bench) -> None:
        async with ScriptedBroker() as broker:
            client = await bench.client(broker)
            await connected(client)
            await connected(client)
            assert bench.counters.get("network.requests") == 2
            assert bench.counters.get("network.connections") == 1
            await client.close(1.0)
            assert bench.counters.get("network.connections") == 0
            assert bench.counters.get("network.bytes_received") > 0

    async def test_snapshot_shows_each_connection(self, bench: Bench) -> None:
        script = Held()
        async with ScriptedBroker() as good, ScriptedBroker(script) as slow:
            async with ScriptedBroker() as gone:
                address = gone.address
            client = await bench.client(
                good,
                slow,
                address,
                max_in_flight=1,
                reconnect_backoff=5.0,
                reconnect_backoff_max=5.0,
            )
            await connected(client, -1)
            futures = [client.send(-2, MetadataRequest(), lane=Lane.PRODUCE) for _ in "ab"]
            await slow.until(lambda: script.held)
            await outcome(client.send(-3, MetadataRequest()))
            health = {(h.node_id, h.lane): h for h in client.snapshot()}
            assert health[-1, "general"].state == "ready"
            assert health[-1, "general"].idle_for is not None
            assert health[-2, "produce"].in_flight == 1
            assert health[-2, "produce"].waiting == 1
            assert health[-3, "general"].state == "backing_off"
            assert health[-3, "general"].retry_in > 0
            assert "refused" in (health[-3, "general"].last_error or "")
            assert health[-3, "general"].failures == 1
            script.release()
            await slow.until(lambda: script.held)
            script.release()
            for future in futures:
                await future

    async def test_a_node_that_stays_away_is_warned_about_once(
        self, bench: Bench, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with ScriptedBroker() as broker:
            address = broker.address
        client = await bench.client(address, reconnect_backoff=0.001, reconnect_backoff_max=0.001)
        for _ in range(5):
            await outcome(client.send(FIRST, MetadataRequest()))
        warnings = [r for r in caplog.records if r.levelname == "WARNING"]
        assert len(warnings) == 1
        assert "node=-1 lane=general" in warnings[0].getMessage()

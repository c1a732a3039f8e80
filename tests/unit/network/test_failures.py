"""Failures and the errors that callers get: closed ports, peers that are no brokers, timeouts."""

from __future__ import annotations

import asyncio
import struct

import pytest

from kclient.errors import (
    BrokerUnreachable,
    ConnectionLost,
    ProtocolError,
    RequestTimedOut,
)
from kclient.network import Lane
from kclient.network.node_connection import NodeConnection
from kclient.network.selector import Selector
from kclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
)
from tests.support.response_frames import encode_response
from tests.unit.network.bench import (
    FIRST,
    Bench,
    Held,
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
    silent_but_for_versions,
)


class TestFailures:
    async def test_a_closed_port_is_unreachable_at_once(self, bench: Bench) -> None:
        async with ScriptedBroker() as broker:
            address = broker.address
        client = await bench.client(address)
        errors = [await outcome(f) for f in [client.send(FIRST, MetadataRequest()) for _ in "ab"]]
        for error in errors:
            assert isinstance(error, BrokerUnreachable)
            assert error.retriable
            assert error.maybe_written is False
            assert "Connection refused" in str(error)
            assert f"127.0.0.1:{address[1]}" in str(error)
        assert errors[0] is not errors[1]
        assert client.retry_at(FIRST) > 0
        assert not client.can_send(FIRST)

    @pytest.mark.parametrize(
        ("greeting", "hint"),
        [
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP server"),
            (b"\x15\x03\x03\x00\x02\x02\x46", "TLS listener"),
            (b"\x00\x00\x00\x00", "does not speak Kafka"),
            (b"\x00\x00\x00\x10" + b"garbage garbage!", "can't be read"),
            (b"\x7f\xff\xff\xff", "does not speak Kafka"),
        ],
    )
    async def test_a_peer_that_is_no_broker_is_unreachable_and_named(
        self, bench: Bench, greeting: bytes, hint: str
    ) -> None:
        async with ScriptedBroker(greet=lambda session: session.send(greeting)) as broker:
            client = await bench.client(broker)
            error = await outcome(client.send(FIRST, MetadataRequest()))
            assert isinstance(error, BrokerUnreachable)
            assert hint in str(error)

    async def test_a_listener_that_hangs_up_hints_at_security(self, bench: Bench) -> None:
        async with ScriptedBroker(lambda session, request: session.hang_up()) as broker:
            client = await bench.client(broker)
            error = await outcome(client.send(FIRST, MetadataRequest()))
            assert isinstance(error, BrokerUnreachable)
            assert "TLS or SASL" in str(error)

    async def test_a_broken_connection_fails_what_was_written_and_keeps_what_waits(
        self, bench: Bench
    ) -> None:
        script = Held()
        async with ScriptedBroker(script) as broker:
            client = await bench.client(broker, max_in_flight=2, reconnect_backoff=0.001)
            written = [client.send(FIRST, MetadataRequest(), lane=Lane.PRODUCE) for _ in "ab"]
            await broker.until(lambda: len(script.held) == 2)
            waiting = client.send(FIRST, MetadataRequest(), lane=Lane.PRODUCE)
            broker.script = good_answer
            broker.sessions[0].reset()
            for future in written:
                error = await outcome(future)
                assert isinstance(error, ConnectionLost)
                assert error.retriable
                assert error.maybe_written
            assert isinstance(await waiting, MetadataResponse)
            assert len(broker.sessions) == 2

    async def test_responses_out_of_order_break_the_connection(self, bench: Bench) -> None:
        script = Held()
        async with ScriptedBroker(script) as broker:
            client = await bench.client(broker)
            futures = [client.send(FIRST, MetadataRequest()) for _ in "ab"]
            await broker.until(lambda: len(script.held) == 2)
            script.held.reverse()
            script.release()
            for future in futures:
                error = await outcome(future)
                assert isinstance(error, ConnectionLost)
                assert "correlation id" in str(error)

    async def test_a_response_that_cannot_be_read_leaves_the_client_usable(
        self, bench: Bench
    ) -> None:
        def broken(session: Session, request: Received) -> None:
            if request.api_key == API_VERSIONS:
                good_answer(session, request)
            else:
                head = struct.pack(">iB", request.correlation_id, 0)
                session.send(struct.pack(">i", len(head) + 3) + head + b"\xff\xff\xff")

        async with ScriptedBroker(broken) as broker:
            client = await bench.client(broker)
            error = await outcome(client.send(FIRST, MetadataRequest()))
            assert isinstance(error, ProtocolError)
            assert error.node_id == FIRST
            broker.script = good_answer
            await connected(client)
            assert len(broker.sessions) == 1

    async def test_a_frame_over_the_limit_breaks_the_connection(self, bench: Bench) -> None:
        def huge(session: Session, request: Received) -> None:
            if request.api_key == API_VERSIONS:
                good_answer(session, request)
            else:
                session.send(struct.pack(">i", 500_001))

        async with ScriptedBroker(huge) as broker:
            client = await bench.client(broker, receive_frame_limit=500_000)
            error = await outcome(client.send(FIRST, MetadataRequest()))
            assert isinstance(error, ConnectionLost)
            assert "500001" in str(error)
            large = client.send(FIRST, MetadataRequest(), response_bytes=1, timeout=0.05)
            assert isinstance(await outcome(large), RequestTimedOut)

    async def test_a_listener_that_raises_breaks_nothing_and_is_reported(
        self, bench: Bench
    ) -> None:
        faults: list[Exception] = []
        async with ScriptedBroker() as broker:
            client = await bench.client(broker, on_fault=faults.append)
            first, second = (client.send(FIRST, MetadataRequest()) for _ in "ab")
            first.add_listener(lambda _: 1 // 0)
            assert isinstance(await second, MetadataResponse)
            assert first.succeeded
            assert [type(fault) for fault in faults] == [ZeroDivisionError]

            def fails(node_id: int, lane: Lane) -> None:
                raise KeyError(node_id)

            client.add_ready_listener(fails)
            await connected(client, lane=Lane.FETCH)
            assert {type(fault) for fault in faults} == {ZeroDivisionError, KeyError}


class TestTimeouts:
    async def test_one_expired_request_closes_its_connection(self, bench: Bench) -> None:
        script = Held()
        async with ScriptedBroker(script) as broker:
            client = await bench.client(broker)
            patient = client.send(FIRST, MetadataRequest(), timeout=60.0)
            expired = client.send(FIRST, MetadataRequest(), timeout=0.05)
            behind = client.send(FIRST, MetadataRequest(), timeout=60.0)
            error = await outcome(expired)
            assert isinstance(error, RequestTimedOut)
            assert error.maybe_written
            for other in (patient, behind):
                lost = await outcome(other)
                assert isinstance(lost, ConnectionLost)
                assert lost.retriable
            broker.script = good_answer
            await connected(client)
            assert len(broker.sessions) == 2

    async def test_a_later_request_may_have_the_earlier_deadline(self, bench: Bench) -> None:
        async with ScriptedBroker(silent_but_for_versions) as broker:
            client = await bench.client(broker)
            client.send(FIRST, MetadataRequest(), timeout=60.0)
            await broker.until(lambda: broker.asked(METADATA))
            loop = asyncio.get_running_loop()
            started = loop.time()
            error = await outcome(client.send(FIRST, MetadataRequest(), timeout=0.05))
            assert isinstance(error, RequestTimedOut)
            assert 0.04 <= loop.time() - started < 5.0

    async def test_a_drip_does_not_put_the_deadline_off(self, bench: Bench) -> None:
        def drip(session: Session, request: Received) -> None:
            if request.api_key == API_VERSIONS:
                good_answer(session, request)
                return
            loop = asyncio.get_running_loop()
            data = encode_response(
                MetadataResponse(cluster_id="x" * 5000), request.version, request.correlation_id
            )

            def one(position: int = 0) -> None:
                if not session.writer.transport.is_closing() and position < len(data):
                    session.send(data[position : position + 1])
                    loop.call_later(0.005, one, position + 1)

            one()

        async with ScriptedBroker(drip) as broker:
            client = await bench.client(broker)
            error = await outcome(client.send(FIRST, MetadataRequest(), timeout=0.1))
            assert isinstance(error, RequestTimedOut)

    async def test_silence_after_accept_ends_with_the_setup_timeout(self, bench: Bench) -> None:
        async with ScriptedBroker(lambda session, request: None) as broker:
            client = await bench.client(broker, connection_setup_timeout=0.05)
            error = await outcome(client.send(FIRST, MetadataRequest()))
            assert isinstance(error, BrokerUnreachable)
            assert "no answer to ApiVersions" in str(error)

    async def test_a_request_that_waits_in_vain_was_certainly_not_written(
        self, bench: Bench
    ) -> None:
        async with ScriptedBroker(lambda session, request: None) as broker:
            client = await bench.client(broker)
            error = await outcome(client.send(FIRST, MetadataRequest(), timeout=0.05))
            assert isinstance(error, RequestTimedOut)
            assert error.maybe_written is False
            assert "waited 0.05 s" in str(error)

    async def test_a_connection_has_one_timer_however_many_requests_it_has(
        self, bench: Bench
    ) -> None:
        script = Held()
        async with ScriptedBroker(script) as broker:
            client = await bench.client(broker)
            await_all = [client.send(FIRST, MetadataRequest(), timeout=60 + n) for n in range(50)]
            await broker.until(lambda: len(script.held) == 50)
            loop = asyncio.get_running_loop()
            if isinstance(loop, asyncio.BaseEventLoop):
                timers = [h for h in vars(loop)["_scheduled"] if not h.cancelled()]
                owners = [getattr(h._callback, "__self__", None) for h in timers]
                assert sum(isinstance(owner, NodeConnection) for owner in owners) == 1
                assert sum(isinstance(owner, Selector) for owner in owners) == 1
            script.release()
            await await_all[-1]

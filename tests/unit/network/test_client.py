"""NetworkClient against scripted brokers on loopback sockets."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any, cast

import pytest

from kclient.errors import (
    BrokerUnreachable,
    ClientClosed,
    ConnectionLost,
    InvalidArgument,
    NoCommonVersion,
    ProtocolError,
    RequestTimedOut,
)
from kclient.hooks import ConnectionClosed, ConnectionOpened, RequestCompleted, Throttled
from kclient.network import Lane, NetworkClient, Node, RawResponse, RequestFuture
from kclient.network.line import Line
from kclient.network.selector import Selector
from kclient.protocol.headers import encode_response
from kclient.protocol.message import Request
from kclient.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kclient.protocol.messages.list_offsets import ListOffsetsRequest
from kclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.unit.network.conftest import Bench
from tests.unit.network.scripted_broker import (
    API_VERSIONS,
    METADATA,
    SPOKEN,
    Received,
    ScriptedBroker,
    Session,
    good_answer,
    silent_but_for_versions,
)

FIRST = -1
"""Id of the first bootstrap node."""


async def outcome(future: RequestFuture[Any]) -> Any:
    """The value or the error."""
    try:
        return await future
    except Exception as error:
        return error


async def all_answered(futures: list[RequestFuture[Any]]) -> bool:
    """All of them got their answer."""
    return all([isinstance(await future, MetadataResponse) for future in futures])


async def connected(client: NetworkClient, node_id: int = FIRST, lane: Lane = Lane.GENERAL) -> None:
    await client.send(node_id, MetadataRequest(), lane=lane)


class WriteTap:
    """Notes what goes to a transport."""

    def __init__(self, transport: asyncio.Transport, writes: list[bytes]) -> None:
        self._transport = transport
        self._writes = writes

    def write(self, data: bytes) -> None:
        self._writes.append(data)
        self._transport.write(data)


class Held:
    """A script that keeps requests until the test lets them go."""

    def __init__(self) -> None:
        self.held: list[tuple[Session, Received]] = []

    def __call__(self, session: Session, request: Received) -> None:
        if request.api_key == API_VERSIONS:
            good_answer(session, request)
        else:
            self.held.append((session, request))

    def release(self, count: int | None = None) -> None:
        released, self.held = self.held[:count], self.held[len(self.held[:count]) :]
        for session, request in released:
            good_answer(session, request)


class Room:
    """A room listener that can be waited on."""

    def __init__(self, client: NetworkClient) -> None:
        self.calls: list[tuple[int, Lane]] = []
        self._event = asyncio.Event()
        client.add_room_listener(self)

    def __call__(self, node_id: int, lane: Lane) -> None:
        self.calls.append((node_id, lane))
        self._event.set()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(10.0):
            while not condition():
                self._event.clear()
                await self._event.wait()


class TestSending:
    async def test_dials_when_first_needed_and_answers(self, bench: Bench) -> None:
        async with ScriptedBroker() as broker:
            client = await bench.client(broker)
            assert broker.sessions == []
            response = await client.send(FIRST, MetadataRequest())
            assert isinstance(response, MetadataResponse)
            assert response.cluster_id == "scripted"
            assert client.is_connected(FIRST)
            assert client.in_flight(FIRST) == 0

    async def test_all_requests_before_the_connection_is_ready_wait_and_keep_their_order(
        self, bench: Bench
    ) -> None:
        async with ScriptedBroker() as broker:
            client = await bench.client(broker)
            futures = [client.send(FIRST, MetadataRequest()) for _ in range(20)]
            assert client.in_flight(FIRST) == 20
            done: list[int] = []
            for index, future in enumerate(futures):
                future.add_listener(lambda _, index=index: done.append(index))
            await futures[-1]
            assert done == list(range(20))
            assert len(broker.sessions) == 1

    async def test_a_burst_shares_its_writes(self, bench: Bench) -> None:
        async with ScriptedBroker() as broker:
            client = await bench.client(broker)
            await connected(client)
            channel = client._lines[FIRST, Lane.GENERAL].channel
            assert channel is not None
            transport = channel._transport
            assert transport is not None
            writes: list[bytes] = []
            channel._transport = cast("asyncio.Transport", WriteTap(transport, writes))
            assert await all_answered([client.send(FIRST, MetadataRequest()) for _ in range(50)])
            assert len(writes) == 2  # the first at once, the others together
            channel._transport = transport

    async def test_a_callable_builds_the_message_for_the_version(self, bench: Bench) -> None:
        async with ScriptedBroker() as broker:
            client = await bench.client(broker)
            seen: list[int] = []

            def build(version: int) -> Request:
                seen.append(version)
                return MetadataRequest()

            await client.send(FIRST, build, api=MetadataRequest)
            await client.send(FIRST, build, api=MetadataRequest, max_version=4)
            assert seen == [12, 4]
            assert [request.version for request in broker.asked(METADATA)] == [12, 4]

    async def test_a_callable_needs_its_api(self, bench: Bench) -> None:
        client = await bench.client(("127.0.0.1", 1))
        with pytest.raises(InvalidArgument, match="api"):
            client.send(FIRST, lambda version: MetadataRequest())

    async def test_a_builder_that_raises_fails_its_request_only(self, bench: Bench) -> None:
        async with ScriptedBroker() as broker:
            client = await bench.client(broker)

            def build(version: int) -> Request:
                raise ZeroDivisionError

            failed = client.send(FIRST, build, api=MetadataRequest)
            assert isinstance(await outcome(failed), ZeroDivisionError)
            await connected(client)

    async def test_raw_gives_the_bytes(self, bench: Bench) -> None:
        async with ScriptedBroker() as broker:
            client = await bench.client(broker)
            raw = await client.send(FIRST, MetadataRequest(), raw=True)
            assert isinstance(raw, RawResponse)
            assert MetadataResponse.decode(raw.body, raw.version).cluster_id == "scripted"
            raw.release()

    async def test_without_an_answer_it_is_done_once_written(self, bench: Bench) -> None:
        async with ScriptedBroker(silent_but_for_versions) as broker:
            client = await bench.client(broker)
            assert await client.send(FIRST, MetadataRequest(), expect_response=False) is None
            await broker.until(lambda: broker.asked(METADATA))
            assert client.in_flight(FIRST) == 0

    async def test_no_common_version_comes_through_the_requests_own_future(
        self, bench: Bench
    ) -> None:
        async with ScriptedBroker() as broker:
            client = await bench.client(broker)
            refused = client.send(FIRST, ListOffsetsRequest())
            fine = client.send(FIRST, MetadataRequest())
            error = await outcome(refused)
            assert isinstance(error, NoCommonVersion)
            assert error.maybe_written is False
            assert isinstance(await fine, MetadataResponse)

    async def test_an_unknown_node_is_unreachable(self, bench: Bench) -> None:
        client = await bench.client(("127.0.0.1", 1))
        error = await outcome(client.send(77, MetadataRequest()))
        assert isinstance(error, BrokerUnreachable)
        assert error.retriable
        assert "77" in str(error)

    async def test_each_lane_has_a_connection_of_its_own(self, bench: Bench) -> None:
        async with ScriptedBroker() as broker:
            client = await bench.client(broker)
            for lane in Lane:
                await connected(client, lane=lane)
            assert len(broker.sessions) == 4
            assert all(client.is_connected(FIRST, lane) for lane in Lane)

    async def test_a_parked_request_holds_up_its_own_lane_only(self, bench: Bench) -> None:
        script = Held()
        async with ScriptedBroker(script) as broker:
            client = await bench.client(broker)
            parked = client.send(FIRST, MetadataRequest(), lane=Lane.FETCH)
            await broker.until(lambda: script.held)
            broker.script = good_answer
            await connected(client)
            assert not parked.done
            script.release()
            await parked

    async def test_a_cancelled_waiter_leaves_the_connection_and_its_order_alone(
        self, bench: Bench
    ) -> None:
        script = Held()
        async with ScriptedBroker(script) as broker:
            client = await bench.client(broker)
            abandoned, other = (client.send(FIRST, MetadataRequest()) for _ in range(2))
            task = asyncio.ensure_future(outcome(abandoned))
            await broker.until(lambda: len(script.held) == 2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert abandoned.listener_count == 0
            script.release()
            assert isinstance(await other, MetadataResponse)
            assert abandoned.succeeded

    async def test_an_answer_may_come_in_any_pieces(self, bench: Bench) -> None:
        pieces: list[bytes] = []

        def drip(session: Session, request: Received) -> None:
            if request.api_key == API_VERSIONS:
                good_answer(session, request)
                return
            data = encode_response(
                MetadataResponse(cluster_id="x" * 50), request.version, request.correlation_id
            )
            pieces.extend(data[i : i + 1] for i in range(len(data)))

        async with ScriptedBroker(drip) as broker:
            client = await bench.client(broker)
            future = client.send(FIRST, MetadataRequest())
            await broker.until(lambda: pieces)
            for piece in pieces:
                broker.sessions[0].send(piece)
                await broker.sessions[0].writer.drain()
            assert (await future).cluster_id == "x" * 50


class TestNegotiation:
    async def test_falls_back_like_an_old_broker_wants_it(self, bench: Bench) -> None:
        def old(session: Session, request: Received) -> None:
            if request.api_key != API_VERSIONS:
                good_answer(session, request)
            elif request.version > 1:
                refusal = ApiVersionsResponse(35, [])
                session.send(encode_response(refusal, 0, request.correlation_id))
            else:
                keys = [ApiVersion(METADATA, 0, 5), ApiVersion(API_VERSIONS, 0, 1)]
                session.reply(request, ApiVersionsResponse(0, keys))

        async with ScriptedBroker(old) as broker:
            client = await bench.client(broker)
            await connected(client)
            assert [request.version for request in broker.asked(API_VERSIONS)] == [4, 0]
            assert broker.asked(METADATA)[0].version == 5
            assert len(broker.sessions) == 1

    async def test_is_done_anew_on_every_connection(self, bench: Bench) -> None:
        highest = [5, 9]

        def upgraded(session: Session, request: Received) -> None:
            if request.api_key == API_VERSIONS:
                keys = [ApiVersion(METADATA, 0, highest[len(session.broker.sessions) - 1])]
                session.reply(request, ApiVersionsResponse(0, keys))
            else:
                good_answer(session, request)

        async with ScriptedBroker(upgraded) as broker:
            client = await bench.client(broker, reconnect_backoff=0.001)
            await connected(client)
            versions = client.api_versions(FIRST)
            assert versions is not None
            assert versions.latest_usable(MetadataRequest) == 5
            room = Room(client)
            broker.sessions[0].reset()
            await room.until(lambda: not client.is_connected(FIRST))
            await connected(client)
            assert [request.version for request in broker.asked(METADATA)] == [5, 9]
            versions = client.api_versions(FIRST)
            assert versions is not None
            assert versions.latest_usable(MetadataRequest) == 9


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

    async def test_answers_out_of_order_break_the_connection(self, bench: Bench) -> None:
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

    async def test_an_answer_that_cannot_be_read_leaves_the_client_usable(
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

            client.add_room_listener(fails)
            await connected(client, lane=Lane.FETCH)
            assert {type(fault) for fault in faults} == {ZeroDivisionError, KeyError}
            client.remove_room_listener(fails)
            await connected(client)


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
                assert sum(isinstance(owner, Line) for owner in owners) == 1
                assert sum(isinstance(owner, Selector) for owner in owners) == 1
            script.release()
            await await_all[-1]


class TestThrottling:
    async def test_mutes_the_connection_after_the_answer_and_says_when_it_is_over(
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
            room = Room(client)
            second = client.send(FIRST, MetadataRequest())
            await connected(client, lane=Lane.FETCH)
            assert not second.done
            await second
            assert loop.time() - muted >= 0.08
            assert room.calls
            assert bench.recorder.of(Throttled)[0].seconds == 0.1

    async def test_room_listeners_hear_of_its_end_though_nothing_waits(self, bench: Bench) -> None:
        def throttles(session: Session, request: Received) -> None:
            if request.api_key == API_VERSIONS:
                good_answer(session, request)
            else:
                session.reply(request, MetadataResponse(throttle_time_ms=50))

        async with ScriptedBroker(throttles) as broker:
            client = await bench.client(broker)
            await connected(client)
            room = Room(client)
            await room.until(lambda: client.can_send(FIRST))


class TestRoom:
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

    async def test_listeners_hear_of_room_after_they_were_refused(self, bench: Bench) -> None:
        script = Held()
        async with ScriptedBroker(script) as broker:
            client = await bench.client(broker, max_in_flight=1)
            future = client.send(FIRST, MetadataRequest(), lane=Lane.PRODUCE)
            await broker.until(lambda: script.held)
            assert not client.can_send(FIRST, Lane.PRODUCE)
            room = Room(client)
            script.release()
            await room.until(lambda: client.can_send(FIRST, Lane.PRODUCE))
            assert room.calls == [(FIRST, Lane.PRODUCE)]
            await future

    async def test_listeners_hear_of_ready_and_of_gone(self, bench: Bench) -> None:
        async with ScriptedBroker() as broker:
            client = await bench.client(broker)
            room = Room(client)
            await connected(client)
            assert room.calls == [(FIRST, Lane.GENERAL)]
            broker.sessions[0].reset()
            await room.until(lambda: len(room.calls) >= 2)
            assert not client.is_connected(FIRST)

    async def test_can_send_counts_what_waits_while_dialing(self, bench: Bench) -> None:
        async with ScriptedBroker() as broker:
            client = await bench.client(broker, max_in_flight=2)
            assert client.can_send(FIRST, Lane.PRODUCE)
            first = client.send(FIRST, MetadataRequest(), lane=Lane.PRODUCE)
            assert client.can_send(FIRST, Lane.PRODUCE)
            second = client.send(FIRST, MetadataRequest(), lane=Lane.PRODUCE)
            assert not client.can_send(FIRST, Lane.PRODUCE)
            await first
            await second

    async def test_a_peer_that_does_not_read_stops_the_sender(self, bench: Bench) -> None:
        """Once the transport's buffer is full nothing more is written to it."""

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
            room = Room(client)
            await room.until(lambda: client.is_connected(FIRST))
            line = client._lines[FIRST, Lane.GENERAL]
            await broker.until(lambda: broker.sessions)
            assert line.channel is not None
            assert not line.channel.writable
            assert line.waiting
            assert not client.can_send(FIRST)
            assert line.channel.bytes_out < 10 * 400_000
            broker.sessions[0].go_on_reading()
            for future in futures:
                assert isinstance(await future, MetadataResponse)


class TestBackOff:
    async def test_a_listener_that_accepts_and_hangs_up_is_not_stormed(self, bench: Bench) -> None:
        async with ScriptedBroker(greet=lambda session: session.hang_up()) as broker:
            client = await bench.client(broker)
            loop = asyncio.get_running_loop()
            ends = loop.time() + 1.0
            while loop.time() < ends:
                error = await outcome(client.send(FIRST, MetadataRequest()))
                assert isinstance(error, BrokerUnreachable)
            # 0, 50, 150, 350, 750 ms: five, and jitter.
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
        on_timer = Line._on_timer

        def counted(line: Line) -> None:
            nonlocal turns
            turns += 1
            on_timer(line)

        monkeypatch.setattr(Line, "_on_timer", counted)
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
            (probing,) = (line for line in client._lines.values() if line.channel is not None)
            probing.retire()
            assert await all_answered(futures)

    async def test_room_on_a_lane_is_told_after_another_lanes_probe(self, bench: Bench) -> None:
        broker = ScriptedBroker()
        async with broker:
            pass
        client = await bench.client(broker, reconnect_backoff=0.02, reconnect_backoff_max=0.02)
        await outcome(client.send(FIRST, MetadataRequest()))
        assert not client.can_send(FIRST, Lane.PRODUCE)
        room = Room(client)
        async with broker:
            await connected(client)
            await room.until(lambda: (FIRST, Lane.PRODUCE) in room.calls)
            assert client.can_send(FIRST, Lane.PRODUCE)

    async def test_a_failed_probe_tells_all_lanes_that_wait(self, bench: Bench) -> None:
        async with ScriptedBroker() as broker:
            address = broker.address
        client = await bench.client(address, reconnect_backoff=0.05)
        await outcome(client.send(FIRST, MetadataRequest()))
        futures = [client.send(FIRST, MetadataRequest(), lane=lane) for lane in Lane]
        for future in futures:
            assert isinstance(await outcome(future), BrokerUnreachable)

    async def test_listeners_hear_of_the_end_of_the_back_off(self, bench: Bench) -> None:
        async with ScriptedBroker() as broker:
            address = broker.address
        client = await bench.client(address, reconnect_backoff=0.05)
        await outcome(client.send(FIRST, MetadataRequest()))
        assert not client.can_send(FIRST)
        room = Room(client)
        await room.until(lambda: client.can_send(FIRST))


class TestNodes:
    async def test_brokers_are_dialed_at_their_address(self, bench: Bench) -> None:
        async with ScriptedBroker() as one, ScriptedBroker() as two:
            client = await bench.client(one)
            client.update_nodes([Node(1, *one.address), Node(2, *two.address, rack="b")])
            await connected(client, 1)
            await connected(client, 2)
            assert (len(one.sessions), len(two.sessions)) == (1, 1)
            assert [node.node_id for node in client.nodes] == [1, 2]
            assert [node.node_id for node in client.bootstrap_nodes] == [-1]

    async def test_two_ids_at_one_address_have_connections_of_their_own(self, bench: Bench) -> None:
        async with ScriptedBroker() as broker:
            client = await bench.client(broker)
            client.update_nodes([Node(1, *broker.address), Node(2, *broker.address)])
            await connected(client, 1)
            await connected(client, 2)
            assert len(broker.sessions) == 2

    async def test_a_moved_broker_finishes_and_is_dialed_anew(self, bench: Bench) -> None:
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
            room = Room(client)
            await room.until(lambda: client.snapshot() == [])
            assert client.api_versions(1) is None

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

    async def test_prefers_the_one_with_less_under_way(self, bench: Bench) -> None:
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

    async def test_is_none_when_nobody_can_be_asked(self, bench: Bench) -> None:
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
            room = Room(client)
            await room.until(lambda: not client.is_connected(FIRST, Lane.FETCH))
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
            room = Room(client)
            broker.sessions[0].hang_up()
            await room.until(lambda: not client.is_connected(FIRST))
            await connected(client)
            assert len(broker.sessions) == 2


class TestClosing:
    async def test_fails_what_is_under_way_and_what_waits(self, bench: Bench) -> None:
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
            room = Room(client)
            await room.until(lambda: client.is_connected(FIRST))
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
    async def test_hooks_hear_of_connections_and_requests(self, bench: Bench) -> None:
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
            client = await bench.client(good, slow, address, max_in_flight=1)
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


async def test_heartbeats_pass_while_a_fetch_is_parked(bench: Bench) -> None:
    def coordinator(session: Session, request: Received) -> None:
        if request.api_key == 12:
            session.reply(request, HeartbeatResponse())
        elif request.api_key == API_VERSIONS:
            session.reply(request, ApiVersionsResponse(0, list(SPOKEN)))

    async with ScriptedBroker(coordinator) as broker:
        client = await bench.client(broker)
        parked = client.send(FIRST, MetadataRequest(), lane=Lane.FETCH)
        beat = await client.send(FIRST, HeartbeatRequest(), lane=Lane.GROUP)
        assert isinstance(beat, HeartbeatResponse)
        assert not parked.done

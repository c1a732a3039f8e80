"""Sending through NetworkClient: order, lanes, versions, raw responses, cancelled waiters."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from kclient.errors import (
    BrokerUnreachable,
    InvalidArgument,
    NoCommonVersion,
)
from kclient.network import Lane, RawResponse
from kclient.protocol.message import Request
from kclient.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kclient.protocol.messages.list_offsets import ListOffsetsRequest
from kclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
)
from tests.support.response_frames import encode_response
from tests.unit.network.bench import (
    FIRST,
    Bench,
    CapacityWaiter,
    Held,
    WriteTap,
    all_answered,
    connected,
    outcome,
)
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


class TestSending:
    async def test_dials_when_first_needed_and_responds(self, bench: Bench) -> None:
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

    async def test_a_burst_takes_few_writes(self, bench: Bench) -> None:
        async with ScriptedBroker() as broker:
            client = await bench.client(broker)
            await connected(client)
            channel = client._connections[FIRST, Lane.GENERAL].channel
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

    async def test_without_a_response_it_is_done_once_written(self, bench: Bench) -> None:
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

    async def test_a_long_poll_holds_up_its_own_lane_only(self, bench: Bench) -> None:
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

    async def test_a_response_may_come_in_any_pieces(self, bench: Bench) -> None:
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

    async def test_is_done_again_on_every_connection(self, bench: Bench) -> None:
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
            waiter = CapacityWaiter(client)
            broker.sessions[0].reset()
            await waiter.until(lambda: not client.is_connected(FIRST))
            await connected(client)
            assert [request.version for request in broker.asked(METADATA)] == [5, 9]


async def test_heartbeats_pass_while_a_fetch_waits(bench: Bench) -> None:
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

"""Channel: what goes to the transport and when, with a transport that only records it."""

from __future__ import annotations

import asyncio

from kclient.errors import ClientClosed, ConnectionLost
from kclient.network.channel import Channel
from kclient.network.connection import Connection
from kclient.network.frames import FramePool
from kclient.network.handshake import ClientInformation
from kclient.network.nodes import ConnectionKey, Lane
from kclient.network.requests import PendingRequest
from kclient.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.response_frames import encode_response


class NotedTransport(asyncio.Transport):
    """Records what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.ended: str | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "aborted"


class NotedOwner:
    """Records its notifications."""

    def __init__(self) -> None:
        self.reported: list[str] = []
        self.answers: list[object] = []

    def channel_ready(self, channel: Channel) -> None:
        self.reported.append("ready")

    def channel_completed(self, channel: Channel, request: PendingRequest, outcome: object) -> None:
        self.reported.append("answered")
        self.answers.append(outcome)

    def channel_has_space(self, channel: Channel) -> None:
        self.reported.append("space")

    def channel_setup_limited(self, channel: Channel) -> None:
        self.reported.append("limited")

    def channel_is_full(self, channel: Channel) -> None:
        self.reported.append("full")

    def channel_closed(self, channel: Channel) -> None:
        self.reported.append("closed")


class Wired:
    """A channel between a recording transport and a recording owner."""

    def __init__(self, limit: int = 100) -> None:
        self.owner = NotedOwner()
        self.transport = NotedTransport()
        connection = Connection(
            ConnectionKey(1, Lane.GENERAL),
            "kafka:9092",
            ClientInformation("c", "kclient", "1"),
            pool=FramePool(),
            frame_limit=10_000,
            in_flight_limit=limit,
        )
        self.channel = Channel(connection, self.owner, lambda: 1.0, 10.0)

    def open(self) -> None:
        self.channel.connection_made(self.transport)

    def receive(self, data: bytes) -> None:
        buffer = self.channel.get_buffer(-1)
        buffer[: len(data)] = data
        self.channel.buffer_updated(len(data))

    def make_ready(self) -> None:
        self.open()
        keys = [ApiVersion(3, 0, 12)]
        self.receive(encode_response(ApiVersionsResponse(0, keys), 4, 0))
        self.transport.writes.clear()
        self.owner.reported.clear()


def pending(deadline: float = 30.0) -> PendingRequest:
    return PendingRequest(
        MetadataRequest, MetadataRequest(), timeout=deadline - 1.0, deadline=deadline
    )


def test_the_handshake_begins_as_the_transport_opens() -> None:
    wired = Wired()
    wired.open()
    assert len(wired.transport.writes) == 1
    assert wired.owner.reported == []


def test_ready_is_reported_once_and_before_capacity() -> None:
    wired = Wired()
    wired.open()
    keys = [ApiVersion(3, 0, 12)]
    wired.receive(encode_response(ApiVersionsResponse(0, keys), 4, 0))
    assert wired.owner.reported == ["ready", "space"]


def test_what_was_submitted_leaves_in_one_write() -> None:
    wired = Wired()
    wired.make_ready()
    for _ in range(5):
        wired.channel.connection.submit(pending(), 1.0)
    assert wired.transport.writes == []
    wired.channel.flush()
    assert len(wired.transport.writes) == 1
    assert wired.channel.bytes_out > len(wired.transport.writes[0])
    wired.channel.flush()
    assert len(wired.transport.writes) == 1


async def test_what_is_submitted_in_one_loop_iteration_takes_one_write() -> None:
    wired = Wired()
    wired.make_ready()
    for _ in range(5):
        wired.channel.connection.submit(pending(), 1.0)
        wired.channel.flush_soon()
    assert wired.transport.writes == []
    await next_round()
    assert len(wired.transport.writes) == 1


async def test_an_end_in_good_order_writes_what_was_submitted() -> None:
    wired = Wired()
    wired.make_ready()
    wired.channel.connection.submit(pending(), 1.0)
    wired.channel.flush_soon()
    wired.channel.end(ClientClosed("closed"), abort=False)
    assert len(wired.transport.writes) == 1
    await next_round()
    assert len(wired.transport.writes) == 1


async def test_a_broken_connection_writes_no_more() -> None:
    wired = Wired()
    wired.make_ready()
    wired.channel.connection.submit(pending(), 1.0)
    wired.channel.flush_soon()
    wired.channel.end(ConnectionLost("broken"))
    await next_round()
    assert wired.transport.writes == []


async def next_round() -> None:
    """Wait one loop iteration."""
    done = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(done.set_result, None)
    await done


def test_all_responses_of_one_read_are_delivered_before_capacity_is_reported() -> None:
    wired = Wired()
    wired.make_ready()
    requests = [pending(), pending()]
    for request in requests:
        wired.channel.connection.submit(request, 1.0)
    wired.channel.flush()
    wired.receive(
        b"".join(encode_response(MetadataResponse(), 12, r.correlation_id) for r in requests)
    )
    assert wired.owner.reported == ["answered", "answered", "space"]


def test_a_paused_transport_stops_the_sender_and_a_resumed_one_notifies_it() -> None:
    wired = Wired()
    wired.make_ready()
    wired.channel.pause_writing()
    assert not wired.channel.connection.can_send(1.0)
    wired.channel.resume_writing()
    assert wired.channel.connection.can_send(1.0)
    assert wired.owner.reported == ["full", "space"]


def test_a_timeout_drops_the_transport_with_what_it_holds() -> None:
    """No request may follow half of another one (the rest of it may still be in the transport)."""
    wired = Wired()
    wired.make_ready()
    wired.channel.connection.submit(pending(deadline=5.0), 1.0)
    wired.channel.flush()
    wired.channel.expire(5.0)
    assert wired.transport.ended == "aborted"
    assert wired.owner.reported == ["answered", "closed"]


def test_an_end_in_good_order_lets_the_transport_write_what_it_holds() -> None:
    wired = Wired()
    wired.make_ready()
    wired.channel.end(ClientClosed("closed"), abort=False, intentional=True)
    assert wired.transport.ended == "closed"
    assert wired.channel.intentional
    assert wired.owner.reported == ["closed"]


def test_the_end_is_reported_once() -> None:
    wired = Wired()
    wired.make_ready()
    wired.channel.end(ClientClosed("closed"))
    wired.channel.end(ConnectionLost("again"), intentional=True)
    wired.channel.connection_lost(None)
    assert wired.owner.reported == ["closed"]
    assert not wired.channel.intentional
    assert isinstance(wired.channel.connection.error, ClientClosed)


def test_a_transport_that_opens_after_the_end_is_dropped() -> None:
    wired = Wired()
    wired.channel.end(ClientClosed("closed"))
    wired.open()
    assert wired.transport.ended == "aborted"
    assert wired.transport.writes == []


def test_bytes_after_the_end_are_ignored() -> None:
    wired = Wired()
    wired.make_ready()
    wired.channel.end(ClientClosed("closed"))
    wired.receive(b"\xff" * 100)
    assert wired.owner.reported == ["closed"]


def test_a_lost_transport_fails_what_is_in_flight() -> None:
    wired = Wired()
    wired.make_ready()
    wired.channel.connection.submit(pending(), 1.0)
    wired.channel.flush()
    wired.channel.connection_lost(ConnectionResetError("reset"))
    assert wired.owner.reported == ["answered", "closed"]
    assert isinstance(wired.owner.answers[0], ConnectionLost)


async def test_wait_closed_returns_once_the_transport_is_lost() -> None:
    wired = Wired()
    await wired.channel.wait_closed()
    wired.make_ready()
    waiting = asyncio.ensure_future(wired.channel.wait_closed())
    asyncio.get_running_loop().call_soon(wired.channel.connection_lost, None)
    await waiting

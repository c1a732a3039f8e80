"""Connections without a loop: built, brought to READY, fed with bytes, asked for outcomes."""

from __future__ import annotations

import struct
from collections.abc import Callable

from kclient.network.connection import (
    Connection,
    ConnectionState,
)
from kclient.network.frames import FramePool
from kclient.network.handshake import ClientInformation
from kclient.network.nodes import ConnectionKey, Lane
from kclient.network.requests import PendingRequest
from kclient.protocol.headers import decode_request_header
from kclient.protocol.message import Request, Response
from kclient.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
)
from kclient.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from kclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.response_frames import encode_response

SETUP_DEADLINE = 10.0
UNSUPPORTED_VERSION = 35
SPOKEN = [ApiVersion(0, 0, 11), ApiVersion(1, 0, 13), ApiVersion(3, 0, 12), ApiVersion(18, 0, 4)]


def new_connection(
    *, limit: int = 5, frame_limit: int = 1_000_000, authenticates: bool = False
) -> Connection:
    return Connection(
        ConnectionKey(2, Lane.GENERAL),
        "kafka:9092",
        ClientInformation("my-client", "kclient", "1.2.3"),
        pool=FramePool(),
        frame_limit=frame_limit,
        in_flight_limit=limit,
        authenticates=authenticates,
    )


def deliver(connection: Connection, data: bytes, now: float = 1.0) -> None:
    while data:
        with connection.buffer() as buffer:
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
        data = data[count:]
        connection.received(count, now)


def versions(
    correlation_id: int, version: int = 4, error: int = 0, keys: list[ApiVersion] | None = None
) -> bytes:
    keys = SPOKEN if keys is None else keys
    return encode_response(ApiVersionsResponse(error, keys), version, correlation_id)


def ready(
    *, limit: int = 5, frame_limit: int = 1_000_000, keys: list[ApiVersion] | None = None
) -> Connection:
    connection = new_connection(limit=limit, frame_limit=frame_limit)
    connection.opened(0.0, SETUP_DEADLINE)
    connection.take_output()
    deliver(connection, versions(0, keys=keys))
    assert connection.state is ConnectionState.READY
    return connection


def pending(
    message: Request | None = None,
    *,
    deadline: float = 30.0,
    raw: bool = False,
    expect_response: bool = True,
    response_bytes: int = 0,
    build: Callable[[int], Request] | None = None,
    max_version: int | None = None,
) -> PendingRequest:
    message = message or MetadataRequest()
    return PendingRequest(
        type(message),
        build or message,
        timeout=deadline - 1.0,
        created_at=1.0,  # set when ``submit`` writes it
        deadline=deadline,
        raw=raw,
        expect_response=expect_response,
        response_bytes=response_bytes,
        max_version=max_version,
    )


def submit(connection: Connection, *requests: PendingRequest, now: float = 1.0) -> None:
    for request in requests:
        connection.submit(request, now)


def answer(request: PendingRequest, response: Response | None = None) -> bytes:
    return encode_response(response or MetadataResponse(), request.version, request.correlation_id)


def outcome(connection: Connection) -> object:
    ((_, value),) = connection.take_outcomes()
    return value


def written(connection: Connection) -> list[tuple[int, int, int, str | None]]:
    """Return (api key, version, correlation id, client id) of all requests since the last call."""
    data, found = connection.take_output(), []
    while data:
        (size,) = struct.unpack_from(">i", data)
        header = decode_request_header(data[4 : 4 + size])
        found.append((header.api_key, header.api_version, header.correlation_id, header.client_id))
        data = data[4 + size :]
    return found


def fetch_response(records: bytes, throttle_ms: int = 0) -> FetchResponse:
    return FetchResponse(
        throttle_time_ms=throttle_ms,
        responses=[
            FetchableTopicResponse(partitions=[PartitionData(records=records)]),
        ],
    )

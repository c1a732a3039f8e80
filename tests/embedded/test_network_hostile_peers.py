"""Peers that violate the protocol, on real sockets: typed errors, and nothing left behind.

Every test runs under the leak watcher, which fails it over a task, timer or socket that is left.
"""

from __future__ import annotations

import contextlib
import random
import struct
from typing import Any

import pytest

from kclient.errors import BrokerUnreachable, ConnectionLost, KafkaError, RequestTimedOut
from kclient.network import Lane, Node
from kclient.protocol.messages.api_versions import ApiVersionsResponse
from kclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from tests.support.response_frames import encode_response
from tests.unit.network.bench import FIRST, Bench, outcome
from tests.unit.network.conftest import bench as bench
from tests.unit.network.scripted_broker import (
    API_VERSIONS,
    METADATA,
    SPOKEN,
    Received,
    ScriptedBroker,
    Session,
    good_answer,
)


def answer_bytes(request: Received) -> bytes:
    """A valid response, as bytes to be damaged."""
    if request.api_key == API_VERSIONS:
        response: Any = ApiVersionsResponse(0, list(SPOKEN))
    else:
        response = MetadataResponse(
            cluster_id="cluster", brokers=[MetadataResponseBroker(1, "kafka", 9092)]
        )
    return encode_response(response, request.version, request.correlation_id)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """``data`` with one kind of damage."""
    changed = bytearray(data)
    match rng.randrange(5):
        case 0:
            del changed[rng.randrange(len(changed)) :]
        case 1:
            for _ in range(rng.randint(1, 8)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
        case 2:
            position = rng.randrange(max(1, len(changed) - 4))
            extreme = rng.choice([-1, 0, 2**31 - 1, -(2**31), 127])
            changed[position : position + 4] = struct.pack(">i", extreme)
        case 3:
            changed[rng.randrange(len(changed)) : 0] = rng.randbytes(rng.randint(1, 50))
        case _:
            changed = bytearray(rng.randbytes(rng.randint(1, 200)))
    return bytes(changed)


@pytest.mark.parametrize("spoilt", [API_VERSIONS, METADATA])
async def test_spoilt_responses_give_typed_errors_and_leave_the_client_usable(
    bench: Bench, spoilt: int
) -> None:
    rng = random.Random(spoilt)

    def spoils(session: Session, request: Received) -> None:
        data = answer_bytes(request)
        if request.api_key == spoilt:
            data = mutated(data, rng)
        with contextlib.suppress(OSError):
            session.send(data)
        if request.api_key == spoilt and rng.random() < 0.3:
            session.hang_up()

    async with ScriptedBroker(spoils) as broker:
        client = await bench.client(
            broker,
            reconnect_backoff=0.0,
            reconnect_backoff_max=0.0,
            connection_setup_timeout=0.02,
            connection_setup_timeout_max=0.02,
        )
        for _ in range(150):
            result = await outcome(client.send(FIRST, MetadataRequest(), timeout=0.1))
            assert isinstance(result, (KafkaError, MetadataResponse)), repr(result)
        broker.script = good_answer
        client.update_nodes([Node(1, *broker.address)])
        assert isinstance(await client.send(1, MetadataRequest()), MetadataResponse)


async def test_a_cut_at_any_byte_is_a_typed_error(bench: Bench) -> None:
    left = 0

    def cuts(session: Session, request: Received) -> None:
        nonlocal left
        data = answer_bytes(request)
        session.send(data[:left])
        left -= len(data)
        if left <= 0:
            session.hang_up()

    async with ScriptedBroker(cuts) as broker:
        client = await bench.client(broker, reconnect_backoff=0.0, reconnect_backoff_max=0.0)
        kinds = set()
        for cut in range(1, 110):
            left = cut
            result = await outcome(client.send(FIRST, MetadataRequest(), timeout=5.0))
            assert not isinstance(result, RequestTimedOut)
            kinds.add(type(result))
        assert kinds == {BrokerUnreachable, ConnectionLost, MetadataResponse}


@pytest.mark.parametrize("size", [-1, 0, 3, 2**31 - 1])
async def test_an_impossible_frame_after_good_ones_breaks_its_connection_only(
    bench: Bench, size: int
) -> None:
    def turns(session: Session, request: Received) -> None:
        if request.api_key == METADATA and len(session.broker.asked(METADATA)) == 2:
            session.send(struct.pack(">i", size) + b"rest")
        else:
            good_answer(session, request)

    async with ScriptedBroker(turns) as broker:
        client = await bench.client(broker, reconnect_backoff=0.0)
        await client.send(FIRST, MetadataRequest(), lane=Lane.FETCH)
        error = await outcome(client.send(FIRST, MetadataRequest()))
        assert isinstance(error, ConnectionLost)
        assert str(size) in str(error)
        assert client.is_connected(FIRST, Lane.FETCH)
        await client.send(FIRST, MetadataRequest())


async def test_a_hundred_clients_come_and_go_without_a_trace(bench: Bench) -> None:
    async with ScriptedBroker() as broker:
        for index in range(100):
            client = await bench.client(broker)
            future = client.send(FIRST, MetadataRequest(), lane=Lane(index % 4))
            if index % 3:
                await future
            await client.close(1.0)
            assert future.done

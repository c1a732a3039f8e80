"""Pieces of the proxy without sockets: addresses of leaders, acks, and the cutting of streams."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from kclient.protocol.headers import encode_request
from kclient.protocol.messages import fetch, find_coordinator, produce
from tests.faults.answers import Address, with_own_addresses
from tests.faults.passage import Asked
from tests.faults.units import Frames, Opaque
from tests.support.response_frames import encode_response

PORTS = (1, 255, 256, 9092, 0x2300, 65_280, 65_535)
RACKS = (None, "", "r", "a-long-rack")


def asked_for(request: Any, version: int) -> Asked:
    return Asked(encode_request(request, version, 7, "c"))


def own(node: int, upstream: Address) -> Address:
    return f"proxy-of-{node}", upstream[1] + 1


def unmoved(node: int, upstream: Address) -> Address:
    raise AssertionError(f"no address was to be found, and {node} at {upstream} was")


def fetched(records: bytes | None, nodes: list[Any]) -> fetch.FetchResponse:
    part = fetch.PartitionData(partition_index=0, records=records)
    topic = fetch.FetchableTopicResponse(topic_id=bytes(range(16)), partitions=[part])
    return fetch.FetchResponse(responses=[topic], node_endpoints=nodes)


def produced(throttle: int, nodes: list[Any], version: int) -> produce.ProduceResponse:
    part = produce.PartitionProduceResponse(index=0, base_offset=3)
    topic = produce.TopicProduceResponse(partition_responses=[part])
    if version >= 13:
        topic.topic_id = bytes(range(16))
    else:
        topic.name = "t"
    return produce.ProduceResponse([topic], throttle, nodes)


@pytest.mark.parametrize("version", [16, 17, 18])
@pytest.mark.parametrize("records", [None, b"", b"abc", bytes(10), b"\0\0\x23\0\0\0\0"])
def test_leaders_in_fetch_responses_move(version: int, records: bytes | None) -> None:
    asked = asked_for(fetch.FetchRequest(), version)
    frame = encode_response(fetched(records, []), version, 7)
    assert with_own_addresses(asked, frame, unmoved, {}) == frame
    for port in PORTS:
        for rack in RACKS:
            node = fetch.NodeEndpoint(4, "broker", port, rack)
            frame = encode_response(fetched(records, [node]), version, 7)
            answer = asked.decode_answer(with_own_addresses(asked, frame, own, {}))
            [found] = answer.node_endpoints
            assert (found.node_id, found.host, found.rack) == (4, "proxy-of-4", rack)
            assert found.port == port + 1
            assert bytes(answer.responses[0].partitions[0].records or b"") == (records or b"")


@pytest.mark.parametrize("version", [10, 11, 12, 13])
@pytest.mark.parametrize("throttle", [0, 1, 256, 0x7FFF0000])
def test_leaders_in_produce_responses_move(version: int, throttle: int) -> None:
    asked = asked_for(produce.ProduceRequest(acks=-1), version)
    frame = encode_response(produced(throttle, [], version), version, 7)
    assert with_own_addresses(asked, frame, unmoved, {}) == frame
    for port in PORTS:
        for rack in RACKS:
            node = produce.NodeEndpoint(4, "broker", port, rack)
            frame = encode_response(produced(throttle, [node], version), version, 7)
            [found] = asked.decode_answer(with_own_addresses(asked, frame, own, {})).node_endpoints
            assert (found.host, found.port, found.rack) == ("proxy-of-4", port + 1, rack)


@pytest.mark.parametrize("version", range(14))
def test_acks_are_found_in_every_version(version: int) -> None:
    for acks, name, client_id in itertools.product(
        (0, 1, -1), (None, "", "t" * 200), (None, "", "c")
    ):
        request = produce.ProduceRequest(acks=acks, timeout_ms=1)
        if version >= 3:
            request.transactional_id = name
        assert Asked(encode_request(request, version, 1, client_id)).answered == (acks != 0)


@pytest.mark.parametrize("version", range(7))
def test_coordinators_move_and_errors_stay(version: int) -> None:
    asked = asked_for(find_coordinator.FindCoordinatorRequest(), version)
    for node_id, host, port in ((3, "broker", 9092), (-1, "", -1)):
        if version >= 4:
            one = find_coordinator.Coordinator("g", node_id, host, port, 0, None)
            answer = find_coordinator.FindCoordinatorResponse(coordinators=[one])
        else:
            answer = find_coordinator.FindCoordinatorResponse(
                node_id=node_id, host=host, port=port, error_message=None
            )
        frame = encode_response(answer, version, 7)
        found = asked.decode_answer(with_own_addresses(asked, frame, own, {}))
        [found] = found.coordinators if version >= 4 else [found]
        assert found.node_id == node_id
        assert (found.host, found.port) == (own(3, (host, port)) if port > 0 else ("", -1))


def pieces(data: bytes, rng: random.Random) -> list[bytes]:
    """``data`` as a socket may give it."""
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(20)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if b > a]


@pytest.mark.parametrize("seed", range(50))
def test_streams_are_cut_the_same_however_they_come(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice((0, 1, 3, 4, 5, 100, 5000)) for _ in range(rng.randrange(1, 20))]
    frames = [size.to_bytes(4, "big") + rng.randbytes(size) for size in sizes]
    records = [b"\x17\x03\x03" + size.to_bytes(2, "big") + rng.randbytes(size) for size in sizes]
    for cutter, units in ((Frames(), frames), (Opaque(), records)):
        found = [one for piece in pieces(b"".join(units), rng) for one in cutter.take(piece)]
        assert found == units


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="TLS"):
        Frames().take(b"\x16\x03\x01\x02\x00\x01\x00")
    assert Opaque().take(b"GET / HTTP/1.1") == [b"GET / HTTP/1.1"]

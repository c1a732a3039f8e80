"""Faults on the wire: responses and requests cut, repeated, reordered, slow, or any bytes."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from kclient.errors import InvalidArgument
from kclient.hooks import DialTarget
from kclient.protocol.headers import encode_request
from kclient.protocol.messages.api_versions import ApiVersionsRequest
from kclient.protocol.messages.metadata import MetadataRequest
from kclient.testing import Cluster, VirtualLoop, run_virtually
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import fetch, produce
from tests.unit.testing.raw_peer import RawPeer

ASKED = ApiVersionsRequest()
"""A request whose response has the same bytes each time, but for the correlation id."""


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with asyncio.timeout(60), Cluster(brokers=2) as one:
        one.create_topic("t", assignments=[[1, 2]])
        yield one


@pytest.fixture
async def peer(cluster: Cluster) -> AsyncIterator[RawPeer]:
    async with RawPeer.to(cluster.brokers[1].address) as one:
        yield one


async def correlations(peer: RawPeer, count: int) -> list[int]:
    """The correlation ids of the next frames, in order of arrival."""
    return [struct.unpack_from(">i", await peer.read_frame())[0] for _ in range(count)]


async def test_a_response_is_cut_at_a_byte(cluster: Cluster, peer: RawPeer) -> None:
    peer.write(ASKED, 0)
    whole = await peer.read_frame()
    fault = cluster.faults.cut_answer("ApiVersions", byte=10)
    correlation = peer.write(ASKED, 0)
    expected = struct.pack(">ii", len(whole), correlation) + whole[4:]
    assert await peer.read_end() == expected[:10]
    assert fault.hits == 1


@pytest.mark.parametrize(("byte", "length"), [(0, 0), (4, 4), (1 << 20, None)])
async def test_a_response_is_cut_at_its_beginning_or_behind_it(
    cluster: Cluster, peer: RawPeer, byte: int, length: int | None
) -> None:
    peer.write(ASKED, 0)
    whole = len(await peer.read_frame()) + 4
    cluster.faults.cut_answer("ApiVersions", byte=byte)
    peer.write(ASKED, 0)
    assert len(await peer.read_end()) == (whole if length is None else length)


async def test_a_request_whose_response_is_cut_was_carried_out(
    cluster: Cluster, peer: RawPeer
) -> None:
    cluster.faults.cut_answer("Produce", byte=6)
    peer.write(produce("t", batch_bytes(3)), 9)
    assert len(await peer.read_end()) == 6
    assert cluster.end_offset("t") == 3


async def test_a_cut_may_be_a_reset(cluster: Cluster) -> None:
    cluster.faults.cut_answer("ApiVersions", byte=10, reset=True)
    reader, writer = await asyncio.open_connection(cluster.brokers[1].host, cluster.brokers[1].port)
    writer.write(encode_request(ASKED, 0, 1, "raw"))
    with pytest.raises(ConnectionResetError):
        while await reader.read(100):
            pass
    writer.close()


@pytest.mark.parametrize("api", [None, "Produce"])
async def test_a_request_is_cut_when_so_many_bytes_are_there(
    cluster: Cluster, api: str | None
) -> None:
    fault = cluster.faults.cut_request(api, byte=60)
    data = encode_request(produce("t", batch_bytes(10)), 9, 1, "raw")
    async with RawPeer.to(cluster.brokers[1].address) as peer:
        peer.write_bytes(data[:59])
        async with RawPeer.to(cluster.brokers[2].address) as witness:
            for _ in range(20):  # loop iterations in which the 59 bytes arrive
                await witness.call(MetadataRequest([]), 9) if api else await asyncio.sleep(0)
        assert fault.hits == 0
        peer.write_bytes(data[59:60])
        assert await peer.read_end() == b""
    assert fault.hits == 1
    assert cluster.end_offset("t") == 0
    assert cluster.requests.count("Produce") == 0


async def test_a_cut_waits_for_the_header_that_selects_the_request(cluster: Cluster) -> None:
    fault = cluster.faults.cut_request("Produce", byte=5, client_id="other")
    data = encode_request(ASKED, 0, 1, "raw")
    async with RawPeer.to(cluster.brokers[1].address) as peer:
        for at in range(len(data)):
            peer.write_bytes(data[at : at + 1])
            await asyncio.sleep(0)
        assert await correlations(peer, 1) == [1]
        peer.write(produce("t", batch_bytes()), 9)
        assert await correlations(peer, 1) == [1]
    assert fault.hits == 0
    async with RawPeer.to(cluster.brokers[1].address, "other") as other:
        other.write(produce("t", batch_bytes()), 9)
        assert await other.read_end() == b""
    assert (fault.hits, cluster.end_offset("t")) == (1, 1)


async def test_a_request_shorter_than_the_cut_is_cut_at_its_end(
    cluster: Cluster, peer: RawPeer
) -> None:
    cluster.faults.cut_request("ApiVersions", byte=1 << 20)
    peer.write(ASKED, 0)
    assert await peer.read_end() == b""
    assert cluster.requests.count("ApiVersions") == 0


async def test_responses_come_in_reverse_order(cluster: Cluster, peer: RawPeer) -> None:
    fault = cluster.faults.reorder("ApiVersions", count=3)
    sent = [peer.write(ASKED, 0) for _ in range(5)]
    assert await correlations(peer, 5) == [sent[2], sent[1], sent[0], sent[3], sent[4]]
    assert (fault.hits, fault.held) == (1, 0)


async def test_other_responses_overtake_those_that_are_held(
    cluster: Cluster, peer: RawPeer
) -> None:
    cluster.faults.reorder("ApiVersions")
    first, other, second = (
        peer.write(ASKED, 0),
        peer.write(MetadataRequest([]), 9),
        peer.write(ASKED, 0),
    )
    assert await correlations(peer, 3) == [other, second, first]


async def test_held_responses_are_of_one_connection(cluster: Cluster, peer: RawPeer) -> None:
    fault = cluster.faults.reorder("ApiVersions", times=2)
    async with RawPeer.to(cluster.brokers[1].address) as other:
        first, others = peer.write(ASKED, 0), other.write(ASKED, 0)
        await fault.wait_hits(2)
        second, last = peer.write(ASKED, 0), other.write(ASKED, 0)
        assert await correlations(peer, 2) == [second, first]
        assert await correlations(other, 2) == [last, others]


async def test_held_responses_leave_when_released(cluster: Cluster, peer: RawPeer) -> None:
    fault = cluster.faults.reorder("ApiVersions", count=3)
    first, second = peer.write(ASKED, 0), peer.write(ASKED, 0)
    await cluster.requests.wait_count("ApiVersions", 2)
    assert fault.held == 1
    fault.remove()
    assert await correlations(peer, 2) == [second, first]
    peer.write(ASKED, 0)
    await correlations(peer, 1)


async def test_held_responses_are_dropped_with_their_connection(cluster: Cluster) -> None:
    fault = cluster.faults.reorder("ApiVersions")
    async with RawPeer.to(cluster.brokers[1].address) as peer:
        peer.write(ASKED, 0)
        await fault.wait_hits()
    await cluster.brokers[1].wait_unconnected()
    assert fault.held == 0
    fault.release()


async def test_a_response_comes_twice(cluster: Cluster, peer: RawPeer) -> None:
    cluster.faults.repeat("ApiVersions")
    sent = [peer.write(ASKED, 0) for _ in range(2)]
    assert await correlations(peer, 3) == [sent[0], sent[0], sent[1]]


async def test_a_response_is_any_bytes_and_nothing_is_carried_out(
    cluster: Cluster, peer: RawPeer
) -> None:
    cluster.faults.answer_bytes("Produce", b"\xde\xad")
    cluster.faults.answer_bytes("Produce", b"\xde\xad\xbe\xef", framed=False)
    cluster.faults.answer_bytes("Produce", b"\x01", after=True)
    for _ in range(3):
        peer.write(produce("t", batch_bytes()), 9)
    cluster.faults.close("ApiVersions")
    peer.write(ASKED, 0)
    assert await peer.read_end() == b"\0\0\0\2\xde\xad" + b"\xde\xad\xbe\xef" + b"\0\0\0\1\x01"
    assert cluster.end_offset("t") == 1
    first, second, third = cluster.requests.of("Produce")
    assert (first.response, second.response, third.response) == (
        b"\xde\xad",
        b"\xde\xad\xbe\xef",
        b"\x01",
    )


async def test_a_trickle_takes_its_time(cluster: Cluster, peer: RawPeer) -> None:
    peer.write(ASKED, 0)
    size = len(await peer.read_frame()) + 4
    cluster.faults.trickle("ApiVersions", size * 10)
    began = time.monotonic()
    sent = [peer.write(ASKED, 0), peer.write(ASKED, 0)]
    assert await correlations(peer, 2) == sent
    assert time.monotonic() - began >= 0.04


class Arrivals(asyncio.Protocol):
    """The time and the bytes of each read."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, bytes]] = []

    def data_received(self, data: bytes) -> None:
        self.seen.append((asyncio.get_running_loop().time(), data))


def test_a_trickle_has_its_pace_on_virtual_time() -> None:
    async def measure() -> list[tuple[float, bytes]]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        async with Cluster(brokers=1) as cluster:
            broker = cluster.brokers[1]
            transport, peer = await loop.network.dial(
                DialTarget(broker.host, broker.port), Arrivals
            )
            cluster.faults.trickle("ApiVersions", 10)
            transport.write(encode_request(ASKED, 0, 1, "raw"))
            await asyncio.sleep(100.0)
            transport.abort()
            return peer.seen

    seen = run_virtually(measure())
    data = b"".join(piece for _, piece in seen)
    assert len(data) == struct.unpack_from(">i", data)[0] + 4
    assert {len(piece) for _, piece in seen} == {1}
    assert seen[-1][0] - seen[0][0] == pytest.approx((len(data) - 1) / 10, abs=0.1)


async def test_a_trickle_ends_with_its_connection(cluster: Cluster) -> None:
    fault = cluster.faults.trickle("ApiVersions", 1)
    async with RawPeer.to(cluster.brokers[1].address) as peer:
        peer.write(ASKED, 0)
        await fault.wait_hits()
        assert fault.held == 1
    await cluster.brokers[1].wait_unconnected()
    assert fault.held == 0


async def test_large_responses_are_cut_and_repeated_whole(cluster: Cluster, peer: RawPeer) -> None:
    for _ in range(20):
        cluster.append("t", 0, batch_bytes(1, value=b"v" * 100_000))
    asked = fetch("t", 0, max_bytes=8 << 20, partition_max_bytes=8 << 20)
    cluster.faults.repeat("Fetch")
    peer.write(asked, 12)
    first, second = await peer.read_frame(), await peer.read_frame()
    assert len(first) > 2_000_000
    assert first == second
    cluster.faults.cut_answer("Fetch", byte=1_000_000)
    peer.write(asked, 12)
    assert len(await peer.read_end()) == 1_000_000


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda faults: faults.reorder("Fetch", count=1), "count"),
        (lambda faults: faults.cut_answer("Fetch", byte=-1), "byte"),
        (lambda faults: faults.cut_request("Fetch", byte=-1), "byte"),
        (lambda faults: faults.cut_request("Fetch", byte=1, topic="t"), "topic"),
        (lambda faults: faults.trickle("Fetch", 0), "bytes_per_second"),
        (lambda faults: faults.trickle("Fetch", float("nan")), "bytes_per_second"),
    ],
)
def test_what_cannot_be_is_refused(make: Callable[..., Awaitable[None]], words: str) -> None:
    cluster = Cluster(1)
    with pytest.raises(InvalidArgument, match=words):
        make(cluster.faults)
    assert not cluster.faults

"""A hundred bad connections at once, over sockets: others are served, and memory is bounded.

Half-open frames, a byte at a time, endless requests whose responses aren't read, endless sessions
and groups; and mutants over sockets, as those of ``broker`` use a network in memory.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import struct
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import cast

import pytest

from kclient.protocol.headers import encode_request
from kclient.protocol.message import Request
from kclient.protocol.messages.api_versions import ApiVersionsRequest
from kclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kclient.protocol.messages.metadata import MetadataRequest
from kclient.testing import Cluster
from tests.fuzz.requests import Errors, Requests
from tests.fuzz.targets import source_of
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import fetch, produce
from tests.unit.testing.raw_peer import RawPeer

BAD = 100
OTHERS = "others"
"""The topic of those that are served; a mutant may delete the one that it names."""
MIB = 1 << 20
HELD = "held"
"""Client id of requests that a fault holds, until the bad ones have disconnected."""
ASKED = cast(Request, ApiVersionsRequest())
MUTANTS_BY_SOCKET = 2_000


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with asyncio.timeout(100), Cluster(brokers=1) as one:
        one.create_topic(OTHERS)
        one.create_topic("t", partitions=3)
        for _ in range(5):
            one.append("t", 1, batch_bytes(1, value=bytes(500_000)))
        one.append("t", 2, batch_bytes(1, value=bytes(100_000)))
        one.faults.hold("ApiVersions", times=None, client_id=HELD)
        yield one


@pytest.fixture(autouse=True)
def errors() -> Iterator[Errors]:
    """No handler may fail."""
    handler, logger = Errors(), logging.getLogger("kclient.testing")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    assert handler.seen == []


class Bad:
    """One bad connection.

    Attributes:
        pushed: Bytes handed to the network.
        stalled: Nothing more left here for a while.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.pushed = 0
        self.stalled = False

    @classmethod
    async def to(cls, cluster: Cluster) -> Bad:
        broker = cluster.brokers[1]
        return cls(*await asyncio.open_connection(broker.host, broker.port))

    def push(self, data: bytes) -> None:
        self.writer.write(data)
        self.pushed += len(data)

    async def push_until_stalled(self, data: bytes, most: int) -> None:
        """Write it again and again, and read nothing, until nothing more leaves here."""
        self.reader._transport.pause_reading()  # type: ignore[attr-defined]
        while self.pushed < most and not self.stalled:
            self.push(data)
            try:
                async with asyncio.timeout(0.3):
                    await self.writer.drain()
            except TimeoutError:
                self.stalled = True

    def end(self) -> None:
        self.writer.transport.abort()


async def others_are_served(cluster: Cluster, times: int = 10) -> None:
    async with RawPeer.to(cluster.bootstrap) as peer:
        for _ in range(times):
            response = await peer.call(produce(OTHERS, batch_bytes()), 9)
            assert response.responses[0].partition_responses[0].error_code == 0
            assert (await peer.call(fetch(OTHERS, 0), 12)).responses[0].partitions[0].records
            assert (await peer.call(MetadataRequest([]), 12)).brokers


async def all_gone(cluster: Cluster, bad: list[Bad]) -> None:
    """The broker notices; of one that it reads no further, once its request is through."""
    for one in bad:
        one.end()
    cluster.faults.clear()
    await cluster.brokers[1].wait_unconnected()


class Measured:
    """How much more memory Python has than at the beginning; without what peers here have."""

    def __init__(self) -> None:
        gc.collect()
        tracemalloc.start(1)

    def bytes_of_broker(self) -> int:
        gc.collect()
        snapshot = tracemalloc.take_snapshot()
        snapshot = snapshot.filter_traces([tracemalloc.Filter(True, "*/kclient/*")])
        return sum(stat.size for stat in snapshot.statistics("filename"))


@pytest.fixture
def measured() -> Iterator[Measured]:
    yield Measured()
    tracemalloc.stop()


async def half_open(bad: Bad, number: int) -> None:
    bad.push(struct.pack(">i", 100 * MIB) + bytes(200_000))
    await bad.writer.drain()


async def headers_only(bad: Bad, number: int) -> None:
    bad.push(encode_request(produce("t", bytes(100_000)), 9, 1, "x")[: 30 + number])


async def byte_by_byte(bad: Bad, number: int) -> None:
    for byte in encode_request(ASKED, 3, 1, "slow")[:-1]:
        bad.push(bytes([byte]))
        await asyncio.sleep(0)


async def unread_answers(bad: Bad, number: int) -> None:
    asked = fetch("t", 2, partition_max_bytes=1)  # a response has 100 kB
    await bad.push_until_stalled(encode_request(asked, 12, 1, "x") * 500, 8 * MIB)
    assert bad.stalled, "the broker took 8 MiB of requests from a peer that reads no answer"


async def unread_fetches(bad: Bad, number: int) -> None:
    asked = fetch("t", 1)  # a response has 1 MiB
    await bad.push_until_stalled(encode_request(asked, 12, 1, "x") * 500, 8 * MIB)
    assert bad.stalled


async def behind_a_wait(bad: Bad, number: int) -> None:
    bad.push(encode_request(ASKED, 3, 1, HELD))
    await bad.push_until_stalled(encode_request(ASKED, 3, 2, "x") * 5000, 32 * MIB)
    assert bad.stalled


async def sessions(bad: Bad, number: int) -> None:
    asked = encode_request(fetch("t", 0, session=(0, 0)), 12, 1, "x")
    for _ in range(15):
        bad.push(asked)
        (size,) = struct.unpack(">i", await bad.reader.readexactly(4))
        await bad.reader.readexactly(size)


async def groups(bad: Bad, number: int) -> None:
    for one in range(10):
        protocol = JoinGroupRequestProtocol("range", bytes(1000))
        asked = JoinGroupRequest(
            f"g-{number}-{one}", 30_000, 60_000, "", None, "consumer", [protocol]
        )
        bad.push(encode_request(asked, 5, one, "x"))
    await bad.writer.drain()


KINDS: dict[str, tuple[Callable[[Bad, int], Awaitable[None]], int]] = {
    "half-open frames": (half_open, 1 * MIB),
    "the start of a frame": (headers_only, 100_000),
    "a byte at a time": (byte_by_byte, 100_000),
    "answers that nobody reads": (unread_answers, 600_000),
    "large answers that nobody reads": (unread_fetches, 2 * MIB),
    "requests behind one that waits": (behind_a_wait, 600_000),
    "sessions without end": (sessions, 150_000),
    "groups without end": (groups, 150_000),
}
"""Kind -> what the connection does, and the bytes that the broker may keep for one."""


@pytest.mark.parametrize("kind", KINDS)
async def test_a_hundred_of_a_kind(cluster: Cluster, measured: Measured, kind: str) -> None:
    behave, allowed = KINDS[kind]
    await others_are_served(cluster)
    before = measured.bytes_of_broker()
    bad = [await Bad.to(cluster) for _ in range(BAD)]
    async with asyncio.TaskGroup() as tasks:
        for number, one in enumerate(bad):
            tasks.create_task(behave(one, number))  # type: ignore[arg-type]
        tasks.create_task(others_are_served(cluster))
    await others_are_served(cluster)
    assert cluster.brokers[1].connection_count >= BAD
    assert measured.bytes_of_broker() - before <= allowed * BAD
    await all_gone(cluster, bad)
    await others_are_served(cluster)


async def test_all_kinds_together(cluster: Cluster) -> None:
    behaviours = [behave for behave, _ in KINDS.values()]
    bad = [await Bad.to(cluster) for _ in range(BAD)]
    async with asyncio.TaskGroup() as tasks:
        for number, one in enumerate(bad):
            tasks.create_task(behaviours[number % len(behaviours)](one, number))  # type: ignore[arg-type]
        for _ in range(5):
            await others_are_served(cluster)
    await all_gone(cluster, bad)
    await others_are_served(cluster)


async def test_mutants_over_sockets(cluster: Cluster) -> None:
    requests = Requests()
    sound = encode_request(ASKED, 0, 0x5AFE, "raw")
    async with AsyncExitStack() as stack:
        for number in range(MUTANTS_BY_SOCKET):
            source = source_of(2, number)
            mutant = requests.mutant(source)
            bad = await Bad.to(cluster)
            stack.callback(bad.end)
            bad.push(mutant.data + sound * source.randrange(3))
            if source.random() < 0.3:
                bad.end()  # with a reset, while it is being read
            if number % 100 == 0:
                await others_are_served(cluster, 1)
    await cluster.brokers[1].wait_unconnected()
    await others_are_served(cluster)

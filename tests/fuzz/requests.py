"""Hostile requests to the embedded broker: it responds, waits, or disconnects, and lives on.

Each mutant meets a cluster of its own on virtual time. Afterwards the broker must serve another
connection, and no handler may have failed: what it logs as an error is a defect, too.
"""

from __future__ import annotations

import asyncio
import logging
import random
import struct
from typing import cast

from kclient.errors import ProtocolError
from kclient.hooks import DialTarget
from kclient.protocol import api_versions
from kclient.protocol.headers import (
    decode_request_header,
    decode_response_header,
    encode_request,
)
from kclient.protocol.message import Message, Request
from kclient.protocol.messages.api_versions import ApiVersionsRequest
from kclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kclient.testing import Cluster, MemoryNet, VirtualLoop, run_virtually
from kclient.testing.api_versions import VERSIONS
from tests.embedded.test_testing_wire import sample
from tests.fuzz import operators
from tests.fuzz.seeds import Seed, filled
from tests.fuzz.targets import Broken, Mutant, Verdict
from tests.unit.consumer.log_bytes import batch

CLIENT_ID = b"fuzz"
HEADER_BYTES = 10 + len(CLIENT_ID) + 1
SECONDS = 40.0
"""Virtual seconds within which the broker must respond."""
HEADER_DAMAGE = 0.12
TOPIC_ID = next(iter(random.Random(0).randbytes(16) for _ in "1"))


class Peer(asyncio.Protocol):
    """One raw connection."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.lost = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.got += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def frames(self) -> int:
        """How many whole frames came; raises Broken for bytes that are none."""
        count = pos = 0
        while len(self.got) - pos >= 4:
            (size,) = struct.unpack_from(">i", self.got, pos)
            if size < 4:
                raise Broken(f"the broker sent a frame of {size} bytes")
            pos += 4 + size
            count += pos <= len(self.got)
        return count


class Errors(logging.Handler):
    """Keeps what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(logging.Formatter().format(record))


class Requests:
    """The target; see the docstring of the file."""

    traced = False

    def __init__(self) -> None:
        rng = random.Random(20130101)
        self._seeds: list[Seed] = []
        for key, (first, last) in VERSIONS.items():
            message = cast(type[Message], api_versions.request_class(key))
            for version in range(first, last + 1):
                good = sample(key, version, TOPIC_ID).encode(version)
                for body in (good, good, filled(rng, message, version)):
                    flexible = api_versions.is_flexible(key, version)
                    self._seeds.append(Seed(key, version, message, body, header=flexible))
        self._others = [seed.root.raw for seed in self._seeds]
        self._errors = Errors()
        logger = logging.getLogger("kclient.testing")
        logger.addHandler(self._errors)
        logger.propagate = False

    def mutant(self, source: random.Random) -> Mutant:
        """Of a request of any API and version that is served."""
        seed = source.choice(self._seeds)
        about = f"{api_versions.BY_KEY[seed.key].name} request v{seed.version}"
        key, version, name = seed.key, seed.version, len(CLIENT_ID)
        operator, repaired, tags, body = operators.spoiled(source, seed, self._others)
        stale = 8 + 2 + len(CLIENT_ID) + len(tags) + len(seed.root.raw)
        size: int | None = None if repaired else stale
        if source.random() < HEADER_DAMAGE:
            body = seed.root.raw
            tags = b"\0" if seed.header is not None else b""
            operator, change = source.choice(
                (
                    ("api key", (source.randrange(-2, 100), version, name, None)),
                    ("version", (key, source.choice((-1, 99, 2**15 - 1, -(2**15))), name, None)),
                    ("client id length", (key, version, source.choice((-1, -2, 5, 32767)), None)),
                    ("frame size", (key, version, name, source.choice((-1, 0, 3, 7, 2**31 - 1)))),
                )
            )
            key, version, name, size = change
            repaired = size is None
        head = struct.pack(">hhih", key, version, 7, name) + CLIENT_ID + tags
        size = len(head) + len(body) if size is None else size
        data = struct.pack(">i", size) + head + body
        return Mutant(operator, repaired, data, about, seed)

    def judge(self, mutant: Mutant) -> Verdict:
        """Send it to a broker of its own."""
        self._errors.seen.clear()
        verdict: Verdict = run_virtually(_meet(mutant), seed=1, limit=3600.0)
        if self._errors.seen:
            raise Broken("a handler failed: " + self._errors.seen[0])
        return verdict


async def _meet(mutant: Mutant) -> Verdict:
    net = cast(VirtualLoop, asyncio.get_running_loop()).network
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=2)
        cluster.append("t", 0, batch(0, 3))
        address = DialTarget(*_host_and_port(cluster.bootstrap))
        peer = await _dial(net, address)
        peer.transport.write(mutant.data)
        await asyncio.sleep(SECONDS)
        answers = peer.frames()
        outcome = "answered" if answers else "hung up" if peer.lost else "waits"
        peer.transport.abort()
        await _check_lives(net, address)
    return Verdict(outcome, reaches(mutant))


def reaches(mutant: Mutant) -> bool:
    """Whether the first field of the body can be read; the broker doesn't show how far it read."""
    frame = mutant.data[4 : 4 + struct.unpack_from(">i", mutant.data)[0]]
    try:
        header = decode_request_header(frame)
        api_versions.request_class(header.api_key).decode(
            frame, header.api_version, header.body_offset
        )
    except ProtocolError as error:
        return error.offset is not None and error.offset > HEADER_BYTES
    return True


async def _dial(net: MemoryNet, address: DialTarget) -> Peer:
    _, peer = await net.dial(address, Peer)
    return cast(Peer, peer)


async def _check_lives(net: MemoryNet, address: DialTarget) -> None:
    """Another connection is served."""
    peer = await _dial(net, address)
    for correlation, request in enumerate((ApiVersionsRequest(), MetadataRequest())):
        peer.transport.write(encode_request(cast(Request, request), 0, correlation, "good"))
    await asyncio.sleep(1.0)
    if peer.frames() != 2:
        raise Broken("the broker doesn't serve the next connection")
    (size,) = struct.unpack_from(">i", peer.got)
    frame = bytes(peer.got[8 + size :])
    _, offset = decode_response_header(frame, MetadataRequest.API_KEY, 0)
    if not MetadataResponse.decode(frame, 0, offset).brokers:
        raise Broken("the broker knows no brokers any more")
    peer.transport.abort()
    await asyncio.sleep(1.0)


def _host_and_port(bootstrap: str) -> tuple[str, int]:
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    return host, int(port)


def make() -> Requests:
    """The target."""
    return Requests()

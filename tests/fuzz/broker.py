"""Hostile requests to one broker that lives on: what they leave behind must not harm others.

In ``requests`` each mutant has a cluster of its own; here hundreds meet the same one, several at a
time, in pieces, with sound requests among them and with the topics, groups, sessions and producers
that earlier mutants made. Each must end in a response or a closed connection, or be a request that
may wait; no handler may fail; a sound peer is served all along, and what has no connection any more
holds no timer.
"""

from __future__ import annotations

import asyncio
import logging
import random
import struct
from typing import NamedTuple, cast

from kclient.hooks import DialTarget
from kclient.protocol.headers import encode_request
from kclient.protocol.message import Request
from kclient.protocol.messages.api_versions import ApiVersionsRequest
from kclient.protocol.messages.metadata import MetadataRequest
from kclient.testing import Cluster, VirtualLoop
from tests.fuzz.requests import Errors, Peer, Requests, reaches
from tests.fuzz.targets import Broken, Mutant, Verdict
from tests.unit.consumer.log_bytes import batch
from tests.unit.testing.calls import fetch, produce

LIFE = 400
"""Mutants that one cluster meets."""
SECONDS = 2.0
"""Virtual seconds within which the broker must respond."""
MOST_PARTITIONS = 3_000
PATIENT = frozenset({0, 1, 11, 14})
"""APIs whose requests may wait or need no response: Produce, Fetch, JoinGroup, SyncGroup."""
SOUND = cast(Request, ApiVersionsRequest())
SOUND_CORRELATION = 0x5AFE
LEFT_OPEN = 8
"""Connections of former mutants that stay while others come."""


class Crowd(NamedTuple):
    """What is sent on one connection."""

    mutant: Mutant
    sound_first: bool
    sound_behind: bool
    pieces: int


class Brokers:
    """The target; see the docstring of the file."""

    traced = False

    def __init__(self) -> None:
        self._requests = Requests()
        self._errors = Errors()
        logger = logging.getLogger("kclient.testing")
        logger.addHandler(self._errors)
        logger.propagate = False
        self._runner: asyncio.Runner | None = None
        self._life: Life | None = None
        self._met = 0

    def mutant(self, source: random.Random) -> Mutant:
        """As of ``requests``, and how it is sent."""
        made = self._requests.mutant(source)
        crowd = Crowd(made, source.random() < 0.2, source.random() < 0.5, source.choice((1, 1, 3)))
        return made._replace(extra=crowd)

    def judge(self, mutant: Mutant) -> Verdict:
        """Send it to the broker that there is."""
        if self._runner is None or self._life is None or self._life.is_full or self._met >= LIFE:
            self._renew()
        runner, life = self._runner, self._life
        assert runner is not None and life is not None
        self._met += 1
        self._errors.seen.clear()
        try:
            verdict = runner.run(life.meet(mutant.extra))
            if self._errors.seen:
                raise Broken("a handler failed: " + self._errors.seen[0])
        except Exception as error:
            error.add_note(
                f"The cluster had met {self._met - 1} others. If this one alone breaks nothing, "
                f"repeat them, too: begin that much earlier, with a count of {self._met}"
            )
            raise
        return verdict

    def close(self) -> None:
        """End the cluster that there is, and check that nothing of it stays."""
        runner, life = self._runner, self._life
        self._runner = self._life = None
        if runner is not None and life is not None:
            try:
                runner.run(life.end())
            finally:
                runner.close()

    def _renew(self) -> None:
        self.close()
        self._runner = asyncio.Runner(loop_factory=lambda: VirtualLoop(seed=1, limit=None))
        self._life = Life()
        self._met = 0
        self._runner.run(self._life.begin())


class Life:
    """One cluster and its peers."""

    def __init__(self) -> None:
        self._cluster = Cluster(brokers=1, broker_configs={"socket.request.max.bytes": 1 << 20})
        self._open: list[Peer] = []
        self._good: Peer
        self._asked = 0

    @property
    def is_full(self) -> bool:
        """Mutants made so many topics that it would get slow."""
        cluster = self._cluster
        return sum(map(cluster.partition_count, cluster.topics)) > MOST_PARTITIONS

    async def begin(self) -> None:
        """Start it, with a topic and a sound peer."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.network.split = 0.1
        await self._cluster.start()
        self._cluster.create_topic("t", partitions=2)
        self._cluster.append("t", 0, batch(0, 3))
        self._good = await self._dial()

    async def end(self) -> None:
        """Disconnect all peers; nothing may be left behind."""
        for peer in (self._good, *self._open):
            peer.transport.abort()
        await asyncio.sleep(1.0)
        count = self._cluster.brokers[1].connection_count
        await self._cluster.close()
        if count:
            raise Broken(f"{count} connections are there without a peer")

    async def _dial(self) -> Peer:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        host, _, port = self._cluster.bootstrap.rpartition(":")
        return cast(Peer, (await loop.network.dial(DialTarget(host, int(port)), Peer))[1])

    async def meet(self, crowd: Crowd) -> Verdict:
        """Send it, and check its outcome and the sound peer."""
        peer = await self._dial()
        sound = encode_request(SOUND, 0, SOUND_CORRELATION, "fuzz")
        data = crowd.mutant.data
        if crowd.sound_first:
            data = sound + data
        step = -(-len(data) // crowd.pieces)
        for at in range(0, len(data), step):
            peer.transport.write(data[at : at + step])
            await asyncio.sleep(0.002)
        if crowd.sound_behind:
            peer.transport.write(sound)
        await self._ask_good()
        await asyncio.sleep(SECONDS)
        outcome = _outcome(crowd, peer)
        self._open.append(peer)
        if len(self._open) > LEFT_OPEN:
            self._open.pop(0).transport.abort()
        return Verdict(outcome, reaches(crowd.mutant))

    async def _ask_good(self) -> None:
        """The sound peer, on the connection that it has had all the time."""
        self._asked += 1
        asked: list[tuple[Request, int]] = [(cast(Request, MetadataRequest([])), 12)]
        if self._asked % 16 == 0:
            asked.append((fetch("t", 0), 12))
        if self._asked % 64 == 0:
            asked.append((produce("t", None, acks=-1), 9))
        good = self._good
        good.got.clear()
        for correlation, (request, version) in enumerate(asked):
            good.transport.write(encode_request(request, version, correlation, "good"))
        await asyncio.sleep(0.1)
        if good.lost or good.frames() != len(asked):
            raise Broken("the broker doesn't serve its sound peer any more")


def _outcome(crowd: Crowd, peer: Peer) -> str:
    """Its outcome; raises Broken for one that is not allowed."""
    data = crowd.mutant.data
    (size,) = struct.unpack_from(">i", data)
    whole = 0 <= size <= len(data) - 4
    correlations = _correlations(peer)
    answered = any(one != SOUND_CORRELATION for one in correlations)
    if crowd.sound_first and not peer.lost and correlations[:1] != [SOUND_CORRELATION]:
        raise Broken("the sound request in front of it has no answer")
    if peer.lost:
        return "answered, hung up" if answered else "hung up"
    if answered:
        return "answered"
    if whole and _key_of(data) not in PATIENT:
        raise Broken("neither answered nor hung up")
    return "waits"


def _correlations(peer: Peer) -> list[int]:
    peer.frames()
    found, pos = [], 0
    while len(peer.got) - pos >= 8:
        size, correlation = struct.unpack_from(">ii", peer.got, pos)
        found.append(correlation)
        pos += 4 + size
    return found


def _key_of(data: bytes) -> int:
    return int.from_bytes(data[4:6], "big", signed=True)


def make() -> Brokers:
    """The target."""
    return Brokers()

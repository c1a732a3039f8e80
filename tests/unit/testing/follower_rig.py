"""A broker's follower fetches against leaders that a scene plays, for tests of replication."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from kclient.protocol.headers import decode_request_header
from kclient.protocol.message import Response
from kclient.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kclient.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kclient.testing import VirtualLoop, run_virtually
from kclient.testing.broker_configs import BrokerConfig
from kclient.testing.control_plane import ControlPlane
from kclient.testing.follower_fetch import FETCH_VERSION, LIST_OFFSETS_VERSION
from kclient.testing.image import PartitionRegistration
from kclient.testing.listeners import Address
from kclient.testing.replica import Replica
from kclient.testing.replication import ReplicaFetcherManager
from tests.support.response_frames import encode_response
from tests.unit.testing.images import cluster
from tests.unit.testing.test_replica import config

BACKOFF = 1.0
"""Kafka's ``replica.fetch.backoff.ms``."""
OVERDUE = 30.0
"""Kafka's ``replica.socket.timeout.ms``."""
SESSION = 9


class Line(asyncio.Transport):
    """A connection to a leader: the requests on it, and whether it was ended."""

    def __init__(self, leader: int, peer: asyncio.Protocol) -> None:
        super().__init__()
        self.leader = leader
        self.ended = False
        self.asked: list[FetchRequest | ListOffsetsRequest] = []
        self._correlation = 0
        self._peer = peer
        peer.connection_made(self)

    def write(self, data: Any) -> None:
        assert not self.ended, "written to a connection that was ended"
        frame = bytes(data)[4:]
        header = decode_request_header(frame)
        self._correlation = header.correlation_id
        fetches = header.api_key == FetchRequest.API_KEY
        request: Any = FetchRequest if fetches else ListOffsetsRequest
        self.asked.append(request.decode(frame, header.api_version, header.body_offset))

    def abort(self) -> None:
        self.ended = True

    def answer(self, response: Response, *, correlation: int | None = None) -> None:
        version = FETCH_VERSION if isinstance(response, FetchResponse) else LIST_OFFSETS_VERSION
        number = self._correlation if correlation is None else correlation
        self._peer.data_received(encode_response(response, version, number))

    def give(self, *parts: PartitionData, code: int = 0, session: int = SESSION) -> None:
        """Respond to a fetch."""
        topics = [FetchableTopicResponse(topic_id=b"t" * 16, partitions=list(parts))]
        self.answer(FetchResponse(0, code, session, topics if parts else []))

    def locate(self, offset: int) -> None:
        """Respond with the offset at which a log begins or ends."""
        part = ListOffsetsPartitionResponse(0, offset=offset)
        self.answer(ListOffsetsResponse(0, [ListOffsetsTopicResponse("t", [part])]))

    def lose(self) -> None:
        """End the connection on the leader's side."""
        self.ended = True
        self._peer.connection_lost(None)

    @property
    def fetch(self) -> FetchRequest:
        """The last request, a fetch."""
        last = self.asked[-1]
        assert isinstance(last, FetchRequest)
        return last

    @property
    def named(self) -> list[tuple[int, int]]:
        """Index and offset of each partition that the last fetch names."""
        (partitions,) = [one.partitions for one in self.fetch.topics] or [[]]
        return [(one.partition, one.fetch_offset) for one in partitions]


class Net:
    """Stand-in for the network inside the cluster."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.attempts = 0
        self.refuses = False

    def connect(self, host: str, port: int, factory: Callable[[], asyncio.Protocol]) -> None:
        self.attempts += 1
        if self.refuses:
            raise ConnectionRefusedError(host)
        self.lines.append(Line(port, factory()))


class Follower:
    """Broker 2, which follows brokers 1 and 3."""

    node_id = 2
    session = 7

    def __init__(self, network: Net | None) -> None:
        self.control_plane = ControlPlane(cluster(0), random.Random(1))
        self.config = BrokerConfig({})
        self.replicas: list[Replica] = []
        self.unreachable: set[int] = set()
        self.nudged: list[int] = []
        self._network: Any = network

    def reaches(self, node_id: int) -> bool:
        return node_id not in self.unreachable

    def inner_address(self, node_id: int) -> Address:
        return Address("broker", node_id, self._network)

    def wake(self, leader: int) -> None:
        self.nudged.append(leader)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, callback)


class Scene:
    """A running `ReplicaFetcherManager`; ``follow`` sets the leader of each partition."""

    def __init__(self, *, sockets: bool = False) -> None:
        self.net = Net()
        self.broker = Follower(None if sockets else self.net)
        self.replication = ReplicaFetcherManager(self.broker)  # type: ignore[arg-type]

    def follow(self, *leaders: int) -> None:
        """Assign one replica per leader given, led by these brokers from now on."""
        kept = {one.facts.index: one for one in self.broker.replicas}
        self.broker.replicas = []
        for index, leader in enumerate(leaders):
            facts = PartitionRegistration("t", index, (1, 2, 3), (1, 2, 3), leader)
            one = kept.get(index) or Replica(2, b"t" * 16, facts, config())
            if one.facts.leader != leader:
                one.facts = replace(facts, leader_epoch=one.epoch + 1)
            self.broker.replicas.append(one)
        self.replication.refresh()

    def leave_isr(self) -> None:
        """Take this broker out of the ISR of partition 0."""
        replica = self.broker.replicas[0]
        replica.facts = replace(replica.facts, isr=(1, 3))
        self.replication.refresh()

    @property
    def line(self) -> Line:
        """The connection that was opened last."""
        return self.net.lines[-1]

    @property
    def open(self) -> list[int]:
        """The leaders with an open connection."""
        return [one.leader for one in self.net.lines if not one.ended]


def scene(act: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    """Run a scene on virtual time; after its close nothing may be left."""

    async def main() -> None:
        one = Scene()
        await act(one)
        assert one.replication.close() == []
        assert one.open == []
        assert timers() == 0

    run_virtually(main())


def timers() -> int:
    """Return the number of pending timers."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return sum(not one.cancelled() for one in vars(loop)["_scheduled"])


def part(index: int = 0, code: int = 0, *, records: bytes | None = None) -> PartitionData:
    return PartitionData(index, code, high_watermark=0, records=records)

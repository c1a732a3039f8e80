"""What a run of ``cluster_run.py`` does to its cluster: ``Moves`` draws operations by weight.

Producers and readers are single requests over the network, so that only brokers are judged; the
rest is what a test may do to a cluster, and what operators do. An error response is no failure: the
``Watch`` judges.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, TypeVar

from kclient.errors import BrokerError
from kclient.protocol.message import Request, Response
from kclient.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from kclient.protocol.messages.fetch import FetchResponse
from kclient.protocol.messages.produce import ProduceResponse
from kclient.record.builder import BatchBuilder
from kclient.testing import Cluster, VirtualLoop
from kclient.testing.inter_broker import BrokerConnection
from kclient.testing.stored_batch import StoredBatch, split_batches
from tests.unit.testing import calls
from tests.virtual.cluster_watch import Watch

R = TypeVar("R", bound=Response)

TIMEOUT_MS = 600
_PRODUCE, _FETCH, _DELETE_RECORDS = 12, 12, 2
_MOST_PEERS = 4
_MOST_TOPICS = 5
_MOST_PARTITIONS = 4
_NOW_MS = 1_700_000_000_000


class Wire:
    """Connections of clients, a few to each broker, for single requests."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._peers: dict[int, list[BrokerConnection]] = {}

    def call(
        self, node_id: int, request: Request, version: int, answer: type[R], done: Any
    ) -> None:
        """Send a request if the broker is up and not all connections wait."""
        broker = self._cluster.brokers[node_id]
        if not broker.running:
            return
        peers = self._peers.setdefault(node_id, [])
        peer = next((one for one in peers if not one.is_waiting), None)
        if peer is None:
            if len(peers) >= _MOST_PEERS:
                return
            peer = self._open(node_id, peers)
        peer.call(request, version, answer, done)

    def _open(self, node_id: int, peers: list[BrokerConnection]) -> BrokerConnection:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        broker = self._cluster.brokers[node_id]
        peer = BrokerConnection("raw", lambda _: peers.remove(peer))
        peers.append(peer)
        loop.network.connect(broker.host, broker.port, lambda: peer)
        return peer

    def close(self) -> None:
        """Close all connections."""
        for peers in self._peers.values():
            for peer in peers:
                peer.close()


class Moves:
    """Draws the next operation and carries it out.

    Args:
        cluster: Started.
        rng: Decides.
        watch: Receives the responses to producers and readers.
        trace: Collects lines about what happens; None for no trace.
    """

    def __init__(
        self, cluster: Cluster, rng: random.Random, watch: Watch, trace: list[str] | None
    ) -> None:
        self._cluster = cluster
        self._rng = rng
        self._watch = watch
        self._trace = trace
        self._wire = Wire(cluster)
        self._values = 0
        self._topics = 0
        self._acks: dict[str, int] = {}
        self._moves: dict[Callable[[], Any], int] = {
            self._produce: 40,
            self._fetch: 10,
            self._pass_time: 12,
            self._crash: 4,
            self._restart: 9,
            self._stop: 1,
            self._isolate: 4,
            self._disconnect: 4,
            self._reconnect: 7,
            self._move_leader: 7,
            self._elect: 4,
            self._move_controller: 4,
            self._add_partitions: 1,
            self._create_topic: 1,
            self._delete_topic: 1,
            self._delete_records: 2,
            self._slow_follower: 2,
            self._delays: 3,
            self._min_isr: 2,
        }
        self._kinds = list(self._moves)
        self._weights = list(self._moves.values())

    def close(self) -> None:
        """Close all connections."""
        self._wire.close()

    def say(self, text: str) -> None:
        """Append a line to the trace."""
        if self._trace is not None:
            self._trace.append(f"{asyncio.get_running_loop().time():9.3f} {text}")

    async def step(self) -> None:
        """Carry out one operation."""
        move = self._rng.choices(self._kinds, self._weights)[0]
        try:
            done = move()
            if done is not None:
                await done
        except BrokerError as error:
            self.say(f"  {error}")
        await asyncio.sleep(self._rng.random() * 0.01)
        self._watch.unclean_asked = False

    # Chances

    def _any_partition(self) -> tuple[str, int]:
        topic = self._rng.choice(self._cluster.topics)
        return topic, self._rng.randrange(self._cluster.partition_count(topic))

    def _any_broker(self) -> int:
        return self._rng.choice(list(self._cluster.brokers))

    def _up(self) -> list[int]:
        return [one for one, broker in self._cluster.brokers.items() if broker.running]

    def _leader_of(self, topic: str, index: int) -> int:
        """The leader, or a broker that still considers itself the leader."""
        believers = [
            one
            for one in self._up()
            if (copy := self._cluster.brokers[one].replicas.get(topic, index)) and copy.leads
        ]
        return self._rng.choice(believers) if believers else self._any_broker()

    # Clients

    def _produce(self) -> None:
        for _ in range(self._rng.randint(1, 3)):
            topic, index = self._any_partition()
            acks = self._rng.choice((-1, -1, 1))
            node_id = self._leader_of(topic, index)
            self._send(topic, index, acks, node_id)

    def _send(self, topic: str, index: int, acks: int, node_id: int) -> None:
        builder = BatchBuilder(1 << 20)
        for _ in range(self._rng.randint(1, 3)):
            self._values += 1
            builder.append(_NOW_MS + self._values, None, b"%d" % self._values, ())
        data = builder.encode(-1, -1, -1)
        crc = StoredBatch(data).crc
        given = self._watch.floor_of(topic, index)

        def answered(response: ProduceResponse) -> None:
            part = response.responses[0].partition_responses[0]
            self.say(f"  acks={acks} {topic}-{index}@{part.base_offset}: {part.error_code}")
            if not part.error_code and acks == -1 and given is not None:
                self._watch.acknowledged(given, part.base_offset, crc)

        request = calls.produce(topic, data, partition=index, acks=acks)
        request.timeout_ms = TIMEOUT_MS
        self.say(f"produce {topic}-{index} acks={acks} at {node_id}")
        self._wire.call(node_id, request, _PRODUCE, ProduceResponse, answered)

    def _fetch(self) -> None:
        topic, index = self._any_partition()
        given = self._watch.floor_of(topic, index)
        node_id = self._leader_of(topic, index)
        if self._rng.random() < 0.3:
            node_id = self._any_broker()
        copy = self._cluster.brokers[node_id].replicas.get(topic, index)
        if copy is None or given is None:
            return
        offset = max(copy.log.high_watermark - 5, copy.log.start_offset)

        def answered(response: FetchResponse) -> None:
            part = response.responses[0].partitions[0]
            for one in split_batches(part.records or b""):
                self._watch.read(given, StoredBatch(one))

        request = calls.fetch(topic, index, offset=offset)
        self.say(f"fetch {topic}-{index} from {offset} at {node_id}")
        self._wire.call(node_id, request, _FETCH, FetchResponse, answered)

    def _delete_records(self) -> None:
        topic, index = self._any_partition()
        node_id = self._leader_of(topic, index)
        copy = self._cluster.brokers[node_id].replicas.get(topic, index)
        if copy is None:
            return
        log = copy.log
        offset = self._rng.randint(log.start_offset, max(log.high_watermark, log.start_offset))
        wanted = DeleteRecordsTopic(topic, [DeleteRecordsPartition(index, offset)])
        request = DeleteRecordsRequest([wanted], TIMEOUT_MS)
        self.say(f"delete records of {topic}-{index} before {offset} at {node_id}")
        self._wire.call(
            node_id, request, _DELETE_RECORDS, DeleteRecordsResponse, lambda response: None
        )

    # Brokers and connections

    async def _pass_time(self) -> None:
        """Time passes. Cancellation: safe."""
        seconds = self._rng.choice((0.05, 0.2, 0.6, 1.2))
        self.say(f"{seconds} s pass")
        await asyncio.sleep(seconds)

    async def _crash(self) -> None:
        """A broker vanishes. Cancellation: safe."""
        up = self._up()
        if len(up) > 1 or (up and self._rng.random() < 0.3):
            node_id = self._rng.choice(up)
            self.say(f"crash {node_id}")
            await self._cluster.crash(node_id)

    async def _restart(self) -> None:
        """One that is down comes back. Cancellation: safe."""
        down = [one for one, broker in self._cluster.brokers.items() if not broker.running]
        if down:
            node_id = self._rng.choice(down)
            self.say(f"restart {node_id}")
            await self._cluster.restart(node_id, in_sync_within=0)

    async def _stop(self) -> None:
        """A broker leaves in order. Cancellation: safe."""
        up = self._up()
        if len(up) > 1:
            node_id = self._rng.choice(up)
            self.say(f"stop {node_id}")
            await self._cluster.stop(node_id)

    def _isolate(self) -> None:
        node_id = self._any_broker()
        if self._rng.random() < 0.4 and self._cluster.controller_id > 0:
            node_id = self._cluster.controller_id
        self.say(f"isolate {node_id}")
        self._cluster.isolate(node_id)

    def _disconnect(self) -> None:
        one, other = self._rng.sample(list(self._cluster.brokers), 2)
        self.say(f"disconnect {one} and {other}")
        self._cluster.disconnect(one, other)

    def _reconnect(self) -> None:
        if self._rng.random() < 0.5:
            self.say("reconnect all")
            self._cluster.reconnect()
        else:
            node_id = self._any_broker()
            self.say(f"reconnect {node_id}")
            self._cluster.reconnect(node_id)

    def _slow_follower(self) -> None:
        node_id = self._any_broker()
        self.say(f"{node_id} follows slowly")
        self._cluster.slow_follower(node_id, 0.1 + self._rng.random() * 0.6)

    def _delays(self) -> None:
        links = self._cluster._control_plane.links
        most = self._rng.choice((0.0, 0.05, 0.3, 0.8))
        self.say(f"words inside travel up to {most} s")
        links.later = asyncio.get_running_loop().call_later
        links.delay = (lambda one, other: self._rng.random() * most) if most else None
        self._cluster.faults.clear()

    # Controllers and operators

    def _move_leader(self) -> None:
        topic, index = self._any_partition()
        node_id = self._rng.choice(self._cluster.replicas(topic, index))
        self.say(f"move {topic}-{index} to {node_id}")
        self._cluster.move_leader(topic, index, node_id)

    def _elect(self) -> None:
        topic, index = self._any_partition()
        unclean = self._rng.random() < 0.3
        self.say(f"elect a leader of {topic}-{index}, unclean={unclean}")
        self._watch.unclean_asked = unclean
        self._cluster.elect_leader(topic, index, unclean=unclean)

    def _move_controller(self) -> None:
        self.say(f"the controller is {self._cluster.move_controller()}")

    def create(self, *, partitions: int, min_isr: int, unclean: bool) -> None:
        """One more topic."""
        self._topics += 1
        name = f"topic-{self._topics}"
        self.say(f"create {name}: {partitions} partitions, min ISR {min_isr}, unclean={unclean}")
        configs = {"min.insync.replicas": min_isr, "unclean.leader.election.enable": unclean}
        self._cluster.create_topic(
            name, partitions=partitions, replication_factor=3, configs=configs
        )

    def _create_topic(self) -> None:
        if len(self._cluster.topics) < _MOST_TOPICS:
            chance = self._rng
            self.create(
                partitions=chance.randint(1, 2),
                min_isr=chance.randint(1, 2),
                unclean=chance.random() < 0.3,
            )

    def _delete_topic(self) -> None:
        topics = self._cluster.topics
        if len(topics) > 2:
            name = self._rng.choice(topics)
            self.say(f"delete {name}")
            self._cluster.delete_topic(name)

    def _add_partitions(self) -> None:
        topic = self._rng.choice(self._cluster.topics)
        count = self._cluster.partition_count(topic)
        if count < _MOST_PARTITIONS:
            self.say(f"{topic} gets {count + 1} partitions")
            self._cluster.add_partitions(topic, count + 1)

    def _min_isr(self) -> None:
        topic = self._rng.choice(self._cluster.topics)
        control_plane = self._cluster._control_plane
        config = control_plane.image.topics[topic].config
        count = 3 - config.min_insync_replicas
        self.say(f"min ISR of {topic} is {count}")
        changed = control_plane.image.topic_config(
            {**config.given, "min.insync.replicas": str(count)}
        )
        reign = control_plane.controller
        if reign is not None and control_plane.links.reachable(reign.node_id, 0):
            reign.set_topic_configs({topic: changed})

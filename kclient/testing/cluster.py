"""``Cluster``: a Kafka cluster inside the process, for tests and first steps. Not for production.

Brokers are real loopback sockets in the running loop, so that a client in any language may talk to
them, or listen on a ``MemoryNet``. On the wire they are Apache Kafka 4.3; what they keep is in
memory and gone with the cluster.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Self

from kclient.clock import Clock, SystemClock
from kclient.error_codes import ErrorCode
from kclient.errors import ClientClosed, InvalidArgument, broker_error
from kclient.record.reader import read_batches
from kclient.testing.addresses import check_address
from kclient.testing.broker import LOOPBACK, Broker, Services
from kclient.testing.broker_configs import BrokerConfig
from kclient.testing.clock import VirtualLoop
from kclient.testing.config_defs import as_texts
from kclient.testing.faults import Faults
from kclient.testing.log import INFLATE_CAP_BYTES, PartitionLog
from kclient.testing.memory_net import MemoryNet
from kclient.testing.refused import Refused
from kclient.testing.request_log import RequestLog
from kclient.testing.state import BrokerState, ClusterState, PartitionState
from kclient.testing.stored_batch import StoredBatch, split_batches
from kclient.testing.topic_rules import TopicSpec, check_growth, check_new_topic

if TYPE_CHECKING:
    from kclient.record import Record

_MOST_REPLICAS = 3


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """Counts of topics that don't say.

    Attributes:
        partitions: How many.
        replication_factor: Replicas of each; None for 3, or all brokers if there are fewer.
    """

    partitions: int = 1
    replication_factor: int | None = None


class Cluster:
    """Brokers on loopback, in this process and loop.

    Args:
        brokers: How many; their node ids count from 1.
        topic_defaults: Partitions and replicas of topics that don't say.
        auto_create_topics: A metadata request for an unknown topic creates it, as Kafka's
            default is; off here, since a test's typing error would make a topic.
        broker_configs: By Kafka's names, such as ``{"message.max.bytes": 2_000_000}``.
        racks: The rack of each broker, in order; none by default.
        seed: Of ids and session numbers: two clusters with the same seed give the same ones.
        clock: Of record times; the system's by default.
        network: Where brokers listen, as ``broker-1:9092`` and so on. By default on loopback
            sockets, or on the network of the ``VirtualLoop`` that it is started on.
        host: Where brokers listen, and what clients are told.
        port: Of the first broker; the next one has the next port, and so on. 0 for free ones.

    Raises:
        InvalidArgument: A count that can't be.
        InvalidConfig: A broker configuration that isn't known or can't be.

    Attributes:
        faults: What goes wrong on purpose.
        requests: What brokers were asked.

    Example::

        async with kclient.testing.Cluster(brokers=3) as cluster:
            cluster.create_topic("flights", partitions=6)
            async with kclient.Producer(cluster.bootstrap) as producer:
                await producer.send("flights", b"UA 1545")
            assert cluster.records("flights")[0].value == b"UA 1545"
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        topic_defaults: TopicDefaults | None = None,
        auto_create_topics: bool = False,
        broker_configs: Mapping[str, object] | None = None,
        racks: Sequence[str | None] | None = None,
        seed: int = 0,
        clock: Clock | None = None,
        network: MemoryNet | None = None,
        host: str = LOOPBACK,
        port: int = 0,
    ) -> None:
        if brokers < 1:
            raise InvalidArgument(f"brokers must be at least 1, not {brokers}")
        check_address(host, port, brokers)
        if network is not None and not isinstance(network, MemoryNet):
            raise InvalidArgument(f"network={network!r} must be a MemoryNet")
        if racks is not None and len(racks) != brokers:
            raise InvalidArgument(f"racks names {len(racks)} racks for {brokers} brokers")
        defaults = TopicDefaults() if topic_defaults is None else topic_defaults
        config = BrokerConfig(
            {
                "num.partitions": defaults.partitions,
                "default.replication.factor": defaults.replication_factor
                or min(brokers, _MOST_REPLICAS),
                "auto.create.topics.enable": auto_create_topics,
                **(broker_configs or {}),
            }
        )
        rng = random.Random(seed)
        self._state = ClusterState(config, rng)
        self.faults = Faults()
        self.requests = RequestLog()
        self._services = services = Services(
            self._state, self.faults, self.requests, clock or SystemClock(), rng, network
        )
        self._brokers: dict[int, Broker] = {}
        for index in range(brokers):
            rack = None if racks is None else racks[index]
            info = BrokerState(index + 1, host, rack, port and port + index)
            self._state.brokers[info.node_id] = info
            self._brokers[info.node_id] = Broker(info, services)
        self._started = False

    async def __aenter__(self) -> Self:
        """``start``. Cancellation: as there."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """``close``. Cancellation: as there."""
        await self.close()

    async def start(self) -> None:
        """Open the listeners of all brokers; does nothing when they are open.

        Raises:
            OSError: A listener can't be opened.

        Cancellation: what was opened is closed again.
        """
        self._started = True
        self._settle()
        try:
            for broker in self._brokers.values():
                if not broker.running:
                    await broker.listen()
        except BaseException:
            await self.close()
            raise

    def _settle(self) -> None:
        """On a loop of virtual time, use its network and its wall clock."""
        loop, services = asyncio.get_running_loop(), self._services
        if services.network is None and isinstance(loop, VirtualLoop):
            services.network = loop.network
        if isinstance(services.clock, SystemClock):
            services.clock.settle()

    async def close(self) -> None:
        """Close all listeners and connections; the logs stay readable. Twice is fine.

        It takes two seconds at most, and that only where a client doesn't read its answers.

        Raises:
            BaseException: What a function raised that was given to ``faults``; brokers are closed
                all the same.

        Cancellation: safe, but brokers may then still be up; call it again.
        """
        self.faults.clear()
        await asyncio.gather(*(broker.stop() for broker in self._brokers.values()))
        await self.faults.ended()
        self.faults.check()

    # Brokers

    @property
    def bootstrap(self) -> str:
        """``host:port`` of every broker, those included that are down, joined with commas."""
        if not self._started:
            raise ClientClosed("the cluster has no addresses yet: use `async with`, or start() it")
        return ",".join(broker.address for broker in self._brokers.values())

    @property
    def brokers(self) -> Mapping[int, Broker]:
        """By node id."""
        return MappingProxyType(self._brokers)

    @property
    def cluster_id(self) -> str:
        """As clients see it."""
        return self._state.cluster_id

    @property
    def controller_id(self) -> int:
        """The node id that metadata names as controller."""
        return self._state.controller_id

    async def stop(self, broker: int) -> None:
        """Shut a broker down in order: its leaderships move, what it answered is still sent.

        Cancellation: it is down, but connections may still be open; call it again.
        """
        await self._broker(broker).stop()

    async def crash(self, broker: int) -> None:
        """Let a broker vanish: connections are reset and answers on their way may be lost.

        Cancellation: it is gone all the same.
        """
        await self._broker(broker).crash()

    async def restart(self, broker: int) -> None:
        """Bring a broker back, on its old port; stops it first if it is up.

        Cancellation: it may be down then; call it again.
        """
        found = self._broker(broker)
        await found.stop()
        await found.listen()

    async def move(self, broker: int, *, host: str | None = None, port: int = 0) -> None:
        """Bring a broker back at another address, as a new machine that has its disks.

        Args:
            broker: Which; it is stopped first if it is up.
            host: Where it listens then; on the same host by default.
            port: 0 for another one that is free.

        Raises:
            OSError: That address is taken.

        Cancellation: it may be down then, at its old address; call it again.
        """
        found = self._broker(broker)
        await found.stop()
        if not port and self._services.network is not None:
            port = found.port + 1  # a network in memory gives the old one again
        await found.listen(host, port)

    async def swap_addresses(self, one: int, other: int) -> None:
        """Let two brokers come back, each at the address of the other.

        Cancellation: one or both may be down then, at whichever address: ``restart`` them.
        """
        first, second = self._broker(one), self._broker(other)
        await first.stop()
        await second.stop()
        address, new = (first.host, first.port), (second.host, second.port)
        await first.listen(*new)
        await second.listen(*address)

    def _broker(self, node_id: int) -> Broker:
        found = self._brokers.get(node_id)
        if found is None:
            raise InvalidArgument(f"there is no broker {node_id}, only {sorted(self._brokers)}")
        return found

    # Topics

    @property
    def topics(self) -> list[str]:
        """Names of all topics, sorted."""
        return sorted(self._state.topics)

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        assignments: Sequence[Sequence[int]] | None = None,
        configs: Mapping[str, object] | None = None,
    ) -> str:
        """Create a topic, checked as if a client asked for it.

        Args:
            name: Topic name.
            partitions: How many; None for the cluster's default.
            replication_factor: Replicas of each; None for the cluster's default.
            assignments: Node ids of each partition's replicas, the first one leads; in place of
                the two counts.
            configs: By Kafka's names, such as ``{"cleanup.policy": "compact"}``.

        Returns:
            ``name``.

        Raises:
            BrokerError: What a broker would have answered.
        """
        spec = TopicSpec(
            name,
            -1 if partitions is None else partitions,
            -1 if replication_factor is None else replication_factor,
            list(enumerate(assignments or ())),
            {**as_texts(configs or {})},
        )
        try:
            checked = check_new_topic(self._state, spec)
        except Refused as refused:
            raise _as_error(refused, f"Creation of topic {name!r} failed") from None
        self._state.add_topic(checked.name, checked.assignments, checked.config)
        return name

    def add_partitions(self, topic: str, count: int) -> None:
        """Bring a topic to ``count`` partitions. Raises BrokerError."""
        found = self._state.topics.get(topic)
        if found is None:
            raise _unknown(topic)
        try:
            placed = check_growth(self._state, found, count, None)
        except Refused as refused:
            raise _as_error(refused, f"Growing topic {topic!r} failed") from None
        self._state.add_partitions(found, placed)

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises BrokerError (UNKNOWN_TOPIC_OR_PARTITION)."""
        found = self._state.topics.get(name)
        if found is None:
            raise _unknown(name)
        self._state.delete_topic(found)

    def topic_id(self, name: str) -> bytes:
        """The id of a topic, 16 bytes."""
        found = self._state.topics.get(name)
        if found is None:
            raise _unknown(name)
        return found.topic_id

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has."""
        found = self._state.topics.get(topic)
        if found is None:
            raise _unknown(topic)
        return len(found.partitions)

    # Partitions

    def leader(self, topic: str, partition: int = 0) -> int:
        """Node id of a partition's leader, -1 if it has none."""
        return self._partition(topic, partition).leader

    def leader_epoch(self, topic: str, partition: int = 0) -> int:
        """The epoch of that leader."""
        return self._partition(topic, partition).leader_epoch

    def move_leader(self, topic: str, partition: int, broker: int) -> None:
        """Make another replica the leader, with a new epoch.

        Raises:
            BrokerError: ``broker`` has no replica of it, or is down.
        """
        try:
            self._state.move_leader(topic, partition, broker)
        except Refused as refused:
            raise _as_error(refused, "Moving the leader failed") from None

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        """The log of a partition, to look into: offsets, epochs, producers, batches."""
        return self._partition(topic, partition).log

    def start_offset(self, topic: str, partition: int = 0) -> int:
        """The first offset that is there."""
        return self._partition(topic, partition).log.start_offset

    def end_offset(self, topic: str, partition: int = 0) -> int:
        """The next offset to be written."""
        return self._partition(topic, partition).log.end_offset

    def records(self, topic: str, partition: int = 0) -> list[Record]:
        """All records in the log of a partition, markers left out."""
        log = self._partition(topic, partition).log
        found: list[Record] = []
        for stored in log.batches:
            if stored.is_control:
                continue
            for batch in read_batches(memoryview(stored.data)):
                batch.inflate(INFLATE_CAP_BYTES)
                found += batch.records(topic, partition, start_offset=log.start_offset)
        return found

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Let a log begin at ``before_offset``, as DeleteRecords and retention do.

        Raises:
            BrokerError: OFFSET_OUT_OF_RANGE.
        """
        try:
            self._partition(topic, partition).log.delete_before(before_offset)
        except Refused as refused:
            raise _as_error(refused, f"Deleting records of {topic}-{partition} failed") from None

    def append(self, topic: str, partition: int, batches: bytes) -> int:
        """Put v2 batches into a log unchecked, past all rules but the order of offsets.

        For what no producer could write: gaps, control batches, transactions, wrong CRCs. A batch
        with a base offset below the log's end is moved to the end; one beyond makes a gap.

        Returns:
            Base offset of the first batch.
        """
        found = self._partition(topic, partition)
        first = -1
        for data in split_batches(batches):
            batch = StoredBatch(data)
            base = max(batch.base_offset, found.log.end_offset)
            batch.place(base, found.leader_epoch)
            found.log.append_placed(batch)
            first = base if first < 0 else first
        found.advance()
        return first

    def _partition(self, topic: str, index: int) -> PartitionState:
        found = self._state.partition(topic, index)
        if found is None:
            raise _unknown(f"{topic}-{index}")
        return found


def _unknown(what: str) -> Exception:
    return broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no {what}")


def _as_error(refused: Refused, doing: str) -> Exception:
    return broker_error(refused.code, doing, broker_message=refused.message)

"""``Cluster``: a Kafka cluster inside the process, for tests and first steps. Not for production.

Brokers are real loopback sockets in the running loop, so that a client in any language may talk to
them, or listen on a ``MemoryNet``. On the wire they are Apache Kafka 4.3; all data is in memory and
lost with the cluster.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from kclient.clock import Clock, SystemClock
from kclient.error_codes import ErrorCode
from kclient.errors import ClientClosed, InvalidArgument, RequestTimedOut, broker_error
from kclient.testing.arguments import (
    ByNodeId,
    TopicDefaults,
    broker_configs_of,
    flag,
    rack_of,
    racks_of,
    seconds_of,
    text,
    whole,
)
from kclient.testing.broker import Broker
from kclient.testing.broker_configs import BrokerConfig
from kclient.testing.clock import VirtualLoop
from kclient.testing.cluster_security import ClusterSecurity
from kclient.testing.cluster_topics import ClusterTopics, raise_as_broker_error
from kclient.testing.control_plane import QUORUM, ControlPlane
from kclient.testing.controller import Tally
from kclient.testing.event_log import EventLog
from kclient.testing.fault import Fault
from kclient.testing.faults import Faults
from kclient.testing.image import NO_LEADER, OFFSETS_TOPIC, TRANSACTION_TOPIC, MetadataImage
from kclient.testing.internal_topic import partition_of
from kclient.testing.listeners import address_of, check_address, not_started, noted, stays_down
from kclient.testing.log_cleaner import CleanResult
from kclient.testing.memory_net import MemoryNet, checked_seed
from kclient.testing.request_log import RequestLog
from kclient.testing.shared_state import LOOPBACK, START, SharedState, changes_cluster
from kclient.types import TopicPartition

_LOOK_SECONDS = 0.001
_IN_SYNC_SECONDS = 1.0
"""Limit for a restarted broker to catch up: it can't while the other brokers are down, too."""


class Cluster(ClusterTopics):
    """Brokers on loopback, in this process and loop.

    Args:
        brokers: Number of brokers; their node ids count from 1.
        topic_defaults: Partitions and replicas of topics that are created without them.
        auto_create_topics: A metadata request for an unknown topic creates it, as is Kafka's
            default; off here, since a typing error in a test would create a topic.
        broker_configs: By Kafka's names, such as ``{"message.max.bytes": 2_000_000}``.
        racks: The rack of each broker, in order; none by default.
        transaction_version: Finalized level of the feature ``transaction.version``: with 0 or 1
            producers speak version 1 of the transaction protocol, which is that of Kafka before
            4.0, with 2 version 2 (KIP-890).
        seed: Of ids and session numbers: two clusters with the same seed generate the same ones.
        clock: Clock of record timestamps; the system's by default.
        network: Where brokers listen, as ``broker-1:9092`` and so on. By default on loopback
            sockets, or on the network of the ``VirtualLoop`` that it is started on.
        security: How clients are let in, by TLS and by logins; everyone is by default.
        host: Where brokers listen, and the host that clients get in Metadata responses.
        port: Of the first broker; the next one has the next port, and so on. 0 for free ports.

    Raises:
        InvalidArgument: An argument is invalid; the text names it.
        InvalidConfig: A broker configuration is unknown or invalid.

    Methods that only read (``topics``, ``records``, ``leader``, ``isr``...) work at any time, also
    after the end, and so do ``faults`` and ``requests``. Methods that change the cluster, topics or
    brokers work while it is started, in the loop that it was started in, or while that loop doesn't
    run between two runs; else they raise ClientClosed or WrongContext.

    Attributes:
        security: How clients are let in; None for everyone.
        faults: Faults to inject.
        requests: Log of the requests that brokers got.
        events: Log of what happened: changes of live brokers, controllers, leaders and ISRs.

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
        transaction_version: int = 2,
        seed: int = 0,
        clock: Clock | None = None,
        network: MemoryNet | None = None,
        security: ClusterSecurity | None = None,
        host: str = LOOPBACK,
        port: int = 0,
    ) -> None:
        whole("brokers", brokers, 1)
        if transaction_version not in _TRANSACTION_VERSIONS:
            raise InvalidArgument(f"transaction_version={transaction_version!r} must be 0, 1 or 2")
        check_address(host, port, brokers)
        if network is not None and not isinstance(network, MemoryNet):
            raise InvalidArgument(f"network={network!r} must be a MemoryNet")
        if security is not None and not isinstance(security, ClusterSecurity):
            raise InvalidArgument(f"security={security!r} must be a ClusterSecurity")
        if network is not None:
            _check_without_tls(security)
        if clock is not None and not (hasattr(clock, "now") and hasattr(clock, "wall_ms")):
            raise InvalidArgument(f"clock={clock!r} must be a Clock, with now() and wall_ms()")
        named = racks_of(racks, brokers)
        given = broker_configs_of(brokers, topic_defaults, auto_create_topics, broker_configs)
        rng = random.Random(checked_seed(seed))
        self._control_plane = ControlPlane(
            MetadataImage(_new_cluster_id(rng), BrokerConfig(given), transaction_version), rng
        )
        self.security = security
        self.faults = Faults()
        self.requests = RequestLog()
        self._shared = shared = SharedState(
            self._control_plane,
            self.faults,
            self.requests,
            clock or SystemClock(),
            rng,
            network,
            security,
        )
        self.events = EventLog(shared.now, self.faults.failed)
        self._control_plane.quorum.listen(self.events.add)
        self._brokers = shared.brokers = ByNodeId()
        self.faults.node_ids = shared.brokers.keys()
        self.faults.security = security
        self._host, self._port = host, port
        for index, rack in enumerate(named):
            Broker(index + 1, host, port and port + index, rack, shared)
        self._has_addresses = False
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        brokers = self._brokers.values()
        count = "1 broker" if len(brokers) == 1 else f"{len(brokers)} brokers"
        if not self._shared.is_open:
            return f"<Cluster of {count}, not started>"
        up = sum(one.running for one in brokers)
        reigns = self.controller_id
        controller = "no controller" if reigns == NO_LEADER else f"controller {reigns}"
        return f"<Cluster of {count}, {up} up, {controller}, {self._addresses()}>"

    if not TYPE_CHECKING:

        def __enter__(self) -> Any:
            raise TypeError("`async with` is needed for a Cluster, or a ThreadedCluster for `with`")

        def __exit__(self, *error: object) -> None:
            """Never called, but ``with`` looks it up before it enters."""

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
            OSError: A listener can't be opened; all are closed again.
            ClientClosed: It was closed meanwhile.
            WrongContext: It is started, in another loop.

        Cancellation: what was opened is closed again.
        """
        if self._shared.is_open:
            self._shared.check()
        self._settle()
        async with self._turn:  # waits for a ``close`` in progress
            self._shared.is_open = True
            try:
                for broker in tuple(self._brokers.values()):
                    if not broker.running:
                        with noted(not_started(broker.node_id, self._at(broker))):
                            await broker.listen()
            except BaseException:
                await self._end()
                raise
            self._has_addresses = True

    def _at(self, broker: Broker) -> str:
        """Where a broker is to listen; a memory network names the hosts itself."""
        return broker.address if self._shared.network is None else f"port {broker.port}"

    def _settle(self) -> None:
        """On a loop of virtual time, use its network and its wall clock."""
        loop, shared = asyncio.get_running_loop(), self._shared
        if shared.loop is not loop:
            self._turn = asyncio.Lock()
            for broker in self._brokers.values():
                broker.settle()
        shared.loop = loop
        if shared.network is None and isinstance(loop, VirtualLoop):
            _check_without_tls(shared.security)
            shared.network = loop.network
        if shared.network is not None and shared.inner_network is None:
            shared.inner_network = MemoryNet(latency=(0.0, 0.0))
        if isinstance(shared.clock, SystemClock):
            shared.clock.use_environment()

    async def close(self) -> None:
        """Close all listeners and connections; the logs stay readable. Closing twice is fine.

        It takes two seconds at most, and only if a client doesn't read its responses.

        Raises:
            BaseException: Raised by a function that was given to ``faults``; the brokers are closed
                all the same.
            WrongContext: It was started in another loop.

        Cancellation: safe, but brokers may then still be up; call it again.
        """
        if self._shared.is_open:
            self._shared.check()
        self._shared.is_open = False  # so that a broker about to open a listener closes it again
        async with self._turn:
            await self._end()
        await self.faults.ended()
        self.faults.check()

    async def _end(self) -> None:
        """Close all brokers. Cancellation: some may still be up."""
        self._shared.is_open = False
        self.faults.clear()
        self._control_plane.close()
        await asyncio.gather(*(broker.shut() for broker in self._brokers.values()))

    # Brokers

    @property
    def bootstrap(self) -> str:
        """``host:port`` of every broker, including those that are down, joined with commas.

        Raises:
            ClientClosed: It was never started.
        """
        if not self._has_addresses:
            raise ClientClosed("the cluster has no addresses before the start", hint=START)
        return self._addresses()

    def _addresses(self) -> str:
        return ",".join(one.address for one in self._brokers.values() if one.port)

    @property
    def brokers(self) -> Mapping[int, Broker]:
        """The brokers, by node id."""
        return MappingProxyType(self._brokers)

    @property
    def cluster_id(self) -> str:
        """The cluster id, as clients see it."""
        return self._image.cluster_id

    async def stop(self, broker: int) -> None:
        """Shut a broker down cleanly: its leaderships move, pending responses are still sent.

        Cancellation: it is down, but connections may still be open; call it again.
        """
        found = self._up(broker)
        await found.stop()

    async def crash(self, broker: int) -> None:
        """Crash a broker: its connections are reset, and responses in flight may be lost.

        Cancellation: the broker is down all the same.
        """
        found = self._up(broker)
        await found.crash()

    async def restart(self, broker: int, *, in_sync_within: float = _IN_SYNC_SECONDS) -> None:
        """Bring a broker back, on its old port; stops it first if it is up.

        Args:
            broker: Its node id.
            in_sync_within: Longest time in seconds to wait until its replicas are in sync again;
                they can't be if the others are down, too. 0 not to wait.

        Raises:
            OSError: Its port was taken meanwhile; it is down then.
            ClientClosed: The cluster was closed meanwhile.

        Cancellation: it may be down then; call it again.
        """
        found = self._up(broker)
        seconds_of("in_sync_within", in_sync_within)
        await found.stop()
        await self._open(found)
        await self._settled(in_sync_within, broker)

    async def _open(self, found: Broker, host: str | None = None, port: int | None = None) -> None:
        """``Broker.listen``, with a note on how to go on in errors. Cancellation: as there."""
        wanted = address_of(host or found.host, found.port if port is None else port)
        with noted(stays_down(found.node_id, wanted, found.address)):
            await found.listen(host, port)

    async def _settled(self, seconds: float, *brokers: int) -> None:
        """Wait ``seconds`` at most until the replicas of these are in sync. Cancellation: safe."""
        with contextlib.suppress(RequestTimedOut):
            await self.wait_in_sync(*brokers, timeout=seconds)

    async def add_broker(self, *, rack: str | None = None) -> int:
        """Add a broker, with the next node id; it has no replicas until topics are created on it.

        Returns:
            Its node id.

        Raises:
            OSError: Its port, the one after the others', is taken; it isn't added then.

        Cancellation: it may be added, but down; ``restart`` it.
        """
        self._shared.check()
        node_id = max(self._brokers) + 1
        port = self._port and self._port + node_id - 1
        check_address(self._host, port, 1)
        broker = Broker(node_id, self._host, port, rack_of("rack", rack), self._shared)
        try:
            with noted(f"no broker was added: {node_id} can't listen at {self._at(broker)}"):
                await broker.listen()
        except OSError:
            del self._brokers[node_id]
            raise
        return node_id

    async def remove_broker(self, broker: int) -> None:
        """Stop and unregister a broker, as ``kafka-cluster.sh unregister`` does.

        Raises:
            InvalidArgument: It has replicas, which would be lost, or is the last one up. If it
                got replicas meanwhile, it is down then: ``restart`` it.
            BrokerError: No broker could become controller; likewise.

        Cancellation: it may be down and still registered; call it again.
        """
        found = self._up(broker)
        if len(self._brokers) == 1:
            raise InvalidArgument(f"broker {broker} is the last one: close the cluster")
        self._check_bare(broker)
        if not any(one.running for one in self._brokers.values() if one is not found):
            raise InvalidArgument(f"broker {broker} is the last one that is up: restart another")
        await found.stop()
        while found.running:  # restarted by another task meanwhile
            await found.stop()
        if self._brokers.get(broker) is not found:
            return  # removed by another task meanwhile
        self._check_bare(broker)
        with raise_as_broker_error(f"Removing broker {broker} failed"):
            self._controller().forget_broker(broker)
        del self._brokers[broker]
        links = self._control_plane.links
        links.join([pair for pair in links.parted if broker in pair])

    def _check_bare(self, broker: int) -> None:
        has = [
            f"{one.topic}-{one.index}" for one in self._image.partitions() if broker in one.replicas
        ]
        if has:
            raise InvalidArgument(f"broker {broker} has replicas of {', '.join(has[:5])}")

    def _up(self, broker: int) -> Broker:
        """The broker, of a cluster that is started."""
        self._shared.check()
        return self._broker(broker)

    async def move(self, broker: int, *, host: str | None = None, port: int = 0) -> None:
        """Bring a broker back at another address, as a new machine that has its disks.

        Args:
            broker: Its node id; the broker is stopped first if it is up.
            host: Where it listens then; on the same host by default.
            port: 0 for another free one.

        Raises:
            OSError: That address can't be bound; it is down then, at its old one.

        Cancellation: it may be down then, at its old address; call it again.
        """
        found = self._up(broker)
        check_address(self._host if host is None else host, port, 1)
        await found.stop()
        if not port and self._shared.network is not None:
            port = found.port + 1  # for port 0 a memory network would choose the old one again
        await self._open(found, host, port)
        await self._settled(_IN_SYNC_SECONDS, broker)

    async def swap_addresses(self, one: int, other: int) -> None:
        """Restart two brokers, so that each has the address of the other.

        Raises:
            InvalidArgument: They are one and the same.
            OSError: A port was taken meanwhile; both may be down then.

        Cancellation: one or both may be down then, at whichever address: ``restart`` them.
        """
        first, second = self._up(one), self._up(other)
        if first is second:
            raise InvalidArgument(f"broker {one} has its own address already: name two brokers")
        await first.stop()
        await second.stop()
        address, new = (first.host, first.port), (second.host, second.port)
        await self._open(first, *new)
        await self._open(second, *address)
        await self._settled(_IN_SYNC_SECONDS, one, other)

    # Reachability between brokers

    @changes_cluster
    def disconnect(self, one: int, other: int) -> None:
        """Disconnect two brokers: neither fetches from the other, or reaches it as controller.

        Clients reach both, and both reach all other brokers. It lasts until ``reconnect``.

        Raises:
            InvalidArgument: They are one and the same.
        """
        if one == other:
            raise InvalidArgument(f"broker {one} can't be parted from itself: name two brokers")
        self._control_plane.links.part([(self._broker(one).node_id, self._broker(other).node_id)])

    @changes_cluster
    def isolate(self, broker: int) -> None:
        """Disconnect a broker from all the others; clients still reach it, and it may be stale.

        After ``broker.session.timeout.ms`` the others elect new leaders for what it leads. It lasts
        until ``reconnect``.
        """
        self._broker(broker)
        others = [QUORUM, *(one for one in self._brokers if one != broker)]
        self._control_plane.links.part((broker, one) for one in others)

    @changes_cluster
    def reconnect(self, *brokers: int) -> None:
        """Connect two brokers again, one with all the others, or without arguments all of them."""
        for one in brokers:
            self._broker(one)
        if len(set(brokers)) < len(brokers):
            raise InvalidArgument(f"brokers={brokers!r} must name each broker once")
        if len(brokers) > 1:
            self._control_plane.links.join([(one, two) for one in brokers for two in brokers])
        else:
            parted = self._control_plane.links.parted
            self._control_plane.links.join(
                [pair for pair in parted if not brokers or brokers[0] in pair]
            )

    @changes_cluster
    def slow_follower(self, broker: int, seconds: float) -> Fault:
        """Make what a broker fetches as a follower arrive ``seconds`` late.

        Ends with ``Faults.remove``.
        """
        node_id = self._broker(broker).node_id
        late = seconds_of("seconds", seconds)
        return self.faults.delay("Fetch", late, times=None, replica=node_id)

    # Leaders, coordinators and the controller

    @changes_cluster
    def elect_leader(self, topic: str, partition: int = 0, *, unclean: bool = False) -> None:
        """Elect the preferred leader, or with ``unclean`` any replica that is up if there is none.

        Raises:
            BrokerError: The error that a broker would respond to ElectLeaders with.
        """
        self._partition(topic, partition)
        flag("unclean", unclean)
        with raise_as_broker_error(f"Electing a leader of {topic}-{partition} failed"):
            self._controller().elect(topic, partition, unclean=unclean)

    @changes_cluster
    def move_coordinator(self, group: str, broker: int) -> None:
        """Make a broker the coordinator of a group, with all the groups of its partition.

        Raises:
            BrokerError: The broker has no replica of that partition that is in sync.
        """
        self._move_coordinator(text("group", group), broker, OFFSETS_TOPIC)

    def coordinator(self, group: str) -> int:
        """Node id of a group's coordinator, -1 if there is none."""
        return self._coordinator_of(text("group", group), OFFSETS_TOPIC)

    @changes_cluster
    def move_transaction_coordinator(self, transactional_id: str, broker: int) -> None:
        """Make a broker the coordinator of a transactional id, with all ids of its partition.

        Raises:
            BrokerError: The broker has no replica of that partition that is in sync.
        """
        self._move_coordinator(
            text("transactional_id", transactional_id), broker, TRANSACTION_TOPIC
        )

    def transaction_coordinator(self, transactional_id: str) -> int:
        """Node id of a transactional id's coordinator, -1 if there is none."""
        return self._coordinator_of(text("transactional_id", transactional_id), TRANSACTION_TOPIC)

    def _move_coordinator(self, key: str, broker: int, topic_name: str) -> None:
        found = self._broker(broker)
        if topic_name not in self._image.topics:
            (found.groups if topic_name == OFFSETS_TOPIC else found.transactions).find(key)
        topic = self._image.topics.get(topic_name)
        if topic is None:
            raise broker_error(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Moving the coordinator of {key!r} failed"
            )
        self.move_leader(topic_name, partition_of(key, len(topic.partitions)), broker)

    def _coordinator_of(self, key: str, topic_name: str) -> int:
        topic = self._image.topics.get(topic_name)
        if topic is None:
            return NO_LEADER
        return self._leader_of(topic.partitions[partition_of(key, len(topic.partitions))])

    @changes_cluster
    def move_controller(self) -> int:
        """Make the controller resign; return the node id of the next, the same if it is alone."""
        self._control_plane.resign()
        return self._control_plane.quorum.controller_id

    @property
    def controller_id(self) -> int:
        """Node id of the broker that is the controller now, -1 if there is none."""
        return self._control_plane.quorum.controller_id

    @property
    def controller_epoch(self) -> int:
        """Number of controllers that there were."""
        return self._control_plane.quorum.epoch

    # Replicas in sync

    def isr(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """Node ids of the replicas that are in sync."""
        return self._partition(topic, partition).isr

    def replicas(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """Node ids of all replicas, the preferred leader first."""
        return self._partition(topic, partition).replicas

    @property
    def under_replicated(self) -> list[TopicPartition]:
        """Partitions of which not all replicas are in sync."""
        return [
            TopicPartition(one.topic, one.index)
            for one in self._image.partitions()
            if len(one.isr) < len(one.replicas)
        ]

    @property
    def offline(self) -> list[TopicPartition]:
        """Partitions that have no leader, or whose last leader is down."""
        return [
            TopicPartition(one.topic, one.index)
            for one in self._image.partitions()
            if self._leader_of(one) == NO_LEADER
        ]

    def statistics(self) -> Tally:
        """Counts of what happened: elections, changes of ISRs, truncations, fences."""
        return replace(self._control_plane.tally)

    async def wait_in_sync(self, *brokers: int, timeout: float = 10.0) -> None:
        """Wait until all replicas of these brokers are in sync, or those of all the brokers.

        Args:
            brokers: Node ids; all if none is given.
            timeout: Seconds.

        Raises:
            RequestTimedOut: Some are not; the text names them.
            ClientClosed: The cluster was closed meanwhile.

        Cancellation: safe.
        """
        seconds_of("timeout", timeout)
        for one in brokers:
            self._broker(one)
        self._shared.check()
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        while missing := [*self._missing(brokers)]:
            if loop.time() >= end:
                raise RequestTimedOut(
                    f"after {timeout:.3g} s replicas are not in sync: {', '.join(missing[:10])}"
                )
            await asyncio.sleep(_LOOK_SECONDS)
            self._shared.check()

    def _missing(self, brokers: tuple[int, ...]) -> Iterator[str]:
        for one in self._image.partitions():
            for node_id in one.replicas:
                if node_id not in one.isr and (not brokers or node_id in brokers):
                    yield f"{one.topic}-{one.index} on broker {node_id}"

    # Logs

    @changes_cluster
    def clean(self, topic: str) -> list[CleanResult]:
        """Delete by retention, and compact, what is due in a topic's partitions; one result each.

        Brokers do it by themselves when it is due; a test need not wait for that. This method
        begins a new segment first, and compacts however small the dirty part is. All replicas are
        cleaned, and the results are those of the leaders' logs.
        """
        results = []
        for index in range(self.partition_count(topic)):
            leader = self._replica(topic, index)
            for replica in self._replicas(topic, index):
                result = self._brokers[replica.node_id].replica_manager.clean(replica, force=True)
                if replica is leader:
                    results.append(result)
        return results


_TRANSACTION_VERSIONS = (0, 1, 2)


def _check_without_tls(security: ClusterSecurity | None) -> None:
    if security is not None and security.server_context is not None:
        raise InvalidArgument("a MemoryNet doesn't speak TLS: make security without tls=True")


def _new_cluster_id(rng: random.Random) -> str:
    number = bytes([rng.randrange(1, 0xF8)]) + rng.randbytes(15)
    return base64.urlsafe_b64encode(number).decode().rstrip("=")

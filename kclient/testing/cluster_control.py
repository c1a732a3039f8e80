"""How a test has its way with a ``Cluster``: who reaches whom, who leads, who is controller.

``ClusterControl`` is the part of ``Cluster`` for that, and for what it tells of its inside. Nothing
here goes over the wire; clients see what follows from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

from kclient.error_codes import ErrorCode
from kclient.errors import InvalidArgument, RequestTimedOut, broker_error
from kclient.testing.arguments import flag, seconds_of, text
from kclient.testing.cluster_topics import ClusterTopics, as_error
from kclient.testing.controller import Tally
from kclient.testing.fault import Fault
from kclient.testing.faults import Faults
from kclient.testing.groups.store import OFFSETS_TOPIC, partition_of
from kclient.testing.image import NO_LEADER
from kclient.testing.interior import REGISTRY
from kclient.testing.log_cleaner import CleanResult
from kclient.testing.refused import Refused
from kclient.testing.services import acts
from kclient.types import TopicPartition

_LOOK_SECONDS = 0.001


class ClusterControl(ClusterTopics):
    """Control over the inside of a cluster."""

    faults: Faults

    # Who reaches whom

    @acts
    def disconnect(self, one: int, other: int) -> None:
        """Part two brokers: neither fetches from the other, or hears of it as controller.

        Clients reach both, and both are in touch with the rest. Until ``reconnect``.

        Raises:
            InvalidArgument: They are one and the same.
        """
        if one == other:
            raise InvalidArgument(f"broker {one} can't be parted from itself: name two brokers")
        self._inside.interior.part([(self._broker(one).node_id, self._broker(other).node_id)])

    @acts
    def isolate(self, broker: int) -> None:
        """Part a broker from all the others, though clients reach it: it goes on believing.

        After ``broker.session.timeout.ms`` the others elect new leaders for what it leads. Until
        ``reconnect``.
        """
        self._broker(broker)
        others = [REGISTRY, *(one for one in self._brokers if one != broker)]
        self._inside.interior.part((broker, one) for one in others)

    @acts
    def reconnect(self, *brokers: int) -> None:
        """Let two brokers, one and all the others, or without arguments all, reach each other."""
        for one in brokers:
            self._broker(one)
        if len(set(brokers)) < len(brokers):
            raise InvalidArgument(f"brokers={brokers!r} must name each broker once")
        if len(brokers) > 1:
            self._inside.interior.join([(one, two) for one in brokers for two in brokers])
        else:
            parted = self._inside.interior.parted
            self._inside.interior.join(
                [pair for pair in parted if not brokers or brokers[0] in pair]
            )

    @acts
    def slow_follower(self, broker: int, seconds: float) -> Fault:
        """Let what a broker fetches as a follower come ``seconds`` late; see ``Faults.remove``."""
        node_id = self._broker(broker).node_id
        late = seconds_of("seconds", seconds)
        return self.faults.delay("Fetch", late, times=None, replica=node_id)

    # Who leads

    @acts
    def elect_leader(self, topic: str, partition: int = 0, *, unclean: bool = False) -> None:
        """Elect the preferred leader, or with ``unclean`` whoever is up where nobody leads.

        Raises:
            BrokerError: As a broker would answer ElectLeaders.
        """
        self._partition(topic, partition)
        flag("unclean", unclean)
        try:
            self._controller().elect(topic, partition, unclean=unclean)
        except Refused as refused:
            raise as_error(refused, f"Electing a leader of {topic}-{partition} failed") from None

    @acts
    def move_coordinator(self, group: str, broker: int) -> None:
        """Make a broker the coordinator of a group, with all the groups of its partition.

        Raises:
            BrokerError: The broker has no replica of that partition that is in sync.
        """
        text("group", group)
        found = self._broker(broker)
        topic = self._image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            found.groups.find(group)
            topic = self._image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            raise broker_error(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Moving the coordinator of {group!r} failed"
            )
        self.move_leader(OFFSETS_TOPIC, partition_of(group, len(topic.partitions)), broker)

    def coordinator(self, group: str) -> int:
        """Node id of a group's coordinator, -1 if there is none."""
        topic = self._image.topics.get(OFFSETS_TOPIC)
        index = partition_of(text("group", group), 1 if topic is None else len(topic.partitions))
        return NO_LEADER if topic is None else self._leader_of(topic.partitions[index])

    @acts
    def move_controller(self) -> int:
        """Let the controller resign; the node id of the next one, the same if it is alone."""
        self._inside.resign()
        return self._inside.registry.holder

    @property
    def controller_id(self) -> int:
        """The node id of the broker that is controller now, -1 if none is."""
        return self._inside.registry.holder

    @property
    def controller_epoch(self) -> int:
        """How many controllers there were."""
        return self._inside.registry.epoch

    # Who is in sync

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
        """Partitions that nobody leads, or whose last leader is down."""
        return [
            TopicPartition(one.topic, one.index)
            for one in self._image.partitions()
            if self._leader_of(one) == NO_LEADER
        ]

    def statistics(self) -> Tally:
        """What happened inside so far: elections, changes of ISRs, truncations, fences."""
        return replace(self._inside.tally)

    async def wait_in_sync(self, *brokers: int, timeout: float = 10.0) -> None:
        """Wait until all that these brokers have is in sync, or all that any broker has.

        Args:
            brokers: Node ids; all if none is given.
            timeout: Seconds.

        Raises:
            RequestTimedOut: It isn't; the text names what isn't.
            ClientClosed: The cluster was closed meanwhile.

        Cancellation: safe.
        """
        seconds_of("timeout", timeout)
        for one in brokers:
            self._broker(one)
        self._services.check()
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        while missing := [*self._missing(brokers)]:
            if loop.time() >= end:
                raise RequestTimedOut(
                    f"after {timeout:.3g} s replicas are not in sync: {', '.join(missing[:10])}"
                )
            await asyncio.sleep(_LOOK_SECONDS)
            self._services.check()

    def _missing(self, brokers: tuple[int, ...]) -> Iterator[str]:
        for one in self._image.partitions():
            for node_id in one.replicas:
                if node_id not in one.isr and (not brokers or node_id in brokers):
                    yield f"{one.topic}-{one.index} on broker {node_id}"

    # Logs

    @acts
    def clean(self, topic: str) -> list[CleanResult]:
        """Delete by retention, and compact, what is due in a topic's partitions; one result each.

        Brokers do it by themselves when it is due; a test need not wait for that. What is asked
        for here begins a new segment first, and compacts however little is dirty. All replicas are
        cleaned, the results are those of the leaders'.
        """
        results = []
        for index in range(self.partition_count(topic)):
            leader = self._replica(topic, index)
            for replica in self._replicas(topic, index):
                result = self._brokers[replica.node_id].hosted.clean(replica, force=True)
                if replica is leader:
                    results.append(result)
        return results

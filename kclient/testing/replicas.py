"""``Replicas``: all replicas of one broker, their roles and changes of their ISRs.

It applies the controller's images, notifies listeners of partitions that the broker leads from now
on or leads no more, and makes ISR changes when followers fall behind or catch up. The caller has
the timers, and sends the changes to the controller. Pure logic, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kclient.testing.controller import IsrChange
from kclient.testing.image import BrokerRegistration, MetadataImage
from kclient.testing.replica import Replica


class LeadershipChange(NamedTuple):
    """A broker's role in a partition changed.

    Attributes:
        leads: Whether it is the leader now.
    """

    topic: str
    partition: int
    leads: bool
    leader_epoch: int


class Replicas:
    """The replicas of one broker; they outlive its sessions, as files do.

    Attributes:
        node_id: Of the broker.
        image: The newest image that it knows.
        changed: Leading replicas whose facts changed with that image.
        advanced: Those of them whose high watermark moved.
    """

    def __init__(self, node_id: int, image: MetadataImage) -> None:
        self.node_id = node_id
        self.image = image
        self._replicas: dict[tuple[str, int], Replica] = {}
        self._behind: dict[Replica, None] = {}
        self._turned: list[Replica] = []
        self.changed: list[Replica] = []
        self.advanced: list[Replica] = []
        self.listeners: list[Callable[[LeadershipChange], None]] = []

    def __iter__(self) -> Iterator[Replica]:
        return iter(tuple(self._replicas.values()))

    def get(self, topic: str, index: int) -> Replica | None:
        """The replica of a partition; None if this broker has none."""
        return self._replicas.get((topic, index))

    def apply(self, image: MetadataImage, now: float) -> list[LeadershipChange]:
        """Apply ``image``; return the roles that changed, after listeners were notified."""
        before, self.image = self.image, image
        turns: list[LeadershipChange] = []
        self.changed, self.advanced = [], []
        changed, advanced = self.changed, self.advanced
        if image.topics is not before.topics:
            for name, topic in before.topics.items():
                after = image.topics.get(name)
                if after is None or after.topic_id != topic.topic_id:
                    turns += self._drop(name, len(topic.partitions))
            for name, topic in image.topics.items():
                known = before.topics.get(name)
                if known is not topic:
                    turns += self._update(name, now)
        # Listeners may call back, so they are notified after all state is updated.
        for replica in self._turned:
            replica.log.disturb()
        self._turned = []
        for turn in turns:
            for listener in self.listeners:
                listener(turn)
        # A listener may have applied another image, which replaced these lists.
        self.changed, self.advanced = changed, advanced
        return turns

    def _update(self, name: str, now: float) -> Iterator[LeadershipChange]:
        topic = self.image.topics[name]
        config = self.image.config.of_topic_on(self.node_id, topic.config)
        for facts in topic.partitions:
            key = name, facts.index
            replica = self._replicas.get(key)
            if self.node_id not in facts.replicas:
                if replica is not None:
                    yield from self._forget(replica)
                continue
            if replica is None:
                replica = Replica(self.node_id, topic.topic_id, facts, config)
                self._replicas[key] = replica
                replica.begin(now)
                turned = True
            elif replica.facts is facts and replica.config is config:
                continue
            else:
                committed = replica.log.high_watermark
                turned = replica.become(facts, config, now)
                if turned:
                    self._turned.append(replica)
                if replica.leads:
                    self.changed.append(replica)
                    if replica.log.high_watermark > committed:
                        self.advanced.append(replica)
            self.check(replica)
            if turned:
                yield LeadershipChange(name, facts.index, replica.leads, facts.leader_epoch)

    def _drop(self, name: str, count: int) -> Iterator[LeadershipChange]:
        for index in range(count):
            replica = self._replicas.get((name, index))
            if replica is not None:
                yield from self._forget(replica)

    def _forget(self, replica: Replica) -> Iterator[LeadershipChange]:
        facts = replica.facts
        del self._replicas[facts.topic, facts.index]
        self._behind.pop(replica, None)
        self._turned.append(replica)
        if replica.leads:
            yield LeadershipChange(facts.topic, facts.index, False, facts.leader_epoch)
        replica.is_deleted = True
        replica.stand_down()

    def stand_down(self) -> None:
        """The broker is down: stop leading; after a restart the controller assigns the roles."""
        self._behind.clear()
        for replica in self._replicas.values():
            replica.stand_down()

    # In sync

    def check(self, replica: Replica) -> None:
        """A replica changed: update whether it has followers that are behind."""
        if replica.next_lag(0.0) is None:
            self._behind.pop(replica, None)
        else:
            self._behind[replica] = None

    def next_check(self) -> float | None:
        """When the next follower may be late; None while none is behind."""
        lag = self.image.config.replica_lag_time
        found = (replica.next_lag(lag) for replica in self._behind)
        return min((one for one in found if one is not None), default=None)

    def late(self, now: float) -> list[IsrChange]:
        """ISR changes that remove followers which fell behind, where this broker leads."""
        changes = []
        for replica in tuple(self._behind):
            isr = replica.to_shrink(now, self.image.config.replica_lag_time)
            if isr is not None:
                changes.append(self.wished(replica, isr))
        return changes

    def caught_up(self, replica: Replica, asking: int | None = None) -> IsrChange | None:
        """The ISR change that adds followers which caught up; None if none did.

        Args:
            replica: Of a partition that this broker leads.
            asking: The follower that just fetched, if one did.
        """
        if len(replica.facts.isr) == len(replica.facts.replicas):
            return None
        alive = [
            one.node_id
            for one in self.image.brokers.values()
            if one.alive and (one.node_id == asking or _fetched_in(replica, one))
        ]
        isr = replica.to_expand(alive, asking)
        return None if isr is None else self.wished(replica, isr)

    def wished(self, replica: Replica, isr: tuple[int, ...]) -> IsrChange:
        """Make the request for that ISR, which is pending from now on."""
        replica.pending_isr = isr
        facts = replica.facts
        return IsrChange(facts.topic, facts.index, facts.leader_epoch, facts.partition_epoch, isr)

    def unanswered(self, change: IsrChange) -> None:
        """The controller refused a change: it isn't pending any more, and may be sent again."""
        replica = self.get(change.topic, change.index)
        if replica is not None and replica.facts.partition_epoch == change.partition_epoch:
            replica.pending_isr = None
            self.check(replica)


def _fetched_in(replica: Replica, broker: BrokerRegistration) -> bool:
    """Whether it fetched since its restart: its earlier position means nothing (KIP-903)."""
    follower = replica.followers.get(broker.node_id)
    return follower is not None and follower.broker_epoch in (-1, broker.epoch)

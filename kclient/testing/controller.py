"""``Controller``: the controller of one epoch, which changes the cluster's metadata.

For each change it makes the next image, writes it to the quorum under its epoch and sends it to
all brokers. Once the quorum has refused a write, or while it can't reach the quorum, it changes
nothing. Used by ``control_plane.py`` and, for requests of clients, by the handlers. No waiting, no
clock.

The functions at the end are the rules for leaders and ISRs: each takes a partition's facts and
returns the next ones, the same object if nothing changes. Eligible leader replicas are included
(KIP-966): below ``min.insync.replicas`` replicas that leave the ISR stay eligible, as they have all
committed records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kclient.error_codes import ErrorCode
from kclient.testing.authorizer import Acl
from kclient.testing.broker_configs import BrokerConfig
from kclient.testing.image import (
    NO_LEADER,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from kclient.testing.quorum import Fenced, Quorum
from kclient.testing.quotas import MutationQuotas
from kclient.testing.responses import ApiError
from kclient.testing.topic_configs import TopicConfig

if TYPE_CHECKING:
    import random


@dataclass(frozen=True, slots=True)
class IsrChange:
    """The new ISR of a partition, requested by its leader.

    Attributes:
        leader_epoch: Epoch of the leader.
        partition_epoch: Epoch of the facts that it changes.
        isr: Node ids of the replicas in sync.
    """

    topic: str
    index: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


@dataclass(slots=True)
class Tally:
    """Counts of what happened under all controllers of a cluster.

    Attributes:
        elections: Leaders of partitions that were elected.
        unclean_elections: Those of them from outside the ISR.
        isr_shrinks: Times that replicas were removed from an ISR.
        isr_expands: Times that a replica was added to one.
        fences: Requests that were refused because their epoch was stale.
        truncations: Times that a follower removed records that its leader doesn't have.
    """

    elections: int = 0
    unclean_elections: int = 0
    isr_shrinks: int = 0
    isr_expands: int = 0
    fences: int = 0
    truncations: int = 0


@dataclass(eq=False, repr=False)
class Controller:
    """The controller of one epoch.

    Args:
        node_id: Of the broker that is controller.
        epoch: Assigned by the quorum.
        quorum: Stores the images.
        rng: Of topic ids.
        tally: To count in.
        publish: Sends an image to all brokers.
        reaches_quorum: Whether it can reach the quorum.

    Attributes:
        mutations: What is left of the clients' quotas.
    """

    node_id: int
    epoch: int
    _quorum: Quorum
    _rng: random.Random
    _tally: Tally
    _publish: Callable[[Controller, MetadataImage], None]
    _reaches_quorum: Callable[[], bool]
    mutations: MutationQuotas = field(init=False)

    def __post_init__(self) -> None:
        self.mutations = MutationQuotas(self._quorum.image.config.mutation_window)

    @property
    def image(self) -> MetadataImage:
        """The newest image.

        Raises:
            ApiError: NOT_CONTROLLER: it was replaced, or can't reach the quorum.
        """
        self._check()
        return self._quorum.image

    def _check(self) -> None:
        if not self._reaches_quorum():
            raise ApiError(ErrorCode.NOT_CONTROLLER, "The controller is cut off.")
        if (self._quorum.controller_id, self._quorum.epoch) != (self.node_id, self.epoch):
            raise ApiError(ErrorCode.NOT_CONTROLLER, "Another controller was elected.")

    def _commit(self, image: MetadataImage) -> None:
        try:
            self._check()
            written = self._quorum.write(self.node_id, self.epoch, image)
        except Fenced:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "Another controller was elected.") from None
        self._publish(self, written)

    def announce(self) -> None:
        """Mark brokers without a session as down and announce the controller to all brokers.

        Called at the beginning of the epoch, and when reachability changes.
        """
        image = self.image
        sessions = self._quorum.sessions
        gone = [one for one in image.brokers.values() if one.alive]
        gone = [one for one in gone if sessions.get(one.node_id) != one.epoch]
        for facts in gone:  # mark all of them first, so that none of them is elected
            image = image.with_broker(replace(facts, alive=False))
        for facts in gone:
            image = self._without(image, facts.node_id)
        if gone or image.controller_epoch != self.epoch:
            self._commit(image)

    def write(self, image: MetadataImage) -> None:
        """Write the next image, one that differs in users, quotas or tokens only."""
        self._commit(image)

    # Brokers

    def broker_up(self, facts: BrokerRegistration) -> None:
        """A broker has a new session; partitions without a leader may elect it."""
        image = self.image
        was = image.brokers.get(facts.node_id)
        if was is not None and was.alive:
            image = self._without(image, facts.node_id)
        image = image.with_broker(facts)
        alive = _alive(image)
        changed = []
        for topic in image.topics.values():
            for one in topic.partitions:
                after = broker_back(one, facts.node_id, alive, topic.config)
                if after is not one:
                    changed.append(after)
                    self._note_election(one, after)
        self._commit(image.with_partitions(changed) if changed else image)

    def broker_down(self, node_id: int) -> None:
        """A broker has no session any more: other replicas in sync take over its leaderships."""
        image = self.image
        was = image.brokers.get(node_id)
        if was is not None and was.alive:
            self._commit(self._without(image, node_id))

    def forget_broker(self, node_id: int) -> None:
        """Unregister a broker that is down."""
        self._commit(self.image.without_broker(node_id))

    def _without(self, image: MetadataImage, node_id: int) -> MetadataImage:
        image = image.with_broker(replace(image.brokers[node_id], alive=False))
        alive = _alive(image)
        changed = []
        for topic in image.topics.values():
            for one in topic.partitions:
                after = broker_gone(one, node_id, alive, topic.config)
                if after is not one:
                    changed.append(after)
                    self._note_election(one, after)
                    self._tally.isr_shrinks += len(after.isr) < len(one.isr)
        return image.with_partitions(changed) if changed else image

    def _note_election(self, before: PartitionRegistration, after: PartitionRegistration) -> None:
        if after.leader_epoch == before.leader_epoch or after.leader == NO_LEADER:
            return
        self._tally.elections += 1
        if after.leader not in (*before.isr, *before.elr):
            self._tally.unclean_elections += 1

    # Topics

    def create_topic(
        self, name: str, assignments: Sequence[Sequence[int]], config: TopicConfig
    ) -> TopicImage:
        """Create a topic whose name, assignments and configuration were checked."""
        image = self.image
        topic = TopicImage(name, self._new_id(), config, _partitions(image, name, 0, assignments))
        self._commit(image.with_topics(topic))
        return topic

    def add_partitions(self, topic: str, assignments: Sequence[Sequence[int]]) -> None:
        """Add one partition per assignment, each with a replica that is up."""
        image = self.image
        found = image.topics[topic]
        more = _partitions(image, topic, len(found.partitions), assignments)
        self._commit(image.with_topics(replace(found, partitions=found.partitions + more)))

    def delete_topic(self, topic: TopicImage) -> None:
        """Remove a topic; a later one of the same name has another id."""
        image = self.image
        self._commit(image.without_topic(image.topics[topic.name]))

    def set_topic_configs(self, configs: Mapping[str, TopicConfig]) -> None:
        """Set the configurations of topics, which were checked."""
        image = self.image
        topics = []
        for name, config in configs.items():
            topic = image.topics[name]
            partitions = tuple(with_current_elr(one, config) for one in topic.partitions)
            topics.append(replace(topic, config=config, partitions=partitions))
        self._commit(image.with_topics(*topics))

    def set_broker_config(self, config: BrokerConfig) -> None:
        """Set the configuration of the brokers, which was checked; it affects topics at once."""
        same = config.topic_defaults == self.image.config.topic_defaults
        image = replace(self.image, config=config)
        topics = []
        for topic in image.topics.values():
            own = topic.config if same else image.topic_config(topic.config.given)
            partitions = tuple(with_current_elr(one, own) for one in topic.partitions)
            topics.append(replace(topic, config=own, partitions=partitions))
        self._commit(image.with_topics(*topics))

    def _new_id(self) -> bytes:
        return bytes([self._rng.randrange(1, 0xF8)]) + self._rng.randbytes(15)

    # ACLs

    def set_acls(self, acls: Iterable[Acl]) -> None:
        """Replace the ACLs, which were checked; equal ones become one."""
        self._commit(replace(self.image, acls=tuple(dict.fromkeys(acls))))

    # Partitions

    def alter_isr(self, node_id: int, changes: Iterable[IsrChange]) -> list[ErrorCode]:
        """Apply ISR changes requested by a leader; return one code for each.

        Changes of a stale epoch, and those that add replicas that are down, are refused.
        """
        image = self.image
        accepted: list[PartitionRegistration] = []
        codes = []
        for change in changes:
            facts = image.partition(change.topic, change.index)
            code = _objection(image, facts, node_id, change)
            codes.append(code)
            if facts is None or code is not ErrorCode.NONE:
                self._tally.fences += code in _FENCES
                continue
            self._tally.isr_shrinks += len(change.isr) < len(facts.isr)
            self._tally.isr_expands += len(change.isr) > len(facts.isr)
            config = image.topics[change.topic].config
            accepted.append(with_isr(facts, change.isr, config))
        if accepted:
            self._commit(image.with_partitions(accepted))
        return codes

    def move_leader(self, topic: str, index: int, node_id: int) -> None:
        """Make ``node_id``, a replica in sync, the leader.

        Raises:
            ApiError: UNKNOWN_TOPIC_OR_PARTITION, or REPLICA_NOT_AVAILABLE.
        """
        image = self.image
        facts = image.partition(topic, index)
        if facts is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {topic}-{index}")
        if node_id not in facts.isr or not image.brokers[node_id].alive:
            raise ApiError(
                ErrorCode.REPLICA_NOT_AVAILABLE,
                f"broker {node_id} has no replica of {topic}-{index} that is up and in sync; "
                f"its replicas are {list(facts.replicas)}, in sync are {list(facts.isr)}",
            )
        self._elect(image, facts, lead(facts, node_id))

    def elect(self, topic: str, index: int, *, unclean: bool) -> None:
        """Elect the preferred leader, or with ``unclean`` any replica that is up if there is none.

        Raises:
            ApiError: With the code of Kafka's controller.
        """
        image = self.image
        facts = image.partition(topic, index)
        if facts is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {topic}-{index}")
        alive = _alive(image)
        if unclean:
            if facts.leader != NO_LEADER:
                raise ApiError(ErrorCode.ELECTION_NOT_NEEDED)
            after = elect(facts, alive, image.topics[topic].config)
            if after.leader == NO_LEADER:
                after = elect_unclean(facts, alive)
            if after.leader == NO_LEADER:
                raise ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
        else:
            preferred = facts.replicas[0]
            if facts.leader == preferred:
                raise ApiError(ErrorCode.ELECTION_NOT_NEEDED)
            if preferred not in facts.isr or preferred not in alive:
                raise ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
            after = lead(facts, preferred)
        self._elect(image, facts, after)

    def _elect(
        self, image: MetadataImage, before: PartitionRegistration, after: PartitionRegistration
    ) -> None:
        self._note_election(before, after)
        self._commit(image.with_partitions([after]))


_FENCES = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


def _objection(
    image: MetadataImage, facts: PartitionRegistration | None, node_id: int, change: IsrChange
) -> ErrorCode:
    if facts is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if change.leader_epoch < facts.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if facts.leader != node_id or change.leader_epoch > facts.leader_epoch:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if change.partition_epoch != facts.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if node_id not in change.isr or not set(change.isr) <= set(facts.replicas):
        return ErrorCode.INVALID_REQUEST
    if not set(change.isr) <= _alive(image):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _alive(image: MetadataImage) -> frozenset[int]:
    return frozenset(one.node_id for one in image.brokers.values() if one.alive)


def _partitions(
    image: MetadataImage, topic: str, first: int, assignments: Sequence[Sequence[int]]
) -> tuple[PartitionRegistration, ...]:
    alive = _alive(image)
    found = []
    for index, replicas in enumerate(assignments, first):
        isr = tuple(one for one in replicas if one in alive)
        found.append(PartitionRegistration(topic, index, tuple(replicas), isr, isr[0]))
    return tuple(found)


def broker_gone(
    facts: PartitionRegistration, node_id: int, alive: Collection[int], config: TopicConfig
) -> PartitionRegistration:
    """A broker is down: remove it from the ISR, and elect another leader if it led."""
    if node_id not in facts.isr and facts.leader != node_id:
        return facts
    changed = facts
    if node_id in facts.isr:
        last = (facts.leader,) if len(facts.isr) == 1 else facts.last_known_elr
        isr = tuple(one for one in facts.isr if one != node_id)
        changed = replace(with_isr(facts, isr, config), last_known_elr=last if not isr else ())
    if changed.leader == node_id:
        changed = elect(changed, alive, config)
    return changed


def broker_back(
    facts: PartitionRegistration, node_id: int, alive: Collection[int], config: TopicConfig
) -> PartitionRegistration:
    """A broker is up: elect a leader if its partition has none, among all that are up."""
    if facts.leader != NO_LEADER or node_id not in facts.replicas:
        return facts
    return elect(facts, alive, config)


def elect(
    facts: PartitionRegistration, alive: Collection[int], config: TopicConfig
) -> PartitionRegistration:
    """Elect the first live replica in sync, else an eligible one, else unclean if allowed."""
    for one in facts.replicas:
        if one in facts.isr and one in alive:
            return lead(facts, one)
    for one in facts.replicas:
        if one in facts.elr and one in alive:
            return lead(with_isr(facts, (one,), config), one)
    if config.unclean_elections and any(one in alive for one in facts.replicas):
        return elect_unclean(facts, alive)
    return facts if facts.leader == NO_LEADER else lead(facts, NO_LEADER)


def elect_unclean(facts: PartitionRegistration, alive: Collection[int]) -> PartitionRegistration:
    """Elect the first live replica, whatever records it has; the same facts if there is none."""
    for one in facts.replicas:
        if one in alive:
            alone = replace(facts, isr=(one,), elr=(), last_known_elr=())
            return lead(alone, one)
    return facts


def lead(facts: PartitionRegistration, leader: int) -> PartitionRegistration:
    """Set the leader, or NO_LEADER, in a new epoch."""
    return replace(
        facts,
        leader=leader,
        leader_epoch=facts.leader_epoch + 1,
        partition_epoch=facts.partition_epoch + 1,
    )


def with_isr(
    facts: PartitionRegistration, isr: tuple[int, ...], config: TopicConfig
) -> PartitionRegistration:
    """Set the ISR, and the eligible leader replicas that follow from it."""
    known = {*facts.isr, *facts.elr}
    changed = replace(facts, isr=isr, partition_epoch=facts.partition_epoch + 1)
    elr: tuple[int, ...] = ()
    if not changed.has_min_isr(config):
        elr = tuple(one for one in facts.replicas if one in known and one not in isr)
    return replace(changed, elr=elr, last_known_elr=() if isr else facts.last_known_elr)


def with_current_elr(facts: PartitionRegistration, config: TopicConfig) -> PartitionRegistration:
    """Recompute eligibility under a new ``min.insync.replicas``: none with enough in sync."""
    if not facts.elr or not facts.has_min_isr(config):
        return facts
    return with_isr(facts, facts.isr, config)

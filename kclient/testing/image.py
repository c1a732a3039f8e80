"""The metadata image of a broker: brokers, topics, partitions, leaders. Immutable.

The controller makes a new ``MetadataImage`` for each change and sends it to the brokers; each
responds from the last one that it got, so a disconnected broker returns stale metadata.
Used by the handlers as ``call.image``. No waiting, no clock, no randomness.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from kclient.error_codes import ErrorCode
from kclient.testing.authorizer import Acl
from kclient.testing.broker_configs import BrokerConfig
from kclient.testing.responses import ApiError
from kclient.testing.topic_configs import TopicConfig

if TYPE_CHECKING:
    from kclient.testing.delegation_tokens import DelegationToken
    from kclient.testing.quota_rules import Quotas
    from kclient.testing.scram_users import Key, ScramRecord

NO_LEADER = -1

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset((OFFSETS_TOPIC, TRANSACTION_TOPIC, "__share_group_state"))


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A registered broker; it stays registered while it is down.

    Attributes:
        alive: It has a session.
        epoch: Of that session; each new session has a higher one.
    """

    node_id: int
    host: str
    rack: str | None = None
    port: int = 0
    alive: bool = False
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """One partition: its replicas, leader, ISR and epochs.

    Attributes:
        replicas: Node ids, the preferred leader first.
        isr: Node ids of the replicas in sync.
        leader_epoch: Rises with each election.
        partition_epoch: Rises with each change.
        elr: Replicas that are down but have all committed records, so that they may lead again
            (KIP-966).
        last_known_elr: The last leader, if no replica is in sync.
    """

    topic: str
    index: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    def has_min_isr(self, config: TopicConfig) -> bool:
        """Whether enough are in sync for acks=all and to move the high watermark (KIP-966)."""
        return len(self.isr) >= min(config.min_insync_replicas, len(self.replicas))


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic."""

    name: str
    topic_id: bytes
    config: TopicConfig
    partitions: tuple[PartitionRegistration, ...]

    @property
    def is_internal(self) -> bool:
        """Whether it is one of Kafka's internal topics."""
        return self.name in INTERNAL_TOPICS

    @property
    def replication_factor(self) -> int:
        """Of its first partition."""
        return len(self.partitions[0].replicas)


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """Brokers and topics at one moment.

    Attributes:
        cluster_id: Base64 of 16 random bytes, as Kafka makes it.
        config: The configuration of all brokers.
        transaction_version: Finalized level of the feature ``transaction.version``.
        version: Rises with each change.
        controller_id: Node id of the controller that made it.
        controller_epoch: Epoch of that controller.
        brokers: By node id, including those that are down.
        topics: By name.
        names: Names of topics by their ids.
        acls: In the order of their creation, each of them once.
        scram: Credentials that requests set or deleted.
        quotas: Those of clients, by entity.
        tokens: Delegation tokens, by id.
    """

    cluster_id: str
    config: BrokerConfig
    transaction_version: int = 2
    version: int = 0
    controller_id: int = NO_LEADER
    controller_epoch: int = 0
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    names: Mapping[bytes, str] = field(default_factory=dict)
    acls: tuple[Acl, ...] = ()
    scram: Mapping[Key, ScramRecord] = field(default_factory=dict)
    quotas: Quotas = field(default_factory=dict)
    tokens: Mapping[str, DelegationToken] = field(default_factory=dict)

    @property
    def alive_brokers(self) -> list[BrokerRegistration]:
        """The brokers that are up, by node id."""
        return [self.brokers[one] for one in sorted(self.brokers) if self.brokers[one].alive]

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        """The topic with that id."""
        name = self.names.get(bytes(topic_id))
        return None if name is None else self.topics[name]

    def partition(self, topic: str, index: int) -> PartitionRegistration | None:
        """The partition, None if the topic or the index does not exist."""
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def partitions(self) -> Iterator[PartitionRegistration]:
        """All partitions of all topics."""
        for topic in self.topics.values():
            yield from topic.partitions

    def topic_config(self, given: Mapping[str, str]) -> TopicConfig:
        """A checked topic configuration on top of the brokers'. Raises ApiError: INVALID_CONFIG."""
        return TopicConfig(given, self.config.topic_defaults)

    def place(self, count: int, replication_factor: int, first: int = 0) -> list[list[int]]:
        """Place ``count`` partitions: leaders round-robin over all brokers, racks alternating.

        Raises:
            ApiError: INVALID_REPLICATION_FACTOR.
        """
        up = self._striped()
        if not up:
            raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are down.")
        if replication_factor > len(self.brokers):
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"There are {len(self.brokers)} brokers for {replication_factor} replicas.",
            )
        down = [one for one in sorted(self.brokers) if not self.brokers[one].alive]
        placed = []
        for index in range(first, first + count):
            turn = index % len(up)
            placed.append((up[turn:] + up[:turn] + down)[:replication_factor])
        return placed

    def _striped(self) -> list[int]:
        racks: dict[str | None, list[int]] = {}
        for broker in self.alive_brokers:
            racks.setdefault(broker.rack, []).append(broker.node_id)
        columns = list(racks.values())
        longest = max((len(column) for column in columns), default=0)
        return [column[row] for row in range(longest) for column in columns if row < len(column)]

    # The next image

    def with_broker(self, broker: BrokerRegistration) -> MetadataImage:
        """A copy with this broker added or replaced."""
        return replace(self, brokers=MappingProxyType({**self.brokers, broker.node_id: broker}))

    def without_broker(self, node_id: int) -> MetadataImage:
        """A copy without that broker."""
        left = {one: facts for one, facts in self.brokers.items() if one != node_id}
        return replace(self, brokers=MappingProxyType(left))

    def with_topics(self, *topics: TopicImage) -> MetadataImage:
        """A copy with these topics, new or changed."""
        changed = {topic.name: topic for topic in topics}
        names = self.names
        if any(topic.topic_id not in names for topic in topics):
            names = MappingProxyType({**names, **{one.topic_id: one.name for one in topics}})
        return replace(self, topics=MappingProxyType({**self.topics, **changed}), names=names)

    def without_topic(self, topic: TopicImage) -> MetadataImage:
        """A copy without that topic."""
        topics = {name: one for name, one in self.topics.items() if name != topic.name}
        names = {one: name for one, name in self.names.items() if one != topic.topic_id}
        return replace(self, topics=MappingProxyType(topics), names=MappingProxyType(names))

    def with_scram(self, changed: Mapping[Key, ScramRecord]) -> MetadataImage:
        """A copy with these credentials, new, changed or deleted."""
        return replace(self, scram=MappingProxyType({**self.scram, **changed}))

    def with_quotas(self, changed: Quotas) -> MetadataImage:
        """A copy with exactly these quotas of some entities; an empty one has none."""
        quotas = {entity: one for entity, one in {**self.quotas, **changed}.items() if one}
        return replace(self, quotas=MappingProxyType(quotas))

    def with_token(self, token: DelegationToken) -> MetadataImage:
        """A copy with that delegation token, new or renewed."""
        return replace(self, tokens=MappingProxyType({**self.tokens, token.token_id: token}))

    def without_token(self, token: DelegationToken) -> MetadataImage:
        """A copy without that delegation token."""
        left = {one: it for one, it in self.tokens.items() if one != token.token_id}
        return replace(self, tokens=MappingProxyType(left))

    def with_partitions(self, changed: Sequence[PartitionRegistration]) -> MetadataImage:
        """A copy with these partitions replaced; their topics must exist."""
        by_topic: dict[str, dict[int, PartitionRegistration]] = {}
        for one in changed:
            by_topic.setdefault(one.topic, {})[one.index] = one
        topics = []
        for name, news in by_topic.items():
            partitions = list(self.topics[name].partitions)
            for index, one in news.items():
                partitions[index] = one
            topics.append(replace(self.topics[name], partitions=tuple(partitions)))
        return self.with_topics(*topics)

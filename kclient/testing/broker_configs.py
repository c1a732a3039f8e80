"""The configurations of brokers, by Kafka's names, and which of them matter here.

Given as ``Cluster(broker_configs={"message.max.bytes": 2_000_000})``. All those of Apache Kafka
4.3.0 are checked and described; those that the embedded cluster acts on are attributes of
``BrokerConfig``, and the defaults of topics. An unknown name, such as a typing error, is refused.

Two defaults are not Kafka's: ``fetch.max.bytes`` is 8 MiB instead of 55, as one response is made in
one callback of the loop that the application also runs in (28 MiB took 15 to 100 ms), and
``group.initial.rebalance.delay.ms`` is 0 instead of 3000, as each test with a new group would wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import cast

from kclient.errors import InvalidConfig
from kclient.settings import nearest
from kclient.testing.config_defs import ConfigDef, Value, as_texts, read_table
from kclient.testing.config_tables import definitions
from kclient.testing.responses import ApiError
from kclient.testing.topic_configs import TopicConfig, topic_defaults

MAX_INT = (1 << 31) - 1
_BROKER = 4
"""The number of brokers among the kinds of resources."""
ALL_DEFINITIONS = read_table(definitions.BROKER)
"""All definitions, including those that are never described."""

DEFINITIONS: dict[str, ConfigDef] = {
    name: one for name, one in ALL_DEFINITIONS.items() if not one.internal
}

DEFAULT_LOG_DIR = "/tmp/kraft-combined-logs"
_OWN = {
    "auto.create.topics.enable": "false",
    "fetch.max.bytes": str(8 << 20),
    "group.initial.rebalance.delay.ms": "0",
    "log.dirs": DEFAULT_LOG_DIR,
}
"""Values that this cluster sets itself unless others are given."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Limits and delays of groups, each from one of Kafka's broker configurations."""

    initial_rebalance_delay_ms: int = 0
    """How long the first rebalance of an empty group waits for more members."""
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = MAX_INT
    """Maximum number of members of a group."""
    metadata_max_bytes: int = 4096
    """Limit for the metadata of a committed offset; it counts characters, despite its name."""
    retention_ms: int = 7 * 24 * 3_600_000
    """How long offsets of empty groups are kept."""
    retention_check_ms: int = 600_000
    """How often offsets are checked for that."""
    commit_timeout_ms: int = 5_000
    """How long a write may take to be replicated."""
    partitions: int = 50
    """Number of partitions of ``__consumer_offsets``."""
    replication_factor: int = 3
    segment_bytes: int = 104_857_600

    new_member_join_timeout_ms: int = 300_000
    """How long the first JoinGroup of a member may wait; not configurable in Kafka."""


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Limits and delays of transactions, each from one of Kafka's broker configurations."""

    max_timeout_ms: int = 900_000
    """Longest timeout of transactions that a producer may ask for."""
    id_expiration_ms: int = 7 * 24 * 3_600_000
    """How long an unused transactional id is kept."""
    expiry_check_ms: int = 3_600_000
    """How often ids are checked for that."""
    partitions: int = 50
    """Number of partitions of ``__transaction_state``."""
    replication_factor: int = 3
    min_insync_replicas: int = 2
    segment_bytes: int = 104_857_600


class BrokerConfig:
    """Checked configuration of all brokers of a cluster; a value, replaced and never edited.

    Attributes:
        given: Configurations given to the cluster.
        static: The same with those that the cluster sets itself: a broker's properties file.
        dynamic: Configurations that clients set for all brokers (KIP-226).
        stored: Configurations that they set for single brokers, groups and other resources, by
            the number of the resource's kind and its name.
        auto_create_topics: Metadata requests may create topics.
        partitions: Default for new topics.
        replication_factor: Default for new topics.
        fetch_max_bytes: Maximum size of one fetch response.
        groups: Settings of the group coordinator.
        transactions: Settings of the transaction coordinator.
        verifies_transactions: A leader asks the coordinator before it appends the first batch of a
            transaction, also for producers of version 1 (KIP-890).
        verification_backoff: Seconds before a leader asks again, as the last transaction ends.
        verification_timeout: Seconds after which it asks no more.
        request_timeout: Seconds that brokers wait for each other's responses.
        session_slots: Fetch sessions per broker.
        partition_limit: Most partitions in one DescribeTopicPartitions response.
        request_max_bytes: Largest frame that is read.
        session_timeout: Seconds after which a broker that can't reach the quorum is fenced.
        replica_lag_time: Seconds after which a follower that is behind isn't in sync.
        replica_fetch_wait: Longest time in seconds until a follower gets a new high watermark.
        replica_fetch_backoff: Seconds between a follower's attempts.
        replica_socket_timeout: Seconds that a follower waits for a leader that removed it from
            the ISR, before it reconnects.
        cleaner_backoff_ms: Delay between growth of a compacted log and the check whether to clean.
        retention_check_ms: Delay between growth of a log and the check of its retention.
        selects_by_rack: Consumers are sent to a follower in their rack (KIP-392).
        quota_window: Samples of a client's rate, and milliseconds of each.
        mutation_window: Seconds for which a client may save up changes of the cluster.
        log_dirs: The log directories that a broker reports.
        topic_defaults: Defaults of topic configurations.
    """

    def __init__(self, given: Mapping[str, object]) -> None:
        """Check ``given``.

        Raises:
            InvalidConfig: An unknown name, or a value that Kafka would refuse.
        """
        self.given = as_texts(given)
        for name in self.given:
            if name not in ALL_DEFINITIONS:
                raise InvalidConfig(_unknown(name))
        self.static = {**_OWN, **self.given}
        self.stored: dict[tuple[int, str], dict[str, str]] = {}
        # With eligible leader replicas the controller sets this one cluster-wide (KIP-966).
        self.dynamic = {"min.insync.replicas": self.static.get("min.insync.replicas", "1")}
        self._read()

    def with_dynamic(self, dynamic: Mapping[str, str]) -> BrokerConfig:
        """A copy with these dynamic configurations of all brokers.

        Raises:
            InvalidConfig: A value that Kafka would refuse.
        """
        made = copy(self)
        made.dynamic = dict(dynamic)
        made._read()
        return made

    def with_stored(self, kind: int, name: str, configs: Mapping[str, str]) -> BrokerConfig:
        """A copy with exactly these on a single broker, group or other resource."""
        made = copy(self)
        made.stored = {key: one for key, one in self.stored.items() if key != (kind, name)}
        if configs:
            made.stored[kind, name] = dict(configs)
        made._own = {}
        return made

    def of_topic_on(self, node_id: int, topic: TopicConfig) -> TopicConfig:
        """A topic's configuration on a broker, which may have topic defaults of its own."""
        own = self.stored.get((_BROKER, str(node_id)))
        if own is None:
            return topic
        known = self._own.get((node_id, topic))
        if known is None:
            defaults = topic_defaults({**self.static, **self.dynamic, **own})
            try:
                known = TopicConfig(topic.given, defaults)
            except ApiError:  # each is valid, but their combination is not
                known = topic
            self._own[node_id, topic] = known
        return known

    def _read(self) -> None:
        self._own: dict[tuple[int, TopicConfig], TopicConfig] = {}
        try:
            self._values: dict[str, Value] = {
                name: None if text is None else one.parse(text)
                for name, one in ALL_DEFINITIONS.items()
                for text in (self.dynamic.get(name, self.static.get(name, one.default)),)
            }
        except ApiError as refused:
            raise InvalidConfig(f"broker_configs: {refused}") from refused
        self.auto_create_topics = bool(self._values["auto.create.topics.enable"])
        self.partitions = self._int("num.partitions")
        self.replication_factor = self._int("default.replication.factor")
        self.fetch_max_bytes = self._int("fetch.max.bytes")
        self.session_slots = self._int("max.incremental.fetch.session.cache.slots")
        self.partition_limit = self._int("max.request.partition.size.limit")
        self.request_max_bytes = self._int("socket.request.max.bytes")
        self.session_timeout = self._int("broker.session.timeout.ms") / 1000
        self.replica_lag_time = self._int("replica.lag.time.max.ms") / 1000
        self.replica_fetch_wait = self._int("replica.fetch.wait.max.ms") / 1000
        self.replica_fetch_backoff = self._int("replica.fetch.backoff.ms") / 1000
        self.replica_socket_timeout = self._int("replica.socket.timeout.ms") / 1000
        self.cleaner_backoff_ms = self._int("log.cleaner.backoff.ms")
        self.retention_check_ms = self._int("log.retention.check.interval.ms")
        selector = self._values["replica.selector.class"]
        self.selects_by_rack = str(selector).endswith("RackAwareReplicaSelector")
        self.groups = self._group_settings()
        self.transactions = self._transaction_settings()
        self.verifies_transactions = bool(self._values["transaction.partition.verification.enable"])
        self.verification_backoff = self._int("add.partitions.to.txn.retry.backoff.ms") / 1000
        self.verification_timeout = self._int("add.partitions.to.txn.retry.backoff.max.ms") / 1000
        self.request_timeout = self._int("request.timeout.ms") / 1000
        seconds = self._int("quota.window.size.seconds")
        self.quota_window = self._int("quota.window.num"), seconds * 1000
        seconds = self._int("controller.quota.window.size.seconds")
        self.mutation_window = self._int("controller.quota.window.num") * seconds
        self.log_dirs = tuple(cast("list[str]", self._values["log.dirs"]))
        self.topic_defaults = topic_defaults({**self.static, **self.dynamic})

    def value(self, name: str) -> Value:
        """The effective value of any configuration."""
        return self._values[name]

    def _int(self, name: str) -> int:
        return cast(int, self._values[name])

    def _group_settings(self) -> GroupSettings:
        return GroupSettings(
            initial_rebalance_delay_ms=self._int("group.initial.rebalance.delay.ms"),
            min_session_timeout_ms=self._int("group.min.session.timeout.ms"),
            max_session_timeout_ms=self._int("group.max.session.timeout.ms"),
            max_size=self._int("group.max.size"),
            metadata_max_bytes=self._int("offset.metadata.max.bytes"),
            retention_ms=self._int("offsets.retention.minutes") * 60_000,
            retention_check_ms=self._int("offsets.retention.check.interval.ms"),
            commit_timeout_ms=self._int("offsets.commit.timeout.ms"),
            partitions=self._int("offsets.topic.num.partitions"),
            replication_factor=self._int("offsets.topic.replication.factor"),
            segment_bytes=self._int("offsets.topic.segment.bytes"),
        )

    def _transaction_settings(self) -> TransactionSettings:
        return TransactionSettings(
            max_timeout_ms=self._int("transaction.max.timeout.ms"),
            id_expiration_ms=self._int("transactional.id.expiration.ms"),
            expiry_check_ms=self._int("transaction.remove.expired.transaction.cleanup.interval.ms"),
            partitions=self._int("transaction.state.log.num.partitions"),
            replication_factor=self._int("transaction.state.log.replication.factor"),
            min_insync_replicas=self._int("transaction.state.log.min.isr"),
            segment_bytes=self._int("transaction.state.log.segment.bytes"),
        )


def _unknown(name: str) -> str:
    near = nearest(name, DEFINITIONS)
    hint = f"; did you mean {near!r}?" if near else ""
    return f"broker_configs: Apache Kafka has no configuration {name!r}{hint}"

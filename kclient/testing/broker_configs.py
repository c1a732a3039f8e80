"""The configurations of brokers that the embedded cluster knows, by Kafka's names.

Given as ``Cluster(broker_configs={"message.max.bytes": 2_000_000})``. A name that is not here is
refused rather than ignored: a test must not believe in a setting that does nothing.

One default is not Kafka's: ``fetch.max.bytes`` is 8 MiB instead of 55, as one answer is made in one
callback of the loop that the user's own code runs in (28 MiB took 15 to 100 ms).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from kclient.errors import InvalidConfig
from kclient.settings import nearest
from kclient.testing import topic_configs
from kclient.testing.config_defs import MAX_INT, ConfigDef, Value, as_texts
from kclient.testing.refused import Refused

_OWN: tuple[ConfigDef, ...] = (
    ConfigDef("auto.create.topics.enable", "BOOLEAN", "false"),
    ConfigDef("default.replication.factor", "INT", "1", 1),
    ConfigDef("fetch.max.bytes", "INT", str(8 << 20), 1024),
    ConfigDef("max.incremental.fetch.session.cache.slots", "INT", "1000", 0),
    ConfigDef("max.request.partition.size.limit", "INT", "2000", 1),
    ConfigDef("num.partitions", "INT", "1", 1),
    ConfigDef("socket.request.max.bytes", "INT", "104857600", 1, MAX_INT),
)

DEFINITIONS: dict[str, ConfigDef] = {one.name: one for one in _OWN}
for _topic_name, _name in topic_configs.BROKER_SYNONYMS.items():
    _like = topic_configs.DEFINITIONS[_topic_name]
    DEFINITIONS[_name] = ConfigDef(
        _name, _like.kind, _like.default, _like.low, _like.high, _like.choices, _like.or_value
    )


class BrokerConfig:
    """Checked configuration of all brokers of a cluster.

    Attributes:
        given: What was set.
        auto_create_topics: Metadata requests may create topics.
        partitions: Of topics that don't say.
        replication_factor: Of topics that don't say.
        fetch_max_bytes: Most in one fetch response.
        session_slots: Fetch sessions per broker.
        request_max_bytes: Largest frame that is read.
        topic_defaults: Defaults of topic configurations.
    """

    __slots__ = (
        "_values",
        "auto_create_topics",
        "fetch_max_bytes",
        "given",
        "partition_limit",
        "partitions",
        "replication_factor",
        "request_max_bytes",
        "session_slots",
        "topic_defaults",
    )

    def __init__(self, given: Mapping[str, object]) -> None:
        """Check ``given``.

        Raises:
            InvalidConfig: An unknown name, or a value that Kafka would refuse.
        """
        self.given = as_texts(given)
        for name in self.given:
            if name not in DEFINITIONS:
                raise InvalidConfig(_unknown(name))
        try:
            self._values: dict[str, Value] = {
                name: one.parse(self.given.get(name, one.default))
                for name, one in DEFINITIONS.items()
            }
        except Refused as refused:
            raise InvalidConfig(f"broker_configs: {refused}") from refused
        self.auto_create_topics = bool(self._values["auto.create.topics.enable"])
        self.partitions = self._int("num.partitions")
        self.replication_factor = self._int("default.replication.factor")
        self.fetch_max_bytes = self._int("fetch.max.bytes")
        self.session_slots = self._int("max.incremental.fetch.session.cache.slots")
        self.partition_limit = self._int("max.request.partition.size.limit")
        self.request_max_bytes = self._int("socket.request.max.bytes")
        self.topic_defaults = {
            topic_name: self.given[name]
            for topic_name, name in topic_configs.BROKER_SYNONYMS.items()
            if name in self.given
        }

    def _int(self, name: str) -> int:
        return cast(int, self._values[name])


def _unknown(name: str) -> str:
    near = nearest(name, DEFINITIONS)
    hint = f"; did you mean {near!r}?" if near else f"; known are {', '.join(DEFINITIONS)}"
    return f"broker_configs: the embedded cluster has no configuration {name!r}{hint}"

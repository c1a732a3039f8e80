"""The configurations of topics, as Apache Kafka 4.3.0 has them, and which of them matter here.

All are accepted, checked and shown; those that the embedded cluster acts on are attributes of
``TopicConfig``. Used by the topic rules and the append path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from kclient.error_codes import ErrorCode
from kclient.testing.config_defs import MAX_INT, MAX_LONG, ConfigDef, Value
from kclient.testing.refused import Refused

_CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")

DEFINITIONS: dict[str, ConfigDef] = {
    one.name: one
    for one in (
        ConfigDef("cleanup.policy", "LIST", "delete", choices=("compact", "delete")),
        ConfigDef("compression.gzip.level", "INT", "-1", 1, 9, or_value=-1),
        ConfigDef("compression.lz4.level", "INT", "9", 1, 17),
        ConfigDef("compression.type", "STRING", "producer", choices=_CODECS),
        ConfigDef("compression.zstd.level", "INT", "3", -131072, 22),
        ConfigDef("delete.retention.ms", "LONG", "86400000", 0),
        ConfigDef("file.delete.delay.ms", "LONG", "60000", 0),
        ConfigDef("flush.messages", "LONG", str(MAX_LONG), 1),
        ConfigDef("flush.ms", "LONG", str(MAX_LONG), 0),
        ConfigDef("follower.replication.throttled.replicas", "LIST", ""),
        ConfigDef("index.interval.bytes", "INT", "4096", 0),
        ConfigDef("leader.replication.throttled.replicas", "LIST", ""),
        ConfigDef("local.retention.bytes", "LONG", "-2", -2),
        ConfigDef("local.retention.ms", "LONG", "-2", -2),
        ConfigDef("max.compaction.lag.ms", "LONG", str(MAX_LONG), 1),
        ConfigDef("max.message.bytes", "INT", "1048588", 0),
        ConfigDef("message.timestamp.after.max.ms", "LONG", "3600000", 0),
        ConfigDef("message.timestamp.before.max.ms", "LONG", str(MAX_LONG), 0),
        ConfigDef("message.timestamp.type", "STRING", "CreateTime", choices=_TIMESTAMP_TYPES),
        ConfigDef("min.cleanable.dirty.ratio", "DOUBLE", "0.5", 0, 1),
        ConfigDef("min.compaction.lag.ms", "LONG", "0", 0),
        ConfigDef("min.insync.replicas", "INT", "1", 1),
        ConfigDef("preallocate", "BOOLEAN", "false"),
        ConfigDef("remote.log.copy.disable", "BOOLEAN", "false"),
        ConfigDef("remote.log.delete.on.disable", "BOOLEAN", "false"),
        ConfigDef("remote.storage.enable", "BOOLEAN", "false"),
        ConfigDef("retention.bytes", "LONG", "-1"),
        ConfigDef("retention.ms", "LONG", "604800000", -1),
        ConfigDef("segment.bytes", "INT", "1073741824", 1048576, MAX_INT),
        ConfigDef("segment.index.bytes", "INT", "10485760", 4),
        ConfigDef("segment.jitter.ms", "LONG", "0", 0),
        ConfigDef("segment.ms", "LONG", "604800000", 1),
        ConfigDef("unclean.leader.election.enable", "BOOLEAN", "false"),
    )
}

BROKER_SYNONYMS = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.type": "compression.type",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.insync.replicas": "min.insync.replicas",
}
"""Topic configurations that a broker's configuration gives the default of, by that one's name."""


class TopicConfig:
    """The configuration of one topic.

    Attributes:
        given: What was set on the topic itself.
        max_message_bytes: Largest batch, compressed, with its header.
        compacted: Records without a key are refused.
        log_append_time: The broker gives the timestamps.
        timestamp_before_max_ms: How old a timestamp may be.
        timestamp_after_max_ms: How far in the future.
        min_insync_replicas: How many must be in sync for acks=all.
    """

    __slots__ = (
        "_values",
        "compacted",
        "given",
        "log_append_time",
        "max_message_bytes",
        "min_insync_replicas",
        "timestamp_after_max_ms",
        "timestamp_before_max_ms",
    )

    def __init__(self, given: Mapping[str, str], defaults: Mapping[str, str]) -> None:
        """Check ``given``; ``defaults`` are those that the broker's configuration changes.

        Raises:
            Refused: INVALID_CONFIG.
        """
        for name in given:
            if name not in DEFINITIONS:
                raise Refused(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
        self.given = dict(given)
        self._values: dict[str, Value] = {
            name: one.parse(given.get(name, defaults.get(name, one.default)))
            for name, one in DEFINITIONS.items()
        }
        self._check_together()
        self.max_message_bytes = self._int("max.message.bytes")
        self.compacted = "compact" in cast("list[str]", self._values["cleanup.policy"])
        self.log_append_time = self._values["message.timestamp.type"] == "LogAppendTime"
        self.timestamp_before_max_ms = self._int("message.timestamp.before.max.ms")
        self.timestamp_after_max_ms = self._int("message.timestamp.after.max.ms")
        self.min_insync_replicas = self._int("min.insync.replicas")

    def _check_together(self) -> None:
        low, high = self._int("min.compaction.lag.ms"), self._int("max.compaction.lag.ms")
        if low > high:
            raise Refused(
                ErrorCode.INVALID_CONFIG,
                f"conflict topic config setting min.compaction.lag.ms ({low}) > "
                f"max.compaction.lag.ms ({high})",
            )

    def _int(self, name: str) -> int:
        return cast(int, self._values[name])

    def value(self, name: str) -> Value:
        """The value in force of any topic configuration."""
        return self._values[name]

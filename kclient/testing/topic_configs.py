"""The configurations of topics, as in Apache Kafka 4.3.0, and those that take effect here.

All are accepted, checked and described; those that the embedded cluster acts on are attributes of
``TopicConfig``. Used by the topic rules, the append path and the cleaner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from kclient.settings import nearest
from kclient.testing.config_defs import ConfigDef, Value, as_text, read_table
from kclient.testing.config_tables import definitions
from kclient.testing.responses import bad_config

ALL_DEFINITIONS = read_table(definitions.TOPIC)
"""All, including those for Kafka's own tests, such as ``internal.segment.bytes``."""

DEFINITIONS: dict[str, ConfigDef] = {
    name: one for name, one in ALL_DEFINITIONS.items() if not one.internal
}
"""Definitions that are described."""

BROKER_SYNONYMS = {
    name: one.broker_name for name, one in DEFINITIONS.items() if one.broker_name is not None
}
"""Topic configurations with a default from the broker's configuration, and the name of that."""

_SAME: tuple[tuple[str, ...], ...] = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
SYNONYMS: dict[str, tuple[str, ...]] = {
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    **{name: same for same in _SAME for name in same},
}
"""Names for the same setting; the first one that is set applies."""

_UNITS = {"minutes": 60_000, "hours": 3_600_000}


class TopicConfig:
    """The configuration of one topic.

    Attributes:
        given: Configurations set on the topic itself.
        max_message_bytes: Largest batch, compressed, with its header.
        compacted: Records without a key are refused; the last record of each key stays.
        deletes: Retention applies.
        log_append_time: The broker sets the timestamps.
        timestamp_before_max_ms: How old a timestamp may be.
        timestamp_after_max_ms: How far in the future.
        min_insync_replicas: How many must be in sync for acks=all.
        unclean_elections: A replica that is not in sync may lead.
        retention_bytes: Size limit of a partition; -1 for no limit.
        retention_ms: How long segments are kept; -1 for ever.
        segment_bytes: Maximum size of one segment.
        delete_retention_ms: How long tombstones stay at least.
        min_cleanable_dirty_ratio: Dirty part of the log from which on it is compacted.
        min_compaction_lag_ms: Minimum time before a record may be compacted.
        max_compaction_lag_ms: Maximum time before a record must be compacted.
        max_segment_ms: Maximum time that one segment covers.
    """

    def __init__(self, given: Mapping[str, str], defaults: Mapping[str, str]) -> None:
        """Check ``given``; ``defaults`` come from the broker's configuration.

        Raises:
            ApiError: INVALID_CONFIG.
        """
        for name in given:
            if name not in ALL_DEFINITIONS:
                near = nearest(name, DEFINITIONS)
                hint = f" Did you mean {near!r}?" if near else ""
                raise bad_config(f"Topics have no configuration {name!r}.{hint}")
        self.given = dict(given)
        self._values: dict[str, Value] = {}
        for name, one in ALL_DEFINITIONS.items():
            text = given.get(name, defaults.get(name, one.default))
            self._values[name] = None if text is None else one.parse(text)
        self._check_together()
        policies = cast("list[str]", self._values["cleanup.policy"])
        self.compacted = "compact" in policies
        self.deletes = "delete" in policies
        self.max_message_bytes = self._int("max.message.bytes")
        self.log_append_time = self._values["message.timestamp.type"] == "LogAppendTime"
        self.timestamp_before_max_ms = self._int("message.timestamp.before.max.ms")
        self.timestamp_after_max_ms = self._int("message.timestamp.after.max.ms")
        self.min_insync_replicas = self._int("min.insync.replicas")
        self.unclean_elections = bool(self._values["unclean.leader.election.enable"])
        self.retention_bytes = self._int("retention.bytes")
        self.retention_ms = self._int("retention.ms")
        self.segment_bytes = cast(
            int, self._values["internal.segment.bytes"] or self._values["segment.bytes"]
        )
        self.delete_retention_ms = self._int("delete.retention.ms")
        self.min_cleanable_dirty_ratio = cast(float, self._values["min.cleanable.dirty.ratio"])
        self.min_compaction_lag_ms = self._int("min.compaction.lag.ms")
        self.max_compaction_lag_ms = self._int("max.compaction.lag.ms")
        self.max_segment_ms = self._int("segment.ms")
        if self.compacted:
            self.max_segment_ms = min(self.max_segment_ms, self.max_compaction_lag_ms)

    def _check_together(self) -> None:
        low, high = self._int("min.compaction.lag.ms"), self._int("max.compaction.lag.ms")
        if low > high:
            raise bad_config("min.compaction.lag.ms can't be above max.compaction.lag.ms.")
        if self._values["remote.storage.enable"]:
            raise bad_config("The brokers have no remote storage.")

    def _int(self, name: str) -> int:
        return cast(int, self._values[name])

    def value(self, name: str) -> Value:
        """The effective value of any topic configuration."""
        return self._values[name]

    def text(self, name: str) -> str:
        """That value in Kafka's text form."""
        value = self._values[name]
        return "" if value is None else as_text(value)


def topic_defaults(texts: Mapping[str, str]) -> dict[str, str]:
    """Topic defaults that a broker's configurations ``texts`` set, by the topics' names for them.

    A value in hours or minutes applies if there is none in milliseconds.
    """
    found = {}
    for topic_name, name in BROKER_SYNONYMS.items():
        for synonym in SYNONYMS.get(name, (name,)):
            text = texts.get(synonym)
            if text is not None:
                unit = _UNITS.get(synonym.rpartition(".")[2])
                found[topic_name] = text if unit is None else _in_ms(text, unit)
                break
    if found.get("retention.ms", "").strip().startswith("-"):
        found["retention.ms"] = "-1"  # any negative number means no limit
    return found


def _in_ms(text: str, unit: int) -> str:
    number = int(text)
    return str(number * unit) if number >= 0 else "-1"

"""Committed offsets of the groups of one partition.

Two views: what was appended, which new requests are judged by, and what is committed, which
readers get; with replication the second follows the first. Filled by requests and, when a
partition is taken over, from its log. No rules about groups here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from kclient.protocol.messages.group_log import OffsetCommitKey, OffsetCommitValue
from kclient.protocol.primitives import ZERO_UUID
from kclient.testing.groups.records import OffsetRecord

_Table: TypeAlias = dict[str, dict[str, dict[int, "CommittedOffset"]]]


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """Where a group is in a partition."""

    offset: int
    leader_epoch: int
    """-1 if the client didn't say."""
    metadata: str
    committed_ms: int
    expires_ms: int
    """Set by old clients that want it so; -1 for the brokers' retention."""
    topic_id: bytes = ZERO_UUID

    def record(self, group_id: str, topic: str, partition: int) -> OffsetRecord:
        """As it is written down."""
        value = OffsetCommitValue(
            self.offset,
            self.leader_epoch,
            self.metadata,
            self.committed_ms,
            self.expires_ms,
            self.topic_id,
        )
        return OffsetRecord(OffsetCommitKey(group_id, topic, partition), value)

    @classmethod
    def read(cls, value: OffsetCommitValue) -> CommittedOffset:
        """From what was written down."""
        return cls(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
        )


class Offsets:
    """Offsets by group, topic and partition."""

    def __init__(self) -> None:
        self._appended: _Table = {}
        self._committed: _Table = {}

    def append(self, record: OffsetRecord) -> None:
        """A record was appended."""
        _apply(self._appended, record)

    def commit(self, record: OffsetRecord) -> None:
        """A record is committed."""
        _apply(self._committed, record)

    def appended(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """(topic, partition, offset) of all that was appended for a group."""
        for topic, partitions in self._appended.get(group_id, {}).items():
            for partition, offset in partitions.items():
                yield topic, partition, offset

    def by_topic(self, group_id: str) -> dict[str, dict[int, CommittedOffset]]:
        """The same by topic and partition; not to be changed."""
        return self._appended.get(group_id, {})

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """An offset was appended."""
        return partition in self._appended.get(group_id, {}).get(topic, {})

    def read(self, group_id: str) -> dict[str, dict[int, CommittedOffset]]:
        """What is committed, by topic and partition; not to be changed."""
        return self._committed.get(group_id, {})


def _apply(table: _Table, record: OffsetRecord) -> None:
    key, value = record
    if value is not None:
        topics = table.setdefault(key.group, {})
        topics.setdefault(key.topic, {})[key.partition] = CommittedOffset.read(value)
        return
    topics = table.get(key.group, {})
    topics.get(key.topic, {}).pop(key.partition, None)
    if not topics.get(key.topic):
        topics.pop(key.topic, None)
    if not topics:
        table.pop(key.group, None)

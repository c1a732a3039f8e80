"""Committed offsets of the groups of one partition, and the rules to commit, delete and keep them.

Two views: appended records, against which new requests are checked, and committed ones, which
OffsetFetch returns; with replication the second follows the first. Filled by requests and, when a
partition is loaded, from its log. The rules, below, make records and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.group_log import OffsetCommitKey, OffsetCommitValue
from kclient.protocol.primitives import ZERO_UUID
from kclient.testing.broker_configs import GroupSettings
from kclient.testing.groups.classic_group import ClassicGroup, State
from kclient.testing.groups.records import OffsetRecord, offset_tombstone
from kclient.testing.log_state import NO_ID, ProducerIdentity
from kclient.testing.responses import ApiError
from kclient.testing.timers import Moment

_FIRST_WITH_GROUP_ERRORS = 9
_LONGEST = (1 << 63) - 1
_Table: TypeAlias = dict[str, dict[str, dict[int, "CommittedOffset"]]]


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A group's committed offset of a partition."""

    offset: int
    leader_epoch: int
    """-1 if the client sent none."""
    metadata: str
    committed_ms: int
    expires_ms: int
    """Expiry time that old clients request; -1 for the brokers' retention."""
    topic_id: bytes = ZERO_UUID
    order: int = 0
    """Of its record among those of the log, which decides between a transaction and others."""

    def record(self, group_id: str, topic: str, partition: int) -> OffsetRecord:
        """Its record for the log."""
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
    def read(cls, value: OffsetCommitValue, order: int = 0) -> CommittedOffset:
        """Make it from a record's value."""
        return cls(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
            order,
        )


class Offsets:
    """Offsets by group, topic and partition; those of open transactions are pending."""

    def __init__(self) -> None:
        self._appended: _Table = {}
        self._committed: _Table = {}
        self._pending: dict[int, _Table] = {}
        self._count = 0

    def append(self, record: OffsetRecord, producer_id: int = NO_ID) -> None:
        """A record was appended, of a transaction if ``producer_id`` isn't -1."""
        self._count += 1
        if producer_id != NO_ID:
            _apply(self._pending.setdefault(producer_id, {}), record, self._count)
            return
        _apply(self._appended, record, self._count)
        if record.value is None:
            for table in self._pending.values():
                _apply(table, record)

    def commit(self, record: OffsetRecord) -> None:
        """A record that is not of a transaction is committed."""
        key, value = record
        known = self._appended.get(key.group, {}).get(key.topic, {}).get(key.partition)
        _apply(self._committed, record, 0 if value is None or known is None else known.order)

    def end(self, producer_id: int, committed: bool) -> None:
        """A transaction ended: apply its offsets, unless later ones were committed, or drop them.

        Kafka decides by the offsets of the records, so that each order of loading gives the same.
        """
        pending = self._pending.pop(producer_id, {})
        if not committed:
            return
        for group_id, topics in pending.items():
            for topic, partitions in topics.items():
                for partition, one in partitions.items():
                    for table in (self._appended, self._committed):
                        known = table.setdefault(group_id, {}).setdefault(topic, {})
                        if partition not in known or known[partition].order < one.order:
                            known[partition] = one

    def appended(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """(topic, partition, offset) of all that was appended for a group."""
        for topic, partitions in self._appended.get(group_id, {}).items():
            for partition, offset in partitions.items():
                yield topic, partition, offset

    def by_topic(self, group_id: str) -> dict[str, dict[int, CommittedOffset]]:
        """The same by topic and partition; read-only."""
        return self._appended.get(group_id, {})

    def pending(self, group_id: str) -> set[tuple[str, int]]:
        """(topic, partition) of all for which a transaction that is still open has an offset."""
        return {
            (topic, partition)
            for table in self._pending.values()
            for topic, partitions in table.get(group_id, {}).items()
            for partition in partitions
        }

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an offset was appended, or is pending."""
        known = self._appended.get(group_id, {}).get(topic, {})
        return partition in known or (topic, partition) in self.pending(group_id)

    def read(self, group_id: str) -> dict[str, dict[int, CommittedOffset]]:
        """Committed offsets, by topic and partition; read-only."""
        return self._committed.get(group_id, {})


def _apply(table: _Table, record: OffsetRecord, order: int = 0) -> None:
    key, value = record
    if value is not None:
        topics = table.setdefault(key.group, {})
        committed = CommittedOffset.read(value, order)
        topics.setdefault(key.topic, {})[key.partition] = committed
        return
    topics = table.get(key.group, {})
    topics.get(key.topic, {}).pop(key.partition, None)
    if not topics.get(key.topic):
        topics.pop(key.topic, None)
    if not topics:
        table.pop(key.group, None)


class CommitRequest(NamedTuple):
    """An OffsetCommit without its entries."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    retention_ms: int
    """-1 for the brokers' retention."""
    version: int
    producer: ProducerIdentity | None = None
    """Of the transaction that it is part of: a TxnOffsetCommit."""


class RequestedOffset(Protocol):
    """An offset to commit, as OffsetCommit and TxnOffsetCommit have it."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class CommitEntry(NamedTuple):
    """One entry of an OffsetCommit or TxnOffsetCommit, for a partition that exists."""

    topic: str
    topic_id: bytes
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None

    @classmethod
    def of(cls, topic: str, topic_id: bytes, part: RequestedOffset) -> CommitEntry:
        """Make it from a request."""
        return cls(
            topic,
            topic_id,
            part.partition_index,
            part.committed_offset,
            part.committed_leader_epoch,
            part.committed_metadata,
        )


def check_commit(group: ClassicGroup | None, request: CommitRequest) -> None:
    """Raise ApiError unless that member may commit for that group.

    An unknown group is created for a client that is not a member of a group.
    """
    transactional = request.producer is not None
    if group is not None:
        group.check_commit(
            request.member_id,
            request.instance_id,
            request.generation,
            transactional=transactional,
        )
    elif request.generation >= 0:
        if transactional or request.version < _FIRST_WITH_GROUP_ERRORS:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)


def commit_records(
    request: CommitRequest,
    entries: Sequence[CommitEntry],
    settings: GroupSettings,
    wall_ms: int,
) -> tuple[list[OffsetRecord], list[ErrorCode]]:
    """The records to write, and a code for each entry."""
    expires_ms = -1 if request.retention_ms == -1 else min(wall_ms + request.retention_ms, _LONGEST)
    records: list[OffsetRecord] = []
    codes: list[ErrorCode] = []
    for one in entries:
        metadata = one.metadata or ""
        if len(metadata) > settings.metadata_max_bytes:
            codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            continue
        committed = CommittedOffset(
            one.offset, one.leader_epoch, metadata, wall_ms, expires_ms, one.topic_id
        )
        records.append(committed.record(request.group_id, one.topic, one.partition))
        codes.append(ErrorCode.NONE)
    return records, codes


def delete_records(
    group: ClassicGroup, offsets: Offsets, entries: Iterable[tuple[str, int]]
) -> tuple[list[OffsetRecord], list[ErrorCode]]:
    """Tombstones of (topic, partition) entries, and a code for each."""
    records: list[OffsetRecord] = []
    codes: list[ErrorCode] = []
    for topic, partition in entries:
        if group.subscribes_to(topic):
            codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
            continue
        codes.append(ErrorCode.NONE)
        if offsets.has(group.group_id, topic, partition):
            records.append(offset_tombstone(group.group_id, topic, partition))
    return records, codes


def orphans(
    group_id: str, offsets: Offsets, topic_id: Callable[[str], bytes | None]
) -> list[OffsetRecord]:
    """Tombstones of offsets in deleted topics, even if there is a new topic of that name."""
    gone: list[OffsetRecord] = []
    for topic, partitions in offsets.by_topic(group_id).items():
        now = topic_id(topic)
        for partition, one in partitions.items():
            if now is None or one.topic_id not in (ZERO_UUID, now):
                gone.append(offset_tombstone(group_id, topic, partition))
    return gone


def expired(
    group: ClassicGroup, offsets: Offsets, settings: GroupSettings, moment: Moment
) -> tuple[list[OffsetRecord], bool]:
    """Tombstones of expired offsets, and whether no offset is left (KIP-211)."""
    gone: list[OffsetRecord] = []
    left = False
    pending = offsets.pending(group.group_id)
    for topic, partition, one in offsets.appended(group.group_id):
        if (topic, partition) in pending:
            left = True
        elif group.subscribes_to(topic) or not _has_expired(group, one, settings, moment.wall_ms):
            left = True
        else:
            gone.append(offset_tombstone(group.group_id, topic, partition))
    return gone, not left and not pending


def _has_expired(
    group: ClassicGroup, one: CommittedOffset, settings: GroupSettings, wall_ms: int
) -> bool:
    since = one.committed_ms
    if group.protocol_type is not None:
        if group.state is State.EMPTY:
            if group.state_since_ms >= 0:
                since = group.state_since_ms
        elif not (group.state is State.STABLE and group.subscribed_topics is not None):
            return False
    if one.expires_ms != -1:
        return wall_ms >= one.expires_ms
    return wall_ms - since >= settings.retention_ms

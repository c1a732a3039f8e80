"""Records of ``__consumer_offsets``: the persistent state of a coordinator, in Kafka's schemas.

Encoded when a coordinator writes, decoded when the next one loads the partition. A key begins with
its type, a value with its version; no value is a tombstone. Types that aren't supported (KIP-848,
share groups) are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias, TypeVar

from kclient.errors import ProtocolError
from kclient.protocol.message import LogRecord
from kclient.protocol.messages.group_log import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kclient.record.builder import BatchBuilder
from kclient.record.message_set import read_batches
from kclient.testing.groups.classic_group import ClassicGroup, Member, State
from kclient.testing.internal_topic import PREFIX_BYTES, keyed_records, prefix_of, prefixed
from kclient.testing.log_state import ABORT, COMMIT, NO_ID, ProducerIdentity

_T = TypeVar("_T", bound=LogRecord)
_OFFSET_KEYS = (0, 1)
_OFFSET_KEY, _GROUP_KEY = 1, 2
_GROUP_VERSION = 3
_OFFSET_VERSION = 4
_EXPIRING_VERSION = 1
"""The only version of ``OffsetCommitValue`` with an expiry time."""
_MOST_BYTES = (1 << 31) - 1


class OffsetRecord(NamedTuple):
    """A committed offset, or with ``value`` None its tombstone."""

    key: OffsetCommitKey
    value: OffsetCommitValue | None


class GroupRecord(NamedTuple):
    """A group's generation, or with ``value`` None its tombstone."""

    key: GroupMetadataKey
    value: GroupMetadataValue | None


Record: TypeAlias = OffsetRecord | GroupRecord


class EndMarker(NamedTuple):
    """The end of a transaction: the offsets of its producer are committed, or dropped."""

    producer_id: int
    committed: bool


class Stored(NamedTuple):
    """A record as read from the log."""

    record: Record
    producer_id: int
    """Of the transaction that it is part of; -1 for none."""


def group_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> GroupRecord:
    """A group's generation, with the assignment of each member."""
    members = [
        MemberMetadata(
            one.member_id,
            one.instance_id,
            one.client_id,
            one.client_host,
            one.rebalance_timeout_ms,
            one.session_timeout_ms,
            one.metadata(group.protocol_name),
            assignments.get(one.member_id, b""),
        )
        for one in group.members.values()
    ]
    value = GroupMetadataValue(
        group.protocol_type or "",
        group.generation,
        group.protocol_name,
        group.leader,
        group.state_since_ms,
        members,
    )
    return GroupRecord(GroupMetadataKey(group.group_id), value)


def new_group_record(group: ClassicGroup) -> GroupRecord:
    """A new group, without members or protocols."""
    value = GroupMetadataValue(
        protocol=None, leader=None, current_state_timestamp=group.state_since_ms
    )
    return GroupRecord(GroupMetadataKey(group.group_id), value)


def group_tombstone(group_id: str) -> GroupRecord:
    """The record that deletes a group."""
    return GroupRecord(GroupMetadataKey(group_id), None)


def offset_tombstone(group_id: str, topic: str, partition: int) -> OffsetRecord:
    """The record that deletes a committed offset."""
    return OffsetRecord(OffsetCommitKey(group_id, topic, partition), None)


def group_from(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """The group of a record: stable, or empty."""
    group = ClassicGroup(group_id, value.current_state_timestamp)
    group.generation = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    group.leader = value.leader
    for one in value.members:
        rebalance = one.rebalance_timeout if one.rebalance_timeout >= 0 else one.session_timeout
        group.add(
            Member(
                one.member_id,
                one.group_instance_id,
                one.client_id,
                one.client_host,
                rebalance,
                one.session_timeout,
                value.protocol_type,
                ((value.protocol or "", one.subscription),),
                one.assignment,
            )
        )
    if group.members:
        group.state = State.STABLE
    group.subscribed_topics = group.read_subscriptions()
    return group


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """Key and value as bytes."""
    kind = _OFFSET_KEY if isinstance(record, OffsetRecord) else _GROUP_KEY
    key = prefixed(kind, record.key, 0)
    value = record.value
    if value is None:
        return key, None
    if isinstance(value, GroupMetadataValue):
        version = _GROUP_VERSION
    else:
        version = _EXPIRING_VERSION if value.expire_timestamp != -1 else _OFFSET_VERSION
    return key, prefixed(version, value, version)


def decode(key: bytes, value: bytes | None) -> Record | None:
    """The record, None for one of an unknown type.

    Raises:
        ProtocolError: It is malformed.
    """
    kind = prefix_of(key)
    if kind in _OFFSET_KEYS:
        offset_key = OffsetCommitKey.decode(key, 0, PREFIX_BYTES)
        return OffsetRecord(offset_key, _decode_value(OffsetCommitValue, value))
    if kind == _GROUP_KEY:
        group_key = GroupMetadataKey.decode(key, 0, PREFIX_BYTES)
        return GroupRecord(group_key, _decode_value(GroupMetadataValue, value))
    return None


def _decode_value(cls: type[_T], value: bytes | None) -> _T | None:
    return None if value is None else cls.decode(value, prefix_of(value), PREFIX_BYTES)


def encode_batch(
    records: Iterable[Record], wall_ms: int, producer: ProducerIdentity | None = None
) -> bytes:
    """A v2 batch with the records, in order; with ``producer`` part of its transaction."""
    builder = BatchBuilder(_MOST_BYTES)
    for record in records:
        builder.append(wall_ms, *encode(record), None)
    if producer is None:
        return builder.encode()
    return builder.encode(*producer, transactional=True)


def decode_batches(data: Iterable[bytes | bytearray]) -> Iterator[Stored | EndMarker]:
    """The records and markers of batches, without unknown types and records of no coordinator."""
    for one in data:
        for batch in read_batches(memoryview(one)):
            if batch.is_control:
                for kind in batch.control_types():
                    if kind in (ABORT, COMMIT):
                        yield EndMarker(batch.producer_id, kind == COMMIT)
                continue
            producer_id = batch.producer_id if batch.is_transactional else NO_ID
            for key, value in keyed_records(batch):
                try:
                    found = decode(key, value)
                except ProtocolError:
                    continue  # appended by a test
                if found is not None:
                    yield Stored(found, producer_id)

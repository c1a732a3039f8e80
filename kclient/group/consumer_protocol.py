"""What consumers of a group exchange, as bytes: subscriptions and assignments. Sans-IO.

A consumer writes its own subscription, and all members' assignments when it leads; it reads its own
assignment, and the others' subscriptions. The coordinator passes these bytes on unread. Both are
written as Java's client writes them, byte for byte: in the newest version, with sorted topics.
Data from other members isn't trusted: whatever can't be read is a ProtocolError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import TypeVar

from kclient.errors import ProtocolError
from kclient.hooks import MemberSubscription
from kclient.protocol.message import Message
from kclient.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from kclient.protocol.primitives import DECODE_ERRORS
from kclient.types import TopicPartition

M = TypeVar("M", bound=Message)

_VERSION = struct.Struct(">h")


def encode_subscription(sub: MemberSubscription) -> bytes:
    """Encode the metadata of a JoinGroup, without ``instance_id``, which the coordinator adds.

    Raises:
        ProtocolError: A name is too long.
    """
    owned: list[ConsumerProtocolSubscriptionTopicPartition] = []
    for topic, partition in sorted(sub.owned):
        if not owned or owned[-1].topic != topic:
            owned.append(ConsumerProtocolSubscriptionTopicPartition(topic, []))
        owned[-1].partitions.append(partition)
    return _encode(
        ConsumerProtocolSubscription(
            sorted(sub.topics),
            sub.user_data,
            owned,
            max(sub.generation, -1),
            sub.rack,
        )
    )


def decode_subscription(data: bytes, instance_id: str | None = None) -> MemberSubscription:
    """Decode a member's subscription. Its owned partitions may be any: assignors check them.

    Args:
        data: The metadata of its JoinGroup.
        instance_id: Its ``group_instance_id``, which the coordinator reports.

    Raises:
        ProtocolError: These bytes are no subscription.
    """
    found = _decode(ConsumerProtocolSubscription, data)
    return MemberSubscription(
        tuple(found.topics),
        found.user_data,
        tuple(_flat(found.owned_partitions)),
        max(found.generation_id, -1),
        found.rack_id or None,
        instance_id,
    )


def encode_assignment(
    partitions: Iterable[TopicPartition], user_data: bytes | None = None
) -> bytes:
    """Encode the assignment of one member, for SyncGroup.

    Raises:
        ProtocolError: A name is too long.
    """
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    parts = [ConsumerProtocolAssignmentTopicPartition(*item) for item in topics.items()]
    return _encode(ConsumerProtocolAssignment(parts, user_data))


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """Decode the assignment from the leader, each partition once; empty where it left us out.

    Raises:
        ProtocolError: These bytes are no assignment, or a partition is negative.
    """
    if not data:
        return []
    assignment = _decode(ConsumerProtocolAssignment, data)
    found = list(dict.fromkeys(_flat(assignment.assigned_partitions)))
    for part in found:
        if part.partition < 0:
            raise ProtocolError(
                f"the group's leader assigned {part.topic!r} partition {part.partition}",
                struct="ConsumerProtocolAssignment",
                field="partitions",
            )
    return found


def _encode(message: Message) -> bytes:
    out = bytearray(_VERSION.pack(message.MAX_VERSION))
    message.encode_into(out, message.MAX_VERSION)
    return bytes(out)


def _decode(kind: type[M], data: bytes) -> M:
    """Decode ``data``; newer versions only add at the end, so they are read as the newest known."""
    if len(data) < _VERSION.size:
        raise ProtocolError(
            f"{kind.__name__} needs {_VERSION.size} bytes for its version, not {len(data)}",
            struct=kind.__name__,
            field="version",
            offset=0,
        )
    (version,) = _VERSION.unpack_from(data)
    version = min(version, kind.MAX_VERSION)
    if version >= kind.MIN_VERSION:
        try:
            # Not `decode`, which treats unknown trailing bytes as an error.
            return kind._read(data, _VERSION.size, len(data), version)[0]
        except DECODE_ERRORS:
            pass
    return kind.decode(data, version, _VERSION.size)  # which raises what is wrong


def _flat(
    topics: Sequence[
        ConsumerProtocolSubscriptionTopicPartition | ConsumerProtocolAssignmentTopicPartition
    ],
) -> Iterable[TopicPartition]:
    return (TopicPartition(one.topic, partition) for one in topics for partition in one.partitions)

"""The assignor "sticky": as even as can be, and then with as few movements as can be.

Each member tells in its subscription what it had, so that the leader, which may be new, can leave
it there. In a rebalance all the same everyone gives up everything first (eager); see
``cooperative_sticky`` for the other way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from struct import Struct

from kclient.group.assignors.sticky_constrained import Constrained
from kclient.group.assignors.sticky_general import General
from kclient.group.assignors.sticky_input import NO_GENERATION, Claim, Input
from kclient.hooks import MemberSubscription, TopicsView
from kclient.protocol.primitives import put_count, put_numbers, put_string
from kclient.types import TopicPartition

_INT16, _INT32 = Struct(">h"), Struct(">i")


class StickyAssignor:
    """Java's StickyAssignor. Remembers its member's last assignment: one for each consumer.

    Where not all members can keep the one partition that they have more than others, the first
    ones by their ids do; in Java those that a HashMap gives first. It differs from Java's, too,
    where what that one answers can't work: Java's fails on, or gives out, owned partitions that
    don't exist any more, and can give partitions to a member that doesn't want their topic, where
    another member wants nothing or names a topic twice.
    """

    name = "sticky"
    cooperative = False

    def __init__(self) -> None:
        self._partitions: tuple[TopicPartition, ...] | None = None
        self._generation = NO_GENERATION
        self._newest = NO_GENERATION

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """What this member had, and in which generation; None before its first assignment."""
        if self._partitions is None:
            return None
        return encode_claim(self._partitions, self._generation)

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Remembers it."""
        self._partitions = tuple(partitions)
        self._generation = generation

    def assign(
        self, cluster: TopicsView, members: Mapping[str, MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        """See ``hooks.Assignor``."""
        given = Input(cluster, members, read_claim)
        self._newest = max(self._newest, given.newest_generation)
        return named(given, solve(given, self._newest).shares)


def solve(given: Input, newest: int) -> Constrained | General:
    """Who gets what, and maybe what moved.

    Args:
        given: The input.
        newest: The highest generation that the assignor has ever heard of.
    """
    return Constrained(given) if given.alike and given.members else General(given, newest)


def named(given: Input, shares: Sequence[Sequence[int]]) -> dict[str, list[TopicPartition]]:
    """Shares by member id, as ``assign`` returns them."""
    parts = given.parts
    return {
        member: [parts[part] for part in share]
        for member, share in zip(given.members, shares, strict=True)
    }


def encode_claim(partitions: Sequence[TopicPartition], generation: int) -> bytes:
    """A member's past as bytes."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    out = bytearray()
    put_count(out, len(topics))
    for topic, indexes in sorted(topics.items()):
        put_string(out, topic)
        put_numbers(out, indexes, "i")
    return bytes(out + _INT32.pack(generation))


def read_claim(member: MemberSubscription) -> Claim:
    """What a member says it had; nothing if that can't be read. Old members name no generation."""
    data = member.user_data
    if not data:
        return Claim((), None)
    try:
        partitions, pos = _read_partitions(data)
    except ValueError:
        return Claim((), NO_GENERATION)
    if pos + _INT32.size > len(data):
        return Claim(partitions, None)
    return Claim(partitions, _INT32.unpack_from(data, pos)[0])


def _read_partitions(data: bytes) -> tuple[list[TopicPartition], int]:
    found: list[TopicPartition] = []
    count, pos = _read_count(data, 0)
    for _ in range(count):
        (size,) = _INT16.unpack(_slice(data, pos, _INT16.size))
        pos += _INT16.size
        topic = _slice(data, pos, size).decode(errors="replace")
        many, pos = _read_count(data, pos + size)
        numbers = _slice(data, pos, many * _INT32.size)
        found += [TopicPartition(topic, one) for (one,) in _INT32.iter_unpack(numbers)]
        pos += many * _INT32.size
    return found, pos


def _read_count(data: bytes, pos: int) -> tuple[int, int]:
    (count,) = _INT32.unpack(_slice(data, pos, _INT32.size))
    if count < 0:
        raise ValueError(f"{count} elements")
    return count, pos + _INT32.size


def _slice(data: bytes, pos: int, size: int) -> bytes:
    if size < 0 or pos + size > len(data):
        raise ValueError(f"{size} bytes at {pos} of {len(data)}")
    return data[pos : pos + size]

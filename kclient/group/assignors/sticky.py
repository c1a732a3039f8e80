"""The assignors "sticky" and "cooperative-sticky": even first, then with the fewest movements.

Each member names in its subscription the partitions that it had, so that the leader, which may be
new, can leave them there. With "sticky" every member revokes everything first in a rebalance
(eager); with "cooperative-sticky" members keep what they own meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from struct import Struct, error

from kclient.group.assignors.inputs import NO_GENERATION, Input, MemberData, given_too_early
from kclient.group.assignors.sticky_constrained import ConstrainedAssignment
from kclient.group.assignors.sticky_general import GeneralAssignment
from kclient.hooks import MemberSubscription, TopicsView
from kclient.protocol.primitives import put_count, put_numbers, put_string
from kclient.types import TopicPartition

_INT16, _INT32 = Struct(">h"), Struct(">i")


class StickyAssignor:
    """Java's StickyAssignor. Remembers its member's last assignment: one for each consumer.

    Where not all members can keep the one partition that they have more than others, the first
    ones by their ids do; in Java those that a HashMap yields first. It also differs from Java's
    where that one's result can't work: Java's fails on, or assigns, owned partitions that don't
    exist any more, and can assign partitions to a member that doesn't subscribe to their topic,
    where another member subscribes to nothing or names a topic twice.
    """

    name = "sticky"
    cooperative = False

    def __init__(self) -> None:
        self._partitions: tuple[TopicPartition, ...] | None = None
        self._generation = NO_GENERATION
        self._newest = NO_GENERATION

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """The member's last assignment and its generation, encoded; None before the first one."""
        if self._partitions is None:
            return None
        return encode_claim(self._partitions, self._generation)

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Remember the assignment."""
        self._partitions = tuple(partitions)
        self._generation = generation

    def assign(
        self, cluster: TopicsView, members: Mapping[str, MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        """See ``hooks.Assignor``."""
        assignments, _ = self._solve(Input(cluster, members, read_claim))
        return assignments

    def _solve(
        self, given: Input
    ) -> tuple[dict[str, list[TopicPartition]], Collection[TopicPartition] | None]:
        """Assignments by member id, and the partitions that moved, where that was recorded."""
        self._newest = max(self._newest, given.newest_generation)
        found: ConstrainedAssignment | GeneralAssignment
        if given.alike and given.members:
            found = ConstrainedAssignment(given)
            moved = {given.parts[part] for part in found.moved}
        else:
            found, moved = GeneralAssignment(given, self._newest), None
        assignments = {
            member: [given.parts[part] for part in assigned]
            for member, assigned in zip(given.members, found.shares, strict=True)
        }
        return assignments, moved


class CooperativeStickyAssignor(StickyAssignor):
    """Java's CooperativeStickyAssignor; differs from it as ``StickyAssignor`` does from Java's.

    A partition that is to move from one member to another is assigned to none at first: its owner
    revokes it when it sees that, and joins again, and then the new one gets it (KIP-429). So no
    partition is ever read by two members, and those that don't move are read all the time.
    """

    name = "cooperative-sticky"
    cooperative = True

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """The generation of this member's last assignment, for leaders that read it here."""
        return _INT32.pack(self._generation)

    def assign(
        self, cluster: TopicsView, members: Mapping[str, MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        """See ``hooks.Assignor``. Leaves out partitions that must be revoked first."""
        assignments, moved = self._solve(Input(cluster, members, read_owned))
        if moved is None:
            moved = set(given_too_early(members, assignments))
        return {
            member: [part for part in assigned if part not in moved]
            for member, assigned in assignments.items()
        }


def encode_claim(partitions: Sequence[TopicPartition], generation: int) -> bytes:
    """Encode a member's previous assignment."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    out = bytearray()
    put_count(out, len(topics))
    for topic, indexes in sorted(topics.items()):
        put_string(out, topic)
        put_numbers(out, indexes, "i")
    return bytes(out + _INT32.pack(generation))


def read_claim(member: MemberSubscription) -> MemberData:
    """Decode a member's previous assignment; empty if unreadable. Old data has no generation."""
    data = member.user_data
    if not data:
        return MemberData((), None)
    try:
        partitions, pos = _read_partitions(data)
    except ValueError:
        return MemberData((), NO_GENERATION)
    if pos + _INT32.size > len(data):
        return MemberData(partitions, None)
    return MemberData(partitions, _INT32.unpack_from(data, pos)[0])


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


def read_owned(member: MemberSubscription) -> MemberData:
    """Read what a member owns. Old members have their generation in the user data."""
    if member.generation >= 0:
        return MemberData(member.owned, member.generation)
    if member.user_data is None:
        return MemberData(member.owned, None)
    try:
        return MemberData(member.owned, _INT32.unpack_from(member.user_data)[0])
    except error:
        return MemberData(member.owned, NO_GENERATION)

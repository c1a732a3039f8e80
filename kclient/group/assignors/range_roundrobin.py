"""The stateless assignors: "range" and "roundrobin"."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import cycle

from kclient.group.assignors.inputs import (
    NO_RACKS,
    by_rank,
    partitions_of,
    racks_matter,
    wanted_counts,
)
from kclient.hooks import MemberSubscription, TopicsView
from kclient.types import TopicPartition

Shares = dict[str, list[TopicPartition]]


class _StatelessAssignor:
    """Keeps no state, so that a rebalance may move everything."""

    cooperative = False

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """No user data."""
        return None

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Do nothing: the assignment isn't remembered."""


class RangeAssignor(_StatelessAssignor):
    """Java's RangeAssignor: cuts each topic into ranges, one for each member that subscribes to it.

    Members are sorted, static ones first, so that topics of equal size and with the same readers
    are cut alike: partition 3 of each goes to the same member (co-partitioning). The first members
    get one partition more where the count doesn't divide evenly. With racks (KIP-881) a member gets
    partitions with a replica in its rack first, as far as neither balance nor co-partitioning
    suffers.
    """

    name = "range"

    def assign(
        self, cluster: TopicsView, members: Mapping[str, MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        """See ``hooks.Assignor``."""
        readers: dict[str, list[str]] = {}
        for member in by_rank(members):
            for name in dict.fromkeys(members[member].topics):
                readers.setdefault(name, []).append(member)
        racks = {member: one.rack for member, one in members.items() if one.rack}
        topics = [
            _Topic(name, count, readers[name], racks, cluster)
            for name, count in wanted_counts(cluster, members).items()
        ]
        assignments: Shares = {member: [] for member in members}
        rack_aware = any(topic.rack_aware for topic in topics)
        if rack_aware:
            _share_within_racks(topics, assignments)
        for topic in topics:
            topic.share_ranges(assignments, near=False)
        if rack_aware:
            for assigned in assignments.values():
                assigned.sort()
        return assignments


def _share_within_racks(topics: Sequence[_Topic], shares: Shares) -> None:
    alike: dict[tuple[Sequence[str], int], list[_Topic]] = {}
    for topic in topics:
        known = len(topic.partition_racks)
        alike.setdefault((tuple(topic.readers), known), []).append(topic)
    for (readers, count), same in alike.items():
        if len(same) > 1:
            _share_together(readers, count, same, shares)
        elif same[0].rack_aware:
            same[0].share_ranges(shares, near=True)


def _share_together(
    readers: Sequence[str], count: int, topics: Sequence[_Topic], shares: Shares
) -> None:
    """Assign equal partitions of these topics to one member, where the racks of all agree."""
    open_readers = list(readers)
    for index in range(count):
        for member in open_readers:
            if all(topic.is_near(member, index) and topic.capacity(member) for topic in topics):
                break
        else:
            continue
        for topic in topics:
            topic.give(member, [index], shares)
        if not any(topic.capacity(member) for topic in topics):
            open_readers.remove(member)


class _Topic:
    """A topic while it is being assigned."""

    def __init__(
        self,
        name: str,
        count: int,
        readers: list[str],
        racks: Mapping[str, str],
        cluster: TopicsView,
    ) -> None:
        self.readers = readers
        self._name = name
        self._racks = racks
        self._left = dict.fromkeys(range(count))
        self._given = dict.fromkeys(readers, 0)
        self._least, self._extra = divmod(count, len(readers))
        near = [racks[member] for member in readers if member in racks]
        self.partition_racks = (
            [cluster.racks.get(TopicPartition(name, index), NO_RACKS) for index in range(count)]
            if near
            else []
        )
        self.rack_aware = racks_matter(near, self.partition_racks)

    def is_near(self, member: str, index: int) -> bool:
        """Whether a replica is in the member's rack; true where it has none."""
        rack = self._racks.get(member)
        return rack is None or rack in self.partition_racks[index]

    def capacity(self, member: str) -> int:
        """How many more partitions the member may get."""
        return max(self._least + (self._extra > 0) - self._given[member], 0)

    def give(self, member: str, indexes: list[int], shares: Shares) -> None:
        """Assign partitions to a member."""
        shares[member].extend([TopicPartition(self._name, index) for index in indexes])
        self._given[member] += len(indexes)
        if self._given[member] > self._least:
            self._extra -= 1
        for index in indexes:
            del self._left[index]

    def share_ranges(self, shares: Shares, *, near: bool) -> None:
        """Assign to each member as many as it may get of those left, or of those near it."""
        for member in self.readers:
            capacity = self.capacity(member)
            indexes: list[int] = []
            for index in self._left:
                if len(indexes) == capacity:
                    break
                if not near or self.is_near(member, index):
                    indexes.append(index)
            if indexes:
                self.give(member, indexes, shares)


class RoundRobinAssignor(_StatelessAssignor):
    """Java's RoundRobinAssignor: deals partitions out in turn, topic by topic.

    Each goes to the next member in the cycle that subscribes to its topic. Members that subscribe
    to the same topics get the same number, give or take one; else it can be far from even.
    """

    name = "roundrobin"

    def assign(
        self, cluster: TopicsView, members: Mapping[str, MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        """See ``hooks.Assignor``."""
        wants = {member: frozenset(one.topics) for member, one in members.items()}
        assignments: Shares = {member: [] for member in members}
        order = cycle(by_rank(members))
        for part in partitions_of(wanted_counts(cluster, members).items()):
            member = next(order)
            while part.topic not in wants[member]:
                member = next(order)
            assignments[member].append(part)
        return assignments

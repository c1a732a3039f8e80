"""The input of the built-in assignors, and a check of the results of custom ones. Pure.

Members come in the order of the coordinator, which may be any: all orders here are sorted, so that
two leaders with the same input make the same assignment. Members with an instance id go before
others.

For the sticky ones the input is checked and numbered. Partitions become numbers in the order of
topic and partition, members numbers in the order of their ids, so that sorting and comparing are
cheap. The partitions that members claim to own aren't trusted: those that don't exist are skipped,
and one that two members claim goes to the newer generation, or to neither. ``Input.racks`` knows
which members are near which partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from kclient.hooks import MemberSubscription, TopicsView
from kclient.types import TopicPartition

NO_GENERATION = -1
NO_RACKS: frozenset[str] = frozenset()


def wanted_counts(cluster: TopicsView, members: Mapping[str, MemberSubscription]) -> dict[str, int]:
    """Partitions of each topic that exists and that a member subscribes to, sorted by topic."""
    wanted = sorted({topic for member in members.values() for topic in member.topics})
    counts = ((topic, cluster.counts.get(topic, 0)) for topic in wanted)
    return {topic: count for topic, count in counts if count > 0}


def by_rank(members: Mapping[str, MemberSubscription]) -> list[str]:
    """Member ids sorted: static members by their instance id first, then dynamic ones by id."""

    def rank(member: str) -> tuple[bool, str, str]:
        instance = members[member].instance_id
        return instance is None, instance or "", member

    return sorted(members, key=rank)


def partitions_of(counts: Iterable[tuple[str, int]]) -> list[TopicPartition]:
    """All partitions of topics with their counts, in the order given."""
    return [TopicPartition(topic, index) for topic, count in counts for index in range(count)]


def racks_matter(member_racks: Iterable[str], partition_racks: Iterable[frozenset[str]]) -> bool:
    """Whether racks can make a difference: some are shared, and not all replicas are everywhere.

    Args:
        member_racks: Of the members; unknown ones left out.
        partition_racks: Of each partition; empty where unknown.
    """
    near = set(member_racks)
    if not near:
        return False
    kinds = set(partition_racks)
    everywhere = frozenset[str]().union(*kinds)
    return not near.isdisjoint(everywhere) and kinds != {everywhere}


class MemberData(NamedTuple):
    """What a member claims of its previous assignment.

    Attributes:
        partitions: The partitions that it owned.
        generation: In which generation; None if its data has none.
    """

    partitions: Sequence[TopicPartition]
    generation: int | None


class Racks:
    """Which members are near which partition.

    Attributes:
        matter: Whether racks make any difference.
    """

    def __init__(self, cluster: TopicsView, parts: Sequence[TopicPartition], racks: dict[int, str]):
        self._of_partitions = [cluster.racks.get(part, NO_RACKS) for part in parts] if racks else []
        self.matter = racks_matter(racks.values(), self._of_partitions)
        self._readers: dict[str, int] = {}
        for member, rack in racks.items():
            self._readers[rack] = self._readers.get(rack, 0) | 1 << member
        self._everyone = ~sum(self._readers.values())
        self._near: dict[frozenset[str], int] = {}

    def near(self, part: int) -> int:
        """The members that needn't read a partition from another rack, as bits; -1 is all."""
        if not self.matter:
            return -1
        return self._everyone | self.within(part)

    def within(self, part: int) -> int:
        """The members in a rack of the partition, as bits."""
        racks = self._of_partitions[part]
        found = self._near.get(racks)
        if found is None:
            found = sum(self._readers.get(rack, 0) for rack in racks)
            self._near[racks] = found
        return found

    def sort(self, parts: list[int]) -> list[int]:
        """Sort partitions by the number of members near them, the fewest first."""
        return sorted(parts, key=lambda part: self.within(part).bit_count())


class Input:
    """The input of one rebalance.

    Args:
        cluster: The topics.
        members: Their subscriptions.
        claim: Reads a member's previous assignment.

    Attributes:
        members: Ids, sorted; the index is a member's number.
        wants: Member -> numbers of the topics that it subscribes to; twice if it names one twice.
        topics: Names, sorted; the index is a topic's number.
        counts: Topic -> partitions.
        parts: All partitions, sorted; the index is a partition's number.
        topic_of: Partition -> its topic.
        claims: Member -> its claim of a previous assignment.
        owned: Member -> partitions that are still its own, as keys, in its order.
        contested: Partitions that members of one generation claimed.
        alike: Whether all members subscribe to the same topics.
    """

    def __init__(
        self,
        cluster: TopicsView,
        members: Mapping[str, MemberSubscription],
        claim: Callable[[MemberSubscription], MemberData],
    ) -> None:
        counts = wanted_counts(cluster, members)
        self.topics = list(counts)
        self.counts = list(counts.values())
        self.parts = partitions_of(counts.items())
        self.topic_of = [topic for topic, count in enumerate(self.counts) for _ in range(count)]
        self.members = sorted(members)
        subscriptions = [members[member] for member in self.members]
        topic_number = {topic: index for index, topic in enumerate(self.topics)}
        self.wants = [
            [topic_number[topic] for topic in one.topics if topic in topic_number]
            for one in subscriptions
        ]
        self.alike = _alike(subscriptions)
        self.claims = [claim(one) for one in subscriptions]
        self.owned: list[dict[int, None]] = [{} for _ in self.members]
        self.contested: set[int] = set()
        self._number = {part: index for index, part in enumerate(self.parts)}
        self._settle()
        racks = {member: one.rack for member, one in enumerate(subscriptions) if one.rack}
        self.racks = Racks(cluster, self.parts, racks)

    @property
    def newest_generation(self) -> int:
        """The highest generation that a member claims."""
        generations = (claim.generation for claim in self.claims)
        return max((one for one in generations if one is not None), default=NO_GENERATION)

    def known(self, partitions: Sequence[TopicPartition]) -> list[int]:
        """The numbers of those partitions that exist."""
        return [self._number[part] for part in partitions if part in self._number]

    def _settle(self) -> None:
        """Settle which member owns each partition that members claim."""
        owner: dict[int, int] = {}
        generations = [
            NO_GENERATION if claim.generation is None else claim.generation for claim in self.claims
        ]
        for member, claim in enumerate(self.claims):
            generation = generations[member]
            for part in self.known(claim.partitions):
                other = owner.get(part)
                if other is None:
                    self.owned[member][part] = None
                    owner[part] = member
                    continue
                others = generations[other]
                if generation < others:
                    continue
                self.owned[other].pop(part, None)
                owner[part] = member
                if generation == others:
                    self.contested.add(part)
                else:
                    self.owned[member][part] = None


def _alike(subscriptions: Sequence[MemberSubscription]) -> bool:
    if not subscriptions:
        return True
    first = frozenset(subscriptions[0].topics)
    return all(
        len(one.topics) == len(first) and first == frozenset(one.topics)
        for one in subscriptions[1:]
    )


def given_too_early(
    members: Mapping[str, MemberSubscription], shares: Mapping[str, Sequence[TopicPartition]]
) -> list[TopicPartition]:
    """Partitions that go to a new owner in the round in which the old one loses them, sorted.

    The leader checks the result of an application's cooperative assignor with it, as Java's does.
    """
    added: set[TopicPartition] = set()
    revoked: set[TopicPartition] = set()
    for member, subscription in members.items():
        owned, assigned = set(subscription.owned), set(shares.get(member, ()))
        added |= assigned - owned
        revoked |= owned - assigned
    return sorted(added & revoked)

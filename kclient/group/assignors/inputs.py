"""What the built-in assignors make of their input first. Pure functions.

Members come in the order of the coordinator, which may be any: all orders here are sorted ones, so
that two leaders that are asked the same answer the same. Members with an instance id go before
others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kclient.hooks import MemberSubscription, TopicsView
from kclient.types import TopicPartition

NO_RACKS: frozenset[str] = frozenset()


def wanted_counts(cluster: TopicsView, members: Mapping[str, MemberSubscription]) -> dict[str, int]:
    """Partitions of each topic that exists and that a member wants, sorted by topic."""
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

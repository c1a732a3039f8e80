"""What the built-in assignors make of their input first, in Java's order. Pure functions.

The order of members is the coordinator's when they come here, and that of a HashMap by member id
when Java's assignors see them; the same for topics. Members with an instance id go before others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kclient.group.assignors.java_order import map_order, text_key
from kclient.hooks import MemberSubscription, TopicsView
from kclient.types import TopicPartition

NO_RACKS: frozenset[str] = frozenset()


def members_in_order(
    members: Mapping[str, MemberSubscription],
) -> dict[str, MemberSubscription]:
    """The members as Java's assignors meet them."""
    return {member: members[member] for member in map_order(members)}


def wanted_counts(cluster: TopicsView, members: Mapping[str, MemberSubscription]) -> dict[str, int]:
    """Partitions of each topic that exists and that a member wants."""
    wanted = map_order(topic for member in members.values() for topic in member.topics)
    existing = [topic for topic in wanted if cluster.counts.get(topic, 0) > 0]
    return {topic: cluster.counts[topic] for topic in map_order(existing)}


def by_rank(members: Mapping[str, MemberSubscription]) -> list[str]:
    """Member ids sorted: static members by their instance id first, then dynamic ones by id."""

    def rank(member: str) -> tuple[bool, bytes]:
        instance = members[member].instance_id
        return instance is None, text_key(member if instance is None else instance)

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

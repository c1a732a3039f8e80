"""The assignor "roundrobin": partitions are dealt out like cards, topic by topic.

Each goes to the next member in the round that wants its topic. Members that want the same get the
same number, but for one; where they want different topics it can be far from even.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import cycle

from kclient.group.assignors.inputs import by_rank, partitions_of, wanted_counts
from kclient.hooks import MemberSubscription, TopicsView
from kclient.types import TopicPartition


class RoundRobinAssignor:
    """Java's RoundRobinAssignor. Keeps nothing, so that a rebalance may move everything."""

    name = "roundrobin"
    cooperative = False

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """Nothing."""
        return None

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Not remembered."""

    def assign(
        self, cluster: TopicsView, members: Mapping[str, MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        """See ``hooks.Assignor``."""
        wants = {member: frozenset(one.topics) for member, one in members.items()}
        shares: dict[str, list[TopicPartition]] = {member: [] for member in members}
        turns = cycle(by_rank(members))
        for part in partitions_of(wanted_counts(cluster, members).items()):
            member = next(turns)
            while part.topic not in wants[member]:
                member = next(turns)
            shares[member].append(part)
        return shares

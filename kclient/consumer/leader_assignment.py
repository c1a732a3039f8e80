"""LeaderAssignment: what the leader of a consumer group does: it assigns the partitions.

Called by ``rebalance`` after a JoinGroup that made this member the leader. It reads what the
members subscribe to, loads the topics that this consumer doesn't read itself, calls the assignor,
and remembers the counts of partitions that it used, so that the group is rebalanced when they
change. Data from peers is not trusted: a member whose subscription can't be read is assigned
nothing, and the log has a warning.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kclient.errors import InvalidArgument, KafkaError, MetadataTimedOut, ProtocolError
from kclient.group.assignors.inputs import given_too_early
from kclient.group.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from kclient.hooks import MemberSubscription, TopicsView
from kclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kclient.cluster.core import ClientCore
    from kclient.cluster.view import Cluster
    from kclient.consumer.topic_subscription import TopicSubscription
    from kclient.group.member import JoinedMember
    from kclient.hooks import Assignor

logger = logging.getLogger("kclient.consumer")

LARGE = 2_000
"""Partitions from which on the built-in assignors work in a thread: these take some 20 ms."""
PATIENCE = 5.0
"""Seconds to wait for metadata of topics that only other members read."""


class LeaderAssignment:
    """The leader's part of a rebalance. Has no tasks.

    Args:
        core: The client's.
        topic_subscription: Knows which topics were surely deleted, and keeps ours in the view.

        Attributes:
            counts: Partitions per topic in the latest assignment; None while another member leads.
    """

    def __init__(self, core: ClientCore, topic_subscription: TopicSubscription) -> None:
        self._core = core
        self._log = core.hooks.log(logger)
        self._topic_subscription = topic_subscription
        self.counts: Mapping[str, int | None] | None = None
        self._known: dict[str, int] = {}
        self._only: frozenset[TopicPartition] | None = None

    async def assign(
        self, assignor: Assignor, members: Sequence[JoinedMember]
    ) -> Mapping[str, bytes] | KafkaError:
        """Assign partitions to each member, or return the error of the assignor.

        Cancellation: safe.
        """
        subscriptions = {member.member_id: self._wish(member) for member in members}
        topics = sorted(
            {topic for subscription in subscriptions.values() for topic in subscription.topics}
        )
        view = await self._learn(topics)
        self.counts = self._counts(view, topics)
        self._known = {topic: count for topic, count in self.counts.items() if count is not None}
        cluster = _view_of(view, self.counts)
        try:
            if _is_ours(assignor) and sum(cluster.counts.values()) > LARGE:
                shares = await asyncio.to_thread(_shares, assignor, cluster, subscriptions)
            else:
                shares = _shares(assignor, cluster, subscriptions)
        except Exception as error:
            failure = InvalidArgument(
                f"the assignor {assignor.name!r} failed with {type(error).__name__}"
            )
            failure.__cause__ = error
            return failure
        self._only = None
        if len(members) == 1:
            share = shares.get(members[0].member_id)  # None: left out, it gets nothing
            self._only = frozenset(decode_assignment(share) if share is not None else ())
        return shares

    def lacks(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether the only member has other partitions than were assigned to it.

        A static leader that comes back keeps what it had (KIP-814), so no member has the partitions
        that were added meanwhile. Where there are others it can't know what they have.
        """
        return self._only is not None and self._only != frozenset(partitions)

    def changed(self, view: Cluster) -> bool:
        """Whether the latest assignment used other counts of partitions than ``view``."""
        counts = self.counts
        return counts is not None and counts != self._counts(view, counts)

    def _counts(self, view: Cluster, topics: Iterable[str]) -> Mapping[str, int | None]:
        """Partitions of each topic; the last known count where the latest response lacks it."""
        counts = {}
        for topic in topics:
            count = view.partition_count(topic)
            if count is not None:
                self._known[topic] = count
            elif topic in self._known and self._topic_subscription.is_gone(topic):
                del self._known[topic]
            counts[topic] = self._known.get(topic)
        return counts

    def resign(self) -> None:
        """Stop being the leader: another member leads now, or none."""
        self.counts = self._only = None
        self._topic_subscription.pin("leader", ())

    def _wish(self, member: JoinedMember) -> MemberSubscription:
        try:
            return decode_subscription(member.metadata, member.instance_id)
        except ProtocolError as error:
            self._log.warning(
                "a member gets nothing, since its subscription can't be read member=%s: %s",
                member.member_id,
                error,
            )
            return MemberSubscription(())

    async def _learn(self, topics: Sequence[str]) -> Cluster:
        """Return a view that knows each topic, if that can be had soon."""
        metadata = self._core.metadata
        self._topic_subscription.pin("leader", topics)
        deadline = self._core.clock.now() + PATIENCE
        while any(metadata.view.topic(topic) is None for topic in topics):
            left = deadline - self._core.clock.now()
            metadata.request_update()
            try:
                await metadata.wait_newer(metadata.view.version, max(left, 0.0))
            except MetadataTimedOut:
                break
        return metadata.view


def _is_ours(assignor: Assignor) -> bool:
    """Whether it is a built-in one: pure functions of values, which may run in a thread."""
    return type(assignor).__module__.startswith("kclient.group.assignors.")


def _shares(
    assignor: Assignor, cluster: TopicsView, wishes: Mapping[str, MemberSubscription]
) -> Mapping[str, bytes]:
    """Return the assignment of each member, encoded, by member id."""
    assignments = {
        member_id: [TopicPartition(*part) for part in assigned]
        for member_id, assigned in assignor.assign(cluster, wishes).items()
    }
    if assignor.cooperative and not _is_ours(assignor):
        early = given_too_early(wishes, assignments)
        if early:
            raise InvalidArgument(
                f"{early[0]} would have two owners: it goes to another member before its owner "
                "has given it up",
                topic_partition=early[0],
                hint="a cooperative assignor gives a partition to nobody in the round that takes "
                "it from its owner",
            )
    return {member_id: encode_assignment(assigned) for member_id, assigned in assignments.items()}


def _view_of(view: Cluster, known: Mapping[str, int | None]) -> TopicsView:
    counts = {topic: count for topic, count in known.items() if count}
    rack_of = {
        node_id: broker.rack for node_id, broker in view.brokers.items() if broker.rack is not None
    }
    racks: dict[TopicPartition, frozenset[str]] = {}
    if rack_of:
        for partition in (part for topic in counts for part in view.partitions_of(topic)):
            near = frozenset(rack_of[node] for node in partition.replicas if node in rack_of)
            if near:
                racks[partition.topic_partition] = near
    return TopicsView(counts, racks)

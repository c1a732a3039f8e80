"""The events of ``cluster.events``: brokers, controllers, leaders and ISRs that changed.

Frozen values, each with its time. ``quorum.py`` makes them: from sessions, from the election of
a controller, and from the difference between one image and the next; followers make those of log
truncations, and coordinators those of transactions. No event is made per record or per request.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from kclient.frozen import Frozen, frozen
from kclient.testing.image import (
    NO_LEADER,
    OFFSETS_TOPIC,
    TRANSACTION_TOPIC,
    MetadataImage,
    PartitionRegistration,
)

_COORDINATED = (OFFSETS_TOPIC, TRANSACTION_TOPIC)


@frozen
class ClusterEvent(Frozen):
    """Base of all events. Equality ignores their times, which ``repr`` doesn't show either."""

    at: float = field(default=0.0, kw_only=True, compare=False, repr=False)
    """Monotonic seconds, on the clock of ``loop.time()`` and ``ServedRequest.at``."""


@frozen
class BrokerUp(ClusterEvent):
    """A broker takes part in the cluster: it has a session."""

    node_id: int
    epoch: int
    """Epoch of the broker: each session has a higher one."""


@frozen
class BrokerDown(ClusterEvent):
    """A broker was stopped or crashed, which is noticed at once."""

    node_id: int
    epoch: int


@frozen
class BrokerFenced(ClusterEvent):
    """A broker was unreachable for ``broker.session.timeout.ms``: it runs, and may not know it."""

    node_id: int
    epoch: int


@frozen
class ControllerElected(ClusterEvent):
    """A broker was elected: it was the first to claim."""

    node_id: int
    epoch: int
    """One higher than that of the last controller."""


@frozen
class ControllerLost(ClusterEvent):
    """The controller is down, was fenced or resigned: there is none until another broker claims."""

    node_id: int
    epoch: int


@frozen
class LeaderElected(ClusterEvent):
    """A partition has a leader in a new epoch; not added for the first one of a new topic."""

    topic: str
    partition: int
    leader: int
    epoch: int
    unclean: bool = False
    """The leader wasn't in sync: committed records may be lost."""


@frozen
class CoordinatorElected(LeaderElected):
    """The same for a partition of ``__consumer_offsets`` or ``__transaction_state``.

    Its leader coordinates its groups, or its transactional ids.
    """


@frozen
class LeaderLost(ClusterEvent):
    """No replica can lead a partition: it is offline."""

    topic: str
    partition: int
    epoch: int


@frozen
class IsrShrunk(ClusterEvent):
    """Replicas aren't in sync any more: they are behind, or their brokers down."""

    topic: str
    partition: int
    isr: tuple[int, ...]
    left: tuple[int, ...]


@frozen
class IsrExpanded(ClusterEvent):
    """Replicas are in sync again."""

    topic: str
    partition: int
    isr: tuple[int, ...]
    joined: tuple[int, ...]


@frozen
class LogTruncated(ClusterEvent):
    """A follower truncated its log: it removed the end, which its leader doesn't have."""

    topic: str
    partition: int
    node_id: int
    end_offset: int
    """Where the log ends now."""
    count: int
    """Number of offsets that were removed."""


@frozen
class TransactionChanged(ClusterEvent):
    """A state of a transactional id is in the log of its coordinator."""

    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    """Kafka's name: Empty (of a new producer), Ongoing, PrepareCommit, PrepareAbort (the end is
    decided), CompleteCommit or CompleteAbort (all markers are written)."""


def changes(before: MetadataImage, after: MetadataImage) -> Iterator[ClusterEvent]:
    """Events of the partitions that are in both images, in their order."""
    if before.topics is after.topics:
        return
    for name, topic in after.topics.items():
        was = before.topics.get(name)
        if was is None or was is topic or was.topic_id != topic.topic_id:
            continue
        for one, other in zip(was.partitions, topic.partitions, strict=False):
            if one is not other:
                yield from _changes(one, other)


def _changes(before: PartitionRegistration, after: PartitionRegistration) -> Iterator[ClusterEvent]:
    topic, index, epoch = after.topic, after.index, after.leader_epoch
    left = tuple(one for one in before.isr if one not in after.isr)
    if left:
        yield IsrShrunk(topic, index, after.isr, left)
    if epoch != before.leader_epoch:
        if after.leader == NO_LEADER:
            yield LeaderLost(topic, index, epoch)
        else:
            kind = CoordinatorElected if topic in _COORDINATED else LeaderElected
            unclean = after.leader not in (*before.isr, *before.elr)
            yield kind(topic, index, after.leader, epoch, unclean)
    joined = tuple(one for one in after.isr if one not in before.isr)
    if joined:
        yield IsrExpanded(topic, index, after.isr, joined)

"""What ``cluster.events`` tells: who is up, who reigns, who leads, who is in sync.

Frozen values, each with its time. ``registry.py`` makes them: of sessions, of the claim, and of the
difference between one image and the next; those of logs come from the followers that cut them. None
is made per record or per request.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from kclient.frozen import Frozen, frozen
from kclient.testing.image import NO_LEADER, MetadataImage, PartitionFacts

_OFFSETS_TOPIC = "__consumer_offsets"


@frozen
class ClusterEvent(Frozen):
    """Base of all events. Two are equal if all but their times are, which they don't show."""

    at: float = field(default=0.0, kw_only=True, compare=False, repr=False)
    """Monotonic seconds, as ``loop.time()`` and ``ServedRequest.at`` have them."""


@frozen
class BrokerUp(ClusterEvent):
    """A broker takes part: it has a session."""

    node_id: int
    epoch: int
    """Of the broker: each session has a higher one."""


@frozen
class BrokerDown(ClusterEvent):
    """A broker was stopped or crashed, which is noticed at once."""

    node_id: int
    epoch: int


@frozen
class BrokerFenced(ClusterEvent):
    """A broker was out of reach for ``broker.session.timeout.ms``: it runs, and may not know."""

    node_id: int
    epoch: int


@frozen
class ControllerElected(ClusterEvent):
    """A broker was the first to claim, and reigns."""

    node_id: int
    epoch: int
    """One higher than that of the last controller."""


@frozen
class ControllerLost(ClusterEvent):
    """The controller is down, was fenced or resigned: nobody reigns until the next one claims."""

    node_id: int
    epoch: int


@frozen
class LeaderElected(ClusterEvent):
    """A partition has a leader in a new epoch; not told of the first one of a new topic."""

    topic: str
    partition: int
    leader: int
    epoch: int
    unclean: bool = False
    """It wasn't in sync: what was committed may be lost."""


@frozen
class CoordinatorElected(LeaderElected):
    """The same of a partition of ``__consumer_offsets``: its leader coordinates its groups."""


@frozen
class LeaderLost(ClusterEvent):
    """Nobody can lead a partition: it is offline."""

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
    """A follower threw away the end of its log, which its leader doesn't have."""

    topic: str
    partition: int
    node_id: int
    end_offset: int
    """Where the log ends now."""
    count: int
    """Offsets that went."""


def changes(before: MetadataImage, after: MetadataImage) -> Iterator[ClusterEvent]:
    """What happened to partitions that are in both images, in their order."""
    if before.topics is after.topics:
        return
    for name, topic in after.topics.items():
        was = before.topics.get(name)
        if was is None or was is topic or was.topic_id != topic.topic_id:
            continue
        for one, other in zip(was.partitions, topic.partitions, strict=False):
            if one is not other:
                yield from _changes(one, other)


def _changes(before: PartitionFacts, after: PartitionFacts) -> Iterator[ClusterEvent]:
    topic, index, epoch = after.topic, after.index, after.leader_epoch
    left = tuple(one for one in before.isr if one not in after.isr)
    if left:
        yield IsrShrunk(topic, index, after.isr, left)
    if epoch != before.leader_epoch:
        if after.leader == NO_LEADER:
            yield LeaderLost(topic, index, epoch)
        else:
            kind = CoordinatorElected if topic == _OFFSETS_TOPIC else LeaderElected
            unclean = after.leader not in (*before.isr, *before.elr)
            yield kind(topic, index, after.leader, epoch, unclean)
    joined = tuple(one for one in after.isr if one not in before.isr)
    if joined:
        yield IsrExpanded(topic, index, after.isr, joined)

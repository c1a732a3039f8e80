"""``Replica``: one broker's replica of a partition: its log, and its role as leader or follower.

As leader it appends, tracks the position of each follower, moves the high watermark to the offset
that all replicas in sync have, and finds followers that fall behind or have caught up. As follower
it appends batches of the leader, and truncates what the leader never had (KIP-101, KIP-320). Owned
by ``replicas.py``; ``facts`` come from the controller. Pure logic: time is passed in as ``now``, in
seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from kclient.error_codes import ErrorCode
from kclient.testing.image import NO_LEADER, PartitionRegistration
from kclient.testing.log import Appended, PartitionLog
from kclient.testing.responses import ApiError
from kclient.testing.stored_batch import StoredBatch
from kclient.testing.topic_configs import TopicConfig

UNKNOWN = -1


@dataclass(slots=True)
class Follower:
    """The leader's state of one follower.

    Attributes:
        end_offset: The next offset that it needs; -1 until it fetches.
        start_offset: Where its log begins.
        caught_up_at: When it last had all of the leader's log.
        fetched_at: When it fetched last.
        log_end: End offset of the leader's log then.
        broker_epoch: Of the session in which it fetched last, -1 if the fetch has none.
    """

    end_offset: int = UNKNOWN
    start_offset: int = UNKNOWN
    caught_up_at: float = 0.0
    fetched_at: float = 0.0
    log_end: int = 0
    broker_epoch: int = -1


@dataclass(slots=True, eq=False, repr=False)
class Replica:
    """One replica of a partition.

    Attributes:
        node_id: Of its broker.
        topic_id: Of its topic.
        facts: The newest facts that the broker knows.
        config: Of its topic.
        log: The log of this replica.
        look_at_ms: When there may be something to clean, in milliseconds since the epoch.
        pending_isr: ISR of a pending request to the controller; None if there is none.
        is_deleted: It was removed from its broker: the topic was deleted.
        leader_epoch_start_offset: End offset of the log when this broker was elected.
        followers: The state of each follower, by node id; empty on followers.
    """

    node_id: int
    topic_id: bytes
    facts: PartitionRegistration
    config: TopicConfig
    log: PartitionLog = field(default_factory=PartitionLog)
    look_at_ms: int | None = None
    pending_isr: tuple[int, ...] | None = None
    is_deleted: bool = False
    leader_epoch_start_offset: int = 0
    followers: dict[int, Follower] = field(default_factory=dict)

    def __repr__(self) -> str:
        role = "leads" if self.leads else "follows"
        return f"<{self.facts.topic}-{self.facts.index} on {self.node_id}: {role}>"

    @property
    def leads(self) -> bool:
        """Whether this broker is the leader, as far as it knows."""
        return self.facts.leader == self.node_id

    @property
    def epoch(self) -> int:
        """The leader epoch, as far as this broker knows."""
        return self.facts.leader_epoch

    @property
    def has_min_isr(self) -> bool:
        """Whether enough replicas are in sync for acks=all."""
        return self.facts.has_min_isr(self.config)

    def become(self, facts: PartitionRegistration, config: TopicConfig, now: float) -> bool:
        """Apply facts from the controller; return whether the leader epoch changed."""
        was, self.facts, self.config = self.facts, facts, config
        turned = facts.leader_epoch != was.leader_epoch
        if facts.partition_epoch != was.partition_epoch:
            self.pending_isr = None
        if not self.leads:
            self.followers = {}
        elif turned or (not self.followers and len(facts.replicas) > 1):
            self._lead(now)
        if self.leads:
            for one in facts.isr:
                if one in self.followers and one not in was.isr:
                    self.followers[one].caught_up_at = now
            self.advance()
        return turned

    def stand_down(self) -> None:
        """Stop leading, until the controller elects it again."""
        if self.leads:
            self.facts = replace(self.facts, leader=NO_LEADER)
        self.followers = {}
        self.pending_isr = None

    def begin(self, now: float) -> None:
        """Start a new replica in the role that its facts give it."""
        if self.leads:
            self._lead(now)
            self.advance()

    def _lead(self, now: float) -> None:
        self.leader_epoch_start_offset = self.log.end_offset
        self.log.epochs.assign(self.epoch, self.log.end_offset)
        self.followers = {
            one: Follower(caught_up_at=now if one in self.facts.isr else 0.0)
            for one in self.facts.replicas
            if one != self.node_id
        }

    # Leading

    def append(self, batch: StoredBatch, log_append_time: int | None, now: float) -> Appended:
        """Append a producer's batch; see ``PartitionLog.append``."""
        end = self.log.end_offset
        appended = self.log.append(batch, self.epoch, log_append_time)
        self.grown(end, now)
        return appended

    def grown(self, end_before: int, now: float) -> None:
        """The leader's log grew: followers that had all of it are behind from now on."""
        for follower in self.followers.values():
            if follower.end_offset >= end_before:
                follower.caught_up_at = now
        self.advance()

    def advance(self) -> bool:
        """Move the high watermark to what all in sync have, if they are enough (KIP-966).

        Returns:
            Whether it moved.
        """
        if not self.has_min_isr:
            return False
        before = self.log.high_watermark
        least = self.log.end_offset
        for one in self._counted():
            if one != self.node_id:
                least = min(least, self.followers[one].end_offset)
        self.log.advance(least)
        return self.log.high_watermark > before

    def _counted(self) -> Iterable[int]:
        """Replicas that the high watermark waits for, including those to be added (KIP-497)."""
        if self.pending_isr is None:
            return self.facts.isr
        return {*self.facts.isr, *self.pending_isr}

    def fetched_by(self, node_id: int, offset: int, start_offset: int, now: float) -> bool:
        """A follower fetches from ``offset``; return whether the high watermark moved.

        Raises:
            ApiError: It has no replica, as far as this broker knows.
        """
        follower = self.followers.get(node_id)
        if follower is None:
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        follower.end_offset = offset
        follower.start_offset = start_offset
        if offset >= self.log.end_offset:
            follower.caught_up_at = now
        elif offset >= follower.log_end:  # it keeps pace with a log that always grows
            follower.caught_up_at = max(follower.caught_up_at, follower.fetched_at)
        follower.fetched_at, follower.log_end = now, self.log.end_offset
        return self.advance()

    def to_expand(self, alive: Iterable[int], asking: int | None = None) -> tuple[int, ...] | None:
        """The ISR with the followers that caught up; None if none did.

        The follower ``asking`` just fetched, and must have all committed records; others may have
        stopped fetching, so they must have the whole log.
        """
        if not self.leads or self.pending_isr is not None:
            return None
        floor, end = (
            max(self.log.high_watermark, self.leader_epoch_start_offset),
            self.log.end_offset,
        )
        joining = [
            one
            for one in alive
            if one not in self.facts.isr
            and one in self.followers
            and self.followers[one].end_offset >= (floor if one == asking else end)
        ]
        if not joining:
            return None
        return (*self.facts.isr, *joining)

    def to_shrink(self, now: float, lag: float) -> tuple[int, ...] | None:
        """The ISR without followers that fell behind; None if none did."""
        if not self.leads or self.pending_isr is not None:
            return None
        left = tuple(one for one in self.facts.isr if not self._lags(one, now, lag))
        return None if left == self.facts.isr else left

    def _lags(self, node_id: int, now: float, lag: float) -> bool:
        follower = self.followers.get(node_id)
        if follower is None or follower.end_offset == self.log.end_offset:
            return False
        return now >= follower.caught_up_at + lag  # the sum of ``next_lag``: no endless wake-ups

    def next_lag(self, lag: float) -> float | None:
        """When the first follower in sync that is behind will be late; None if none is behind."""
        if not self.leads or self.pending_isr is not None:
            return None
        return min(
            (
                follower.caught_up_at + lag
                for one, follower in self.followers.items()
                if one in self.facts.isr and follower.end_offset != self.log.end_offset
            ),
            default=None,
        )

    # Following

    @property
    def last_fetched_epoch(self) -> int:
        """Epoch of the last record in the log, -1 if there is none."""
        return self.log.epochs.latest if self.log.end_offset > self.log.start_offset else UNKNOWN

    def take(self, batches: Iterable[StoredBatch]) -> None:
        """Append batches of the leader; an empty log may begin in the middle of a batch."""
        log = self.log
        for batch in batches:
            start = log.end_offset
            if batch.next_offset <= start:
                continue
            if batch.base_offset < start:  # its first records were deleted before this fetch
                log.restart(batch.base_offset)
            log.append_placed(batch)
            if batch.base_offset < start:
                log.raise_start(start)

    def follow(self, high_watermark: int, start_offset: int) -> None:
        """Apply high watermark and start offset of the leader's log."""
        self.log.advance(min(high_watermark, self.log.end_offset))
        if start_offset > self.log.start_offset:
            self.log.raise_start(start_offset)

    def truncate_diverging(self, epoch: int, end_offset: int) -> bool:
        """Truncate what the leader never had, given the end of its diverging epoch.

        Returns:
            Whether anything was removed.
        """
        log = self.log
        own = log.epochs.end_of(epoch, log.end_offset)
        target = end_offset
        if own.epoch >= 0 and own.end_offset >= 0:
            target = min(end_offset, own.end_offset)
        target = max(target, log.start_offset)
        if target >= log.end_offset:
            log.epochs.truncate_end(log.end_offset)  # remove epochs without records
            return False
        log.truncate(target)
        return True

    def truncate_to(self, offset: int) -> None:
        """Make the log end at ``offset``, which may be below its start."""
        if offset < self.log.start_offset:
            self.log.restart(offset)
        else:
            self.log.truncate(offset)

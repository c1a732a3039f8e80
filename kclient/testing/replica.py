"""``Replica``: one broker's copy of a partition: its log, and what it does with it.

As leader it appends, knows how far each follower is, moves the high watermark to what all in sync
have, and finds out who falls behind and who has caught up. As follower it takes what the leader
has, and throws away what the leader never had (KIP-101, KIP-320). Owned by ``replicas.py``; the
controller's word is ``facts``. Rules only: time comes in as ``now``, in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from kclient.error_codes import ErrorCode
from kclient.testing.image import NO_LEADER, PartitionFacts
from kclient.testing.log import Appended, PartitionLog
from kclient.testing.refused import Refused
from kclient.testing.stored_batch import StoredBatch
from kclient.testing.topic_configs import TopicConfig

UNKNOWN = -1


@dataclass(slots=True)
class Follower:
    """What a leader knows of one follower.

    Attributes:
        end_offset: The next offset that it needs; -1 until it fetches.
        start_offset: Where its log begins.
        caught_up_at: When it last had all that there was.
        fetched_at: When it fetched last.
        log_end: Where the leader's log ended then.
        broker_epoch: Of the session in which it fetched last, -1 if it doesn't say.
    """

    end_offset: int = UNKNOWN
    start_offset: int = UNKNOWN
    caught_up_at: float = 0.0
    fetched_at: float = 0.0
    log_end: int = 0
    broker_epoch: int = -1


@dataclass(slots=True, eq=False, repr=False)
class Replica:
    """One copy of a partition.

    Attributes:
        node_id: Whose.
        topic_id: Of its topic.
        facts: The newest ones that the broker knows.
        config: Of its topic.
        log: Its own.
        look_at_ms: When there may be something to clean, in milliseconds since the epoch.
        wanted_isr: Asked of the controller and not answered; None where nothing is.
        is_gone: Its broker has it no more: the topic was deleted.
        led_from: Where the log ended when this broker was elected.
        followers: What is known of each, by node id; empty on followers.
    """

    node_id: int
    topic_id: bytes
    facts: PartitionFacts
    config: TopicConfig
    log: PartitionLog = field(default_factory=PartitionLog)
    look_at_ms: int | None = None
    wanted_isr: tuple[int, ...] | None = None
    is_gone: bool = False
    led_from: int = 0
    followers: dict[int, Follower] = field(default_factory=dict)

    def __repr__(self) -> str:
        role = "leads" if self.leads else "follows"
        return f"<{self.facts.topic}-{self.facts.index} on {self.node_id}: {role}>"

    @property
    def leads(self) -> bool:
        """This broker is the leader, as far as it knows."""
        return self.facts.leader == self.node_id

    @property
    def epoch(self) -> int:
        """The leader's, as far as this broker knows."""
        return self.facts.leader_epoch

    @property
    def has_min_isr(self) -> bool:
        """Enough are in sync for acks=all."""
        return self.facts.has_min_isr(self.config)

    def become(self, facts: PartitionFacts, config: TopicConfig, now: float) -> bool:
        """Believe the controller; whether leader or epoch are others than before."""
        was, self.facts, self.config = self.facts, facts, config
        turned = facts.leader_epoch != was.leader_epoch
        if facts.partition_epoch != was.partition_epoch:
            self.wanted_isr = None
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
        """Lead no more, until the controller says so again."""
        if self.leads:
            self.facts = replace(self.facts, leader=NO_LEADER)
        self.followers = {}
        self.wanted_isr = None

    def begin(self, now: float) -> None:
        """A new copy: take the role that the facts give it."""
        if self.leads:
            self._lead(now)
            self.advance()

    def _lead(self, now: float) -> None:
        self.led_from = self.log.end_offset
        self.log.epochs.assign(self.epoch, self.log.end_offset)
        self.followers = {
            one: Follower(caught_up_at=now if one in self.facts.isr else 0.0)
            for one in self.facts.replicas
            if one != self.node_id
        }

    # Leading

    def append(self, batch: StoredBatch, log_append_time: int | None, now: float) -> Appended:
        """Append what a producer sent; see ``PartitionLog.append``."""
        end = self.log.end_offset
        appended = self.log.append(batch, self.epoch, log_append_time)
        self.grown(end, now)
        return appended

    def grown(self, end_before: int, now: float) -> None:
        """The leader's log got longer: those that had all of it fall behind from now on."""
        for follower in self.followers.values():
            if follower.end_offset >= end_before:
                follower.caught_up_at = now
        self.advance()

    def advance(self) -> bool:
        """Let readers have what all in sync have, where those are enough (KIP-966)."""
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
        """Those that the high watermark waits for, whoever is about to join included (KIP-497)."""
        if self.wanted_isr is None:
            return self.facts.isr
        return {*self.facts.isr, *self.wanted_isr}

    def fetched_by(self, node_id: int, offset: int, start_offset: int, now: float) -> bool:
        """A follower asks for what follows ``offset``; whether the high watermark moved.

        Raises:
            Refused: It has no replica, as far as this broker knows.
        """
        follower = self.followers.get(node_id)
        if follower is None:
            raise Refused(ErrorCode.UNKNOWN_LEADER_EPOCH)
        follower.end_offset = offset
        follower.start_offset = start_offset
        if offset >= self.log.end_offset:
            follower.caught_up_at = now
        elif offset >= follower.log_end:  # it keeps pace, though there is always more
            follower.caught_up_at = max(follower.caught_up_at, follower.fetched_at)
        follower.fetched_at, follower.log_end = now, self.log.end_offset
        return self.advance()

    def to_expand(self, alive: Iterable[int], asking: int | None = None) -> tuple[int, ...] | None:
        """Who is in sync once those that caught up are; None where nobody did.

        Whoever is ``asking`` just fetched, and needs what is committed; of others it isn't known
        whether they still come, so that they need all.
        """
        if not self.leads or self.wanted_isr is not None:
            return None
        floor, end = max(self.log.high_watermark, self.led_from), self.log.end_offset
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
        """Who is in sync without those that fell behind; None where nobody did."""
        if not self.leads or self.wanted_isr is not None:
            return None
        left = tuple(one for one in self.facts.isr if not self._lags(one, now, lag))
        return None if left == self.facts.isr else left

    def _lags(self, node_id: int, now: float, lag: float) -> bool:
        follower = self.followers.get(node_id)
        if follower is None or follower.end_offset == self.log.end_offset:
            return False
        return now >= follower.caught_up_at + lag  # as ``next_lag`` adds: else it may wake for ever

    def next_lag(self, lag: float) -> float | None:
        """When the first one in sync that is behind now will be late; None if all have all."""
        if not self.leads or self.wanted_isr is not None:
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
        """Of the last record that is there, -1 if there is none."""
        return self.log.epochs.latest if self.log.end_offset > self.log.start_offset else UNKNOWN

    def take(self, batches: Iterable[StoredBatch]) -> None:
        """Append what the leader has; an empty log may begin in the middle of a batch."""
        log = self.log
        for batch in batches:
            start = log.end_offset
            if batch.next_offset <= start:
                continue
            if batch.base_offset < start:  # its first records were deleted before we came
                log.restart(batch.base_offset)
            log.append_placed(batch)
            if batch.base_offset < start:
                log.raise_start(start)

    def follow(self, high_watermark: int, start_offset: int) -> None:
        """What the leader says of its log."""
        self.log.advance(min(high_watermark, self.log.end_offset))
        if start_offset > self.log.start_offset:
            self.log.raise_start(start_offset)

    def cut_back(self, epoch: int, end_offset: int) -> bool:
        """Throw away what the leader never had, as it told where its epoch ended.

        Returns:
            Whether anything went.
        """
        log = self.log
        own = log.epochs.end_of(epoch, log.end_offset)
        target = end_offset
        if own.epoch >= 0 and own.end_offset >= 0:
            target = min(end_offset, own.end_offset)
        target = max(target, log.start_offset)
        if target >= log.end_offset:
            log.epochs.truncate_end(log.end_offset)  # reigns in which nothing was written
            return False
        log.truncate(target)
        return True

    def cut_to(self, offset: int) -> None:
        """Let the log end at ``offset``, which may lie below its start."""
        if offset < self.log.start_offset:
            self.log.restart(offset)
        else:
            self.log.truncate(offset)

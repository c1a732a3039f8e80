"""``Hosted``: the partitions of one broker, at work: appends, followers' fetches, who is in sync.

It feeds followers, tells the controller of those that fall behind or catch up, and keeps one timer,
for the follower that is late next. The rules are ``replicas.py``'s and ``replica.py``'s. Owned by
``broker.py``; the handlers append and fetch through it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kclient.error_codes import ErrorCode
from kclient.protocol.message import Response
from kclient.testing.controller import IsrChange
from kclient.testing.deferred import Alarm, Deferred
from kclient.testing.fetch_sessions import PartitionKey
from kclient.testing.image import NO_LEADER, MetadataImage
from kclient.testing.inside import Inside
from kclient.testing.log import Appended
from kclient.testing.log_cleaner import CleanResult, clean
from kclient.testing.replica import Replica
from kclient.testing.replicas import Replicas, Turn
from kclient.testing.stored_batch import StoredBatch
from kclient.testing.waits import AckWait, Waiting

if TYPE_CHECKING:
    from kclient.testing.broker import Broker


logger = logging.getLogger("kclient.testing")

_RETRY_SECONDS = 1.0
"""After which a controller that couldn't be reached is asked again."""

_INTERNAL_SECONDS = 5.0
"""For all in sync to have what the broker itself appends: Kafka's offsets.commit.timeout.ms."""


class Feed:
    """One follower, as its leader serves it: which partitions have news, and a fetch that waits.

    Its fetch reads only what is new, so that a thousand quiet partitions cost nothing, and waits
    without a timer. Something appended ends the wait at once; a higher high watermark alone, or
    that the start moved, within ``replica.fetch.wait.max.ms``.

    Attributes:
        news: Partitions that it wasn't told all of.
        has_grown: Something was appended since a fetch set this to False.
    """

    def __init__(self) -> None:
        self.has_grown = False
        self.news: dict[PartitionKey, None] = {}
        self._nudged = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._attempt: Callable[[], Response] | None = None
        self._answer: Deferred[Response] | None = None
        self._soon: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None

    def grown(self, replica: Replica) -> None:
        """Something was appended."""
        self.has_grown = True
        self.news[key_of(replica)] = None
        self._end()

    def moved(self, replica: Replica, seconds: float) -> None:
        """Its high watermark or its start is another one; that may wait so long."""
        self.news[key_of(replica)] = None
        if self._loop is None or self._soon is not None:
            return
        if seconds <= 0:
            self._end()
        elif self._timer is None:
            self._timer = self._loop.call_later(seconds, self._try)

    def nudge(self) -> None:
        """The follower wants an answer now: it has something else to ask."""
        if self._answer is None:
            self._nudged = True
        else:
            self._end()

    def take_nudge(self) -> bool:
        """Whether it was nudged when no fetch of it waited."""
        nudged, self._nudged = self._nudged, False
        return nudged

    def park(self, attempt: Callable[[], Response], seconds: float | None) -> Deferred[Response]:
        """Keep a fetch until there is news; with ``seconds`` until then at the latest."""
        if self._answer is not None:
            self._answer.cancel()  # of a connection that the follower gave up
        self._attempt = attempt
        self._answer = answer = Deferred[Response](lambda: self._abandon(answer))
        self._loop = asyncio.get_running_loop()
        if seconds is not None:
            self._timer = self._loop.call_later(seconds, self._try)
        return answer

    def _end(self) -> None:
        if self._loop is not None and self._soon is None:
            self._soon = self._loop.call_soon(self._try)

    def _try(self) -> None:
        attempt, answer = self._attempt, self._answer
        if attempt is not None and answer is not None:
            self._abandon(answer)
            answer.complete(attempt())

    def _abandon(self, answer: Deferred[Response]) -> None:
        if self._answer is not answer:
            return
        self._attempt = self._answer = self._loop = None
        for handle in (self._soon, self._timer):
            if handle is not None:
                handle.cancel()
        self._soon = self._timer = None


def key_of(replica: Replica) -> PartitionKey:
    """As fetch sessions know a partition."""
    return PartitionKey(replica.topic_id, replica.facts.index)


class Hosted:
    """One broker's partitions.

    Args:
        node_id: Whose.
        inside: The cluster's inside.
        broker: What time it is, and timers.

    Attributes:
        replicas: Its copies.
        deletions: Called with what a follower fetched from, as it may have deleted something.
    """

    def __init__(self, node_id: int, inside: Inside, broker: Broker) -> None:
        self._node_id = node_id
        self._inside = inside
        self._now = broker.now
        self._wall_ms = broker.wall_ms
        self._feeds: dict[int, Feed] = {}
        self._internal: dict[Deferred[None], None] = {}
        self._joining: list[IsrChange] = []
        self._lag = Alarm(broker.call_later, self._late)
        self._lag_due = 0.0
        self._retry = Alarm(broker.call_later, self._ask_again)
        self.deletions: dict[Callable[[Replica], None], None] = {}
        self.replicas = Replicas(node_id, inside.image)

    def apply(self, image: MetadataImage) -> list[Turn]:
        """Believe ``image``; the roles that changed."""
        before = self.replicas.image
        turns = self.replicas.apply(image, self._now())
        for replica in self.replicas.advanced:
            self.moved(replica)
        for turn in turns:
            led = self.replicas.get(turn.topic, turn.partition)
            if led is not None and led.leads and led.log.end_offset > led.log.start_offset:
                self._note_growth(led)  # a follower is cleaned by what its leader tells
        others = image.brokers is not before.brokers
        for replica in self.replicas if others else tuple(self.replicas.changed):
            self._look_for_joiners(replica)
        self.tell_joiners()
        self.watch_lag()
        return turns

    def ways_changed(self) -> None:
        """Others can be reached than before: what the controller never heard is said again."""
        self._ask_again()
        for replica in self.replicas:
            self._look_for_joiners(replica)
        self.tell_joiners()
        self.watch_lag()

    @property
    def is_owing(self) -> bool:
        """Something that it leads isn't committed yet, and others in sync could have it."""
        return any(
            one.leads and one.log.high_watermark < one.log.end_offset and len(one.facts.isr) > 1
            for one in self.replicas
        )

    def feed(self, follower: int) -> Feed:
        """What is kept for a follower."""
        found = self._feeds.get(follower)
        if found is None:
            found = self._feeds[follower] = Feed()
        return found

    def close(self) -> None:
        """The broker is down: no timer, no follower."""
        self._feeds.clear()
        self._joining.clear()
        self.replicas.stand_down()
        for answer in tuple(self._internal):
            answer.cancel()
        self._internal.clear()
        self._retry.cancel()
        self._lag.cancel()

    # Leading

    def append(self, replica: Replica, batch: StoredBatch, log_append_time: int | None) -> Appended:
        """Append what a producer sent; its followers hear of it.

        Raises:
            Refused: As ``PartitionLog.append`` does.
        """
        end = replica.log.end_offset
        appended = replica.append(batch, log_append_time, self._now())
        self._appended(replica, end)
        return appended

    def append_placed(self, replica: Replica, batch: StoredBatch) -> None:
        """Append a batch that has its offsets; its followers hear of it."""
        end = replica.log.end_offset
        replica.log.append_placed(batch)
        replica.grown(end, self._now())
        self._appended(replica, end)

    def _appended(self, replica: Replica, end: int) -> None:
        if replica.log.end_offset == end:
            return
        self._note_growth(replica)
        if not replica.followers:
            return
        for follower in replica.followers:
            self.feed(follower).grown(replica)
        self.replicas.check(replica)
        due = replica.next_lag(self.replicas.image.config.replica_lag_time)
        if due is not None and (not self._lag.is_set or due < self._lag_due):
            self._wake_at(due)  # else it wakes before, and looks at all

    def _note_growth(self, replica: Replica) -> None:
        """There may be something to clean, once its time has come."""
        self.tidy(replica)
        config = self.replicas.image.config
        soon = config.cleaner_backoff_ms if replica.config.compacted else config.retention_check_ms
        due = self._wall_ms() + soon
        if replica.look_at_ms is None or replica.look_at_ms > due:
            replica.look_at_ms = due

    def put(self, replica: Replica, end_before: int, in_sync: list[int]) -> None:
        """A test put batches into a leader's log, and into those of these followers."""
        for one in in_sync:
            follower = replica.followers.get(one)
            if follower is not None:
                follower.end_offset = replica.log.end_offset
        replica.grown(end_before, self._now())
        self._appended(replica, end_before)

    def append_internal(
        self, topic: str, index: int, batch: StoredBatch, done: Callable[[ErrorCode], None]
    ) -> None:
        """Append a batch of the broker's own, and say when all in sync have it.

        Args:
            topic: One of Kafka's own.
            index: Of its partition.
            batch: Gets its offset here.
            done: Called once, with NONE or what went wrong; never once the broker is down.
        """
        replica = self.replicas.get(topic, index)
        if replica is None or not replica.leads:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if not replica.has_min_isr:
            done(ErrorCode.NOT_ENOUGH_REPLICAS)
            return
        batch.place(replica.log.end_offset, replica.epoch)
        self.append_placed(replica, batch)
        outcome: list[ErrorCode] = []
        waiting = Waiting(replica, replica.log.end_offset, outcome.append)
        if waiting.look():
            done(outcome[0])
            return
        answer = AckWait([waiting], _INTERNAL_SECONDS, lambda: done(outcome[0])).answer
        self._internal[answer] = None
        answer.then(lambda _: self._internal.pop(answer, None))

    def fetched_by(
        self,
        replica: Replica,
        follower: int,
        offset: int,
        start_offset: int,
        broker_epoch: int = -1,
    ) -> None:
        """A follower asks for what follows ``offset``; ``tell_joiners`` follows its last partition.

        Raises:
            Refused: It has no replica.
        """
        if replica.fetched_by(follower, offset, start_offset, self._now()):
            self.moved(replica)
        replica.followers[follower].broker_epoch = broker_epoch
        self.replicas.check(replica)
        self._look_for_joiners(replica, follower)
        for look in tuple(self.deletions):
            look(replica)

    def moved(self, replica: Replica, *, at_once: bool = False) -> None:
        """The high watermark or the start of a leader's log moved."""
        config = self.replicas.image.config
        seconds = 0.0 if at_once or config.selects_by_rack else config.replica_fetch_wait
        for follower in replica.followers:
            self.feed(follower).moved(replica, seconds)

    def preferred_replica(self, replica: Replica, rack: str, offset: int) -> int:
        """The follower in ``rack`` that a consumer is sent to, -1 for none (KIP-392)."""
        image = self.replicas.image
        if not image.config.selects_by_rack or image.brokers[self._node_id].rack == rack:
            return NO_LEADER
        near = [
            (follower.end_offset, -one)
            for one, follower in replica.followers.items()
            if one in replica.facts.isr
            and image.brokers[one].alive
            and image.brokers[one].rack == rack
            and follower.start_offset <= offset <= follower.end_offset
        ]
        return -max(near)[1] if near else NO_LEADER

    # Cleaning

    def tidy(self, replica: Replica) -> None:
        """Delete and compact what is due; asked before a log is read, so that it takes no timer.

        A log that was appended to is looked at after ``log.retention.check.interval.ms``, a
        compacted one after ``log.cleaner.backoff.ms``.
        """
        if replica.look_at_ms is not None and self._wall_ms() >= replica.look_at_ms:
            self.clean(replica)

    def clean(self, replica: Replica, *, force: bool = False) -> CleanResult:
        """Delete and compact what is due now."""
        start = replica.log.start_offset
        result = clean(replica.log, replica.config, self._wall_ms(), force=force)
        replica.look_at_ms = result.next_clean_at
        if result.uncleanable is not None:
            logger.warning(
                "broker=%d can't compact %r: %s", self._node_id, replica, result.uncleanable
            )
        if replica.log.start_offset != start:
            self.moved(replica)
        return result

    # In sync

    def _look_for_joiners(self, replica: Replica, asking: int | None = None) -> None:
        change = self.replicas.caught_up(replica, asking)
        if change is not None:
            self._joining.append(change)

    def tell_joiners(self) -> None:
        """Bring to the controller who caught up, in one request: each makes an image."""
        if self._joining:
            changes, self._joining = self._joining, []
            self._ask(changes)

    def _ask(self, changes: list[IsrChange]) -> None:
        self._inside.alter_isr(self._node_id, changes, partial(self._answered, changes))

    def _ask_again(self) -> None:
        """What has no answer may have been granted: until that is known, joiners are in sync."""
        self._retry.cancel()
        wished = [
            self.replicas.wished(one, one.wanted_isr)
            for one in self.replicas
            if one.wanted_isr is not None
        ]
        if wished:
            self._ask(wished)

    def _answered(self, changes: list[IsrChange], codes: list[ErrorCode] | None) -> None:
        if codes is None:
            if not self._retry.is_set:
                self._retry.set(_RETRY_SECONDS)
        for change, code in zip(changes, codes or (), strict=codes is not None):
            if code is ErrorCode.INELIGIBLE_REPLICA:
                self.replicas.unanswered(change)  # after other codes a newer image comes
                replica = self.replicas.get(change.topic, change.index)
                if replica is not None and replica.leads and replica.advance():
                    self.moved(replica)
        self.watch_lag()

    def watch_lag(self) -> None:
        """Have the timer where the next follower will be late."""
        due = self.replicas.next_check()
        if due is not None:
            self._wake_at(due)
        else:
            self._lag.cancel()

    def _wake_at(self, due: float) -> None:
        self._lag_due = due
        self._lag.set(due - self._now())

    def _late(self) -> None:
        changes = self.replicas.late(self._now())
        if changes:
            self._ask(changes)
        self.watch_lag()

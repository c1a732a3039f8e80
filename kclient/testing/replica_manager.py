"""``ReplicaManager``: the partitions of one broker: appends, fetches of followers, changes of ISRs.

It completes the fetches of followers, asks the controller to change ISRs as they fall behind or
catch up, and keeps one timer, for the follower that is late next. ``replicas.py`` and
``replica.py`` have the rules. Owned by ``broker.py``; the handlers append and fetch through it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kclient.error_codes import ErrorCode
from kclient.protocol.message import Response
from kclient.testing.control_plane import ControlPlane
from kclient.testing.controller import IsrChange
from kclient.testing.delayed_operations import DelayedProduce, ProducePartitionStatus
from kclient.testing.fetch_sessions import PartitionKey
from kclient.testing.image import NO_LEADER, MetadataImage
from kclient.testing.log import Appended
from kclient.testing.log_cleaner import CleanResult, clean
from kclient.testing.log_state import Marker
from kclient.testing.replica import Replica
from kclient.testing.replicas import LeadershipChange, Replicas
from kclient.testing.responses import ApiError, PendingResult
from kclient.testing.stored_batch import StoredBatch
from kclient.testing.timers import Timer

if TYPE_CHECKING:
    from kclient.testing.broker import Broker


logger = logging.getLogger("kclient.testing")

_RETRY_SECONDS = 1.0
"""Delay before a request to a controller that couldn't be reached is retried."""

INTERNAL_SECONDS = 5.0
"""Limit to commit an append of the broker itself: Kafka's offsets.commit.timeout.ms."""


class FollowerState:
    """The leader's state of one follower: the partitions with news, and its pending fetch.

    A fetch reads only partitions with news, so that a thousand idle ones cost nothing, and waits
    without a timer. An append ends the wait at once; a higher high watermark or a new log start
    alone does so within ``replica.fetch.wait.max.ms``.

    Attributes:
        news: Partitions with data or offsets that the follower doesn't have yet.
        has_grown: Records were appended since a fetch set this to False.
    """

    def __init__(self) -> None:
        self.has_grown = False
        self.news: dict[PartitionKey, None] = {}
        self._nudged = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._attempt: Callable[[], Response] | None = None
        self._answer: PendingResult[Response] | None = None
        self._soon: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None

    def grown(self, replica: Replica) -> None:
        """Records were appended."""
        self.has_grown = True
        self.news[key_of(replica)] = None
        self._end()

    def moved(self, replica: Replica, seconds: float) -> None:
        """The high watermark or the log start moved; send that within ``seconds``."""
        self.news[key_of(replica)] = None
        if self._loop is None or self._soon is not None:
            return
        if seconds <= 0:
            self._end()
        elif self._timer is None:
            self._timer = self._loop.call_later(seconds, self._try)

    def wake(self) -> None:
        """Respond now, as the follower asked for: it has to send another request."""
        if self._answer is None:
            self._nudged = True
        else:
            self._end()

    def take_woken(self) -> bool:
        """Whether it was nudged while no fetch was pending; resets that."""
        nudged, self._nudged = self._nudged, False
        return nudged

    def delay(
        self, attempt: Callable[[], Response], seconds: float | None
    ) -> PendingResult[Response]:
        """Keep a fetch pending until there is news, with ``seconds`` for at most as long."""
        if self._answer is not None:
            self._answer.cancel()  # of a connection that the follower closed
        self._attempt = attempt
        self._answer = answer = PendingResult[Response](lambda: self._abandon(answer))
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

    def _abandon(self, answer: PendingResult[Response]) -> None:
        if self._answer is not answer:
            return
        self._attempt = self._answer = self._loop = None
        for handle in (self._soon, self._timer):
            if handle is not None:
                handle.cancel()
        self._soon = self._timer = None


def key_of(replica: Replica) -> PartitionKey:
    """The key of a partition in fetch sessions."""
    return PartitionKey(replica.topic_id, replica.facts.index)


class ReplicaManager:
    """One broker's partitions.

    Args:
        node_id: Of the broker.
        control_plane: The control plane of the cluster.
        broker: For its clocks and timers.

    Attributes:
        replicas: The broker's replicas.
        deletions: Called with each replica that a follower fetched from, as its log start may have
            moved.
    """

    def __init__(self, node_id: int, control_plane: ControlPlane, broker: Broker) -> None:
        self._node_id = node_id
        self._control_plane = control_plane
        self._now = broker.now
        self._wall_ms = broker.wall_ms
        self._follower_states: dict[int, FollowerState] = {}
        self._internal: dict[PendingResult[None], None] = {}
        self._joining: list[IsrChange] = []
        self._lag = Timer(broker.call_later, self._late)
        self._lag_due = 0.0
        self._retry = Timer(broker.call_later, self._ask_again)
        self.deletions: dict[Callable[[Replica], None], None] = {}
        self.replicas = Replicas(node_id, control_plane.image)

    def apply(self, image: MetadataImage) -> list[LeadershipChange]:
        """Use ``image`` from now on; return the roles that changed."""
        before = self.replicas.image
        turns = self.replicas.apply(image, self._now())
        for replica in self.replicas.advanced:
            self.moved(replica)
        for turn in turns:
            led = self.replicas.get(turn.topic, turn.partition)
            if led is not None and led.leads and led.log.end_offset > led.log.start_offset:
                self._note_growth(led)  # as a follower it got its log start from the leader
        others = image.brokers is not before.brokers
        for replica in self.replicas if others else tuple(self.replicas.changed):
            self._look_for_joiners(replica)
        self.send_isr_changes()
        self.watch_lag()
        return turns

    def links_changed(self) -> None:
        """Reachability changed: send requests again that the controller may not have got."""
        self._ask_again()
        for replica in self.replicas:
            self._look_for_joiners(replica)
        self.send_isr_changes()
        self.watch_lag()

    @property
    def has_uncommitted(self) -> bool:
        """Whether a log that it leads has uncommitted records that other replicas could fetch."""
        return any(
            one.leads and one.log.high_watermark < one.log.end_offset and len(one.facts.isr) > 1
            for one in self.replicas
        )

    def follower_state(self, follower: int) -> FollowerState:
        """The state of a follower."""
        found = self._follower_states.get(follower)
        if found is None:
            found = self._follower_states[follower] = FollowerState()
        return found

    def close(self) -> None:
        """The broker is down: cancel timers and forget followers."""
        self._follower_states.clear()
        self._joining.clear()
        self.replicas.stand_down()
        for answer in tuple(self._internal):
            answer.cancel()
        self._internal.clear()
        self._retry.cancel()
        self._lag.cancel()

    # Leading

    def append(self, replica: Replica, batch: StoredBatch, log_append_time: int | None) -> Appended:
        """Append a producer's batch and wake the followers.

        Raises:
            ApiError: As by ``PartitionLog.append``.
        """
        end = replica.log.end_offset
        appended = replica.append(batch, log_append_time, self._now())
        self._appended(replica, end)
        return appended

    def append_placed(self, replica: Replica, batch: StoredBatch) -> None:
        """Append a batch that has its offsets, and wake the followers."""
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
            self.follower_state(follower).grown(replica)
        self.replicas.check(replica)
        due = replica.next_lag(self.replicas.image.config.replica_lag_time)
        if due is not None and (not self._lag.is_set or due < self._lag_due):
            self._wake_at(due)  # else the timer fires before, and checks all replicas

    def _note_growth(self, replica: Replica) -> None:
        """Schedule the check whether a log that grew has to be cleaned."""
        self.tidy(replica)
        config = self.replicas.image.config
        soon = config.cleaner_backoff_ms if replica.config.compacted else config.retention_check_ms
        due = self._wall_ms() + soon
        if replica.look_at_ms is None or replica.look_at_ms > due:
            replica.look_at_ms = due

    def put(self, replica: Replica, end_before: int, in_sync: list[int]) -> None:
        """A test appended batches to a leader's log, and to those of these followers."""
        for one in in_sync:
            follower = replica.followers.get(one)
            if follower is not None:
                follower.end_offset = replica.log.end_offset
        replica.grown(end_before, self._now())
        self._appended(replica, end_before)

    def append_internal(
        self,
        topic: str,
        index: int,
        batch: StoredBatch,
        done: Callable[[ErrorCode], None],
        seconds: float = INTERNAL_SECONDS,
    ) -> None:
        """Append a batch of the broker itself, and call ``done`` when all in sync have it.

        Args:
            topic: An internal topic.
            index: Of its partition.
            batch: Its offset is assigned here.
            done: Called once, with NONE or an error code; never once the broker is down.
            seconds: How long that may take.
        """
        replica = self.replicas.get(topic, index)
        if replica is None or not replica.leads:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if not replica.has_min_isr:
            done(ErrorCode.NOT_ENOUGH_REPLICAS)
            return
        self._append_own(replica, batch, done, seconds)

    def append_marker(
        self,
        replica: Replica,
        marker: Marker,
        done: Callable[[ErrorCode], None],
        seconds: float,
    ) -> None:
        """Append the marker that ends a transaction in a partition that this broker leads.

        Args:
            replica: The leader's replica.
            marker: Its epochs are checked against those of the producer's state.
            done: Called once, with NONE when all in sync have it, or an error code; never once the
                broker is down.
            seconds: How long that may take.
        """
        if not replica.has_min_isr:
            done(ErrorCode.NOT_ENOUGH_REPLICAS)
            return
        try:
            replica.log.check_marker(marker)
        except ApiError as refused:
            done(refused.code)
            return
        self._append_own(replica, StoredBatch(marker.encode(self._wall_ms())), done, seconds)

    def _append_own(
        self,
        replica: Replica,
        batch: StoredBatch,
        done: Callable[[ErrorCode], None],
        seconds: float,
    ) -> None:
        """Append a batch of the broker itself; ``done`` is called once all in sync have it."""
        batch.place(replica.log.end_offset, replica.epoch)
        self.append_placed(replica, batch)
        outcome: list[ErrorCode] = []
        waiting = ProducePartitionStatus(replica, replica.log.end_offset, outcome.append)
        if waiting.look():
            done(outcome[0])
            return
        answer = DelayedProduce([waiting], seconds, lambda: done(outcome[0])).answer
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
        """A follower fetches from ``offset``; call ``send_isr_changes`` after its last partition.

        Raises:
            ApiError: That broker has no replica of it.
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
            self.follower_state(follower).moved(replica, seconds)

    def preferred_replica(self, replica: Replica, rack: str, offset: int) -> int:
        """The follower in ``rack`` that a consumer is redirected to, -1 for none (KIP-392)."""
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
        """Delete and compact what is due; called before a log is read, so it needs no timer.

        A log that was appended to is checked after ``log.retention.check.interval.ms``, a
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

    def send_isr_changes(self) -> None:
        """Ask the controller to add followers that caught up.

        All in one request, as each request makes an image.
        """
        if self._joining:
            changes, self._joining = self._joining, []
            self._ask(changes)

    def _ask(self, changes: list[IsrChange]) -> None:
        self._control_plane.alter_isr(self._node_id, changes, partial(self._answered, changes))

    def _ask_again(self) -> None:
        """Resend ISR changes without a response: they may be applied, so added ones count."""
        self._retry.cancel()
        wished = [
            self.replicas.wished(one, one.pending_isr)
            for one in self.replicas
            if one.pending_isr is not None
        ]
        if wished:
            self._ask(wished)

    def _answered(self, changes: list[IsrChange], codes: list[ErrorCode] | None) -> None:
        if codes is None:
            if not self._retry.is_set:
                self._retry.set(_RETRY_SECONDS)
        for change, code in zip(changes, codes or (), strict=codes is not None):
            if code is ErrorCode.INELIGIBLE_REPLICA:
                self.replicas.unanswered(change)  # after other codes a newer image follows
                replica = self.replicas.get(change.topic, change.index)
                if replica is not None and replica.leads and replica.advance():
                    self.moved(replica)
        self.watch_lag()

    def watch_lag(self) -> None:
        """Set the timer for the time when the next follower is late."""
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

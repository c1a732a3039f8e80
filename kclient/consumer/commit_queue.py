"""CommitQueue: which offsets to commit next, and the outcome of each commit call. Sans-IO.

``commits`` drives it: one request in flight at a time. Per partition at most one offset waits, that
of the latest call, and at most one is in flight. An offset that failed for a passing reason waits
again, unless a later call has requested another offset meanwhile: then the calls of the earlier one
get the outcome of the later one. So offsets reach the coordinator in the order of the calls,
retries included, and an older one never follows a newer one.

A ``Commit`` is one call of the application or of the timer; a ``PendingOffset`` is the offset to
commit of one partition, and the calls that wait for it. When a partition is revoked (``forget``),
its pending offsets are dropped: if it is assigned again, another member may have committed
meanwhile. The queue does not know members and generations; the driver passes what it needs.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from kclient.errors import BrokerError, CommitFailed, KafkaError, RequestTimedOut, some_of
from kclient.group.commit_errors import (
    SHOWN,
    CommitErrorAction,
    combined_error,
    commit_error_action,
    is_unknown,
)

if TYPE_CHECKING:
    import random

    from kclient.backoff import Backoff
    from kclient.types import OffsetAndMetadata, TopicPartition

T = TypeVar("T")

_SHARED = 0.1
"""Fraction of its time limit that a call may lose by sharing an earlier call's outcome."""
OVERTAKEN = 30.0
"""Seconds for which a request without a response may still be processed by a broker."""
REPEAT = 1.0
"""Minimum seconds between a commit and its repeat, whatever the interval of commits."""
_SLACK = 100
"""Finished calls that may stay in the heap of deadlines until their deadline."""
HINT: Final = (
    "whoever has the partition reads on from the last commit before it: commit in on_revoked, and "
    "take less time between two polls than max_poll_interval"
)
_TAKEN: Final = "the partition was taken from this consumer"
_FOREIGN: Final = "not assigned to this consumer at the time of the call"
_FOREIGN_HINT: Final = (
    "commit only what consumer.assignment has: another partition is another member's, or nobody's, "
    "and whoever has it reads on from the last commit before"
)


@dataclass(slots=True, eq=False, repr=False)
class Commit(Generic[T]):
    """One call that commits offsets.

    Attributes:
        token: The caller's, returned when the commit is done.
        begun: When the call was made.
        deadline: When it must have an outcome.
        number: Its place in the order of the calls.
        done: It has an outcome.
        error: Why it failed; None if it didn't. Meaningful once it is done.
        open: The pending offsets that it waits for.
        failed: Partitions whose commit was refused, with the errors.
        taken: Partitions that are no longer assigned, with the error that reported it, if any.
        foreign: Partitions that weren't assigned when the call was made.
    """

    token: T
    begun: float
    deadline: float
    number: int = -1
    done: bool = False
    error: KafkaError | None = None
    open: dict[TopicPartition, PendingOffset[T]] = field(default_factory=dict)
    failed: dict[TopicPartition, KafkaError] = field(default_factory=dict)
    taken: dict[TopicPartition, KafkaError | None] = field(default_factory=dict)
    foreign: list[TopicPartition] = field(default_factory=list)

    @property
    def spoilt(self) -> bool:
        """It fails, whatever the outcome of its open partitions."""
        return bool(self.failed or self.taken or self.foreign)

    def finish(self, group_id: str) -> None:
        """Nothing is open any more: combine the outcomes of the partitions into one."""
        self.done = True
        if self.taken or self.foreign:
            self.error = self._commit_failed(group_id)
        elif self.failed:
            self.error = combined_error(self.failed, group_id)

    def _commit_failed(self, group_id: str) -> CommitFailed:
        taken = [*self.foreign, *self.taken]
        cause = next((error for error in self.taken.values() if error is not None), None)
        why = _TAKEN if self.taken else _FOREIGN
        error = CommitFailed(
            f"offsets of {some_of(taken, SHOWN)} were not committed by group {group_id}: "
            + (str(cause) if cause is not None else why),
            partitions=taken,
            topic_partition=taken[0] if len(taken) == 1 else None,
            hint=HINT if self.taken else _FOREIGN_HINT,
        )
        error.__cause__ = cause
        if self.foreign and self.taken:
            error.add_note(f"{some_of(self.foreign, SHOWN)}: {_FOREIGN}")
        if self.failed:
            error.add_note(f"others failed, too: {combined_error(self.failed, group_id)}")
        return error

    def too_late(self, group_id: str, now: float, obstacle: str, *, sent: bool) -> RequestTimedOut:
        """The error of the open partitions after the deadline.

        Args:
            group_id: The group.
            now: The time.
            obstacle: Why nothing could be sent, if that is so.
            sent: Some of its offsets are in flight.
        """
        last = next((w.error for w in self.open.values() if w.error is not None), None)
        text = (
            f"commit of {some_of(list(self.open), SHOWN)} by group {group_id} did not succeed in "
        )
        text += f"{now - self.begun:.1f} s" + (", and may still do" if sent else "")
        why = f"last: {last}" if last is not None else obstacle
        late = RequestTimedOut(f"{text}; {why}" if why else text)
        late.__cause__ = last
        return late


@dataclass(slots=True, eq=False, repr=False)
class PendingOffset(Generic[T]):
    """An offset to be committed.

    Attributes:
        offset: The offset.
        topic_id: Of the topic that it was read from, empty where brokers have no ids; None for an
            offset that was not read here.
        calls: The calls that wait for it, in their order.
        failures: How many attempts failed.
        retry_at: When it may be sent.
        error: Why it failed last.
        unknown_since: Since when the coordinator reports that there is no such partition.
        forgotten: The partition was revoked while it was in flight.
    """

    offset: OffsetAndMetadata
    topic_id: bytes | None = None
    calls: dict[Commit[T], None] = field(default_factory=dict)
    failures: int = 0
    retry_at: float = -math.inf
    error: KafkaError | None = None
    unknown_since: float = math.inf
    forgotten: bool = False

    def failed(self, error: KafkaError, now: float, again: float) -> None:
        """Record a failed attempt at ``now``; the next one may be sent at ``again``."""
        self.error = error
        self.failures += 1
        self.retry_at = again
        self.unknown_since = min(self.unknown_since, now) if is_unknown(error) else math.inf

    def fared_like(self, other: PendingOffset[T]) -> None:
        """Replace ``other``: take over its failures and its time of retry."""
        self.error, self.failures = other.error, other.failures
        self.retry_at, self.unknown_since = other.retry_at, other.unknown_since


class CommitQueue(Generic[T]):
    """The commits of one consumer.

    Args:
        group_id: For error texts.
        backoff: Delays between attempts.
        rng: For their jitter.
        patience: For how many seconds the coordinator may report a partition as unknown, of a topic
            of that id, before that is believed.
        topic_id_of: The id of the topic that an offset was read from; see ``PendingOffset``.

    Attributes:
        committed: The known committed offsets of the assigned partitions.
        calls: How many calls there were.
    """

    def __init__(
        self,
        group_id: str,
        backoff: Backoff,
        rng: random.Random,
        patience: Callable[[TopicPartition, bytes | None], float],
        topic_id_of: Callable[[TopicPartition, int], bytes | None] = lambda *offset: None,
    ) -> None:
        self._group_id = group_id
        self._backoff = backoff
        self._rng = rng
        self._patience = patience
        self._topic_id_of = topic_id_of
        self.committed: dict[TopicPartition, int] = {}
        self._obstacle = ""
        # What an attempt without a response may have committed, if it is more than is known.
        self._doubtful: dict[TopicPartition, OffsetAndMetadata] = {}
        # Offsets of attempts without a response, and when those failed: see ``repeats``.
        self._unanswered: dict[TopicPartition, tuple[frozenset[int], float]] = {}
        self._overtaken: dict[TopicPartition, tuple[OffsetAndMetadata, float]] = {}
        self._waiting: dict[TopicPartition, PendingOffset[T]] = {}
        self._sent: dict[TopicPartition, PendingOffset[T]] = {}
        self._open: dict[Commit[T], None] = {}
        self._deadlines: list[tuple[float, int, Commit[T]]] = []
        self._finished: list[Commit[T]] = []
        self.calls = 0
        self._failures = 0
        self._resume_at = -math.inf

    # Queries

    @property
    def idle(self) -> bool:
        """Nothing is to be sent, and nothing is in flight."""
        return not self._waiting and not self._sent

    @property
    def open(self) -> int:
        """How many calls have no outcome yet."""
        return len(self._open)

    def open_before(self, number: int) -> bool:
        """One of the first ``number`` calls has no outcome yet."""
        first = next(iter(self._open), None)
        return first is not None and first.number < number

    @property
    def deadline(self) -> float:
        """When the next call must have an outcome; infinite for none."""
        while self._deadlines and self._deadlines[0][2].done:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else math.inf

    @property
    def limit(self) -> float:
        """Until when a response to the attempt in flight is of use to any call."""
        deadlines = [
            call.deadline for pending_offset in self._sent.values() for call in pending_offset.calls
        ]
        return max(deadlines, default=-math.inf)

    @property
    def due(self) -> float:
        """When something that waits may be sent."""
        soonest = min(
            (pending_offset.retry_at for pending_offset in self._waiting.values()), default=math.inf
        )
        return max(soonest, self._resume_at)

    def latest(self, partition: TopicPartition) -> int | None:
        """The committed offset once all calls are done; None where it isn't known."""
        pending_offset = self._waiting.get(partition) or self._sent.get(partition)
        if pending_offset is not None and not pending_offset.forgotten:
            return pending_offset.offset.offset
        return None if partition in self._doubtful else self.committed.get(partition)

    def changes(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Those of ``offsets`` that are neither committed nor pending."""
        return {
            partition: wanted
            for partition, wanted in offsets.items()
            if self.latest(partition) != wanted.offset
        }

    def unconfirmed(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Those of ``offsets`` that aren't committed yet; pending ones are included."""
        pending, changed = self._waiting.keys() | self._sent.keys(), self.changes(offsets)
        return {key: at for key, at in offsets.items() if key in pending or key in changed}

    def wants(self, partition: TopicPartition) -> bool:
        """Whether the offset of ``partition`` in flight is still to be committed."""
        pending_offset = self._sent.get(partition)
        return pending_offset is not None and not pending_offset.forgotten

    def repeats(self, now: float) -> dict[TopicPartition, OffsetAndMetadata]:
        """Offsets that are committed, but after an older one without a response: commit them again.

        A broker processes that one even where its connection has ended, and may do so later; so
        this goes on for ``OVERTAKEN`` seconds.
        """
        pending = self._waiting.keys() | self._sent.keys()
        return {
            key: offset
            for key, (offset, since) in self._overtaken.items()
            if key not in pending and now >= since + REPEAT
        }

    def finished(self) -> list[Commit[T]]:
        """Return the calls that got an outcome since the last call of this method."""
        finished, self._finished = self._finished, []
        return finished

    # Calls

    def add(
        self,
        call: Commit[T],
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        is_ours: Callable[[TopicPartition], bool],
        *,
        at_least: bool = False,
    ) -> None:
        """Have ``offsets`` committed for ``call``.

        Args:
            call: A new one.
            offsets: What to commit.
            is_ours: Whether a partition is assigned; others are refused at once.
            at_least: Don't move an offset back: a higher one may be committed or pending.
        """
        call.number = self.calls
        self.calls += 1
        self._open[call] = None
        for partition, offset in offsets.items():
            if not is_ours(partition):
                call.foreign.append(partition)
                continue
            pending_offset = self._wish(partition, offset, at_least)
            if pending_offset is not None:
                pending_offset.calls[call] = None
                call.open[partition] = pending_offset
        if not call.open:
            self._finish(call)
        elif call.deadline < math.inf:
            heapq.heappush(self._deadlines, (call.deadline, call.number, call))
            if len(self._deadlines) > 2 * len(self._open) + _SLACK:
                self._deadlines = [entry for entry in self._deadlines if not entry[2].done]
                heapq.heapify(self._deadlines)

    def _wish(
        self, partition: TopicPartition, offset: OffsetAndMetadata, at_least: bool
    ) -> PendingOffset[T] | None:
        """Make or update the pending offset; None where nothing is left to commit."""
        waiting = self._waiting.get(partition)
        if at_least:
            sent = self._sent.get(partition)
            pending_offset = waiting or (sent if sent is not None and not sent.forgotten else None)
            if pending_offset is not None and pending_offset.offset.offset >= offset.offset:
                return pending_offset
            if pending_offset is None:
                doubtful = self._doubtful.get(partition)
                known = self.committed.get(partition)
                if doubtful is not None and doubtful.offset > offset.offset:
                    offset = doubtful
                elif doubtful is None and known is not None and known >= offset.offset:
                    return None
        if waiting is None:
            sent = self._sent.get(partition)
            if sent is not None and not sent.forgotten and sent.offset == offset:
                return sent
            waiting = self._waiting[partition] = PendingOffset(offset)
        waiting.offset, waiting.topic_id = offset, self._topic_id_of(partition, offset.offset)
        return waiting

    def join(
        self,
        now: float,
        deadline: float,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        at_least: bool = False,
    ) -> Commit[T] | None:
        """Have ``offsets`` committed with a call that waits already, instead of adding another one.

        Returns:
            The newest call of the same partitions, if all of them wait, and it has no more and not
            much less time left; else None, and nothing has changed.
        """
        found: Commit[T] | None = None
        for partition in offsets:
            pending_offset = self._waiting.get(partition)
            newest = (
                next(reversed(pending_offset.calls), None) if pending_offset is not None else None
            )
            if newest is None or (found is not None and newest is not found):
                return None
            found = newest
        if found is None or found.spoilt or len(found.open) != len(offsets):
            return None
        if not deadline * (1 - _SHARED) + now * _SHARED <= found.deadline <= deadline:
            return None
        for partition, offset in offsets.items():
            self._wish(partition, offset, at_least)
        return found

    def expire(self, now: float) -> None:
        """Fail calls whose deadline has passed; drop waiting offsets that no call waits for."""
        while self.deadline <= now:
            call = self._deadlines[0][2]
            sent = any(
                self._sent.get(key) is pending_offset for key, pending_offset in call.open.items()
            )
            late = call.too_late(self._group_id, now, self._obstacle, sent=sent)
            for partition, pending_offset in list(call.open.items()):
                self._decide(call, partition, late)
                if not pending_offset.calls and self._waiting.get(partition) is pending_offset:
                    del self._waiting[partition]

    # Attempts

    def take(
        self, now: float, is_ours: Callable[[TopicPartition], bool], obstacle: str = ""
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Take the offsets to send now, which are then in flight; none where that must wait.

        ``obstacle``: Why nothing can be sent at the moment, for error texts; empty if it can.
        """
        self._obstacle = obstacle
        for partition in [one for one in self._waiting if not is_ours(one)]:
            self._give_up(partition, self._waiting.pop(partition), None)
        if now < self._resume_at:
            return {}
        ready = [
            one for one, pending_offset in self._waiting.items() if pending_offset.retry_at <= now
        ]
        self._sent = {partition: self._waiting.pop(partition) for partition in ready}
        return {
            partition: pending_offset.offset for partition, pending_offset in self._sent.items()
        }

    @property
    def topic_ids(self) -> dict[TopicPartition, bytes | None]:
        """Ids of the topics that the offsets in flight were read from."""
        return {
            partition: pending_offset.topic_id for partition, pending_offset in self._sent.items()
        }

    def put_off(self, now: float) -> None:
        """Back off, as nothing can be sent at the moment."""
        self._resume_at = now + self._backoff.delay(self._failures, self._rng)
        self._failures += 1

    def retry_now(self) -> None:
        """Retry without further delay, as something changed that may help."""
        self._resume_at = -math.inf
        for pending_offset in self._waiting.values():
            pending_offset.retry_at = -math.inf

    def answered(
        self, answers: Mapping[TopicPartition, KafkaError | None], now: float, *, outdated: bool
    ) -> None:
        """Process the outcome of the attempt in flight.

        Args:
            answers: The outcome of each partition: None, or its error.
            now: The time.
            outdated: The member was in another generation when the response came, so offsets that
                were refused for their generation may be sent again for the partitions it kept.
        """
        sent, self._sent = self._sent, {}
        if all(error is not None and _concerns_all(error) for error in answers.values()):
            self.put_off(now)
        else:
            self._failures, self._resume_at = 0, -math.inf
        failures = max((pending_offset.failures for pending_offset in sent.values()), default=0)
        # One time for all, so that they are sent together again.
        again = max(now + self._backoff.delay(failures, self._rng), self._resume_at)
        for partition, pending_offset in sent.items():
            self._answer(partition, pending_offset, answers[partition], now, again, outdated)

    def _answer(
        self,
        partition: TopicPartition,
        pending_offset: PendingOffset[T],
        error: KafkaError | None,
        now: float,
        again: float,
        outdated: bool,
    ) -> None:
        if error is None:
            if not pending_offset.forgotten:
                self.committed[partition] = pending_offset.offset.offset
                self._doubtful.pop(partition, None)
                self._overtaken.pop(partition, None)
                others, since = self._unanswered.get(partition, (frozenset(), -math.inf))
                if now >= since + OVERTAKEN:
                    self._unanswered.pop(partition, None)
                elif others - {pending_offset.offset.offset}:
                    self._overtaken[partition] = pending_offset.offset, now
            self._settle(partition, pending_offset, None)
            return
        what = commit_error_action(error)
        if pending_offset.forgotten or (what is CommitErrorAction.FENCED and not outdated):
            self._give_up(partition, pending_offset, error)
        elif what is CommitErrorAction.REFUSED:
            self._settle(partition, pending_offset, error)
        else:
            pending_offset.failed(error, now, again)
            if is_unknown(error):
                self._lose_patience(partition, pending_offset, error, now)
            elif what is CommitErrorAction.RETRY:
                self._doubtful[partition] = pending_offset.offset
                if not isinstance(error, BrokerError):
                    others, _ = self._unanswered.get(partition, (frozenset(), now))
                    self._unanswered[partition] = others | {pending_offset.offset.offset}, now
            self._wait_again(partition, pending_offset)

    def _lose_patience(
        self,
        partition: TopicPartition,
        pending_offset: PendingOffset[T],
        error: KafkaError,
        now: float,
    ) -> None:
        """Refuse calls for which the partition has been reported as unknown for long enough."""
        since = now - self._patience(partition, pending_offset.topic_id)
        if pending_offset.unknown_since <= since:
            for call in [one for one in pending_offset.calls if one.begun <= since]:
                self._decide(call, partition, error)

    def _wait_again(self, partition: TopicPartition, pending_offset: PendingOffset[T]) -> None:
        later = self._waiting.get(partition)
        if later is None:
            if pending_offset.calls:
                self._waiting[partition] = pending_offset
            return
        for call in pending_offset.calls:
            call.open[partition] = later
        later.calls = {**pending_offset.calls, **later.calls}
        later.fared_like(pending_offset)

    # Assigned and revoked partitions

    def learned(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Record offsets that the coordinator reports as committed, unless newer ones are known."""
        for partition, found in offsets.items():
            self.committed.setdefault(partition, found.offset)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop partitions that are no longer assigned: nothing of them is sent again."""
        for partition in partitions:
            self.committed.pop(partition, None)
            self._doubtful.pop(partition, None)
            self._unanswered.pop(partition, None)
            self._overtaken.pop(partition, None)
            if partition in self._sent:
                self._sent[partition].forgotten = True
            pending_offset = self._waiting.pop(partition, None)
            if pending_offset is not None:
                self._give_up(partition, pending_offset, None)

    def end(self, error: KafkaError) -> None:
        """Fail all calls: nothing will be sent any more."""
        for partition, pending_offset in [*self._waiting.items(), *self._sent.items()]:
            self._settle(partition, pending_offset, error)
        self._waiting, self._sent = {}, {}

    # Outcomes

    def _settle(
        self, partition: TopicPartition, pending_offset: PendingOffset[T], error: KafkaError | None
    ) -> None:
        for call in list(pending_offset.calls):
            self._decide(call, partition, error)

    def _give_up(
        self, partition: TopicPartition, pending_offset: PendingOffset[T], error: KafkaError | None
    ) -> None:
        for call in list(pending_offset.calls):
            call.taken[partition] = error
            self._decide(call, partition, None)

    def _decide(self, call: Commit[T], partition: TopicPartition, error: KafkaError | None) -> None:
        call.open.pop(partition).calls.pop(call)
        if error is not None:
            call.failed[partition] = error
        if not call.open:
            self._finish(call)

    def _finish(self, call: Commit[T]) -> None:
        del self._open[call]
        call.finish(self._group_id)
        self._finished.append(call)


def _concerns_all(error: KafkaError) -> bool:
    """Whether offsets of other partitions had better wait, too."""
    return commit_error_action(error) in (
        CommitErrorAction.RETRY,
        CommitErrorAction.REBALANCING,
    ) and not is_unknown(error)

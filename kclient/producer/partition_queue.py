"""The batches of one partition, in order, and which of them may be sent now.

``sealed`` holds batches that were never sent, ``outstanding`` those that were and are not settled:
in flight, waiting for a retry, or abandoned while their response is awaited. Both together are in
the order of the log. The rules that keep it:

* At most ``max_in_flight`` are outstanding, and only one until the first of an identity is
  acknowledged. From the oldest outstanding one on, at most five were sent, acknowledged ones
  included: brokers remember that many, and must recognise a duplicate.
* As soon as one must be retried, only the first outstanding one is sent, one at a time.
* A gap in the sequence numbers stops new batches (see ``idempotence``); a proven gap stops all,
  until every response has arrived and batches in doubt were sent again, one at a time, to learn
  whether the log has them; then the waiting ones are renumbered under a new epoch.
* A batch that is too large for the broker is split in place, within its own numbers.
* When the topic was recreated, its new log has none of our sequence numbers. Batches that were sent
  keep theirs, since either log may have received them; those behind wait for the responses, and
  then the numbers start over.

One source, two builds: compiled as ``_partition_queue_c`` with the C types of its ``.pxd``; other
modules import ``PartitionQueue`` from ``_compiled``. The accumulator owns these queues; the sender
drives them. The numbers of its batches are a state machine of its own, ``PartitionSequences``;
``idempotence`` describes the theory. Sans-IO.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kclient.producer.batch_states import UNDER_WAY, BatchEvent, BatchState
from kclient.producer.idempotence import SEQUENCE_TRANSITIONS, SequenceEvent, SequenceState
from kclient.transitions import step
from kclient.types import TopicPartition

if TYPE_CHECKING:
    import cython  # type: ignore[import-untyped]

    from kclient.producer.idempotence import ProducerIdAndEpoch
else:
    from kclient.record import _cython as cython

if not cython.compiled:  # else the .pxd has them
    from kclient.producer.batch import ProducerBatch
    from kclient.producer.delivery import BatchOutcome
    from kclient.record import BatchBuilder

WINDOW = 5
"""Batches of a producer id that a leader remembers (Kafka's NUM_BATCHES_TO_RETAIN)."""
SMALLEST_LIMIT = 512
"""Lower bound, in bytes, of a batch limit that was learned from MESSAGE_TOO_LARGE."""
_SEALED = BatchState.SEALED
_RETRYING = BatchState.RETRYING
_SEND = BatchEvent.SEND
_ACKNOWLEDGE = BatchEvent.ACKNOWLEDGE
_STEADY = SequenceState.STEADY
_BROKEN = SequenceState.BROKEN
_UNRESOLVED = SequenceState.UNRESOLVED


@cython.cclass
class PartitionSequences:
    """The sequence numbers of one partition.

    Attributes:
        state: What is known about them.
        identity: Producer id and epoch in use; None before the first batch.
        next: Sequence that the next new batch gets.
        acked_end: Sequence after the last acknowledged record.
        gap_end: Sequence after the last batch that failed without being resolved, in UNRESOLVED.
    """

    __slots__ = ("acked_end", "gap_end", "identity", "next", "state")

    def __init__(self) -> None:
        self.state = _STEADY
        self.identity: ProducerIdAndEpoch | None = None
        self.next = 0
        self.acked_end = 0
        self.gap_end = 0

    def take(self, count: int) -> int:
        """Allocate ``count`` numbers; return the first."""
        first = self.next
        self.next += count
        return first

    def acknowledged(self, end: int) -> None:
        """Note that the log has everything before ``end``."""
        if end > self.acked_end:
            self.acked_end = end
        if self.state is _UNRESOLVED and self.acked_end >= self.gap_end:
            self._apply(SequenceEvent.RESOLVE)

    def given_up(self, end: int) -> None:
        """Note that a batch whose numbers end at ``end`` won't be sent again."""
        if end <= self.acked_end:
            return  # a later batch was written, so the log has this one as well
        self.gap_end = max(self.gap_end, end)
        self._apply(SequenceEvent.GIVE_UP)

    def broken(self) -> None:
        """Note that the numbers can't be continued."""
        self._apply(SequenceEvent.BREAK)

    def start(self, identity: ProducerIdAndEpoch) -> None:
        """Number this partition's first batch under ``identity``."""
        if self.identity is not None:
            raise RuntimeError("a partition starts once; later identities come by renew()")
        self.identity = identity

    def renew(self, identity: ProducerIdAndEpoch) -> None:
        """Start over at 0 under ``identity``."""
        self._apply(SequenceEvent.RENEW)
        self.identity = identity
        self.next = self.acked_end = self.gap_end = 0

    def _apply(self, event: SequenceEvent) -> None:
        self.state = step(SEQUENCE_TRANSITIONS, self.state, event)


@cython.cclass
class PartitionQueue:
    """One partition's batches.

    Args:
        open_batches: The open batches of all partitions of the topic.

    Attributes:
        topic: Topic name.
        index: Partition index.
        topic_partition: Topic and partition.
        leader: Node id of the last known leader, -1 without one.
        leader_epoch: Of the last leader that had one, -1 where brokers don't report it.
        sealed: Batches that were never sent, oldest first.
        outstanding: Batches that were sent and aren't settled, in the order of the log.
        sequences: The sequence numbers; None without idempotence.
        batch_limit: Bytes of a new batch.
        filled: Bytes of the batch that was sealed last.
    """

    __slots__ = (
        "_doubted_end",
        "_forgotten",
        "_log_is_new",
        "_max_in_flight",
        "_next_ordinal",
        "_open_batches",
        "_retrying",
        "batch_limit",
        "filled",
        "index",
        "leader",
        "leader_epoch",
        "outstanding",
        "sealed",
        "sequences",
        "topic",
        "topic_partition",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        open_batches: list[ProducerBatch | None],
        *,
        idempotent: bool,
        max_in_flight: int,
        batch_limit: int,
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_partition = TopicPartition(topic, index)
        self.leader = -1
        self.leader_epoch = -1
        self.sealed: deque[ProducerBatch] = deque()
        self.outstanding: deque[ProducerBatch] = deque()
        self.sequences = PartitionSequences() if idempotent else None
        self.batch_limit = batch_limit
        self.filled = 0
        self._open_batches = open_batches
        self._max_in_flight = max_in_flight
        self._retrying = 0
        self._next_ordinal = 0
        self._doubted_end = 0  # sequence after the last failed batch that the log may have
        self._forgotten = False
        self._log_is_new = False

    @property
    def open(self) -> ProducerBatch | None:
        """The batch that accepts records, or None."""
        return self._open_batches[self.index]

    def begin(self, batch: ProducerBatch) -> None:
        """Make ``batch`` the open batch; there must be none."""
        self._open_batches[self.index] = batch

    @property
    def backlog(self) -> int:
        """Batches that aren't settled."""
        return len(self.sealed) + len(self.outstanding) + (self.open is not None)

    @property
    def idle(self) -> bool:
        """True if no batch is waiting or in flight."""
        return self._open_batches[self.index] is None and not self.sealed and not self.outstanding

    def needs_identity(self) -> bool:
        """Return whether a batch waits that can't be numbered without a new identity."""
        sequences = self.sequences
        if sequences is None:
            return False
        if sequences.state is _BROKEN:
            return self.drained() and self._next_repeat() is None
        return sequences.identity is None and (bool(self.sealed) or self.open is not None)

    def drained(self) -> bool:
        """Return whether no response is awaited."""
        return all(batch.state not in UNDER_WAY for batch in self.outstanding)

    def seal_open(self) -> ProducerBatch | None:
        """Close the open batch to more records and return it; None if there is none."""
        batch = self._open_batches[self.index]
        if batch is not None:
            builder = batch.seal()
            for wait in batch.flushes or ():
                wait.unsent += batch.reserved
            self.filled = builder.size_bytes
            self._open_batches[self.index] = None
            self.sealed.append(batch)
        return batch

    def next_batch(self, now: float) -> ProducerBatch | None:
        """Return the batch that may be sent now, or None. Seal an open one that has lingered."""
        if self._retrying:
            return self.next_repeat(now)
        if not self.sealed:
            head = self._open_batches[self.index]
            if head is None or not head.linger_over:
                return None
        if not self.may_send_new():
            return None
        if not self.sealed:
            self.seal_open()
        head = self.sealed[0]
        return head if head.retry_at <= now else None

    def next_repeat(self, now: float) -> ProducerBatch | None:
        """Return the batch that is to be sent again now, or None."""
        head = self._next_repeat() if self._retrying else None
        return head if head is not None and head.retry_at <= now else None

    def set_leader(self, leader: int, epoch: int) -> None:
        """Set the broker to send to; with a new epoch, end back-offs that the old leader caused.

        Without a new epoch brokers may be naming two leaders alternately: then back-offs go on.
        """
        self.leader = leader
        if leader < 0 or epoch < 0 or epoch == self.leader_epoch:
            return
        self.leader_epoch = epoch
        for batch in (*self.outstanding, *self.sealed):
            batch.attempts_elsewhere = batch.attempts
            batch.retry_at = 0.0

    def may_send_new(self) -> bool:
        """Return whether a batch that was never sent may be sent now."""
        if self._retrying or len(self.outstanding) >= self._max_in_flight or self._log_is_new:
            return False
        sequences = self.sequences
        if sequences is None:
            return True
        if sequences.state is not _STEADY or sequences.identity is None:
            return False
        if not self.outstanding:
            return True
        # A leader without state for our id accepts any number, so the first must be acknowledged
        # first. And it must still remember the oldest, although later ones may be acknowledged.
        window = self._next_ordinal - self.outstanding[0].ordinal
        return sequences.acked_end > 0 and window < WINDOW

    def retry_due(self) -> float | None:
        """Return when the next batch's back-off ends; None if no batch waits for that."""
        if self._retrying:
            head = self._next_repeat()
            return None if head is None else head.retry_at
        return self.sealed[0].retry_at if self.sealed else None

    def _next_repeat(self) -> ProducerBatch | None:
        """Return the batch that is to be sent again, with its old numbers; None for none now.

        With broken numbering that is one in doubt: a broker that remembers this producer
        recognises it.
        """
        sequences = self.sequences
        if sequences is None or sequences.state is not _BROKEN:
            head = self.outstanding[0]
            return head if head.state is _RETRYING else None
        if self._forgotten or not self.drained():
            return None
        for batch in self.outstanding:
            if batch.maybe_written and not batch.split_in_doubt:
                return batch
        return None

    def adopt(self, identity: ProducerIdAndEpoch) -> None:
        """Start, or start over, under ``identity``; renumber waiting batches of the old one.

        Must be called only when ``needs_identity()`` is true.
        """
        sequences = self.sequences
        if sequences is None:
            raise RuntimeError("a partition without idempotence has no identity")
        if sequences.identity is None:
            sequences.start(identity)
            return
        sequences.renew(identity)
        self._forgotten = self._log_is_new = False
        self._doubted_end = 0
        while self.outstanding:
            batch = self.outstanding.pop()
            batch.apply(BatchEvent.RENUMBER)
            batch.sequence = -1
            self.sealed.appendleft(batch)
        self._retrying = 0

    def leave_transaction(self) -> None:
        """Send nothing more until ``adopt`` is called again. It must be idle.

        The numbers stay, unless they are of a log that was replaced.
        """
        if self._log_is_new:
            self.restart_numbers()
        elif self.sequences is not None:
            self.sequences.identity = None

    def restart_numbers(self) -> None:
        """Forget the numbers: they belong to an epoch that has ended. It must be idle."""
        self.sequences = PartitionSequences()
        self._forgotten = self._log_is_new = False
        self._doubted_end = 0

    def sent(self, batch: ProducerBatch) -> bool:
        """Put ``batch``, from ``next_batch``, in flight; return whether others wait behind it."""
        first_time = batch.state is _SEALED
        batch.apply(_SEND)
        if batch.flushes is not None and not batch.attempts:
            self._left(batch)
        batch.attempts += 1
        if first_time:
            self.sealed.popleft()
            self.outstanding.append(batch)
            batch.ordinal = self._next_ordinal
            self._next_ordinal += 1
            sequences = self.sequences
            if sequences is not None and sequences.identity is not None:
                batch.producer_id, batch.producer_epoch = sequences.identity
                batch.sequence = sequences.take(batch.outcome.count)
        else:
            self._retrying -= 1
        return bool(self.sealed) or self._open_batches[self.index] is not None

    def is_first(self, batch: ProducerBatch) -> bool:
        """Return whether everything before ``batch`` is settled."""
        return bool(self.outstanding) and self.outstanding[0] is batch

    def is_broken(self) -> bool:
        """Return whether the numbers are broken: sending then only shows what the log has."""
        return self.sequences is not None and self.sequences.state is _BROKEN

    def acknowledged(self, batch: ProducerBatch) -> None:
        """Complete ``batch``, which the broker has."""
        batch.apply(_ACKNOWLEDGE)
        outstanding, sequences = self.outstanding, self.sequences
        if outstanding[0] is batch:
            outstanding.popleft()
        else:
            outstanding.remove(batch)
        if sequences is not None:
            sequences.acknowledged(batch.sequence + batch.outcome.count)
            if not outstanding:
                self._conclude()

    def retry(self, batch: ProducerBatch, at: float) -> None:
        """Have ``batch`` sent again, not before ``at``; an abandoned one is dropped instead."""
        if batch.apply(BatchEvent.RETRY) is _RETRYING:
            batch.retry_at = at
            self._retrying += 1
            self._conclude()
        else:
            self._give_up(batch)

    def rejected(self, batch: ProducerBatch) -> None:
        """Remove ``batch``, which has failed, in any state (an open one must be sealed first)."""
        was_retrying = batch.state is _RETRYING
        was_sent = batch.state is not _SEALED
        batch.apply(BatchEvent.REJECT)
        self._removed(batch, was_sent=was_sent, was_retrying=was_retrying)

    def expired(self, batch: ProducerBatch) -> None:
        """Expire ``batch`` (``delivery_timeout``); one in flight stays until its response."""
        if batch is self.open:
            self.seal_open()
        was_retrying = batch.state is _RETRYING
        was_sent = batch.state is not _SEALED
        if batch.apply(BatchEvent.EXPIRE) is BatchState.FAILED:
            self._removed(batch, was_sent=was_sent, was_retrying=was_retrying)

    def topic_recreated(self) -> None:
        """Start the numbers over for a recreated topic, once the old batches are settled."""
        if self.sequences is not None and self.sequences.identity is not None:
            self._log_is_new = True
            self._conclude()

    def lost_numbering(self, *, gap_proven: bool) -> None:
        """Mark the numbers as broken: start over once every response has arrived.

        With ``gap_proven`` the broker rejected a batch behind a known gap, so it remembers this
        producer, unless it forgot it before the first batch behind the gap: sending those in doubt
        again shows which. Without, its log may well have batches that it doesn't remember.
        """
        if self.sequences is not None:
            self._forgotten = self._forgotten or not gap_proven
            self.sequences.broken()

    def refused_behind_gap(self, batch: ProducerBatch) -> None:
        """Note that the log doesn't have ``batch``, unless in other parts of a split."""
        if not self._forgotten and not batch.split_in_doubt:
            batch.maybe_written = False

    def doubtful(self) -> list[ProducerBatch]:
        """Return the batches that must not be renumbered.

        Either the log may have them, or it has or may have batches that were sent behind them, so
        that renumbering would reorder them.
        """
        sequences = self.sequences
        acked_end = 0 if sequences is None else sequences.acked_end
        overtaken = max(acked_end, self._doubted_end)
        in_doubt = False
        found: list[ProducerBatch] = []
        for batch in reversed(self.outstanding):
            in_doubt = in_doubt or batch.maybe_written
            if in_doubt or 0 <= batch.sequence < overtaken:
                found.append(batch)
        found.reverse()
        return found

    def split(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Replace ``batch``, which was too large for the broker, by smaller ones; return them."""
        builder = batch.records()
        limit = builder.size_bytes // 2
        parts = [self._part(batch, part) for part in builder.split(limit)]
        batch.apply(BatchEvent.SPLIT)
        sequence = batch.sequence
        for part in parts:
            if sequence >= 0:
                part.producer_id, part.producer_epoch = batch.producer_id, batch.producer_epoch
                part.sequence = sequence
                sequence += part.record_count
        where = self.outstanding.index(batch)
        del self.outstanding[where]
        for later in list(self.outstanding)[where:]:
            later.ordinal += len(parts) - 1
        self._next_ordinal += len(parts) - 1
        for offset, part in enumerate(parts):
            part.ordinal = batch.ordinal + offset
            self.outstanding.insert(where + offset, part)
        self._retrying += len(parts)
        self.batch_limit = min(self.batch_limit, max(limit, SMALLEST_LIMIT))
        batch.outcome.divide([part.outcome for part in parts])
        return parts

    def _part(self, whole: ProducerBatch, builder: BatchBuilder) -> ProducerBatch:
        outcome = BatchOutcome(whole.outcome.host, self.topic, self.index)
        part = ProducerBatch(self, builder, outcome, whole.created, whole.deadline)
        part.state = BatchState.RETRYING
        part.attempts = whole.attempts
        part.attempts_elsewhere = whole.attempts_elsewhere
        part.maybe_written = whole.maybe_written
        part.split_in_doubt = whole.split_in_doubt or whole.maybe_written
        part.last_error = whole.last_error
        outcome.count = builder.record_count
        return part

    def _left(self, batch: ProducerBatch) -> None:
        """Have the flushes of ``batch`` no longer count it as unsent."""
        for wait in batch.flushes or ():
            wait.left(batch.reserved)

    def _removed(self, batch: ProducerBatch, *, was_sent: bool, was_retrying: bool) -> None:
        if not was_sent:
            self.sealed.remove(batch)
            if not batch.attempts:
                self._left(batch)
            return
        if was_retrying:
            self._retrying -= 1
        self._give_up(batch)

    def _give_up(self, batch: ProducerBatch) -> None:
        self.outstanding.remove(batch)
        if self.sequences is not None and batch.sequence >= 0:
            self.sequences.given_up(batch.end_sequence)
            if batch.maybe_written:
                self._doubted_end = max(self._doubted_end, batch.end_sequence)
        self._conclude()

    def _conclude(self) -> None:
        """Break unresolved numbers when no outstanding batch is left to resolve the gap."""
        sequences = self.sequences
        if sequences is None or self.outstanding:
            return
        if sequences.state is _UNRESOLVED or self._log_is_new:
            sequences.broken()

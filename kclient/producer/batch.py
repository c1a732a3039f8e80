"""One batch of records as a state machine.

A batch is filled while OPEN, closed to more records when SEALED, and then sent to a broker, maybe
several times. Timeouts need a state of their own: when ``delivery_timeout`` passes while a request
is in flight, the deliveries fail at once, but the batch's bytes and sequence numbers stay reserved
until the response (or the end of the connection) shows whether it was written. That state is
ABANDONED; clients that lacked it lost or duplicated records.

One source, two builds: compiled as ``_batch_c`` with the C types of ``_batch_c.pxd``; other modules
import ``ProducerBatch`` from ``kclient.producer._compiled``. Created by the accumulator, moved by
``partition_queue``; holds no rules about when to send. Sans-IO.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.producer.batch_states import TRANSITIONS, BatchEvent, BatchState
from kclient.producer.idempotence import SEQUENCE_MASK
from kclient.transitions import step

if TYPE_CHECKING:
    import cython  # type: ignore[import-untyped]

    from kclient.errors import KafkaError
    from kclient.producer.flush import FlushWait
    from kclient.producer.partition_queue import PartitionQueue
    from kclient.producer.produce_request import BatchRequest, EncodedBatch
else:
    from kclient.record import _cython as cython

if not cython.compiled:  # else the .pxd has them
    from kclient.producer.delivery import BatchOutcome
    from kclient.record import BatchBuilder

_OPEN = BatchState.OPEN
_SEALED = BatchState.SEALED
_SEAL = BatchEvent.SEAL


_SETTLED = BatchOutcome(None, "", -1)  # type: ignore[arg-type]
"""Replaces the outcome of settled batches. It never changes, so it has no host."""


@cython.cclass
class ProducerBatch:
    """A batch and its state in the producer.

    Attributes:
        queue: The queue of its partition.
        builder: Its records; None once it is DONE, FAILED or SPLIT.
        outcome: The result that its deliveries share.
        state: Its state in the machine.
        created: ``now`` of its first record.
        deadline: When its deliveries fail.
        retry_at: It must not be sent again before this time.
        attempts: How often it was sent.
        attempts_elsewhere: Attempts before its partition got its present leader.
        maybe_written: An attempt ended without showing whether the log has the batch.
        last_error: The error of the last attempt.
        sequence: Sequence of its first record in the partition, not wrapped; -1 without.
        producer_id: The producer id that it is numbered under.
        producer_epoch: The epoch of that id.
        ordinal: How many batches of its partition were sent, for the first time, before it.
        reserved: Bytes of the memory budget that it holds.
        watcher: The ``send_many`` or ``send_arrow`` that appends to it and waits for it.
        compressing: A thread is compressing it.
        compressed: Compression has finished.
        request: The request that it is in, while in flight.
        split_in_doubt: It is part of a batch that the log may have: the broker doesn't recognise
            the part as a duplicate, so an error for it proves nothing.
        flushes: The flushes that wait for it.
        linger_over: Its linger is over: it is sent as soon as its partition may send.
    """

    __slots__ = (
        "attempts",
        "attempts_elsewhere",
        "builder",
        "compressed",
        "compressing",
        "created",
        "deadline",
        "flushes",
        "last_error",
        "linger_over",
        "maybe_written",
        "ordinal",
        "outcome",
        "producer_epoch",
        "producer_id",
        "queue",
        "request",
        "reserved",
        "retry_at",
        "sequence",
        "split_in_doubt",
        "state",
        "watcher",
    )

    def __init__(
        self,
        queue: PartitionQueue,
        builder: BatchBuilder,
        outcome: BatchOutcome,
        created: float,
        deadline: float,
    ) -> None:
        self.queue = queue
        self.builder: BatchBuilder | None = builder
        self.outcome = outcome
        self.state = _OPEN
        self.created = created
        self.deadline = deadline
        self.retry_at = 0.0
        self.linger_over = False
        self.attempts = 0
        self.attempts_elsewhere = 0
        self.maybe_written = False
        self.split_in_doubt = False
        self.last_error: KafkaError | None = None
        self.sequence = -1
        self.producer_id = -1
        self.producer_epoch = -1
        self.ordinal = -1
        self.reserved = 0
        self.watcher: object = None
        self.compressing = False
        self.compressed = False
        self.request: BatchRequest | None = None
        self.flushes: list[FlushWait] | None = None

    def watch(self, wait: FlushWait) -> None:
        """Have ``wait`` notified when the batch is settled; repeated calls have no effect."""
        if self.flushes is None:
            self.flushes = []
        if wait not in self.flushes:
            self.flushes.append(wait)
            wait.pending += 1
            if self.state is _SEALED and not self.attempts:
                wait.unsent += self.reserved

    @property
    def attempts_here(self) -> int:
        """Attempts since its partition got its present leader, if brokers report leader epochs."""
        return self.attempts - self.attempts_elsewhere

    @property
    def record_count(self) -> int:
        """Records in it."""
        return self.outcome.count

    @property
    def end_sequence(self) -> int:
        """Sequence of the record after its last."""
        return self.sequence + self.outcome.count

    def records(self) -> BatchBuilder:
        """Return the builder of a batch that still has one."""
        if self.builder is None:
            raise RuntimeError(f"a batch in state {self.state.name} has no records any more")
        return self.builder

    def encode(self) -> EncodedBatch:
        """Return its parts in a request: index of the partition, batch header, and records."""
        sequence = self.sequence & SEQUENCE_MASK if self.sequence >= 0 else -1
        head, body = self.records().parts(self.producer_id, self.producer_epoch, sequence)
        return self.queue.index, head, body

    def apply(self, event: BatchEvent) -> BatchState:
        """Apply ``event`` and return the new state; IllegalTransition if this state forbids it."""
        state = TRANSITIONS[self.state].get(event)
        if state is None:
            state = step(TRANSITIONS, self.state, event)
        self.state = state
        return state

    def forget(self) -> None:
        """Release everything large, and the outcome, once the batch is settled.

        Deadline queues may hold a batch until its deadline; its outcome must be released before
        that, so that failures that were never awaited are reported.
        """
        self.builder = None
        self.flushes = self.watcher = None
        self.request = None
        self.outcome = _SETTLED

    def seal(self) -> BatchBuilder:
        """Close the batch to more records and return its builder."""
        self.apply(_SEAL)
        builder = self.records()
        builder.trim()
        self.outcome.count = builder.record_count
        return builder

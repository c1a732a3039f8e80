"""One batch of records on its way, as a state machine.

A batch is filled while OPEN, closed to more records when SEALED, and then goes to a broker, maybe
several times. What makes this a machine is time: when ``delivery_timeout`` passes while a
request is under way, the user is told at once, but the batch's bytes and sequence numbers stay
spoken for until the answer (or the end of the connection) says what became of them. That state
is ABANDONED; forgetting it is how clients lost or doubled records.

One source, two builds: compiled as ``_batch_c`` with the C types of ``_batch_c.pxd``; others take
``ProducerBatch`` from ``kclient.producer._compiled``. Made by the accumulator, moved by
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
"""Stands in for those of settled batches. Nothing happens to it, so it has no host."""


@cython.cclass
class ProducerBatch:
    """A batch with what the producer must remember about it.

    Attributes:
        queue: The partition that it belongs to.
        builder: Its records; None once it is DONE, FAILED or SPLIT.
        outcome: What its deliveries look at.
        state: Where it is.
        created: ``now`` of its first record.
        deadline: When its deliveries fail.
        retry_at: Not to be sent again before.
        attempts: How often it was sent.
        attempts_elsewhere: How often of that before its partition got the leader that it has.
        maybe_written: An attempt ended in a way that doesn't tell whether the log has it.
        last_error: What the last attempt failed with.
        sequence: Count of its first record in the partition's numbering, -1 without.
        producer_id: Who numbered it.
        producer_epoch: In which epoch.
        ordinal: How many of its partition were sent before it, for the first time.
        reserved: Bytes of the memory budget that it holds.
        watcher: The ``send_many`` or ``send_arrow`` that puts records in and is told of it.
        compressing: A thread is at it.
        compressed: Compression is over.
        request: The request that it is in, while under way.
        split_in_doubt: It is part of a batch that the log may have: a repeat of the part isn't
            recognised there, so being refused proves nothing about it.
        flushes: Who waits for it.
        linger_over: It has lingered, and is to go as soon as its partition may send.
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
        """Have ``wait`` told when the batch is settled; only once, however often it is asked."""
        if self.flushes is None:
            self.flushes = []
        if wait not in self.flushes:
            self.flushes.append(wait)
            wait.pending += 1
            if self.state is _SEALED and not self.attempts:
                wait.unsent += self.reserved

    @property
    def attempts_here(self) -> int:
        """How often it was sent since its partition got its leader, where brokers tell epochs."""
        return self.attempts - self.attempts_elsewhere

    @property
    def record_count(self) -> int:
        """Records in it."""
        return self.outcome.count

    @property
    def end_sequence(self) -> int:
        """Count of the record after its last."""
        return self.sequence + self.outcome.count

    def records(self) -> BatchBuilder:
        """The builder of a batch that still has one."""
        if self.builder is None:
            raise RuntimeError(f"a batch in state {self.state.name} has no records any more")
        return self.builder

    def encode(self) -> EncodedBatch:
        """What a request has of it: index of the partition, batch header, and records."""
        sequence = self.sequence & SEQUENCE_MASK if self.sequence >= 0 else -1
        head, body = self.records().parts(self.producer_id, self.producer_epoch, sequence)
        return self.queue.index, head, body

    def apply(self, event: BatchEvent) -> BatchState:
        """Take one step; IllegalTransition if ``event`` can't happen in this state."""
        state = TRANSITIONS[self.state].get(event)
        if state is None:
            state = step(TRANSITIONS, self.state, event)
        self.state = state
        return state

    def forget(self) -> None:
        """It is settled: let go of everything large, and of what others wait to see gone.

        Due lists may hold a batch until its time; its outcome must be free before that, so that
        failures that nobody looked at come to light.
        """
        self.builder = None
        self.flushes = self.watcher = None
        self.request = None
        self.outcome = _SETTLED

    def seal(self) -> BatchBuilder:
        """Take no more records; what is in it."""
        self.apply(_SEAL)
        builder = self.records()
        builder.trim()
        self.outcome.count = builder.record_count
        return builder

"""Records in, batches per partition out: which batches wait, where, and which may be sent now.

Admission appends records here; the sender reads ``ready``, takes batches out through their
``PartitionQueue`` and reports their outcome. Nothing walks all partitions: there are ready queues
by leader, and deadline queues for linger, retries and delivery timeouts.
Sans-IO; ``append`` is the hottest function of the producer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.producer._compiled import (
    BatchOutcome,
    Delivery,
    MemoryBudget,
    PartitionQueue,
    ProducerBatch,
    StickyPartitioner,
    TopicState,
)
from kclient.producer.batch_states import BatchState
from kclient.producer.deadline_queue import DeadlineQueue
from kclient.record import BatchBuilder

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

    from kclient.config import ProducerConfig
    from kclient.producer.delivery import DeliveryHost
    from kclient.producer.outgoing import Content
    from kclient.producer.transactions import Transactions

NO_LEADER = -1

_OPEN_AT_MOST = 1.0
"""Seconds for which a batch accepts records beyond linger while it can't be sent."""
BATCH_UPKEEP = 1536
"""Approximate bytes that a batch takes in addition to its records."""
_SEALED_PER_TURN = 4
"""Batches sealed between two yields to the loop. With a yield after each one, the sender would put
each batch into a request of its own."""
_UPKEEP_SHARE = 4
"""The overhead of batches may exceed the memory budget by this fraction of it; more is counted."""
_FREE_BATCHES = 40
"""Batches whose overhead is never counted, however small the budget is."""
_SPARE_BYTES = 4 * 1024 * 1024
"""Most memory of settled batches that is kept for new ones: that of several responses."""

_SETTLED = frozenset({BatchState.DONE, BatchState.FAILED, BatchState.SPLIT})


def _is_unsettled(batch: ProducerBatch) -> bool:
    return batch.state not in _SETTLED and batch.state is not BatchState.ABANDONED


def _is_open(batch: ProducerBatch) -> bool:
    return batch.state is BatchState.OPEN


def _may_retry(queue: PartitionQueue) -> bool:
    return bool(queue.outstanding) or bool(queue.sealed)


class TopicQueues:
    """The partitions of one topic that records were sent to.

    Attributes:
        name: The topic.
        topic_id: The latest known id, None if no broker has reported one.
        count: Partitions; it never shrinks for the same topic id, as stale brokers report fewer.
        leaders: Leader of each partition, ``NO_LEADER`` without one.
        epochs: Leader epoch of each partition, -1 where brokers don't report it.
        sticky: Chooses partitions for records without a key.
        topic_state: The part of this that ``RecordAppender`` reads.
    """

    def __init__(self, name: str, switch_bytes: int, rng: random.Random) -> None:
        self.name = name
        self.topic_id: bytes | None = None
        self.count = 0
        self.leaders: Sequence[int] = ()
        self.epochs: Sequence[int] = ()
        self.queues: list[PartitionQueue | None] = []
        self.sticky = StickyPartitioner(switch_bytes, rng, self._backlog)
        self.topic_state = TopicState(self.sticky)
        self._available: list[int] | None = None

    def learn(self, leaders: Sequence[int], epochs: Sequence[int], topic_id: bytes | None) -> None:
        """Apply the topic's metadata."""
        if topic_id is not None and topic_id == self.topic_id and len(leaders) < self.count:
            return
        if None not in (topic_id, self.topic_id) and topic_id != self.topic_id:
            for queue in self.queues:
                if queue is not None:
                    queue.topic_recreated()
        self.topic_id = topic_id or self.topic_id
        self.count = len(leaders)
        self.leaders, self.epochs = leaders, epochs
        self._available = None
        new = [None] * (self.count - len(self.queues))
        self.queues.extend(new)
        self.topic_state.batches.extend(new)
        self.topic_state.count = self.count
        if self.sticky.current >= self.count:
            self.sticky.current = -1

    def leader_of(self, partition: int) -> int:
        """Return the node id of the leader, ``NO_LEADER`` without one."""
        return self.leaders[partition] if partition < len(self.leaders) else NO_LEADER

    def epoch_of(self, partition: int) -> int:
        """Return the epoch of that leader, -1 if unknown."""
        return self.epochs[partition] if partition < len(self.epochs) else -1

    def move_sticky(self) -> int:
        """Choose another partition for records without a key."""
        if self._available is None:
            self._available = [i for i, node in enumerate(self.leaders) if node != NO_LEADER]
        return self.sticky.move(self._available, self.count)

    def _backlog(self, partition: int) -> int:
        queue = self.queues[partition]
        return 0 if queue is None else queue.backlog


class Accumulator:
    """All batches of one producer that aren't settled (acknowledged or failed).

    Args:
        config: Sizes and times.
        host: Passed to deliveries.
        rng: Source of the sticky partitioner's choices.
        wake: Called when the sender has work, with a time if that is later: at most once per
            batch.
        transactions: What the batches are parts of; None without a transactional id.
    """

    def __init__(
        self,
        config: ProducerConfig,
        host: DeliveryHost,
        rng: random.Random,
        wake: Callable[..., None],
        transactions: Transactions | None = None,
    ) -> None:
        self.transactions = transactions
        self.topics: dict[str, TopicQueues] = {}
        self._retired: dict[str, TopicQueues] = {}
        self._batch_size = min(config.batch_size, config.buffer_memory)
        in_a_request = config.max_request_size // max(1, self._batch_size)
        self.budget = MemoryBudget(
            config.buffer_memory, max(1, min(_SEALED_PER_TURN, in_a_request))
        )
        self.busy: dict[PartitionQueue, None] = {}
        """Partitions with unsettled batches."""
        self._host = host
        self._rng = rng
        self.wake = wake
        self._linger = config.linger
        # While nothing can be sent, records must not join a batch that is about to expire.
        longest = min(_OPEN_AT_MOST, config.delivery_timeout / 10)
        self._open_for = max(config.linger, longest)
        self._batches = 0
        share = config.buffer_memory // _UPKEEP_SHARE // BATCH_UPKEEP
        self._free_batches = max(share, _FREE_BATCHES)
        self._delivery_timeout = config.delivery_timeout
        self._spare: list[bytearray] = []
        self._most_spare = min(_SPARE_BYTES, config.buffer_memory // 8) // self._batch_size
        self.idempotent = config.idempotence
        self._max_in_flight = config.max_in_flight
        self.ready: dict[int, dict[PartitionQueue, None]] = {}
        """The marked queues of each leader that has any, longest waiting first; also those without
        a leader, under ``NO_LEADER``."""
        self._lingering: DeadlineQueue[ProducerBatch] = DeadlineQueue(_is_open)
        self._deadlines: DeadlineQueue[ProducerBatch] = DeadlineQueue(_is_unsettled)
        self._retries: DeadlineQueue[PartitionQueue] = DeadlineQueue(_may_retry)

    # Appending.

    def topic(self, name: str) -> TopicQueues:
        """Return the topic's queues, created on first use."""
        topic = self.topics.get(name)
        if topic is None:
            topic = self._retired.pop(name, None)
            if topic is None:
                topic = TopicQueues(name, self._batch_size, self._rng)
            self.topics[name] = topic
        return topic

    def retire(self, name: str) -> bool:
        """Forget ``name``, but not its sequence numbers, until ``topic`` is called.

        Its partition metadata is stale by then and isn't refreshed. Return False while it is busy.
        """
        if any(queue is not None and not queue.idle for queue in self.topics[name].queues):
            return False
        self._retired[name] = self.topics.pop(name)
        return True

    def queue(self, topic: TopicQueues, partition: int) -> PartitionQueue:
        """Return a partition's queue, created on first use; ``partition`` is below ``count``."""
        queue = topic.queues[partition]
        if queue is None:
            queue = topic.queues[partition] = PartitionQueue(
                topic.name,
                partition,
                topic.topic_state.batches,
                idempotent=self.idempotent,
                max_in_flight=self._max_in_flight,
                batch_limit=self._batch_size,
            )
            queue.set_leader(topic.leader_of(partition), topic.epoch_of(partition))
        return queue

    def append(self, queue: PartitionQueue, content: Content) -> Delivery | None:
        """Add a record to the open batch; return None if there is none or it is full."""
        batch = queue.open
        if batch is None:
            return None
        timestamp, key, value, headers, size = content
        index = batch.records().put(timestamp, key, value, headers)
        if index < 0:
            return None
        self.budget.take(batch, size)
        return Delivery(batch.outcome, index, timestamp)

    def append_first(self, queue: PartitionQueue, content: Content, now: float) -> Delivery:
        """Add a record as the first one of a new batch; seal the open batch."""
        timestamp, key, value, headers, size = content
        again = bool(self._spare) and 2 * queue.filled > self._batch_size
        memory = self._spare.pop() if again else None
        builder = BatchBuilder(
            queue.batch_limit,
            expected=queue.filled,
            memory=memory,
            transactional=self.transactions is not None,
        )
        index = builder.put(timestamp, key, value, headers)
        if queue.open is not None:
            self.seal(queue)
        outcome = BatchOutcome(self._host, queue.topic, queue.index)
        batch = ProducerBatch(queue, builder, outcome, now, now + self._delivery_timeout)
        upkeep = 0 if self._batches < self._free_batches else BATCH_UPKEEP
        self.budget.take(batch, size + upkeep)
        self._batches += 1
        queue.begin(batch)
        self.busy[queue] = None
        self._deadlines.push(batch.deadline, batch)
        if builder.size_bytes >= queue.batch_limit:
            self.seal(queue)
        elif self._linger == 0.0:
            batch.linger_over = True
            self._lingering.push(now + self._open_for, batch)
            self.mark(queue)
            self.wake()
        else:
            over = now + self._linger
            sooner = over < self._lingering.earliest
            self._lingering.push(over, batch)
            if sooner:
                self.wake(over)
        return Delivery(outcome, index, timestamp)

    def separate(self, queue: PartitionQueue, deadline: float) -> None:
        """Seal the open batch unless its deadline is near ``deadline``.

        The tolerance is the time that a record loses or gains by joining a batch that lingers.
        """
        batch = queue.open
        if batch is not None and abs(batch.deadline - deadline) > self._open_for:
            self.seal(queue)

    def shorten(self, batch: ProducerBatch, deadline: float) -> bool:
        """Have ``batch`` expire at ``deadline`` if that is earlier; return whether it changed.

        For a batch with a record that has already waited.
        """
        if deadline >= batch.deadline:
            return False
        batch.deadline = deadline
        self._deadlines.push(deadline, batch)
        return True

    def seal(self, queue: PartitionQueue) -> None:
        """Close the open batch and mark it as ready to be sent."""
        if queue.seal_open() is not None:
            self.budget.sealed += 1
            self.mark(queue)
            self.wake()

    def seal_all(self) -> list[ProducerBatch]:
        """Seal every open batch (flush, close, full memory); return all that aren't settled."""
        unsettled: list[ProducerBatch] = []
        for queue in self.busy:
            if queue.open is not None:
                self.seal(queue)
            unsettled.extend(batch for batch in queue.outstanding if _is_unsettled(batch))
            unsettled.extend(queue.sealed)
        return unsettled

    def batch_of(self, outcome: BatchOutcome) -> ProducerBatch | None:
        """Return the unsettled batch of ``outcome``; None if it is settled."""
        queue = self.topics[outcome.topic].queues[outcome.partition]
        if queue is None:
            return None
        if queue.open is not None and queue.open.outcome is outcome:
            return queue.open
        for batches in (queue.sealed, queue.outstanding):
            for batch in reversed(batches):
                if batch.outcome is outcome:
                    return batch
        return None

    # Ready queues.

    def mark(self, queue: PartitionQueue) -> None:
        """Mark ``queue`` as ready: something changed, and the sender should check it."""
        self.ready.setdefault(queue.leader, {})[queue] = None

    def unmark(self, queue: PartitionQueue) -> None:
        """Unmark ``queue``: nothing can be sent for it until something changes."""
        queues = self.ready.get(queue.leader)
        if queues is not None and queue in queues:
            del queues[queue]
            if not queues:
                del self.ready[queue.leader]

    def back_off(self, queue: PartitionQueue, until: float) -> None:
        """Have ``queue`` marked again at ``until``."""
        self.unmark(queue)
        self._retries.push(until, queue)

    def earliest_due(self) -> float:
        """Return the time before which ``process_deadlines`` has no work; it may have none then."""
        return min(self._lingering.earliest, self._retries.earliest, self._deadlines.earliest)

    def process_deadlines(self, now: float) -> Iterator[ProducerBatch]:
        """Mark queues whose linger or back-off is over; yield each batch past its deadline."""
        while self._lingering.earliest <= now:
            if (lingered := self._lingering.pop_due(now)) is not None:
                self._ripen(lingered, now)
        while self._retries.earliest <= now:
            if (queue := self._retries.pop_due(now)) is not None:
                self.mark(queue)
        while self._deadlines.earliest <= now:
            if (batch := self._deadlines.pop_due(now)) is not None:
                yield batch

    def _ripen(self, batch: ProducerBatch, now: float) -> None:
        """Mark ``batch`` when its linger is over; until it is sent it accepts records briefly."""
        until = batch.created + self._open_for
        if batch.linger_over or until <= now:
            self.seal(batch.queue)
        else:
            batch.linger_over = True
            self._lingering.push(until, batch)
            self.mark(batch.queue)

    def update_leaders(self, topic: TopicQueues) -> None:
        """Move the queues of ``topic`` to its current leaders."""
        for queue in topic.queues:
            if queue is not None:
                leader, epoch = topic.leader_of(queue.index), topic.epoch_of(queue.index)
                if leader != queue.leader or epoch != queue.leader_epoch:
                    self.unmark(queue)
                    queue.set_leader(leader, epoch)
                    if not queue.idle:
                        self.mark(queue)

    # Settled batches.

    def release(self, batch: ProducerBatch) -> None:
        """Release the memory of ``batch``, which is settled, and mark the batches behind it."""
        queue, builder = batch.queue, batch.builder
        self.budget.give_back(batch)
        self._batches -= 1
        keep = len(self._spare) < self._most_spare
        if builder is not None and keep and not batch.compressing:
            # Recently used memory is still in the caches, and needs no allocation.
            memory = builder.give_back()
            if memory is not None and self._batch_size // 2 < len(memory) <= self._batch_size:
                self._spare.append(memory)
        batch.forget()
        if queue.idle:
            self.busy.pop(queue, None)
            self.unmark(queue)
        else:
            self.mark(queue)

    def drop_spares(self) -> None:
        """Free the memory that is kept for new batches: there won't be any."""
        self._most_spare = 0
        self._spare.clear()

    def replaced(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Replace ``batch`` by ``parts``, which share its memory, deadline and flushes."""
        share = batch.reserved // len(parts)
        self._batches += len(parts)
        for part in parts:
            part.reserved = share
            batch.reserved -= share
            self._deadlines.push(part.deadline, part)
            for wait in batch.flushes or ():
                wait.pending += 1
            part.flushes = list(batch.flushes) if batch.flushes else None
        for wait in batch.flushes or ():
            wait.pending -= 1
        self.release(batch)

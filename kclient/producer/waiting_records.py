"""Records that can't be put into a batch yet: memory is full, or metadata of the topic is missing.

Three kinds of queue, each a strict FIFO: one for memory, one per topic that isn't known yet, and
one per partition that a known topic doesn't have, which blocks no other records. ``send`` may queue
up to ``max_parked`` records for memory, and a quarter of the memory budget beyond it; for metadata,
as much as fits into memory. ``enqueue`` waits in the same queues but is not counted, as each of its
callers is suspended. A waiting record that is cancelled or that times out is definitely not
written. ``Admission`` drives this. Sans-IO.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING

from kclient.errors import BufferFull, RequestTimedOut
from kclient.producer._compiled import BatchOutcome
from kclient.producer.deadline_queue import DeadlineQueue
from kclient.record.layout import NO_HEADERS
from kclient.types import TopicPartition

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from kclient.errors import KafkaError
    from kclient.producer._compiled import Delivery, MemoryBudget
    from kclient.producer.delivery import DeliveryHost
    from kclient.producer.flush import FlushWait
    from kclient.producer.outgoing import Content
    from kclient.producer.transactions import Transactions

_NEVER = float("inf")
_NOTHING: Content = (0, None, None, NO_HEADERS, 0)
_PARKED_SHARE = 4
"""Records that wait for memory may exceed the memory budget by this fraction of it."""
_UPKEEP = 512
"""Approximate bytes that a waiting record takes in addition to its content."""
_REMEDY = "use `await producer.enqueue(...)`, which waits for space, or await deliveries"


class WaitingRecord(BatchOutcome):
    """One record that waits for a batch; until it is in one, the outcome of its own delivery.

    Attributes:
        delivery: The handle that ``send`` returned; None once the record has left its queue.
        waiter: Set by ``enqueue``: completes when the record is in a batch or has failed.
        deadline: When it expires.
        line: The queue that it waits in; None once it has left.
    """

    __slots__ = (
        "content",
        "deadline",
        "delivery",
        "flushes",
        "line",
        "size",
        "waiter",
        "waiting_records",
        "wanted",
    )

    def __init__(
        self,
        host: DeliveryHost,
        waiting_records: WaitingRecords,
        topic: str,
        wanted: int | None,
        content: Content,
    ) -> None:
        super().__init__(host, topic, -1 if wanted is None else wanted)
        self.count = 1
        self.waiting_records = waiting_records
        self.wanted = wanted
        self.content = content
        self.size = content[4]
        self.delivery: Delivery | None = None
        self.waiter: asyncio.Future[None] | None = None
        self.deadline = _NEVER
        self.line: Line | None = None
        self.flushes: list[FlushWait] | None = None

    def watch(self, wait: FlushWait) -> None:
        """Have ``wait`` notified of the record's outcome."""
        if self.flushes is None:
            self.flushes = []
        self.flushes.append(wait)
        wait.pending += 1

    def withdraw(self) -> bool:
        """Remove the record, whose delivery was cancelled: it is not written. False if it left.

        A transaction that it was sent in can't be committed without it; one in which a call that
        waits for it was cancelled can: that call shows that the record is not in it.
        """
        if self.line is None:
            return False
        self.waiting_records.left(self)
        transactions = self.waiting_records.transactions
        if transactions is not None and self.waiter is None:
            transactions.failed(
                RequestTimedOut(
                    f"the delivery of a record to {self.topic} was cancelled before it was sent",
                    maybe_written=False,
                )
            )
        for wait in self.flushes or ():
            wait.settled(0)
        self._wake()
        return True

    def admitted(self, delivery: Delivery) -> None:
        """Complete the wait: the record is in a batch, where ``delivery`` refers to it."""
        self.waiting_records.left(self)
        if self.delivery is not None:
            self.admit_to(delivery._outcome, delivery._index, self.delivery)
        self._wake()

    def refused(self, error: KafkaError) -> None:
        """Fail the record with ``error``."""
        self.waiting_records.left(self)
        # enqueue and send_many raise the error themselves; the delivery was not returned yet.
        self.reported = self.waiter is not None
        transactions = self.waiting_records.transactions
        if transactions is not None and self.waiter is None:
            transactions.batch_failed(error, numbered=False)
        for wait in self.flushes or ():
            if self.waiter is not None:
                wait.settled(0)
                continue
            self.reported = self.reported or wait.listening
            wait.failed(1, error)
        self.fail(error)
        self._wake()

    def _wake(self) -> None:
        # The application may keep the delivery, and a deadline queue this record, for long: release
        # everything else.
        self.content = _NOTHING
        self.delivery = self.flushes = None
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


def _is_waiting(record: WaitingRecord) -> bool:
    return record.line is not None


Line = OrderedDict[WaitingRecord, None]
"""In order of arrival, with removal from anywhere in constant time."""


class WaitingRecords:
    """The queues, and how much waits in them.

    Args:
        max_count: Records of ``send`` that may wait for memory.
        budget: The producer's memory budget and counters.
        transactions: Of the producer; notified of failed records. None without.

    Attributes:
        count: Records of ``send`` that wait for memory.
        size: Their bytes.
        claimed: Bytes that records waiting for metadata will need, their overhead included.
        transactions: As given.
        memory_queue_emptied: Called when the last record has left the queue for memory.
    """

    def __init__(
        self, max_count: int, budget: MemoryBudget, transactions: Transactions | None = None
    ) -> None:
        self.transactions = transactions
        self.count = 0
        self.size = 0
        self.claimed = 0
        self.memory_queue_emptied: Callable[[], object] = lambda: None
        self._budget = budget
        self._max_count = max_count
        self._max_bytes = budget.limit // _PARKED_SHARE
        self._memory = budget.limit
        self._memory_queue: Line = OrderedDict()
        self._topics: dict[str, Line] = {}
        self._begun: dict[str, float] = {}
        self._partitions: dict[TopicPartition, Line] = {}
        self._deadlines: DeadlineQueue[WaitingRecord] = DeadlineQueue(_is_waiting)

    def check_memory_queue(self, size: int, why: str) -> None:
        """Raise BufferFull if no further record of ``size`` bytes may wait for memory.

        The first one is accepted whatever its size.
        """
        if self.count < self._max_count and (
            self.count == 0 or self.size + size <= self._max_bytes
        ):
            return
        raise BufferFull(
            f"{why}, and {self.count:,} records of {self.size:,} bytes are parked already "
            f"(max_parked={self._max_count:,}, at most {self._max_bytes:,} bytes)",
            hint=_REMEDY,
            maybe_written=False,
        )

    def check_topic_line(self, topic: str, size: int, used: int) -> None:
        """Raise BufferFull if the records that wait for metadata and this one exceed memory.

        ``used`` bytes of it are taken already.
        """
        if self.claimed == 0 or used + self.claimed + size + _UPKEEP <= self._memory:
            return
        raise BufferFull(
            f"the metadata of topic {topic}, or of this partition, is not here yet: records that "
            f"wait for metadata need {self.claimed:,} bytes, {used:,} of "
            f"buffer_memory={self._memory:,} are taken",
            hint="awaiting anything lets it come: await a delivery, or use "
            "`await producer.enqueue(...)`, which waits",
            maybe_written=False,
        )

    def wait_for_space(self, record: WaitingRecord) -> None:
        """Put a new record at the end of the queue for memory."""
        self._enter(record, self._memory_queue)

    def wait_for_topic(self, record: WaitingRecord, now: float) -> None:
        """Put a new record at the end of its topic's queue."""
        queue = self._topics.get(record.topic)
        if queue is None:
            queue = self._topics[record.topic] = OrderedDict()
            self._begun[record.topic] = now
        self._enter(record, queue)

    def wait_for_partition(self, record: WaitingRecord, partition: int, until: float) -> None:
        """Put a record, a new one or one of its topic's queue, at the end of a partition's queue.

        It expires at ``until`` unless it has left that queue by then.
        """
        self.left(record)
        place = TopicPartition(record.topic, partition)
        self._enter(record, self._partitions.setdefault(place, OrderedDict()))
        if until < record.deadline:
            self._deadlines.push(until, record)

    def topic_known(self, topic: str) -> None:
        """Move the queue of a topic that is known now to the end of the queue for memory."""
        self._begun.pop(topic, None)
        self._go(self._topics.pop(topic, None))

    def partition_came(self, place: TopicPartition) -> None:
        """Move the queue of a partition that exists now to the end of the queue for memory."""
        self._go(self._partitions.pop(place, None))

    def _go(self, queue: Line | None) -> None:
        for record in queue or ():
            record.line = self._memory_queue
            self._memory_queue[record] = None
            if record.waiter is None:
                self._count(record, queue, -1)
                self._count(record, self._memory_queue, 1)

    def next_for_memory(self) -> WaitingRecord | None:
        """Return the first record of the queue for memory; None if it is empty."""
        return next(iter(self._memory_queue), None)

    def unknown_topics(self) -> list[str]:
        """Return the topics with a queue."""
        return list(self._topics)

    def unknown_partitions(self) -> list[TopicPartition]:
        """Return the partitions with a queue."""
        return list(self._partitions)

    def awaits_partition(self, record: WaitingRecord) -> bool:
        """Return whether the record waits for a partition."""
        if record.line is None or record.wanted is None:
            return False
        return record.line is self._partitions.get(TopicPartition(record.topic, record.wanted))

    def waiting_since(self, topic: str) -> float:
        """Return since when records have continuously waited for this topic."""
        return self._begun[topic]

    def has_waiting(self, topic: str) -> bool:
        """Return whether records wait for this topic's metadata."""
        return topic in self._topics

    def waiting_for(self, topic: str, most: int | None = None) -> list[WaitingRecord]:
        """Return the records that wait for this topic, the first ``most`` of them."""
        return list(islice(self._topics.get(topic, ()), most))

    def all_waiting(self) -> list[WaitingRecord]:
        """Return all waiting records, queue by queue."""
        queues = (self._memory_queue, *self._topics.values(), *self._partitions.values())
        return [record for queue in queues for record in queue]

    def pop_due(self, now: float) -> WaitingRecord | None:
        """Return a record that has expired; None if there is none."""
        while (record := self._deadlines.pop_due(now)) is not None:
            if record.deadline <= now or self.awaits_partition(record):
                break
        return record

    def next_due(self) -> float | None:
        """Return when the next record expires; None if none does."""
        return self._deadlines.next_at()

    def left(self, record: WaitingRecord) -> None:
        """Take ``record`` out of its queue."""
        queue, record.line = record.line, None
        if queue is None:
            return
        del queue[record]
        if not queue and queue is not self._memory_queue:
            self._ended(record, queue)
        self._budget.waiting -= 1
        if record.waiter is None:
            self._count(record, queue, -1)
        if not self._memory_queue and queue is self._memory_queue:
            self.memory_queue_emptied()

    def _ended(self, last: WaitingRecord, queue: Line) -> None:
        if self._topics.get(last.topic) is queue:
            del self._topics[last.topic], self._begun[last.topic]
        elif last.wanted is not None:
            del self._partitions[TopicPartition(last.topic, last.wanted)]

    def _enter(self, record: WaitingRecord, queue: Line) -> None:
        record.line = queue
        queue[record] = None
        self._budget.waiting += 1
        if record.waiter is None:
            self._count(record, queue, 1)
        if record.deadline != _NEVER:
            self._deadlines.push(record.deadline, record)

    def _count(self, record: WaitingRecord, queue: object, sign: int) -> None:
        if queue is self._memory_queue:
            self.count += sign
            self.size += sign * record.size
        else:
            self.claimed += sign * (record.size + _UPKEEP)

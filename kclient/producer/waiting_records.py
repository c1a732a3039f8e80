"""Records that can't be put into a batch yet: no room in memory, or no metadata of their topic.

Three kinds of line, each a strict FIFO: one for room, one per topic that isn't known yet, and one
per partition that a known topic doesn't have, which holds up nobody else. For room,
``send`` parks up to ``max_parked`` records and a quarter of the memory budget beyond it; for
metadata, as much as memory has room for. ``enqueue`` waits in the same lines but is not counted,
as each of its callers is suspended. A parked record that is cancelled or that times out is
definitely not written. The intake drives this. Sans-IO.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING

from kclient.errors import BufferFull
from kclient.producer._compiled import BatchOutcome
from kclient.producer.deadline_queue import DeadlineQueue
from kclient.types import TopicPartition

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from kclient.errors import KafkaError
    from kclient.producer._compiled import Delivery, MemoryBudget
    from kclient.producer.delivery import DeliveryHost
    from kclient.producer.flush import FlushWait
    from kclient.producer.outgoing import Content

_NEVER = float("inf")
_NOTHING: Content = (0, None, None, None, 0)
_PARKED_SHARE = 4
"""Records parked for room may take one such part of the memory budget beyond it."""
_UPKEEP = 512
"""Bytes that a parked record takes beside its content, about."""
_REMEDY = "use `await producer.enqueue(...)`, which waits for room, or await deliveries"


class WaitingRecord(BatchOutcome):
    """One record on the way to a batch; until then the outcome of its own delivery.

    Attributes:
        delivery: The handle that ``send`` gave out; None when it left the line.
        waiter: Set by ``enqueue``: woken when the record is in a batch, or given up.
        deadline: When it is given up.
        line: Where it stands; None when it left.
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
        """Have ``wait`` told what becomes of the record."""
        if self.flushes is None:
            self.flushes = []
        self.flushes.append(wait)
        wait.pending += 1

    def withdraw(self) -> bool:
        """The delivery was cancelled: take the record back. It is not written."""
        if self.line is None:
            return False
        self.waiting_records.left(self)
        for wait in self.flushes or ():
            wait.settled(0)
        self._wake()
        return True

    def admitted(self, delivery: Delivery) -> None:
        """The record is in a batch, where ``delivery`` stands for it."""
        self.waiting_records.left(self)
        if self.delivery is not None:
            self.admit_to(delivery._outcome, delivery._index, self.delivery)
        self._wake()

    def refused(self, error: KafkaError) -> None:
        """The record is given up with ``error``."""
        self.waiting_records.left(self)
        # enqueue and send_many raise the error themselves; nobody else has the delivery.
        self.reported = self.waiter is not None
        for wait in self.flushes or ():
            if self.waiter is not None:
                wait.settled(0)
                continue
            self.reported = self.reported or wait.listening
            wait.failed(1, error)
        self.fail(error)
        self._wake()

    def _wake(self) -> None:
        # The user may keep the delivery for long, and a due list this: neither shall hold more.
        self.content = _NOTHING
        self.delivery = self.flushes = None
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


def _is_waiting(parked: WaitingRecord) -> bool:
    return parked.line is not None


Line = OrderedDict[WaitingRecord, None]
"""In order of arrival, with removal from anywhere in constant time."""


class WaitingRecords:
    """The lines, and how much stands in them.

    Args:
        max_count: Records that ``send`` may park for room.
        budget: The producer's numbers, its memory budget among them.

    Attributes:
        count: Records that ``send`` parked for room.
        size: Their bytes.
        claimed: Bytes of memory that those parked for metadata will need, their upkeep included.
        room_emptied: Called when the last record left the line for room.
    """

    def __init__(self, max_count: int, budget: MemoryBudget) -> None:
        self.count = 0
        self.size = 0
        self.claimed = 0
        self.room_emptied: Callable[[], object] = lambda: None
        self._budget = budget
        self._max_count = max_count
        self._max_bytes = budget.limit // _PARKED_SHARE
        self._memory = budget.limit
        self._room: Line = OrderedDict()
        self._topics: dict[str, Line] = {}
        self._begun: dict[str, float] = {}
        self._partitions: dict[TopicPartition, Line] = {}
        self._deadlines: DeadlineQueue[WaitingRecord] = DeadlineQueue(_is_waiting)

    def check_room_line(self, size: int, why: str) -> None:
        """Raise BufferFull if ``send`` may not park another ``size`` bytes for room.

        The first one is let in whatever its size.
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
        """Raise BufferFull if memory, of which ``used`` bytes are taken, has no room for it all."""
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

    def wait_for_room(self, parked: WaitingRecord) -> None:
        """Put a new record at the end of the line for memory."""
        self._enter(parked, self._room)

    def wait_for_topic(self, parked: WaitingRecord, now: float) -> None:
        """Put a new record at the end of its topic's line."""
        line = self._topics.get(parked.topic)
        if line is None:
            line = self._topics[parked.topic] = OrderedDict()
            self._begun[parked.topic] = now
        self._enter(parked, line)

    def wait_for_partition(self, parked: WaitingRecord, partition: int, until: float) -> None:
        """Put a record, a new one or of its topic's line, at the end of that of ``partition``.

        Its time is over at ``until`` unless it has left that line by then.
        """
        self.left(parked)
        place = TopicPartition(parked.topic, partition)
        self._enter(parked, self._partitions.setdefault(place, OrderedDict()))
        if until < parked.deadline:
            self._deadlines.push(until, parked)

    def topic_known(self, topic: str) -> None:
        """The topic is known now: its line goes on to the end of the line for memory."""
        self._begun.pop(topic, None)
        self._go(self._topics.pop(topic, None))

    def partition_came(self, place: TopicPartition) -> None:
        """The topic has that partition now: the same for its line."""
        self._go(self._partitions.pop(place, None))

    def _go(self, line: Line | None) -> None:
        for parked in line or ():
            parked.line = self._room
            self._room[parked] = None
            if parked.waiter is None:
                self._count(parked, line, -1)
                self._count(parked, self._room, 1)

    def next_for_memory(self) -> WaitingRecord | None:
        """Who is first in the line for memory; None if there is no such line."""
        return next(iter(self._room), None)

    def unknown_topics(self) -> list[str]:
        """Topics with a line."""
        return list(self._topics)

    def unknown_partitions(self) -> list[TopicPartition]:
        """Partitions with a line."""
        return list(self._partitions)

    def awaits_partition(self, parked: WaitingRecord) -> bool:
        """Whether it stands in such a line."""
        if parked.line is None or parked.wanted is None:
            return False
        return parked.line is self._partitions.get(TopicPartition(parked.topic, parked.wanted))

    def waiting_since(self, topic: str) -> float:
        """Since when somebody has waited for this topic without a break."""
        return self._begun[topic]

    def has_waiting(self, topic: str) -> bool:
        """Somebody waits for this topic's metadata."""
        return topic in self._topics

    def waiting_for(self, topic: str, most: int | None = None) -> list[WaitingRecord]:
        """Who waits for this topic, the first ``most`` of them."""
        return list(islice(self._topics.get(topic, ()), most))

    def all_waiting(self) -> list[WaitingRecord]:
        """All who wait, line by line."""
        lines = (self._room, *self._topics.values(), *self._partitions.values())
        return [parked for line in lines for parked in line]

    def pop_due(self, now: float) -> WaitingRecord | None:
        """Somebody whose time is over; None if there is nobody."""
        while (parked := self._deadlines.pop_due(now)) is not None:
            if parked.deadline <= now or self.awaits_partition(parked):
                break
        return parked

    def next_due(self) -> float | None:
        """When somebody's time will be over."""
        return self._deadlines.next_at()

    def left(self, parked: WaitingRecord) -> None:
        """Take ``parked`` out of its line."""
        line, parked.line = parked.line, None
        if line is None:
            return
        del line[parked]
        if not line and line is not self._room:
            self._ended(parked, line)
        self._budget.waiting -= 1
        if parked.waiter is None:
            self._count(parked, line, -1)
        if not self._room and line is self._room:
            self.room_emptied()

    def _ended(self, last: WaitingRecord, line: Line) -> None:
        if self._topics.get(last.topic) is line:
            del self._topics[last.topic], self._begun[last.topic]
        elif last.wanted is not None:
            del self._partitions[TopicPartition(last.topic, last.wanted)]

    def _enter(self, parked: WaitingRecord, line: Line) -> None:
        parked.line = line
        line[parked] = None
        self._budget.waiting += 1
        if parked.waiter is None:
            self._count(parked, line, 1)
        if parked.deadline != _NEVER:
            self._deadlines.push(parked.deadline, parked)

    def _count(self, parked: WaitingRecord, line: object, sign: int) -> None:
        if line is self._room:
            self.count += sign
            self.size += sign * parked.size
        else:
            self.claimed += sign * (parked.size + _UPKEEP)

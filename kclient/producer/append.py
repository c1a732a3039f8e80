"""The quick way in: takes records that need no decision, with next to no work for each.

One source, two builds: compiled as ``_append_c`` with the C types of ``_append_c.pxd``; others take
the classes from ``kclient.producer._compiled``. ``Producer`` inherits ``SendMethods``, which ask
``RecordAppender.take`` first, without a frame of Python between user and batch; ``send_many`` asks
``take_many``. Whatever isn't plain (an unknown topic, no open batch or a full one, no room in
memory, somebody in line, a value to be serialized, anything wrong) is left to the intake, which
can do all of it; so nothing is refused here, only not taken. Sans-IO. It must not raise errors of
its own, and must not know about requests.
"""

from __future__ import annotations

import enum
import os
import time
from asyncio.events import _get_running_loop
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

from kclient.record.layout import HEADER_OVERHEAD, RECORD_OVERHEAD

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeAlias

    import cython  # type: ignore[import-untyped]

    from kclient.producer.outgoing import HeadersArgument

    K: TypeAlias = Any  # type variables of Producer, which declares these methods for type checkers
    V: TypeAlias = Any
else:
    from kclient.record import _cython as cython

if not cython.compiled:  # else the .pxd has them
    from kclient.producer.batch import ProducerBatch
    from kclient.producer.delivery import Delivery
    from kclient.producer.record_source import RecordSource
    from kclient.record.murmur import partition_of
    from kclient.record.record import encode_headers

    def real_ms() -> int:
        """Milliseconds of the machine's wall clock."""
        return time.time_ns() // 1_000_000

    def steady() -> float:
        """Seconds of the machine's steady clock."""
        return time.monotonic()


_OVERHEAD = RECORD_OVERHEAD  # a C number in the compiled build, as is the next one
_HEADER_BOUND = HEADER_OVERHEAD
_NO_HEADERS = b"\x00"
_LAST_TIMESTAMP = 0x7FFFFFFFFFFFFFFE
_SCATTERED = 64
"""With so many partitions what a record with a key will write to is in no cache of the processor's:
the compiled build has it fetched ahead, for a block of records together where there is one."""
_NOBODY: Any = object()
_forks = 0
END: Any = object()
"""What ``take_many`` leaves over when there is nothing more."""
DUE: Any = object()
"""What it leaves over when it is time to let others run."""


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


@cython.final
@cython.cclass
class MemoryBudget:
    """What one producer holds, in numbers that every record changes or asks for.

    Attributes:
        used: Bytes of records that aren't settled, and of batches where those are very many; only
            ``take`` and ``give_back`` change it.
        limit: ``buffer_memory``.
        waiting: Records that stand in a line.
        sealed: Batches sealed so far.
        per_turn: After how many of them who appends lets others run.
    """

    __slots__ = ("limit", "per_turn", "sealed", "used", "waiting")

    def __init__(self, limit: int, per_turn: int = 1) -> None:
        self.used = 0
        self.limit = limit
        self.waiting = 0
        self.sealed = 0
        self.per_turn = per_turn

    def take(self, batch: ProducerBatch, size: int) -> None:
        """Have ``batch`` hold ``size`` bytes more."""
        batch.reserved += size
        self.used += size

    def give_back(self, batch: ProducerBatch) -> None:
        """Have ``batch``, which is settled, hold nothing any more."""
        self.used -= batch.reserved
        batch.reserved = 0


@cython.final
@cython.cclass
class StickyPartitioner:
    """The partition that records without a key go to for now (uniform sticky, KIP-794).

    They stay on one for about a batch's worth of bytes, then move on at random, so that batches
    fill and load evens out; of two random candidates the one with fewer waiting batches is taken,
    which steers round a slow broker.

    Args:
        switch_bytes: Move on after about so many bytes (the batch size).
        rng: Source of the choices.
        backlog: Waiting batches of a partition, by index.
    """

    __slots__ = ("_backlog", "_left", "_rng", "_switch_bytes", "current")

    def __init__(
        self, switch_bytes: int, rng: random.Random, backlog: Callable[[int], int]
    ) -> None:
        self.current = -1
        self._left = 0
        self._switch_bytes = switch_bytes
        self._rng = rng
        self._backlog = backlog

    def ready(self, more: int) -> int:
        """The current partition; -1 where another one is to be chosen before anything is added.

        It is where, with ``more`` bytes, the current one had so much more than its share that the
        batch doesn't matter any more.
        """
        return -1 if self._left - more <= -self._switch_bytes else self.current

    def due(self) -> bool:
        """The current partition had its share: move on when its batch is complete."""
        return self._left <= 0

    def note(self, size: int) -> None:
        """``size`` bytes were added to the current partition."""
        self._left -= size

    def move(self, available: Sequence[int], partition_count: int) -> int:
        """Choose anew among ``available``, the partitions with a leader; all if there are none."""
        self._left = self._switch_bytes
        if available:
            first = available[self._pick(len(available))]
            second = available[self._pick(len(available))]
        else:
            first, second = self._pick(partition_count), self._pick(partition_count)
        fewer = self._backlog(second) < self._backlog(first)
        self.current = second if fewer else first
        return self.current

    def _pick(self, count: int) -> int:
        return int(self._rng.random() * count)


@cython.final
@cython.cclass
class TopicState:
    """One topic as the quick way sees it.

    Attributes:
        count: Partitions.
        batches: By partition: the one that takes records, the only place that says which it is;
            None without one.
        sticky: Where records without a key go.
    """

    __slots__ = ("batches", "count", "sticky")

    def __init__(self, sticky: StickyPartitioner) -> None:
        self.count = 0
        self.batches: list[ProducerBatch | None] = []
        self.sticky = sticky


@cython.final
@cython.cclass
class YieldTimer:
    """When a user's loop that writes has to let others run. ``turns`` says why.

    Args:
        budget: Tells of sealed batches.
        effort: Seconds of work, by some clock.
        length: Seconds after which it is time.
    """

    __slots__ = ("_budget", "_effort", "_length", "_real", "_sealed", "_until")

    def __init__(self, budget: MemoryBudget, effort: Callable[[], float], length: float) -> None:
        self._budget = budget
        self._effort = effort
        # As with RecordAppender's clock: the machine's own is read by the compiled build.
        self._real = (
            cython.compiled
            and effort is time.monotonic
            and isinstance(effort, BuiltinFunctionType)
            and steady() >= 0
        )
        self._length = length
        self._sealed = 0
        self._until = 0.0
        self.note()
        self.begin()

    def due(self) -> bool:
        """Whether it is time for one."""
        budget = self._budget
        sealed = budget.sealed - self._sealed
        if sealed and (sealed >= budget.per_turn or budget.used > budget.limit >> 1):
            return True
        return self._now() >= self._until

    def note(self) -> None:
        """One is about to be taken: batches that are sealed meanwhile call for another."""
        self._sealed = self._budget.sealed

    def begin(self) -> None:
        """One was taken."""
        self._until = self._now() + self._length

    def _now(self) -> float:
        if self._real:
            return steady()
        now: float = self._effort()
        return now


@cython.final
@cython.cclass
class RecordAppender:
    """The quick way into one producer.

    Args:
        budget: Its numbers.
        max_record: Bytes of the largest record that is allowed, overhead included.

    Attributes:
        topics: The topics that it knows, by name.
    """

    __slots__ = (
        "_budget",
        "_forks",
        "_home",
        "_mark",
        "_max_record",
        "_real",
        "_wall_ns",
        "topics",
    )

    def __init__(self, budget: MemoryBudget, max_record: int) -> None:
        self.topics: dict[str, TopicState] = {}
        self._budget = budget
        self._max_record = max_record
        self._home: Any = _NOBODY
        self._mark: Any = _NOBODY
        self._forks = 0
        self._wall_ns: Any = None
        self._real = False

    def open(self, loop: Any, wall_ns: Callable[[], int]) -> None:
        """Take records from now on, those that come from within ``loop``."""
        self._home = loop
        self._mark = _NOBODY
        self._wall_ns = wall_ns
        # Nobody has put another in place of time.time_ns: the compiled build reads it by itself,
        # which is a fifth of what taking a record costs.
        self._real = cython.compiled and isinstance(wall_ns, BuiltinFunctionType)

    def close(self) -> None:
        """Take none any more."""
        self._home = self._mark = _NOBODY

    def take(
        self, topic: Any, value: Any, key: Any, headers: Any, partition: Any, timestamp: Any
    ) -> Delivery | None:
        """Put a record into the open batch of its partition; None if there is more to it."""
        if not self._is_here():
            return None
        # What follows is written out here and, but for the clock, in take_many: in the pure build
        # each call of a helper costs as much as what it does.
        topic_state = self.topics.get(topic) if type(topic) is str else None
        if topic_state is None:
            return None
        size = _OVERHEAD
        if type(value) is bytes:
            part = value
            size += len(part)
        elif value is not None:
            return None
        if key is not None:
            if type(key) is not bytes:
                return None
            part = key
            size += len(part)
        # First, as a clock may be anybody's code: from the choice on nothing else may run.
        if timestamp is None:
            if self._real:
                when = real_ms()
            else:
                now: int = self._wall_ns()
                when = now // 1_000_000
        elif type(timestamp) is int and 0 <= timestamp <= _LAST_TIMESTAMP:
            when = timestamp
        else:
            return None
        encoded = _NO_HEADERS if headers is None else self._encoded(headers, size)
        if encoded is None:
            return None
        if headers is not None:
            size += len(encoded)
        batch = self._choose(topic_state, key, partition, size, None)
        if batch is None:
            return None
        index = batch.builder.put(when, key, value, encoded)  # type: ignore[union-attr]
        if index < 0:
            return None
        outcome = batch.outcome
        self._budget.take(batch, size)
        if key is None and partition is None:
            topic_state.sticky._left -= size
        delivery = Delivery.__new__(Delivery)
        delivery._outcome = outcome
        delivery._index = index
        delivery._timestamp = when
        delivery._listeners = None
        if cython.compiled:
            delivery._untrack()
        return delivery

    def feed(self, records: Iterator[Any]) -> RecordSource:
        """What ``take_many`` takes them from."""
        return RecordSource(records, self._max_record - _OVERHEAD)

    def take_many(
        self, topic: Any, feed: RecordSource, turn: YieldTimer, watcher: object
    ) -> tuple[int, Any]:
        """Put values and (key, value) tuples into batches that ``watcher`` watches.

        The clock is read once for what is left of a block.

        Returns:
            How many were taken, and the record that wasn't, which is for the intake; in its place
            ``DUE`` when it is time for a turn, and ``END`` when ``feed`` has no more.
        """
        taken = 0
        most = 1
        block = feed.block
        at = feed.at
        topic_state = self.topics.get(topic) if type(topic) is str and self._is_here() else None
        when = 0 if topic_state is None or at == feed.count else self._now_ms()
        while True:
            if at == feed.count:
                if taken and turn.due():
                    return taken, DUE
                if cython.compiled and topic_state is not None:
                    aim(feed, topic_state)  # type: ignore[name-defined] # noqa: F821
                if feed.pull(most) == 0:
                    return taken, END
                at = 0
                if topic_state is not None:
                    if most < len(block):
                        most *= 2
                    when = self._now_ms()
                    if feed.bare:
                        at = self._take_bare(topic_state, feed, when, watcher)
                        feed.at = at
                        taken += at
                        if at == feed.count:
                            continue
            record = block[at]
            at += 1
            feed.at = at
            if topic_state is None:
                return taken, record
            key = None
            value = record
            if type(record) is tuple:
                if len(record) != 2:
                    return taken, record
                key, value = record
            size = _OVERHEAD
            if type(value) is bytes:
                part = value
                size += len(part)
            elif value is not None:
                return taken, record
            if key is not None:
                if type(key) is not bytes:
                    return taken, record
                part = key
                size += len(part)
            batch = self._choose(topic_state, key, None, size, feed)
            if batch is None or batch.watcher is not watcher:
                return taken, record
            index = batch.builder.put(when, key, value, _NO_HEADERS)  # type: ignore[union-attr]
            if index < 0:
                return taken, record
            self._budget.take(batch, size)
            if key is None:
                topic_state.sticky._left -= size
            taken += 1

    def _take_bare(
        self, topic_state: TopicState, feed: RecordSource, when: int, watcher: object
    ) -> int:
        """The values without keys that a block begins with, as far as it goes without a decision.

        Returns:
            How many were taken. Each of the others is to be looked at.
        """
        budget = self._budget
        # With room for all of them, none can be the one for which there is a decision to make.
        size = feed.bare_bytes + _OVERHEAD * feed.bare
        index = topic_state.sticky.ready(size)
        if budget.waiting != 0 or budget.used + size > budget.limit or index < 0:
            return 0
        batch = topic_state.batches[index]
        if batch is None or batch.builder is None or batch.watcher is not watcher:
            return 0
        count, size = batch.builder.put_values(when, feed.block, feed.bare)
        size += _OVERHEAD * count
        budget.take(batch, size)
        topic_state.sticky.note(size)
        return count

    def _now_ms(self) -> int:
        """Milliseconds of the wall clock, or of the one that stands in for it."""
        if self._real:
            return real_ms()
        now: int = self._wall_ns()
        return now // 1_000_000

    def _is_here(self) -> bool:
        """Whether this is the loop, thread and process that records are taken from.

        CPython's own record of the running loop is per thread and void after a fork; but up to 3.11
        asking for it costs a system call. It is a new object whenever a loop begins to run, so once
        it was asked, seeing the same object is enough as long as there was no fork.
        """
        mark: Any = None
        if cython.compiled:
            mark = running_mark()  # type: ignore[name-defined] # noqa: F821 - it is in the .pxd
            if mark is not None and mark is self._mark and self._forks == _forks:
                return True
        if _get_running_loop() is not self._home:
            return False
        self._mark = mark
        self._forks = _forks
        return True

    def _encoded(self, headers: Any, size: int) -> bytes | None:
        """Plain headers as they are on the wire; ``size`` is that of the record without them."""
        if not _are_plain(headers):
            return None
        encoded: bytes = encode_headers(headers)
        if size + len(encoded) + _HEADER_BOUND * len(headers) > self._max_record:
            return None  # the intake knows whether it is too large, by the longest encoding
        return encoded

    def _choose(
        self,
        topic_state: TopicState,
        key: bytes | None,
        partition: Any,
        size: int,
        feed: RecordSource | None,
    ) -> ProducerBatch | None:
        """The open batch for a record, of ``feed`` if it is of one; None without one or room."""
        budget = self._budget
        if budget.waiting != 0 or size > self._max_record or budget.used + size > budget.limit:
            return None
        if partition is None:
            if key is None:
                sticky = topic_state.sticky
                index = sticky.current  # as ``ready`` says, without a call
                if index < 0 or sticky._left <= -sticky._switch_bytes:
                    return None
            else:
                index = -1
                if cython.compiled:
                    index = target_of(feed, topic_state)  # type: ignore[name-defined] # noqa: F821
                if index < 0:
                    index = partition_of(key, len(key), topic_state.count)
        elif type(partition) is int and 0 <= partition < topic_state.count:
            index = partition
        else:
            return None
        scattered = cython.compiled and topic_state.count >= _SCATTERED
        if scattered and feed is None:
            prefetch_open_batch(topic_state, index)  # type: ignore[name-defined] # noqa: F821
        batch = topic_state.batches[index]
        if batch is None or batch.builder is None:
            return None
        if scattered:
            prefetch_tail(topic_state, index, batch, size)  # type: ignore[name-defined] # noqa: F821
        return batch


class WhenFull(enum.Enum):
    """What becomes of a record that doesn't fit, by the door that it came in at."""

    QUEUE = "park it, as send does"
    RAISE = "raise BufferFull, as enqueue_nowait does"


@cython.cclass
class SendMethods:
    """``send`` and ``enqueue_nowait`` of a producer; what isn't for ``RecordAppender`` is admitted.

    Keyword-only arguments alone cost a Python function as much as all of ``take``.

    Attributes:
        _appender: Takes what needs no decision.
        _check: Raises where the producer can't be used.
        _put: Takes what does; see ``Admission.put``.
    """

    _appender: RecordAppender
    _check: Callable[[], None]
    _put: Callable[..., Delivery]

    def send(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        headers: HeadersArgument = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """Take one record and return its ``Delivery`` at once; await that for the outcome.

        A plain method: it never suspends, makes no task, and ``asyncio.gather(*(producer.send(...)
        for ...))`` costs little. Where there is no room in ``buffer_memory``, the record is parked
        in a strict FIFO of up to ``max_parked`` records and a quarter of ``buffer_memory``; where
        the topic's metadata isn't here yet, in one as long as memory has room for it.

        Args:
            topic: Where to.
            value: What ``value_serializer`` takes, else bytes-like; None writes a tombstone.
            key: What ``key_serializer`` takes, else bytes-like. Records of one key go to one
                partition, and stay in order.
            headers: (name, value) pairs or a mapping; values are bytes-like or None.
            partition: Where to exactly; None lets the partitioner choose.
            timestamp: Int milliseconds since the epoch; None means now.

        Returns:
            The delivery: ``await`` gives RecordMetadata, or raises why it was not delivered within
            ``delivery_timeout`` (DeliveryTimedOut, a BrokerError ...). ``maybe_written`` of that
            error says whether the record may be in the log all the same. For a topic that was
            never there it raises UnknownTopicOrPartition once brokers have said so for 5 s, or for
            10 s where only one of several can be asked; three times as long with
            ``allow_auto_create_topics``. For a topic that was deleted after this producer wrote to
            it, the record waits for ``delivery_timeout``; for a ``partition`` that the topic
            doesn't have, for 10 s at most (then MetadataTimedOut), as it may be added.

        Raises:
            SerializationFailed: Key, value or headers are of a type that can't be sent.
            RecordTooLarge: Larger than ``max_request_size`` or ``buffer_memory``.
            InvalidArgument: No topic can have that name, or another argument is no good.
            BufferFull: Too much is parked already; ``await producer.enqueue(...)`` waits instead.
            ClientClosed, WrongContext, BackgroundTaskDied: This producer can't be used (here).

        Example::

            delivery = producer.send("flights", b"value", key=b"N14228")
            print((await delivery).offset)
        """
        delivery = self._appender.take(topic, value, key, headers, partition, timestamp)
        if delivery is None:
            self._check()
            delivery = self._put(topic, value, key, headers, partition, timestamp, WhenFull.QUEUE)
        return delivery

    def enqueue_nowait(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        headers: HeadersArgument = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """``send`` that raises BufferFull as soon as memory is full, instead of parking.

        Records for a topic whose metadata isn't here yet are parked as in ``send``.

        Args:
            topic, value, key, headers, partition, timestamp: As in ``send``.

        Raises:
            BufferFull: No room in ``buffer_memory``; nothing was taken.
            SerializationFailed, RecordTooLarge, InvalidArgument: As in ``send``.
            ClientClosed, WrongContext, BackgroundTaskDied: This producer can't be used (here).

        Example::

            producer.enqueue_nowait("metrics", b"42")
        """
        delivery = self._appender.take(topic, value, key, headers, partition, timestamp)
        if delivery is None:
            self._check()
            delivery = self._put(topic, value, key, headers, partition, timestamp, WhenFull.RAISE)
        return delivery


def _is_plain(part: Any) -> bool:
    """A key or value that needs no conversion."""
    return part is None or type(part) is bytes


def _are_plain(headers: Any) -> bool:
    """Headers that need no conversion: a list or tuple of (str, bytes or None) tuples."""
    if type(headers) is not list and type(headers) is not tuple:
        return False
    for entry in headers:
        if type(entry) is not tuple or len(entry) != 2:
            return False
        pair = entry
        name, value = pair
        if type(name) is not str or not name.isascii() or not _is_plain(value):
            return False
    return True

"""The fast path: appends records that need no decision, with next to no work for each.

One source, two builds: compiled as ``_append_c`` with the C types of ``_append_c.pxd``; other
modules import the classes from ``kclient.producer._compiled``. ``Producer`` inherits
``SendMethods``, which call ``RecordAppender.take`` first, with no Python frame between the caller
and the batch; ``send_many`` calls ``take_many``. Any other record (an unknown topic, no open batch
or a full one, full memory, records that wait, a value to be serialized, an invalid argument) is
left to admission, which handles all cases; so nothing is rejected here, only not taken. Sans-IO. It
must not raise errors of its own, and must not know about requests.
"""

from __future__ import annotations

import enum
import os
import time
from asyncio.events import _get_running_loop
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

from kclient.record.layout import HEADER_OVERHEAD, NO_HEADERS, RECORD_OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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
    from kclient.producer.sticky_partitioner import StickyPartitioner
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
_NO_HEADERS = NO_HEADERS  # a name of C in the compiled build
_LAST_TIMESTAMP = 0x7FFFFFFFFFFFFFFE
_SCATTERED = 64
"""Partitions from which on the memory that a keyed record is written to is in no processor cache:
the compiled build prefetches it, for a whole block of records where there is one."""
_NOBODY: Any = object()
_forks = 0
END: Any = object()
"""Returned by ``take_many`` in place of a record when the source is exhausted."""
DUE: Any = object()
"""Returned by ``take_many`` in place of a record when it is time to yield to the loop."""


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


@cython.final
@cython.cclass
class MemoryBudget:
    """Counters of one producer that every record updates or reads.

    Attributes:
        used: Bytes of records that aren't settled, and of batches where those are very many; only
            ``take`` and ``give_back`` change it.
        limit: ``buffer_memory``.
        waiting: Records that wait in a queue.
        sealed: Batches sealed so far.
        per_turn: Sealed batches after which an appending loop yields.
    """

    __slots__ = ("limit", "per_turn", "sealed", "used", "waiting")

    def __init__(self, limit: int, per_turn: int = 1) -> None:
        self.used = 0
        self.limit = limit
        self.waiting = 0
        self.sealed = 0
        self.per_turn = per_turn

    def take(self, batch: ProducerBatch, size: int) -> None:
        """Reserve ``size`` more bytes for ``batch``."""
        batch.reserved += size
        self.used += size

    def give_back(self, batch: ProducerBatch) -> None:
        """Release all that ``batch``, which is settled, has reserved."""
        self.used -= batch.reserved
        batch.reserved = 0


@cython.final
@cython.cclass
class TopicState:
    """One topic as the fast path sees it.

    Attributes:
        count: Partitions.
        batches: The open batch of each partition, None without one; stored nowhere else.
        sticky: Chooses partitions for records without a key.
    """

    __slots__ = ("batches", "count", "sticky")

    def __init__(self, sticky: StickyPartitioner) -> None:
        self.count = 0
        self.batches: list[ProducerBatch | None] = []
        self.sticky = sticky


@cython.final
@cython.cclass
class YieldTimer:
    """Decides when a loop that appends records must yield to the event loop; see ``send_many``.

    Args:
        budget: Counts sealed batches.
        effort: Clock that returns seconds of work.
        length: Seconds after which a yield is due.
    """

    __slots__ = ("_budget", "_effort", "_length", "_real", "_sealed", "_until")

    def __init__(self, budget: MemoryBudget, effort: Callable[[], float], length: float) -> None:
        self._budget = budget
        self._effort = effort
        # As for RecordAppender's clock: the compiled build reads the system's clock itself.
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
        """Return whether a yield is due."""
        budget = self._budget
        sealed = budget.sealed - self._sealed
        if sealed and (sealed >= budget.per_turn or budget.used > budget.limit >> 1):
            return True
        return self._now() >= self._until

    def note(self) -> None:
        """Note that a yield begins: batches that are sealed during it make the next one due."""
        self._sealed = self._budget.sealed

    def begin(self) -> None:
        """Note that a yield has ended."""
        self._until = self._now() + self._length

    def _now(self) -> float:
        if self._real:
            return steady()
        now: float = self._effort()
        return now


@cython.final
@cython.cclass
class RecordAppender:
    """The fast path of one producer.

    Args:
        budget: The producer's counters.
        max_record: Bytes of the largest record that is allowed, overhead included.

    Attributes:
        topics: The known topics, by name.
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
        """Accept records from now on, but only from within ``loop``."""
        self._home = loop
        self._mark = _NOBODY
        self._wall_ns = wall_ns
        # If time.time_ns is not replaced, the compiled build reads the clock itself: calling it
        # would be a fifth of the cost of a record.
        self._real = cython.compiled and isinstance(wall_ns, BuiltinFunctionType)

    def close(self) -> None:
        """Accept no more records."""
        self._home = self._mark = _NOBODY

    def take(
        self, topic: Any, value: Any, key: Any, headers: Any, partition: Any, timestamp: Any
    ) -> Delivery | None:
        """Put a record into the open batch of its partition; None if it is left to admission."""
        if not self._is_here():
            return None
        # The following is inlined here and, except for the clock, in take_many: in the pure build
        # the call of a helper costs as much as its body.
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
        # First, as the clock may be foreign code: none may run between the choice and the append.
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
            topic_state.sticky.left -= size
        delivery = Delivery.__new__(Delivery)
        delivery._outcome = outcome
        delivery._index = index
        delivery._timestamp = when
        delivery._listeners = None
        if cython.compiled:
            delivery._untrack()
        return delivery

    def feed(self, records: Iterator[Any]) -> RecordSource:
        """Wrap ``records`` into a source for ``take_many``."""
        return RecordSource(records, self._max_record - _OVERHEAD)

    def take_many(
        self, topic: Any, feed: RecordSource, turn: YieldTimer, watcher: object
    ) -> tuple[int, Any]:
        """Put values and (key, value) tuples into batches that ``watcher`` watches.

        The clock is read once for the rest of a block.

        Returns:
            How many records were taken, and the first that was not, which is left to admission; or
            in its place ``DUE`` when a yield is due, and ``END`` when ``feed`` is exhausted.
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
                topic_state.sticky.left -= size
            taken += 1

    def _take_bare(
        self, topic_state: TopicState, feed: RecordSource, when: int, watcher: object
    ) -> int:
        """Append the keyless values at the start of a block, as long as none needs a decision.

        Returns:
            How many were taken. Each of the others must be checked.
        """
        budget = self._budget
        # If memory suffices for all of them, no single one can need a decision.
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
        """Return the milliseconds of the wall clock, or of its replacement."""
        if self._real:
            return real_ms()
        now: int = self._wall_ns()
        return now // 1_000_000

    def _is_here(self) -> bool:
        """Return whether this is the loop, thread and process that records are accepted from.

        CPython keeps the running loop per thread and drops it after a fork; but up to 3.11 reading
        it costs a system call. What it keeps is a new object whenever a loop starts to run, so
        after one read it suffices to see the same object, as long as there was no fork.
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
        """Encode plain headers for the wire; ``size`` is that of the record without them."""
        if not _are_plain(headers):
            return None
        encoded: bytes = encode_headers(headers)
        if size + len(encoded) + _HEADER_BOUND * len(headers) > self._max_record:
            return None  # admission decides whether it is too large, by the longest encoding
        return encoded

    def _choose(
        self,
        topic_state: TopicState,
        key: bytes | None,
        partition: Any,
        size: int,
        feed: RecordSource | None,
    ) -> ProducerBatch | None:
        """Return the open batch for a record, from ``feed`` if given; None without one."""
        budget = self._budget
        if budget.waiting != 0 or size > self._max_record or budget.used + size > budget.limit:
            return None
        if partition is None:
            if key is None:
                sticky = topic_state.sticky
                index = sticky.current  # ``ready``, inlined
                if index < 0 or sticky.left <= -sticky.switch_bytes:
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
    """What happens to a record that doesn't fit into memory, by the method that was called."""

    QUEUE = "queue it, as send does"
    RAISE = "raise BufferFull, as enqueue_nowait does"


@cython.cclass
class SendMethods:
    """``send`` and ``enqueue_nowait`` of a producer: ``RecordAppender`` first, then admission.

    Compiled, as keyword-only arguments alone cost a Python function as much as all of ``take``.

    Attributes:
        _appender: Takes records that need no decision.
        _check: Raises if the producer can't be used.
        _put: Takes all other records; see ``Admission.put``.
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
        """Send one record: return its ``Delivery`` at once; await that for the outcome.

        A plain method: it never suspends, creates no task, and
        ``asyncio.gather(*(producer.send(...) for ...))`` costs little. When ``buffer_memory`` is
        full, the record waits in a strict FIFO queue of up to ``max_parked`` records and a quarter
        of ``buffer_memory``; when the topic's metadata is not available yet, in a queue that is
        bounded by ``buffer_memory`` alone.

        Args:
            topic: Topic to write to.
            value: An argument for ``value_serializer``, else bytes-like; None writes a tombstone.
            key: An argument for ``key_serializer``, else bytes-like. Records with the same key go
                to the same partition, and stay in order.
            headers: (name, value) pairs or a mapping; values are bytes-like or None.
            partition: Partition to write to; None lets the partitioner choose.
            timestamp: Int milliseconds since the epoch; None means now.

        Returns:
            The delivery: awaiting it returns RecordMetadata, or raises the reason why the record
            was not delivered within ``delivery_timeout`` (DeliveryTimedOut, a BrokerError ...).
            ``maybe_written`` of that error is True if the record may nevertheless be in the log.
            For a topic that has never existed it raises UnknownTopicOrPartition once brokers have
            reported it as unknown for 5 s, or for 10 s if only one of several can be asked; three
            times as long with ``allow_auto_create_topics``. For a topic that was deleted after this
            producer wrote to it, the record waits for ``delivery_timeout``; for a ``partition``
            that the topic doesn't have, for 10 s at most (then MetadataTimedOut), as it may be
            added.

        Raises:
            SerializationFailed: Key, value or headers are of a type that can't be sent.
            RecordTooLarge: Larger than ``max_request_size`` or ``buffer_memory``.
            InvalidArgument: The topic name is invalid, or another argument is.
            BufferFull: Too many records wait already; ``await producer.enqueue(...)`` waits
                instead.
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
        """Like ``send``, but raise BufferFull as soon as memory is full instead of queueing.

        Records for a topic whose metadata is not available yet wait in a queue as in ``send``.

        Args:
            topic, value, key, headers, partition, timestamp: As in ``send``.

        Raises:
            BufferFull: ``buffer_memory`` is full; the record was not accepted.
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
    """True for a key or value that needs no conversion."""
    return part is None or type(part) is bytes


def _are_plain(headers: Any) -> bool:
    """True for headers that need no conversion: a list or tuple of (str, bytes or None) tuples."""
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

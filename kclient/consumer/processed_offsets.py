"""The records that ``poll`` and ``async for`` returned, and which of them are finished.

All records returned before the latest call are finished. ``poller`` reports each call and what it
returned; ``rebalance`` reads the offsets before it commits or revokes partitions. With several
tasks that poll at once, a call of one does not finish the records of the others: they commit by
themselves.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Protocol

from kclient.cluster.wakeups import Broadcast
from kclient.record import IMPLEMENTATION
from kclient.types import OffsetAndMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kclient.cluster.core import ClientCore
    from kclient.consumer.fetch_buffer import FetchBuffer
    from kclient.consumer.partition_state import PartitionState
    from kclient.consumer.subscription import Subscription
    from kclient.record import Record
    from kclient.types import TopicPartition

if TYPE_CHECKING or IMPLEMENTATION != "cython":
    from kclient.consumer.record_iterator import IteratorBuffer as IteratorBuffer
    from kclient.consumer.record_iterator import NextRecord as NextRecord
    from kclient.consumer.record_iterator import RecordIterator as RecordIterator
else:
    from kclient.consumer._record_iterator_c import IteratorBuffer as IteratorBuffer
    from kclient.consumer._record_iterator_c import NextRecord as NextRecord
    from kclient.consumer._record_iterator_c import RecordIterator as RecordIterator


class ProcessedOffsets(Protocol):
    """How far the application has processed records: what may be committed, and when it stops.

    Interface only, which ``rebalance`` uses; also implemented for ``run``, whose handlers finish
    records in any order.
    """

    def finished(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """By partition, the offset up to which all records are finished, for a commit.

        Includes all assigned partitions whose offset is known, changed or not since the last
        commit; but not those where nothing was consumed since a seek or an explicit commit.
        """

    def finished_of(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """The same of one partition; None where nothing is to be committed."""

    def on_explicit_commit(self, partition: TopicPartition) -> None:
        """The application committed an offset, which is kept until it has finished more."""

    async def drain(self, partitions: Collection[TopicPartition], deadline: float) -> None:
        """Wait until no record of ``partitions`` is being processed; no more of them are returned.

        Not longer than ``deadline`` on the client's clock.

        Cancellation: safe.
        """

    def shorten_deadline(self, deadline: float) -> None:
        """Shorten the deadline of a pending ``drain``; minus infinity ends it at once."""

    def dropped(self, partitions: Collection[TopicPartition]) -> None:
        """Forget ``partitions``, which were lost: nothing of their records is to be committed."""


class PolledRecords:
    """Implements ``ProcessedOffsets`` for ``poll``, ``poll_arrow`` and ``async for``. Has no tasks.

    Args:
        core: The client's core.
        subscription: Has the positions.
        buffer: Takes back records that were not returned.

    Attributes:
        iterator_buffer: Records that an ``async for`` has taken and not returned yet.
        active_polls: Calls that wait for records at the moment.
        last_poll_at: When the latest call began, got records, or was known to be running.
        outstanding: Records were returned since the latest call began.
        poll_wanted: An ``async for`` in the midst of its records shall make a new poll, too.
    """

    def __init__(self, core: ClientCore, subscription: Subscription, buffer: FetchBuffer) -> None:
        self._core = core
        self._subscription = subscription
        self._buffer = buffer
        self._came = Broadcast()
        self._interrupted = False
        self._handed: list[Any] = []
        self.iterator_buffer = IteratorBuffer()
        self.active_polls = 0
        self.last_poll_at = 0.0
        self.outstanding = False
        self.poll_wanted = False

    # Calls

    def begin(self, now: float) -> None:
        """Begin a call of the application: all records returned before are finished."""
        self.active_polls += 1
        self.last_poll_at = now
        self.settle()
        self._subscription.on_poll()
        self.outstanding, self._handed = False, []
        self.poll_wanted = False
        self._came.notify()

    def go_on(self) -> None:
        """Continue the call, or end it without records: what it passed over is finished.

        Not where another task's call has returned records meanwhile: those aren't.
        """
        self.settle()
        if not self.outstanding:
            self._subscription.on_poll()

    def end(self) -> None:
        """End the call that ``begin`` began."""
        self.active_polls -= 1

    def take(self, records: list[Any]) -> None:
        """Buffer ``records`` for an ``async for``, which returns them one by one."""
        self.iterator_buffer.left, self._handed = iter(records), records

    def give(self) -> None:
        """Record that the present call returns records."""
        self.outstanding = True

    def settle(self) -> None:
        """Give back the records that an ``async for`` has taken and not returned yet."""
        left = list(self.iterator_buffer.left)
        if left:
            self._handed = self._handed[: -len(left)]
            self.give_back(left)

    def drop(self) -> None:
        """Drop the records that an ``async for`` has taken, as the consumer ends."""
        self.iterator_buffer.left = iter(())

    def give_back(self, records: Sequence[Any]) -> None:
        """Give back ``records``, the last that were taken, as they are not returned."""
        self._buffer.give_back(records)
        self._core.counters.add("consumer.records", -len(records))

    @property
    def steps(self) -> int:
        """How many of the records that an ``async for`` took last were returned."""
        return len(self._handed) - operator.length_hint(self.iterator_buffer.left)

    def _in_hand(self) -> Any:
        """The one record that an ``async for`` returned last, where it isn't finished yet.

        Those that it returned before are.
        """
        self.settle()
        return self._handed[-1] if self.outstanding and self._handed else None

    # ProcessedOffsets

    def all_finished(self) -> None:
        """Finish all records that were returned, as the application has processed them."""
        self.settle()
        self._subscription.finish_all()
        self.outstanding = False

    def shorten_deadline(self, deadline: float) -> None:
        """End a pending ``drain``: under a shortened deadline no call is waited for."""
        self._interrupted = True
        self._came.notify()

    def finished(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Positions before the latest call returned any record.

        Each step of an ``async for`` is such a call.
        """
        return self._by_partition(self._subscription.finished)

    def reached(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """As ``finished``, with positions from which nothing was consumed yet; for ``commit()``."""
        return self._by_partition(self._subscription.reached)

    def _by_partition(
        self, at: Callable[[PartitionState, Record | None], tuple[int, int] | None]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        in_hand = self._in_hand()
        found = {state.topic_partition: at(state, in_hand) for state in self._subscription}
        return {key: committable(one) for key, one in found.items() if one is not None}

    def finished_of(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """The same of one partition."""
        state = self._subscription.get(partition)
        if state is None:
            return None
        at = self._subscription.finished(state, self._in_hand())
        return None if at is None else committable(at)

    def on_explicit_commit(self, partition: TopicPartition) -> None:
        """The application committed an offset of ``partition``."""
        self.settle()
        self._subscription.on_explicit_commit(partition)

    async def drain(self, partitions: Collection[TopicPartition], deadline: float) -> None:
        """Wait for the next call of the application, unless nothing was returned since the last.

        Cancellation: safe.
        """
        self._interrupted = False
        self.settle()
        poll_count = self._subscription.poll_count
        while self.outstanding and not self._interrupted:
            if self._subscription.poll_count != poll_count:
                return  # what is outstanding now is of other partitions
            left = deadline - self._core.clock.now()
            if left <= 0:
                return
            self.poll_wanted = True
            await self._came.wait(left)

    def dropped(self, partitions: Collection[TopicPartition]) -> None:
        """Do nothing: no data of ``partitions`` is kept here."""


def committable(at: tuple[int, int]) -> OffsetAndMetadata:
    """An offset and its leader epoch, below 0 if unknown, as a value to commit."""
    offset, epoch = at
    return OffsetAndMetadata(offset, epoch if epoch >= 0 else None)


def offset_and_epoch(at: OffsetAndMetadata) -> tuple[int, int]:
    """The reverse of ``committable``."""
    return at.offset, -1 if at.leader_epoch is None else at.leader_epoch

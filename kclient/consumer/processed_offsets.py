"""What was handed over to ``poll`` and ``async for``, and how much of it is finished: all that was
before the latest call.

``poller`` reports each call and what it gave; ``rebalance`` asks before it commits or gives
partitions up. With several tasks that poll at once one's call says nothing of the others: they
commit by themselves.
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
    """How far the user's work on records has come: what may be committed, when it comes to rest.

    Interface only, which ``rebalance`` asks; also implemented for ``run``, whose handlers finish
    records in any order.
    """

    def finished(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """By partition, the offset up to which all records are finished, for a commit.

        Of all assigned partitions of which it is known, changed or not since the last commit; but
        not where nothing was consumed since a seek or an explicit commit.
        """

    def finished_of(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """The same of one partition; None where nothing is to be committed."""

    def on_explicit_commit(self, partition: TopicPartition) -> None:
        """The application committed an offset, which stands until it has finished more."""

    async def drain(self, partitions: Collection[TopicPartition], deadline: float) -> None:
        """Wait until nobody works on records of ``partitions``, of which no more are handed over.

        Not longer than ``deadline`` on the client's clock.

        Cancellation: safe.
        """

    def shorten_deadline(self, deadline: float) -> None:
        """Whoever waits in ``drain`` has no longer than that; minus infinity: waits in vain."""

    def dropped(self, partitions: Collection[TopicPartition]) -> None:
        """These were taken away: nothing of their records is to be committed."""


class PolledRecords:
    """Implements ``ProcessedOffsets`` for ``poll``, ``poll_arrow`` and ``async for``. Has no tasks.

    Args:
        core: The client's inside.
        subscription: Has the positions.
        buffer: Takes back what was not handed over.

    Attributes:
        iterator_buffer: Records that an ``async for`` has taken and not handed over yet.
        active_polls: Calls that wait for records at the moment.
        last_poll_at: When the user last came, was last given something, or was known to be at work.
        outstanding: Something was handed over since the user last came.
        poll_wanted: An ``async for`` in the midst of its records shall count as a poll_count, too.
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
        """The user called: all that was handed over before is finished."""
        self.active_polls += 1
        self.last_poll_at = now
        self.settle()
        self._subscription.on_poll()
        self.outstanding, self._handed = False, []
        self.poll_wanted = False
        self._came.notify()

    def go_on(self) -> None:
        """The call goes on: what was passed meanwhile was handed to nobody."""
        self.settle()
        self._subscription.on_poll()

    def end(self) -> None:
        """The call of ``begin`` has ended."""
        self.active_polls -= 1

    def take(self, records: list[Any]) -> None:
        """An ``async for`` took these, to hand them over one by one."""
        self.iterator_buffer.left, self._handed = iter(records), records

    def give(self) -> None:
        """The present call gives something."""
        self.outstanding = True

    def settle(self) -> None:
        """Give back what an ``async for`` has taken and not handed over yet."""
        left = list(self.iterator_buffer.left)
        if left:
            self._handed = self._handed[: -len(left)]
            self.give_back(left)

    def drop(self) -> None:
        """The consumer ends: what an ``async for`` has taken is handed to nobody."""
        self.iterator_buffer.left = iter(())

    def give_back(self, records: Sequence[Any]) -> None:
        """``records``, the last that were taken, are not handed over."""
        self._buffer.give_back(records)
        self._core.counters.add("consumer.records", -len(records))

    @property
    def steps(self) -> int:
        """How many of the records that an ``async for`` took last are handed over."""
        return len(self._handed) - operator.length_hint(self.iterator_buffer.left)

    def _in_hand(self) -> Any:
        """The one record that an ``async for`` handed over last, where it isn't finished yet.

        Those that it handed over before are.
        """
        self.settle()
        return self._handed[-1] if self.outstanding and self._handed else None

    # ProcessedOffsets

    def all_finished(self) -> None:
        """The user says that all that was handed over is finished."""
        self.settle()
        self._subscription.finish_all()
        self.outstanding = False

    def shorten_deadline(self, deadline: float) -> None:
        """No call is waited for in ``drain``: where there is a hurry the user
        won't poll.
        """
        self._interrupted = True
        self._came.notify()

    def finished(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Positions before the latest call handed anything over.

        Of an ``async for`` each step is such a call.
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
        """The application committed an offset of it."""
        self.settle()
        self._subscription.on_explicit_commit(partition)

    async def drain(self, partitions: Collection[TopicPartition], deadline: float) -> None:
        """Wait for the next call of the user, unless nothing was handed over since the last.

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
        """Nothing is kept of them here."""


def committable(at: tuple[int, int]) -> OffsetAndMetadata:
    """An offset and its leader epoch, below 0 for an unknown one, as they are committed."""
    offset, epoch = at
    return OffsetAndMetadata(offset, epoch if epoch >= 0 else None)


def offset_and_epoch(at: OffsetAndMetadata) -> tuple[int, int]:
    """The reverse of ``committable``."""
    return at.offset, -1 if at.leader_epoch is None else at.leader_epoch

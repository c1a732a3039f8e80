"""Progress of whoever polls, or reads by ``async for``: what was handed over before the latest call
is finished.

The group side asks it before it commits or gives partitions up; ``poller`` counts the calls. With
several tasks that poll at once one's call says nothing of the others: they commit by themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.cluster.wakeups import Bell
from kclient.types import OffsetAndMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from kclient.clock import Clock
    from kclient.consumer.partition_state import PartitionState
    from kclient.consumer.poller import Poller
    from kclient.consumer.subscription import Subscription
    from kclient.record import Record
    from kclient.types import TopicPartition


class HandedOver:
    """Implements ``Progress`` for ``poll``, ``poll_arrow`` and ``async for``. Has no tasks.

    Args:
        clock: Of the client.
        subscription: Has the positions.
        poller: Counts the calls.
    """

    def __init__(self, clock: Clock, subscription: Subscription, poller: Poller) -> None:
        self._clock = clock
        self._subscription = subscription
        self._poller = poller
        self._came = Bell()
        self._interrupted = False

    def came(self) -> None:
        """The user called again."""
        self._poller.visit_wanted = False
        self._came.ring()

    def hurry(self, deadline: float) -> None:
        """No call is waited for in ``drain``: where somebody is in a hurry the user won't poll."""
        self._interrupted = True
        self._came.ring()

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
        self._poller.settle()
        in_hand = self._poller.in_hand
        found = {state.topic_partition: at(state, in_hand) for state in self._subscription}
        return {key: committable(one) for key, one in found.items() if one is not None}

    def finished_of(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """The same of one partition."""
        self._poller.settle()
        state = self._subscription.get(partition)
        if state is None:
            return None
        at = self._subscription.finished(state, self._poller.in_hand)
        return None if at is None else committable(at)

    def stand(self, partition: TopicPartition) -> None:
        """The application committed an offset of it."""
        self._poller.settle()
        self._subscription.stand(partition)

    async def drain(self, partitions: Collection[TopicPartition], deadline: float) -> None:
        """Wait for the next call of the user, unless nothing was handed over since the last.

        Cancellation: safe.
        """
        self._interrupted = False
        self._poller.settle()
        visit = self._subscription.visit
        while self._poller.outstanding and not self._interrupted:
            if self._subscription.visit != visit:
                return  # what is outstanding now is of other partitions
            left = deadline - self._clock.now()
            if left <= 0:
                return
            self._poller.visit_wanted = True
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

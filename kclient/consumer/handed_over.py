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
    from collections.abc import Collection, Mapping

    from kclient.clock import Clock
    from kclient.consumer.poller import Poller
    from kclient.consumer.subscription import Subscription
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
        self._poller.settle()
        found, in_hand = {}, self._poller.in_hand
        for state in self._subscription:
            at = self._subscription.finished(state, in_hand)
            if at is not None:
                offset, epoch = at
                known = epoch if epoch >= 0 else None
                found[state.topic_partition] = OffsetAndMetadata(offset, known)
        return found

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

"""Unplaced: tells the user of partitions that nobody said where to read. Sans-IO.

Asked by ``poller`` before each wait. One such partition must not hold the others up, so it is told
once for each loss of a position, and again now and then; but where there is nothing else to read,
every call says so: it would wait in vain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.consumer.partition_state import PartitionState, Phase
from kclient.errors import NoPosition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kclient.consumer.subscription import Subscription

SHOWN = 3
"""Partitions that an error names; the others are counted."""


class Unplaced:
    """Knows what was told already.

    Args:
        subscription: Has the partitions.
        again: Seconds after which the same is told again.
    """

    def __init__(self, subscription: Subscription, again: float) -> None:
        self._subscription = subscription
        self._again = again
        self._told: dict[PartitionState, tuple[int, float]] = {}

    def check(self, now: float) -> None:
        """Raise NoPosition where the user has to hear of it."""
        subscription = self._subscription
        if subscription.settled:
            if self._told:
                self._told.clear()
            if not (len(subscription) or subscription.topics or subscription.expecting):
                raise _nothing(grouped=subscription.grouped)
            return
        missing = subscription.without_position()
        before, self._told = self._told, {}
        if not missing:
            return
        waits = any(
            not state.paused and state.phase is not Phase.NO_POSITION for state in subscription
        )
        untold = []
        for state in missing:
            fence, at = before.get(state, (-1, now))
            if waits and fence == state.fence and now - at < self._again:
                self._told[state] = (fence, at)
            else:
                self._told[state] = (state.fence, now)
                untold.append(state)
        if untold:
            raise _no_position(untold)


def _nothing(*, grouped: bool) -> NoPosition:
    other = "subscribe()" if grouped else "name topics when making the consumer"
    return NoPosition(
        "there is nothing to read: no partition is assigned",
        hint=f"call {other} or assign()" if grouped else f"call assign(), or {other}",
    )


def _no_position(missing: Sequence[PartitionState]) -> NoPosition:
    named = ", ".join(str(state.topic_partition) for state in missing[:SHOWN])
    more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    return NoPosition(
        f"nobody said where to start reading {named}{more}",
        topic_partition=missing[0].topic_partition,
        hint="call seek(), seek_to_beginning() or seek_to_end(), or set auto_offset_reset",
    )

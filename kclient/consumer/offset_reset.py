"""Where a partition without a position begins: ``auto_offset_reset`` and times sought. Sans-IO.

``engine`` reads the setting, ``Subscription`` and ``PartitionState`` hold the parsed value, and
``positions`` takes from here what to look up. No other module needs to know of durations. Without a
reset policy ``poller`` has ``NoPositionCheck`` raise an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from kclient.config import BY_DURATION
from kclient.consumer.partition_state import Phase
from kclient.errors import NoPosition, some_of
from kclient.frozen import Frozen, frozen
from kclient.settings import iso_duration_ns
from kclient.types import OffsetSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kclient.consumer.partition_state import PartitionState
    from kclient.consumer.subscription import Subscription
    from kclient.types import TopicPartition


@frozen
class ByDuration(Frozen):
    """The first record that isn't older than this; the end where there is none (KIP-1106).

    Attributes:
        name: As in the setting, for log lines.
        duration_ns: Int nanoseconds.
    """

    name: str
    duration_ns: int


@frozen
class AtTime(Frozen):
    """The first record that isn't before a time; the end where there is none.

    Attributes:
        name: For log lines.
        timestamp: Int milliseconds since the epoch.
    """

    name: str
    timestamp: int


Reset: TypeAlias = OffsetSpec | ByDuration | AtTime
"""Where to begin without a position."""

_SYMBOLIC = {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST}


def reset_of(setting: str) -> Reset | None:
    """Parse a checked value of ``auto_offset_reset``; None for "none"."""
    if not setting.startswith(BY_DURATION):
        return _SYMBOLIC.get(setting)
    return ByDuration(setting, iso_duration_ns(setting.partition(":")[2]))


def looked_up(reset: Reset, wall_ms: int) -> OffsetSpec | int:
    """What a lookup at ``wall_ms`` requests from the leader.

    Not before 1970: times below 0 are symbols.
    """
    if isinstance(reset, OffsetSpec):
        return reset
    if isinstance(reset, AtTime):
        return reset.timestamp
    return max(0, (wall_ms * 1_000_000 - reset.duration_ns) // 1_000_000)


def ends_first(resets: Mapping[TopicPartition, Reset]) -> dict[TopicPartition, OffsetSpec]:
    """The ends to look up before the times.

    Where no record is young enough, reading begins at the end that was looked up first: else a
    record that was written after the lookup of the time would be missed.
    """
    return {
        partition: OffsetSpec.LATEST
        for partition, reset in resets.items()
        if not isinstance(reset, OffsetSpec)
    }


class NoPositionCheck:
    """Knows for which partitions without a position poll has raised NoPosition.

    One such partition must not hold the others up, so NoPosition is raised once for each loss of a
    position, and again now and then; but where there is nothing else to read, every call raises it:
    it would wait in vain.

    Args:
        subscription: Has the partitions.
        again: Seconds after which the same error is raised again.

    Attributes:
        reported: Partitions for which it has raised, with their version and when. Read only.
    """

    def __init__(self, subscription: Subscription, again: float) -> None:
        self._subscription = subscription
        self._again = again
        self.reported: dict[PartitionState, tuple[int, float]] = {}

    def check(self, now: float) -> None:
        """Raise NoPosition where poll has to.

        Not needed while there are partitions, all of them FETCHING, and ``reported`` is empty.
        """
        subscription = self._subscription
        if subscription.settled:
            self.reported.clear()
            if not (len(subscription) or subscription.topics or subscription.expecting):
                raise _nothing(grouped=subscription.grouped)
            return
        missing = subscription.without_position()
        before, self.reported = self.reported, {}
        if not missing:
            return
        waits = any(
            not state.paused and state.phase is not Phase.NO_POSITION for state in subscription
        )
        unreported = []
        for state in missing:
            position_version, at = before.get(state, (-1, now))
            if waits and position_version == state.position_version and now - at < self._again:
                self.reported[state] = (position_version, at)
            else:
                self.reported[state] = (state.position_version, now)
                unreported.append(state)
        if unreported:
            raise _no_position(unreported)


def _nothing(*, grouped: bool) -> NoPosition:
    other = "subscribe()" if grouped else "name topics when making the consumer"
    return NoPosition(
        "there is nothing to read: no partition is assigned",
        hint=f"call {other} or assign()" if grouped else f"call assign(), or {other}",
    )


def _no_position(missing: Sequence[PartitionState]) -> NoPosition:
    named = some_of([state.topic_partition for state in missing])
    return NoPosition(
        f"nobody said where to start reading {named}",
        topic_partition=missing[0].topic_partition,
        hint="call seek(), seek_to_beginning() or seek_to_end(), or set auto_offset_reset",
    )

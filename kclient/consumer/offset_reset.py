"""Where a partition without a position begins: ``auto_offset_reset`` and times sought. Sans-IO.

``engine`` reads the setting, ``Subscription`` and ``PartitionState`` hold the parsed value, and
``positions`` takes from here what to look up. No other module needs to know of durations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from kclient.config import BY_DURATION
from kclient.frozen import Frozen, frozen
from kclient.settings import iso_duration_ns
from kclient.types import OffsetSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

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

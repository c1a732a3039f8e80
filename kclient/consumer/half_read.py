"""Batches that are read in part, as far as they hold bytes of their own: how much, and whose.

An inflated payload stays until its last record is taken. It isn't counted as a frame, and where
partitions take turns each could hold one. ``fetch_buffer`` notes them here: from ``limit`` on it
has only those partitions served that hold something. What threads inflate meanwhile, and one batch
that was begun below the limit, come on top of it. Sans-IO.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kclient.consumer.partition_state import PartitionState


class HalfRead:
    """Partitions that can be served and hold such bytes, in the order of their turns.

    Attributes:
        limit: Bytes from which on no other partition is served; at least one.
        total: Bytes that they hold together.
        aside: Bytes that paused partitions hold together, up to ``limit`` unless it is one alone.
    """

    __slots__ = ("_aside", "_held", "aside", "limit", "total")

    def __init__(self, limit: int) -> None:
        self.limit = max(1, limit)
        self.total = 0
        self.aside = 0
        self._held: dict[PartitionState, int] = {}
        self._aside: dict[PartitionState, int] = {}

    def __bool__(self) -> bool:
        """Somebody holds something."""
        return bool(self._held)

    @property
    def crowded(self) -> bool:
        """It is their turn before that of others."""
        return self.total >= self.limit

    @property
    def may_inflate(self) -> bool:
        """Another batch may be inflated in a thread.

        Where others hold enough, so that none is begun, there is still room for these: they would
        wait for ever behind small ones.
        """
        return self.total < 2 * self.limit

    def first(self) -> PartitionState:
        """Who was served longest ago."""
        return next(iter(self._held))

    def note(self, state: PartitionState, held: int) -> None:
        """The partition was served, and holds so many bytes."""
        self.forget(state)
        if held:
            self._held[state] = held
            self.total += held

    def set_aside(self, state: PartitionState, held: int) -> bool:
        """The partition is paused; whether it may keep so many bytes. The first may always."""
        self.forget(state)
        if self.aside and self.aside + held > self.limit:
            return False
        if held:
            self._aside[state] = held
            self.aside += held
        return True

    def forget(self, state: PartitionState) -> None:
        """It holds nothing, or can't be served."""
        self.total -= self._held.pop(state, 0)
        self.aside -= self._aside.pop(state, 0)

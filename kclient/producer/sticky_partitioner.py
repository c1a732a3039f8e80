"""The partition of records without a key (uniform sticky, KIP-794). Sans-IO.

One source, two builds: compiled as ``_sticky_partitioner_c``; ``append`` calls it for each record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    import cython  # type: ignore[import-untyped]
else:
    from kclient.record import _cython as cython


@cython.final
@cython.cclass
class StickyPartitioner:
    """The current partition for records without a key (uniform sticky, KIP-794).

    They stay on one partition for about a batch's worth of bytes, then move to a random one, so
    that batches fill and load evens out. Of two random candidates the one with fewer waiting
    batches is chosen, which avoids slow brokers.

    Args:
        switch_bytes: Move on after about this many bytes (the batch size).
        rng: Source of the choices.
        backlog: Returns the number of waiting batches of a partition, by index.

    Attributes:
        current: The partition; -1 before the first one was chosen.
        left: Bytes until the next move is due; below 0 afterwards.
        switch_bytes: As given.
    """

    __slots__ = ("_backlog", "_rng", "current", "left", "switch_bytes")

    def __init__(
        self, switch_bytes: int, rng: random.Random, backlog: Callable[[int], int]
    ) -> None:
        self.current = -1
        self.left = 0
        self.switch_bytes = switch_bytes
        self._rng = rng
        self._backlog = backlog

    def ready(self, more: int) -> int:
        """Return the current partition; -1 if another must be chosen before anything is added.

        That is so if, with ``more`` bytes, the current one exceeds its share by so much that the
        move must not wait for a complete batch.
        """
        return -1 if self.left - more <= -self.switch_bytes else self.current

    def due(self) -> bool:
        """True if the current partition had its share: move on when its batch is complete."""
        return self.left <= 0

    def note(self, size: int) -> None:
        """Count ``size`` bytes that were added to the current partition."""
        self.left -= size

    def move(self, available: Sequence[int], partition_count: int) -> int:
        """Choose among ``available``, the partitions with a leader; among all if it is empty."""
        self.left = self.switch_bytes
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

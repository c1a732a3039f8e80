"""Bounds: how many records ``run`` takes before it lets partitions wait, sans-IO.

What is taken and not finished is memory, so there is room for so many records and no more. A
partition that gets on with nothing may not keep the others from going on: while less than half of
the room is used, one may have much of it; from then on only its part of the other half. ``runner``
asks for each batch, never per record.
"""

from __future__ import annotations

LEAST_ROOM = 1_024
"""Records for which there is room where the user doesn't say how much."""
PER_HANDLER = PER_PARTITION = 16
"""At least so many for each handler at a time and for each partition, likewise."""


class Bounds:
    """The room of one run.

    Args:
        total: Records of all partitions together; None goes by handlers and partitions.
        concurrency: Handlers at the same time.
    """

    __slots__ = ("_concurrency", "_given", "_partitions", "_total")

    def __init__(self, total: int | None, concurrency: int) -> None:
        self._given = total
        self._concurrency = concurrency
        self._partitions = 1
        self._total = 0
        self.resize(1)

    def resize(self, partitions: int) -> None:
        """So many partitions are assigned now."""
        self._partitions = max(1, partitions)
        self._total = self._given or max(
            LEAST_ROOM, PER_HANDLER * self._concurrency, PER_PARTITION * self._partitions
        )

    @property
    def total(self) -> int:
        """Records that may be in flight."""
        return self._total

    def limit(self, in_flight: int) -> int:
        """How many may be taken at once now; 0 where there is no room."""
        return max(0, min(self._total - in_flight, max(1, self._total // 8)))

    def share(self, in_flight: int) -> int:
        """How many one partition may have before it is paused."""
        part = max(1, self._total // (2 * self._partitions))
        if 2 * in_flight >= self._total:
            return part
        return max(part, min(2 * self._concurrency, self._total // 2))

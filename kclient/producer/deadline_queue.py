"""Items ordered by deadline: linger, retries, delivery timeouts, waiting records.

A heap with lazy removal: an item that is done early stays in until it reaches the head. The heap is
rebuilt when most items are dead, so its size stays proportional to the live ones; also when many
dead items follow each other at the head, as popping them singly takes ten times as long. Sans-IO.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_SLACK = 64
_BURIED_SINGLY = 16
"""The heap is rebuilt when more than this fraction of it (1/16) is found dead at the head."""
_NEVER = float("inf")


class DeadlineQueue(Generic[T]):
    """Items ordered by time; ``alive`` returns whether an item still matters.

    Attributes:
        earliest: No item is due before this time; the item that is due then may be dead.
    """

    def __init__(self, alive: Callable[[T], bool]) -> None:
        self._alive = alive
        self._heap: list[tuple[float, int, T]] = []
        self._counter = 0
        self._rebuild_at = _SLACK
        self.earliest = _NEVER

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, when: float, item: T) -> None:
        """Add ``item``, due at ``when``; the same item may be in more than once."""
        self._counter = counter = self._counter + 1
        if when < self.earliest:
            self.earliest = when
        heapq.heappush(self._heap, (when, counter, item))
        if len(self._heap) > self._rebuild_at:
            self._rebuild()

    def pop_due(self, now: float) -> T | None:
        """Remove and return the next live item that is due; None if there is none."""
        if now < self.earliest:
            return None
        head = self._head()
        if head is None or head[0] > now:
            return None
        item = heapq.heappop(self._heap)[2]
        self.earliest = self._heap[0][0] if self._heap else _NEVER
        return item

    def next_at(self) -> float | None:
        """Return when the next live item is due; None if there is none."""
        head = self._head()
        return None if head is None else head[0]

    def _head(self) -> tuple[float, int, T] | None:
        """Return the first live entry, after removing the dead ones before it."""
        most = _SLACK + len(self._heap) // _BURIED_SINGLY
        while self._heap and not self._alive(self._heap[0][2]):
            if most == 0:
                self._rebuild()
                break
            most -= 1
            heapq.heappop(self._heap)
        head = self._heap[0] if self._heap else None
        self.earliest = _NEVER if head is None else head[0]
        return head

    def _rebuild(self) -> None:
        self._heap = [entry for entry in self._heap if self._alive(entry[2])]
        heapq.heapify(self._heap)
        self._rebuild_at = 2 * len(self._heap) + _SLACK
        self.earliest = self._heap[0][0] if self._heap else _NEVER

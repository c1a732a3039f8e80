"""Things to look at when their time comes: linger, retries, delivery deadlines, parked records.

A heap by time that forgets lazily: what is over before its time stays in until popped, and the
heap is rebuilt when most of it is dead, so it stays proportional to what is alive. Sans-IO.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_SLACK = 64


class DueList(Generic[T]):
    """Items ordered by time; ``alive`` tells whether an item still matters."""

    __slots__ = ("_alive", "_counter", "_heap", "_rebuild_at")

    def __init__(self, alive: Callable[[T], bool]) -> None:
        self._alive = alive
        self._heap: list[tuple[float, int, T]] = []
        self._counter = 0
        self._rebuild_at = _SLACK

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, when: float, item: T) -> None:
        """Have ``item`` come up at ``when``; the same item may be in more than once."""
        self._counter += 1
        heap = self._heap
        heapq.heappush(heap, (when, self._counter, item))
        if len(heap) > self._rebuild_at:
            alive = [entry for entry in heap if self._alive(entry[2])]
            heapq.heapify(alive)
            self._heap = alive
            self._rebuild_at = 2 * len(alive) + _SLACK

    def pop_due(self, now: float) -> T | None:
        """The next live item whose time has come, taken out; None if there is none."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            item = heapq.heappop(heap)[2]
            if self._alive(item):
                return item
        return None

    def next_at(self) -> float | None:
        """When the next live item comes up; None if there is none."""
        heap = self._heap
        while heap:
            if self._alive(heap[0][2]):
                return heap[0][0]
            heapq.heappop(heap)
        return None

"""Things to look at when their time comes: linger, retries, delivery deadlines, parked records.

A heap by time that forgets lazily: what is over before its time stays in until popped, and the
heap is rebuilt when most of it is dead, so it stays proportional to what is alive; also when many
dead ones in a row come up, as popping them singly takes ten times as long. Sans-IO.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_SLACK = 64
_BURIED_SINGLY = 16
"""Where more than one part in so many is found dead at the head in a row, all are looked at."""


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
            self._rebuild()

    def pop_due(self, now: float) -> T | None:
        """The next live item whose time has come, taken out; None if there is none."""
        self._bury()
        heap = self._heap
        return heapq.heappop(heap)[2] if heap and heap[0][0] <= now else None

    def next_at(self) -> float | None:
        """When the next live item comes up; None if there is none."""
        self._bury()
        return self._heap[0][0] if self._heap else None

    def _bury(self) -> None:
        """Drop the dead ones at the head."""
        heap, alive = self._heap, self._alive
        if not heap or alive(heap[0][2]):
            return
        for _ in range(_SLACK + len(heap) // _BURIED_SINGLY):
            if not heap or alive(heap[0][2]):
                return
            heapq.heappop(heap)
        self._rebuild()

    def _rebuild(self) -> None:
        self._heap = [entry for entry in self._heap if self._alive(entry[2])]
        heapq.heapify(self._heap)
        self._rebuild_at = 2 * len(self._heap) + _SLACK

"""Things to look at when their time comes: linger, retries, delivery deadlines, parked records.

Nearly all come in the order of their times, so they stand in a row; who comes out of order stands
in a heap beside it. What is over before its time is forgotten lazily: it stays in until it comes to
the head, and all is rebuilt when most of it is dead, so it stays proportional to what is alive;
also when many dead ones in a row come up, as popping them singly takes ten times as long. Sans-IO.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_SLACK = 64
_BURIED_SINGLY = 16
"""Where more than one part in so many is found dead at the head in a row, all are looked at."""
_NEVER = float("inf")


class DueList(Generic[T]):
    """Items ordered by time; ``alive`` tells whether an item still matters.

    Attributes:
        earliest: Nothing comes up before that time; what does then may be dead.
    """

    __slots__ = ("_alive", "_counter", "_heap", "_last", "_rebuild_at", "_row", "earliest")

    def __init__(self, alive: Callable[[T], bool]) -> None:
        self._alive = alive
        self._row: deque[tuple[float, int, T]] = deque()
        self._heap: list[tuple[float, int, T]] = []
        self._last = -_NEVER  # no item of the row is due later
        self.earliest = _NEVER
        self._counter = 0
        self._rebuild_at = _SLACK

    def __len__(self) -> int:
        return len(self._row) + len(self._heap)

    def push(self, when: float, item: T) -> None:
        """Have ``item`` come up at ``when``; the same item may be in more than once."""
        self._counter = counter = self._counter + 1
        if when < self.earliest:
            self.earliest = when
        row = self._row
        if when >= self._last or not row:
            self._last = when
            row.append((when, counter, item))
        else:
            heapq.heappush(self._heap, (when, counter, item))
        if len(row) + len(self._heap) > self._rebuild_at:
            self._rebuild()

    def pop_due(self, now: float) -> T | None:
        """The next live item whose time has come, taken out; None if there is none."""
        if now < self.earliest:
            return None
        head = self._head()
        if head is None or head[0] > now:
            return None
        self._drop(head)
        return head[2]

    def next_at(self) -> float | None:
        """When the next live item comes up; None if there is none."""
        row = self._row
        if row and not self._heap and self._alive(row[0][2]):
            return row[0][0]
        head = self._head()
        return None if head is None else head[0]

    def _head(self) -> tuple[float, int, T] | None:
        """The first live entry; drops the dead ones before it."""
        most = _SLACK + len(self) // _BURIED_SINGLY
        while (head := self._first()) is not None and not self._alive(head[2]):
            if most == 0:
                self._rebuild()
                return self._first()
            most -= 1
            self._drop(head)
        self.earliest = _NEVER if head is None else head[0]
        return head

    def _first(self) -> tuple[float, int, T] | None:
        row, heap = self._row, self._heap
        if not heap:
            return row[0] if row else None
        return heap[0] if not row or heap[0] < row[0] else row[0]

    def _drop(self, head: tuple[float, int, T]) -> None:
        if self._row and self._row[0] is head:
            self._row.popleft()
        else:
            heapq.heappop(self._heap)

    def _rebuild(self) -> None:
        alive = self._alive
        self._row = deque(entry for entry in self._row if alive(entry[2]))
        self._heap = [entry for entry in self._heap if alive(entry[2])]
        heapq.heapify(self._heap)
        self._rebuild_at = 2 * len(self) + _SLACK
        first = self._first()
        self.earliest = _NEVER if first is None else first[0]

"""``Deadlines``: scheduled actions of a coordinator, by key; it has no timer itself.

The coordinator arms one timer for ``next_at`` and calls ``run`` when it fires. Sessions are moved
with each heartbeat, so an entry that was replaced stays in the heap until its time, and the heap is
rebuilt when most of it is stale.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

Key: TypeAlias = tuple[str, ...]
_SLACK = 64


class Moment(NamedTuple):
    """A point in time, on both clocks that the group rules need."""

    now: float
    """Monotonic seconds."""
    wall_ms: int
    """Milliseconds since the epoch, for records."""


Action: TypeAlias = Callable[[Moment], None]


class Deadlines:
    """Actions by key, each with a time; setting a key again replaces it."""

    def __init__(self) -> None:
        self._entries: dict[Key, tuple[float, int, Action]] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def set(self, key: Key, at: float, action: Action) -> None:
        """Schedule ``action`` for ``at``; it replaces the action of that key."""
        self._count += 1
        self._entries[key] = (at, self._count, action)
        heapq.heappush(self._heap, (at, self._count, key))
        if len(self._heap) > 2 * len(self._entries) + _SLACK:
            self._heap = [(when, nth, one) for one, (when, nth, _) in self._entries.items()]
            heapq.heapify(self._heap)

    def cancel(self, key: Key) -> None:
        """Remove the action of a key."""
        self._entries.pop(key, None)

    @property
    def next_at(self) -> float | None:
        """The time of the earliest action; None if there is none."""
        while self._heap:
            at, nth, key = self._heap[0]
            entry = self._entries.get(key)
            if entry is not None and entry[1] == nth:
                return at
            heapq.heappop(self._heap)
        return None

    def run(self, moment: Moment) -> None:
        """Call the actions that are due, and those that they schedule for now."""
        planned = self._count
        while True:
            at = self.next_at
            if at is None or at > moment.now:
                return
            _, nth, key = self._heap[0]
            if nth > planned:  # scheduled meanwhile: yield to the loop first
                return
            heapq.heappop(self._heap)
            _, _, action = self._entries.pop(key)
            action(moment)

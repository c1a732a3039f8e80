"""Schedule: which record may be handled next, sans-IO. Each step costs the same, however many wait.

Records that must not overtake each other stand in a line: those of a partition, or those of a key
within its partition. The first of each line is ready, the next one becomes so when that one is
finished. A line is nothing but its last job and a ``following`` from each to the next, so that
millions of keys cost nothing while nobody waits. Jobs that wait for a time (a retry after a
back-off, a retry topic's delay) keep their place in line and are in ``_delayed`` by that time.
"""

from __future__ import annotations

import enum
import heapq
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kclient.consumer.running.tracker import Job


class Ordering(enum.Enum):
    """What must not be overtaken by what."""

    PARTITION = "partition"
    KEY = "key"
    NONE = "none"


class Schedule:
    """The jobs of one run that no handler works on.

    Attributes:
        ready: Those that may start, in the order in which they became ready; some may be void.
        stopped: None is started any more.
    """

    __slots__ = ("_by_key", "_delayed", "_in_lines", "_number", "ready", "stopped")

    def __init__(self, ordering: Ordering) -> None:
        self._in_lines = ordering is not Ordering.NONE
        self._by_key = ordering is Ordering.KEY
        self.ready: deque[Job] = deque()
        self._delayed: list[tuple[float, int, Job]] = []
        self._number = 0
        self.stopped = False

    def add(self, job: Job) -> None:
        """A job whose record was just taken."""
        if not self._in_lines:
            self.ready.append(job)
            return
        tails = job.track.tails
        key = job.record.key if self._by_key else None
        before = tails.get(key)
        tails[key] = job
        if before is None:
            self.ready.append(job)
        else:
            before.following = job

    def next(self) -> Job | None:
        """The job to start now, which isn't ready any more; None where there is none."""
        if self.stopped:
            return None
        ready = self.ready
        while ready:
            job = ready.popleft()
            if not job.track.halted:
                return job
        return None

    def put_back(self, job: Job) -> None:
        """``job``, which ``next`` gave, is not started."""
        self.ready.appendleft(job)

    def leave(self, job: Job) -> None:
        """``job`` is finished: whoever stands behind it may start."""
        if not self._in_lines:
            return
        following = job.following
        if following is not None:
            job.following = None
            self.ready.append(following)
            return
        tails = job.track.tails
        key = job.record.key if self._by_key else None
        if tails.get(key) is job:
            del tails[key]

    def delay(self, job: Job, due: float) -> None:
        """Start ``job`` at ``due``; those behind it in line wait, all others don't."""
        job.due = due
        self._number += 1
        heapq.heappush(self._delayed, (due, self._number, job))

    @property
    def next_due(self) -> float | None:
        """When the next one is due; None where none waits for a time."""
        return self._delayed[0][0] if self._delayed else None

    @property
    def delayed(self) -> int:
        """How many wait for a time."""
        return len(self._delayed)

    def wake(self, now: float) -> int:
        """Make those ready that are due. Returns how many."""
        delayed, count = self._delayed, 0
        while delayed and delayed[0][0] <= now:
            job = heapq.heappop(delayed)[2]
            if not job.track.halted:
                self.ready.append(job)
                count += 1
        return count

    def forget_void(self) -> None:
        """Partitions were taken away: what waits of them is let go."""
        self._delayed = [entry for entry in self._delayed if not entry[2].track.halted]
        heapq.heapify(self._delayed)
        if any(job.track.halted for job in self.ready):
            self.ready = deque(job for job in self.ready if not job.track.halted)

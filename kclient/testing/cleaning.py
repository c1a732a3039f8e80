"""Cleans the logs of one broker by and by, with one timer and only where there is something to do.

After an append somebody has to look, once ``log.retention.check.interval.ms`` is over, or
``log.cleaner.backoff.ms`` for compacted topics; then the cleaner itself says when the next segment
comes of age. An idle broker has no timer, or one that is days away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from kclient.testing.log import PartitionLog
from kclient.testing.log_cleaner import clean_all
from kclient.testing.topic_configs import TopicConfig

_MS = 1000
_LONGEST_WAIT_MS = 30 * 86_400_000
"""A timer that is further away is none of a loop's: somebody looks in between."""


class Timer(Protocol):
    """What ``call_later`` gives."""

    def cancel(self) -> None:
        """Never call."""


class Cleaning:
    """The timer of one broker's logs.

    Args:
        logs: All logs of the broker, with their topics' configurations.
        wall_ms: Milliseconds since the epoch.
        call_later: A timer of the loop, in seconds.
        retention_check_ms: How long after an append retention is looked at.
        backoff_ms: The same for compacted topics.
    """

    __slots__ = (
        "_backoff_ms",
        "_call_later",
        "_due_ms",
        "_logs",
        "_retention_ms",
        "_timer",
        "_wall",
    )

    def __init__(
        self,
        logs: Callable[[], Iterable[tuple[PartitionLog, TopicConfig]]],
        wall_ms: Callable[[], int],
        call_later: Callable[[float, Callable[[], None]], Timer],
        retention_check_ms: int,
        backoff_ms: int,
    ) -> None:
        self._logs = logs
        self._wall = wall_ms
        self._call_later = call_later
        self._retention_ms = retention_check_ms
        self._backoff_ms = backoff_ms
        self._timer: Timer | None = None
        self._due_ms = 0

    def note_append(self, config: TopicConfig) -> None:
        """A log of a topic with this configuration grew, or may be read further."""
        if config.compacted:
            self._look_at(self._wall() + self._backoff_ms)
        elif config.deletes and (config.retention_ms >= 0 or config.retention_bytes >= 0):
            self._look_at(self._wall() + self._retention_ms)

    def look(self) -> None:
        """Clean what is due now."""
        self.close()
        due = clean_all(self._logs(), self._wall()).next_clean_at
        if due is not None:
            self._look_at(due)

    def close(self) -> None:
        """Look no more, until something is appended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_at(self, due_ms: int) -> None:
        if self._timer is not None:
            if self._due_ms <= due_ms:
                return
            self._timer.cancel()
        now = self._wall()
        self._due_ms = due_ms
        wait = min(max(due_ms - now, 0), _LONGEST_WAIT_MS)
        self._timer = self._call_later(wait / _MS, self.look)

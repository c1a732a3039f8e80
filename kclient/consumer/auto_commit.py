"""AutoCommit: commits what is finished, every ``auto_commit_interval`` seconds.

Started and stopped by the group side. What is finished is only known at certain moments where the
user polls, so a commit that is due waits for the user's next call, unless one waits right now.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LEAST = 0.001
"""Seconds between two commits at least, even where the interval is 0."""


class AutoCommit:
    """The timer of automatic commits. No tasks.

    Args:
        interval: Seconds.
        may: Whether now is a moment at which what is finished is known.
        commit: Commits what is finished; doesn't wait.
        want: Told that a commit is due, and that ``came`` should be called as soon as it ``may``.
    """

    def __init__(
        self,
        interval: float,
        may: Callable[[], bool],
        commit: Callable[[], object],
        want: Callable[[], object],
    ) -> None:
        self._interval = max(interval, LEAST)
        self._may = may
        self._commit = commit
        self._want = want
        self._timer: asyncio.TimerHandle | None = None
        self._due = False

    def start(self) -> None:
        """Begin; nothing happens where it has begun."""
        if self._timer is None:
            self._arm()

    def stop(self) -> None:
        """Commit no more."""
        self._due = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def came(self) -> None:
        """Now is such a moment."""
        if self._due:
            self._due = False
            self._commit()

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._interval, self._ring)

    def _ring(self) -> None:
        self._arm()
        if self._may():
            self._due = False
            self._commit()
        else:
            self._due = True
            self._want()

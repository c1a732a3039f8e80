"""A fetch that waits for data: one listener per log and one timer, no task, no polling.

Made by ``handlers/fetch.py``. When enough bytes came it answers in a later callback, so that a
produce to many partitions, and its own answer, come first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from kclient.protocol.message import Response
from kclient.testing.deferred import Deferred
from kclient.testing.log import PartitionLog


class FetchWait:
    """Answers when ``missing_bytes`` more can be read from ``logs``, or after ``seconds``.

    Args:
        logs: Of the partitions that are wanted.
        missing_bytes: What ``min_bytes`` still lacks.
        seconds: ``max_wait``.
        attempt: Reads again: the response, or the bytes that are still missing; with True the
            response whatever is missing.
        eager: Attempt whenever anything comes: what can be read is not just what was appended.
        tail: What isn't committed yet counts, too, as for followers.

    Attributes:
        answer: Where the response arrives; cancelling it lets go of timer and listeners.
    """

    def __init__(
        self,
        logs: Sequence[PartitionLog],
        missing_bytes: int,
        seconds: float,
        attempt: Callable[[bool], Response | int],
        *,
        eager: bool,
        tail: bool = False,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._logs = logs
        self._missing = missing_bytes
        self._attempt = attempt
        self._eager = eager
        self._soon: asyncio.Handle | None = None
        self._timer = self._loop.call_later(seconds, self._try, True)
        self.answer: Deferred[Response] = Deferred(self._abandon)
        for log in logs:
            log.listen(self._grown, tail=tail)

    def _grown(self, size_bytes: int) -> None:
        self._missing -= size_bytes
        if (self._missing <= 0 or self._eager) and self._soon is None:
            self._soon = self._loop.call_soon(self._try, False)

    def _try(self, last: bool) -> None:
        self._soon = None
        if self.answer.done:
            return
        outcome = self._attempt(last)
        if isinstance(outcome, int):
            self._missing = outcome
        else:
            self.answer.complete(outcome)

    def _abandon(self) -> None:
        self._timer.cancel()
        if self._soon is not None:
            self._soon.cancel()
        for log in self._logs:
            log.unlisten(self._grown)

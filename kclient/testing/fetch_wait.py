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
    """Answers when ``missing_bytes`` were appended to ``logs``, or after ``seconds``.

    Attributes:
        answer: Where the response arrives; cancelling it lets go of timer and listeners.
    """

    def __init__(
        self,
        logs: Sequence[PartitionLog],
        missing_bytes: int,
        seconds: float,
        respond: Callable[[], Response],
    ) -> None:
        loop = asyncio.get_running_loop()
        self._logs = logs
        self._missing = missing_bytes
        self._respond = respond
        self._loop = loop
        self._soon: asyncio.Handle | None = None
        self._timer = loop.call_later(seconds, self._finish)
        self.answer: Deferred[Response] = Deferred(self._abandon)
        for log in logs:
            log.listen(self._appended)

    def _appended(self, size_bytes: int) -> None:
        self._missing -= size_bytes
        if self._missing <= 0 and self._soon is None:
            self._soon = self._loop.call_soon(self._finish)

    def _finish(self) -> None:
        if not self.answer.done:
            response = self._respond()
            self.answer.complete(response)

    def _abandon(self) -> None:
        self._timer.cancel()
        if self._soon is not None:
            self._soon.cancel()
        for log in self._logs:
            log.unlisten(self._appended)

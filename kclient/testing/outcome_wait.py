"""``OutcomeWait``: an answer that waits until each partition of a request has its outcome.

``ack_wait.py`` and ``deletion_wait.py`` say what an outcome is, and call ``look`` when there may be
one. One timer, no task.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from kclient.testing.deferred import Deferred

T = TypeVar("T")


class OutcomeWait(ABC, Generic[T]):
    """Answers when every partition has its outcome, or after ``seconds``.

    Args:
        seconds: The request's timeout.
        respond: Makes the response.

    Attributes:
        answer: Where the response arrives; cancelling it lets go of timer and listeners.
    """

    def __init__(self, seconds: float, respond: Callable[[], T]) -> None:
        self._loop = asyncio.get_running_loop()
        self._respond = respond
        self._soon: asyncio.Handle | None = None
        self._timer = self._loop.call_later(seconds, self._late)
        self.answer: Deferred[T] = Deferred(self._abandon)

    @abstractmethod
    def is_settled(self) -> bool:
        """Let each partition look, and tell whether all have their outcomes."""

    @abstractmethod
    def time_out(self) -> None:
        """Give REQUEST_TIMED_OUT to those that have none."""

    @abstractmethod
    def let_go(self) -> None:
        """Listen no more."""

    def look(self) -> None:
        """Answers leave in a later callback: a connection that got one serves its next request."""
        if self._soon is None and not self.answer.done:
            self._soon = self._loop.call_soon(self._check)

    def _check(self) -> None:
        self._soon = None
        if self.is_settled():
            self._answer()

    def _answer(self) -> None:
        self.answer.complete(self._respond())

    def _late(self) -> None:
        self.time_out()
        self._answer()

    def _abandon(self) -> None:
        self._timer.cancel()
        if self._soon is not None:
            self._soon.cancel()
        self.let_go()

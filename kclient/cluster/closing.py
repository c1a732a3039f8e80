"""Closing: the end of a client as one piece of work, done once, whoever asks for it and whoever
stops waiting.

``ClientCore``, the producer and the consumer's engine have one each. It runs in a task of its own,
so that a caller who is cancelled doesn't interrupt it; where that task itself is killed, whoever
waits starts it again, so the work must be able to go on from any point. Its time is that of the
caller who has the least. It knows nothing of what is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from kclient.clock import Clock
    from kclient.cluster.supervision import Supervisor

T = TypeVar("T")

ATTEMPTS = 3
"""How often the work is started before its error is the caller's."""


class Closing(Generic[T]):
    """The one run of a piece of work.

    Tasks: one, from the first ``run`` until the work is done.

    Args:
        supervisor: Knows the task.
        clock: Time.
        name: Of the task.
        work: Makes the coroutine; the work must be able to go on where it was killed.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        clock: Clock,
        name: str,
        work: Callable[[], Coroutine[Any, Any, T]],
    ) -> None:
        self._supervisor = supervisor
        self._clock = clock
        self._name = name
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self._attempts = 0
        self._deadline = math.inf
        self._limit: asyncio.Timeout | None = None

    @property
    def begun(self) -> bool:
        """Somebody asked for it."""
        return self._task is not None

    @property
    def time_left(self) -> float:
        """Seconds until the deadline of the most hurried caller; 0 after it."""
        return max(0.0, self._deadline - self._clock.now())

    async def run(self, timeout: float) -> T:
        """Begin if need be, and wait for the end.

        Args:
            timeout: Seconds for what is under ``limit``, also where somebody else began it.

        Raises:
            Exception: What the work raised each time; CancelledError where it was cancelled each
                time.

        Cancellation: it goes on all the same.
        """
        self.hurry(timeout)
        while True:
            task = self._task if self._task is not None else self._begin()
            # Not a shield: that can't tell the cancellation of the work from that of the caller.
            await asyncio.wait([task])
            if task is not self._task:
                continue  # somebody else has started it again
            why = _killed_by(task)
            if why is None or self._attempts >= ATTEMPTS:
                return task.result()
            self._supervisor.restarting(self._name, why)
            self._begin()

    def hurry(self, timeout: float) -> None:
        """Leave the work ``timeout`` seconds from now at most."""
        deadline = self._clock.now() + timeout
        if deadline < self._deadline:
            self._deadline = deadline
            if self._limit is not None:
                self._limit.reschedule(deadline)

    @contextlib.asynccontextmanager
    async def limit(self) -> AsyncIterator[None]:
        """For the work: end the block at the deadline, with TimeoutError as ``asyncio.timeout``."""
        at = None if self._deadline == math.inf else self._deadline
        try:
            async with asyncio.timeout_at(at) as self._limit:
                yield
        finally:
            self._limit = None

    def _begin(self) -> asyncio.Task[T]:
        self._attempts += 1
        self._task = self._supervisor.lend(self._work(), self._name)
        return self._task


def _killed_by(task: asyncio.Task[Any]) -> str | None:
    if task.cancelled():
        return "it was cancelled from outside"
    error = task.exception()
    return None if error is None else f"it ended with {type(error).__name__}: {error}"

"""Timers of brokers and groups, and the waits of tests.

``Timer`` is one restartable timer; ``DeadlineQueue`` has the deadlines of groups.
The coordinator sets one for the earliest deadline and calls ``run`` with the time, so that the
group rules need no loop; tests call it with any time.

``waited`` has a time-out whose text names what didn't come, for ``request_log``, ``event_log`` and
``fault``. The callers create the futures and clean up.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import NamedTuple, TypeAlias, TypeVar

from kclient.errors import RequestTimedOut
from kclient.testing.arguments import seconds_of

Key: TypeAlias = tuple[str, ...]
_SLACK = 64
T = TypeVar("T")


class Timer:
    """One timer, which may be set again once it fired or was cancelled.

    Args:
        call_later: Starts a timer.
        ring: Called when the timer fires.
    """

    def __init__(
        self,
        call_later: Callable[[float, Callable[[], None]], asyncio.TimerHandle],
        ring: Callable[[], None],
    ) -> None:
        self._call_later = call_later
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        """Whether the timer is pending."""
        return self._timer is not None

    def set(self, seconds: float) -> None:
        """Fire in ``seconds``; replaces a pending timer."""
        self.cancel()
        self._timer = self._call_later(max(seconds, 0.0), self._over)

    def cancel(self) -> None:
        """Cancel the timer if it is pending."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _over(self) -> None:
        self._timer = None
        self._ring()


class Moment(NamedTuple):
    """A point in time, on both clocks that the group rules need."""

    now: float
    """Monotonic seconds."""
    wall_ms: int
    """Milliseconds since the epoch, for records."""


Action: TypeAlias = Callable[[Moment], None]


class DeadlineQueue:
    """Actions by key, each with a time; setting a key again replaces it.

    It has no timer: ``next_at`` is when to call ``run``. Replaced entries stay in the heap until
    they come up, or are too many.
    """

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


def check_timeout(timeout: object) -> None:
    """Raise InvalidArgument if it is neither seconds nor None."""
    if timeout is not None:
        seconds_of("timeout", timeout)


def offer(future: asyncio.Future[T], value: T, condition: Callable[[T], bool] | None) -> None:
    """Resolve the future with ``value`` if the condition holds, or with what the condition raises.

    Any exception goes to the waiting test, also that of ``pytest.fail()``.
    """
    try:
        if condition is None or condition(value):
            future.set_result(value)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        future.set_exception(error)


async def waited(future: asyncio.Future[T], timeout: float | None, text: Callable[[], str]) -> T:
    """Return the future's result; after ``timeout`` seconds raise RequestTimedOut with that text.

    Cancellation: safe; it cancels the future.
    """
    try:
        async with asyncio.timeout(timeout):
            return await future
    except TimeoutError as error:
        # The result came at the same moment, or a function of the test raised the TimeoutError.
        if future.done() and not future.cancelled():
            return future.result()
        raise RequestTimedOut(text()) from error

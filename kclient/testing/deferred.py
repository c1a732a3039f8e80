"""``Deferred``: a response that comes later, without a task. ``Alarm``: a restartable timer.

A handler that has to wait (a fetch without data, a request that a fault holds back)
returns one; the connection takes its value when it comes and reads no further request until then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Deferred(Generic[T]):
    """A value for one listener, now or later; it can be abandoned.

    Args:
        abandon: Called once, on completion or cancellation, to release timers and listeners.

    Attributes:
        draft: What the value will be unless something else happens, where that is known.
    """

    __slots__ = ("_abandon", "_done", "_listener", "_value", "draft")

    def __init__(self, abandon: Callable[[], None] | None = None) -> None:
        self._abandon = abandon
        self._done = False
        self._listener: Callable[[T], None] | None = None
        self._value: list[T] = []
        self.draft: T | None = None

    @property
    def done(self) -> bool:
        """Completed or cancelled."""
        return self._done

    def complete(self, value: T) -> None:
        """Set the value; does nothing if it was set or cancelled before."""
        if self._finish():
            self._value.append(value)
            if self._listener is not None:
                self._listener(value)

    def cancel(self) -> None:
        """The value is not needed any more."""
        self._finish()

    def then(self, listener: Callable[[T], None]) -> None:
        """Call ``listener`` with the value: at once if it is there, never if cancelled."""
        if self._value:
            listener(self._value[0])
        else:
            self._listener = listener

    def _finish(self) -> bool:
        if self._done:
            return False
        self._done = True
        if self._abandon is not None:
            self._abandon()
        return True


class Alarm:
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

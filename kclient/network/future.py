"""RequestFuture: the outcome of a request, without a loop until it is awaited.

Made by ``NetworkClient.send`` for each request. An outcome is given once, by ``complete`` or
``fail``, and listeners run at once in the callback that gave it. An exception is never a value, so
one slot holds the outcome of either kind. The loop is touched by an ``await`` that has to wait, and
by nothing else.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from kclient.errors import fresh

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

T = TypeVar("T")


class AlreadyDone(RuntimeError):
    """A RequestFuture was completed or failed for the second time: a bug in the caller."""


class _Pending:
    """The outcome of a future that has none yet."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "pending"


_PENDING = _Pending()


class RequestFuture(Generic[T]):
    """A value or an error that arrives later.

    ``await future`` gives the value or raises the error, in any number of tasks. Cancellation:
    cancelling an await abandons that waiter only, without a trace; the request itself goes on and
    the other waiters and listeners get its outcome.

    Attributes:
        done: It has a value or an error. Read only.
    """

    __slots__ = ("_listeners", "_outcome", "done")

    def __init__(self) -> None:
        self.done = False
        self._outcome: object = _PENDING
        self._listeners: list[Callable[[RequestFuture[T]], object]] | None = None

    @classmethod
    def failed(cls, error: Exception) -> RequestFuture[T]:
        """A future that has failed with ``error`` already."""
        future = cls()
        future.fail(error)
        return future

    @property
    def succeeded(self) -> bool:
        """It has a value."""
        return self.done and not isinstance(self._outcome, BaseException)

    @property
    def error(self) -> Exception | None:
        """The error that it failed with; None while pending and after success."""
        return self._outcome if isinstance(self._outcome, Exception) else None

    def result(self) -> T:
        """The value; raises the error if it failed, RuntimeError while it is pending."""
        outcome = self._outcome
        if isinstance(outcome, BaseException):
            try:
                raise fresh(outcome)
            finally:
                del outcome, self  # else the traceback keeps itself alive through this frame
        if outcome is _PENDING:
            raise RuntimeError("the request has no outcome yet: await it")
        return outcome  # type: ignore[return-value]  # a cast would be a call

    def complete(self, value: T) -> None:
        """Give the value and run the listeners.

        Raises:
            AlreadyDone: There is an outcome already.
            TypeError: ``value`` is an exception: that is what ``fail`` is for.
            Exception: What the first failing listener raised, after all listeners have run.
        """
        if self.done:
            raise AlreadyDone(f"complete() on a future that has its outcome: {self._outcome!r}")
        if isinstance(value, BaseException):
            raise TypeError(f"an exception is not a value, use fail(): {value!r}")
        self._outcome = value
        self.done = True
        if self._listeners is not None:
            self._run_listeners()

    def fail(self, error: Exception) -> None:
        """Give the error and run the listeners.

        Raises:
            AlreadyDone: There is an outcome already.
            TypeError: ``error`` is not an exception instance, or is a StopIteration.
            Exception: What the first failing listener raised, after all listeners have run.
        """
        if self.done:
            raise AlreadyDone(f"fail() on a future that has its outcome: {self._outcome!r}")
        if not isinstance(error, Exception) or isinstance(error, StopIteration):
            raise TypeError(f"fail() takes an exception other than StopIteration, not {error!r}")
        self._outcome = error
        self.done = True
        if self._listeners is not None:
            self._run_listeners()

    def add_listener(self, listener: Callable[[RequestFuture[T]], object]) -> None:
        """Have ``listener(self)`` called when the outcome comes; at once if it is there."""
        if self.done:
            listener(self)
        elif self._listeners is None:
            self._listeners = [listener]
        else:
            self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[RequestFuture[T]], object]) -> None:
        """Forget ``listener``; nothing happens if it isn't registered or was called already."""
        if self._listeners is not None and listener in self._listeners:
            self._listeners.remove(listener)
            if not self._listeners:
                self._listeners = None

    @property
    def listener_count(self) -> int:
        """How many listeners and waiters there are."""
        return len(self._listeners) if self._listeners is not None else 0

    def __await__(self) -> Generator[object, None, T]:
        if not self.done:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def wake(_: RequestFuture[T]) -> None:
                if not waiter.done():  # it may be cancelled
                    waiter.set_result(None)

            self.add_listener(wake)
            try:
                yield from waiter
            except BaseException:
                self.remove_listener(wake)
                raise
        return self.result()

    def _run_listeners(self) -> None:
        """Call every listener; the first error is raised at the end, others are its notes."""
        listeners = self._listeners
        self._listeners = None
        first: Exception | None = None
        for listener in listeners or ():
            try:
                listener(self)
            except Exception as error:
                if first is None:
                    first = error
                else:
                    first.add_note(f"another listener of the same request failed too: {error!r}")
        if first is not None:
            try:
                raise first
            finally:
                del first

    def __repr__(self) -> str:
        if not self.done:
            return "<RequestFuture pending>"
        kind = "failed" if isinstance(self._outcome, BaseException) else "completed"
        return f"<RequestFuture {kind} {self._outcome!r:.80}>"

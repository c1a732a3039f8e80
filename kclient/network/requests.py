"""A request on its way, its outcome, and the requests of one connection in flight.

``PendingRequest`` is made by ``NetworkClient.send``, waits there for its connection, then in
``InFlightRequests`` for its response. Brokers answer in order, so a response belongs to the oldest
request, or the connection is broken; ``now`` comes in.

``RequestFuture`` is the outcome of a request, without a loop until it is awaited. An outcome is
given once, by ``complete`` or ``fail``, and listeners run at once in the callback that gave it. An
exception is never a value, so one slot holds the outcome of either kind. The loop is touched by an
``await`` that has to wait, and by nothing else.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from kclient.errors import ProtocolError, fresh
from kclient.protocol.message import Request

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")
RequestBuilder: TypeAlias = Request | Callable[[int], Request]
"""A message, or a callable that is given the negotiated version and returns the message for it."""


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


@dataclass(slots=True, eq=False, repr=False)
class PendingRequest:
    """One request from ``send`` to its outcome.

    Attributes:
        api: The request's class.
        build: The message or its builder.
        timeout: Seconds to wait for a connection that takes it, and again for its response.
        created_at: When the caller asked; for texts.
        deadline: When it is given up; once it is written, together with its connection.
        caller_deadline: When the caller must have an outcome, whatever becomes of the request.
        max_version: Highest version that the caller can make use of.
        raw: The response is wanted as a ``RawResponse``.
        expect_response: False where the broker sends none (Produce with acks=0).
        response_bytes: How large a response it asks for; raises the frame limit.
        of_handshake: It negotiates versions or authenticates, so it is no use of the connection.
        future: Its outcome.
        version: The negotiated version, -1 before.
        correlation_id: -1 until it is written.
        sent_at: When it was written.
        request_bytes: Its size on the wire.
        received_bytes: The size of its response.
        throttle: Throttle time of its response, in seconds.
    """

    api: type[Request]
    build: RequestBuilder
    timeout: float = field(kw_only=True)
    deadline: float = field(kw_only=True)
    caller_deadline: float = field(default=math.inf, kw_only=True)
    max_version: int | None = field(default=None, kw_only=True)
    raw: bool = field(default=False, kw_only=True)
    expect_response: bool = field(default=True, kw_only=True)
    response_bytes: int = field(default=0, kw_only=True)
    created_at: float = field(default=0.0, kw_only=True)
    of_handshake: bool = field(default=False, kw_only=True)
    future: RequestFuture[Any] = field(default_factory=RequestFuture, init=False)
    version: int = field(default=-1, init=False)
    correlation_id: int = field(default=-1, init=False)
    sent_at: float = field(default=0.0, init=False)
    request_bytes: int = field(default=0, init=False)
    received_bytes: int = field(default=0, init=False)
    throttle: float = field(default=0.0, init=False)

    @property
    def was_sent(self) -> bool:
        """It was handed to the transport, so the broker may have acted on it."""
        return self.correlation_id >= 0

    @property
    def next_deadline(self) -> float:
        """When there is something to do about it: whichever comes first."""
        return min(self.deadline, self.caller_deadline)

    def __str__(self) -> str:
        if not self.was_sent:
            return self.api.NAME
        return f"{self.api.NAME} v{self.version} (correlation {self.correlation_id})"


class InFlightRequests:
    """A bounded queue of written requests.

    Attributes:
        limit: How many there may be.
        can_send_more: One more may be written.
        oldest: The one that the next response must answer; None without any. Read only.
    """

    def __init__(self, limit: int) -> None:
        self._queue: deque[PendingRequest] = deque()
        self.limit = limit
        self.can_send_more = limit > 0
        self.oldest: PendingRequest | None = None

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, request: PendingRequest) -> None:
        """Append a request that is about to be written."""
        self._queue.append(request)
        if self.oldest is None:
            self.oldest = request
        self.can_send_more = len(self._queue) < self.limit

    def complete_next(self, correlation_id: int) -> PendingRequest:
        """Take out the oldest request, which a response with ``correlation_id`` answers.

        Raises:
            ProtocolError: Nothing waits, or the oldest has another id. Nothing is taken out.
        """
        queue, oldest = self._queue, self.oldest
        if oldest is None:
            raise ProtocolError(
                f"a response with correlation id {correlation_id} came, but no request waits",
                struct="ResponseHeader",
                field="correlation_id",
            )
        if oldest.correlation_id != correlation_id:
            raise ProtocolError(
                f"the response to {oldest} came with correlation id {correlation_id}",
                struct="ResponseHeader",
                field="correlation_id",
            )
        queue.popleft()
        self.oldest = queue[0] if queue else None
        self.can_send_more = len(queue) < self.limit
        return oldest

    def earliest_deadline(self) -> float | None:
        """When the first of them times out, not always the oldest; None if there are none."""
        return min((request.next_deadline for request in self._queue), default=None)

    def latest_deadline(self) -> float:
        """When the last of them times out; 0.0 if there are none."""
        return max((request.deadline for request in self._queue), default=0.0)

    def has_expired(self, now: float) -> bool:
        """At least one of them is past its deadline."""
        return any(request.deadline <= now for request in self._queue)

    def take_abandoned(self, now: float) -> list[PendingRequest]:
        """Those whose caller waits no longer; each once, and each stays: its answer still comes."""
        found = [request for request in self._queue if request.caller_deadline <= now]
        for request in found:
            request.caller_deadline = math.inf
        return found

    def clear(self) -> list[PendingRequest]:
        """Take out all, oldest first."""
        requests = list(self._queue)
        self._queue.clear()
        self.oldest = None
        self.can_send_more = self.limit > 0
        return requests

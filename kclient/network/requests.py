"""A request on its way, and the answer that keeps its bytes.

``PendingRequest`` is made by ``NetworkClient.send``, waits there for its connection, then in
``InFlightRequests`` for its answer. ``RawResponse`` is what ``send(raw=True)`` gives. Sans-IO.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from kclient.network.future import RequestFuture
from kclient.protocol.message import Request

if TYPE_CHECKING:
    from kclient.network.frames import Frame

RequestBuilder: TypeAlias = Request | Callable[[int], Request]
"""A message, or a callable that is given the negotiated version and returns the message for it."""


@dataclass(slots=True, eq=False, repr=False)
class PendingRequest:
    """One request from ``send`` to its outcome.

    Attributes:
        api: The request's class.
        build: The message or its builder.
        timeout: Seconds to wait for a connection that takes it, and again for its answer.
        asked_at: When the caller asked; for texts.
        deadline: When it is given up; once it is written, together with its connection.
        limit: When the caller must have an outcome, whatever becomes of the request itself.
        max_version: Highest version that the caller can make use of.
        raw: The answer is wanted as a ``RawResponse``.
        expect_response: False where the broker sends none (Produce with acks=0).
        response_bytes: How large an answer it asks for; raises the frame limit.
        future: Its outcome.
        version: The negotiated version, -1 before.
        correlation_id: -1 until it is written.
        sent_at: When it was written.
        request_bytes: Its size on the wire.
        received_bytes: The size of its answer.
        throttle: Seconds of silence that its answer asked for.
    """

    api: type[Request]
    build: RequestBuilder
    timeout: float = field(kw_only=True)
    deadline: float = field(kw_only=True)
    limit: float = field(default=math.inf, kw_only=True)
    max_version: int | None = field(default=None, kw_only=True)
    raw: bool = field(default=False, kw_only=True)
    expect_response: bool = field(default=True, kw_only=True)
    response_bytes: int = field(default=0, kw_only=True)
    asked_at: float = field(default=0.0, kw_only=True)
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
        return self.deadline if self.deadline < self.limit else self.limit

    def __str__(self) -> str:
        if not self.was_sent:
            return self.api.NAME
        return f"{self.api.NAME} v{self.version} (correlation {self.correlation_id})"


class RawResponse:
    """The bytes of a response, unread, in a frame that came from the pool.

    Attributes:
        api_key: Of the request that it answers.
        version: In which it is written.
        body: What follows the response header. Not to be used after ``release()``.
    """

    __slots__ = ("_frame", "api_key", "body", "version")

    def __init__(self, api_key: int, version: int, frame: Frame, body_offset: int) -> None:
        self.api_key = api_key
        self.version = version
        self.body = frame.view[body_offset:]
        self._frame: Frame | None = frame

    def release(self) -> None:
        """Give the frame back for reuse; ``body`` can't be used any more. Twice is fine.

        Slices of ``body`` that are still held stay valid: the pool doesn't reuse a frame as long
        as anybody looks at it.
        """
        if self._frame is not None:
            self.body.release()
            self._frame.release()
            self._frame = None

    def detach(self) -> memoryview:
        """Take the bytes for good: they are never pooled, and live as long as the view does."""
        if self._frame is not None:
            self._frame.detach()
            self._frame = None
        return self.body

    def __repr__(self) -> str:
        state = "released" if self._frame is None else f"{self.body.nbytes} bytes"
        return f"<RawResponse api_key={self.api_key} v{self.version} {state}>"

"""A request on its way, and the requests of one connection that wait for their responses.

``PendingRequest`` is made by ``NetworkClient.send``, waits there for its connection, then in
``InFlightRequests`` for its response. Brokers answer in order, so a response belongs to the oldest
request, or the connection is broken. Sans-IO: ``now`` comes in.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kclient.errors import ProtocolError
from kclient.network.future import RequestFuture
from kclient.protocol.message import Request

RequestBuilder: TypeAlias = Request | Callable[[int], Request]
"""A message, or a callable that is given the negotiated version and returns the message for it."""


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

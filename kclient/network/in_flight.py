"""The requests of one connection that wait for their answers, oldest first.

Brokers answer in order, so a response belongs to the oldest request, or the connection is broken.
Called by ``connection.py`` only. Sans-IO: ``now`` comes in.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from kclient.errors import ProtocolError

if TYPE_CHECKING:
    from kclient.network.requests import PendingRequest


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

    def take_impatient(self, now: float) -> list[PendingRequest]:
        """Those whose caller waits no longer; each once, and each stays: its answer still comes."""
        found = [request for request in self._queue if request.limit <= now]
        for request in found:
            request.limit = math.inf
        return found

    def clear(self) -> list[PendingRequest]:
        """Take out all, oldest first."""
        requests = list(self._queue)
        self._queue.clear()
        self.oldest = None
        self.can_send_more = self.limit > 0
        return requests

"""What a leader keeps for each follower: which partitions have news, and a fetch that waits.

A follower's fetch reads only what is new, so that a thousand quiet partitions cost nothing, and it
waits without a timer. Something appended ends the wait at once; a higher high watermark alone, or
that the start moved, within ``replica.fetch.wait.max.ms``. Used by ``broker.py`` and
``handlers/fetch.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kclient.protocol.message import Response
from kclient.testing.deferred import Deferred
from kclient.testing.fetch_sessions import PartitionKey
from kclient.testing.replica import Replica


class Feed:
    """One follower, as its leader serves it.

    Attributes:
        news: Partitions that it wasn't told all of.
        has_grown: Something was appended since a fetch set this to False.
    """

    def __init__(self) -> None:
        self.has_grown = False
        self.news: dict[PartitionKey, None] = {}
        self._nudged = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._attempt: Callable[[], Response] | None = None
        self._answer: Deferred[Response] | None = None
        self._soon: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None

    def grown(self, replica: Replica) -> None:
        """Something was appended."""
        self.has_grown = True
        self.news[key_of(replica)] = None
        self._end()

    def moved(self, replica: Replica, seconds: float) -> None:
        """Its high watermark or its start is another one; that may wait so long."""
        self.news[key_of(replica)] = None
        if self._loop is None or self._soon is not None:
            return
        if seconds <= 0:
            self._end()
        elif self._timer is None:
            self._timer = self._loop.call_later(seconds, self._try)

    def nudge(self) -> None:
        """The follower wants an answer now: it has something else to ask."""
        if self._answer is None:
            self._nudged = True
        else:
            self._end()

    def take_nudge(self) -> bool:
        """Whether it was nudged when no fetch of it waited."""
        nudged, self._nudged = self._nudged, False
        return nudged

    def park(self, attempt: Callable[[], Response], seconds: float | None) -> Deferred[Response]:
        """Keep a fetch until there is news; with ``seconds`` until then at the latest."""
        if self._answer is not None:
            self._answer.cancel()  # of a connection that the follower gave up
        self._attempt = attempt
        self._answer = answer = Deferred[Response](lambda: self._abandon(answer))
        self._loop = asyncio.get_running_loop()
        if seconds is not None:
            self._timer = self._loop.call_later(seconds, self._try)
        return answer

    def _end(self) -> None:
        if self._loop is not None and self._soon is None:
            self._soon = self._loop.call_soon(self._try)

    def _try(self) -> None:
        attempt, answer = self._attempt, self._answer
        if attempt is not None and answer is not None:
            self._abandon(answer)
            answer.complete(attempt())

    def _abandon(self, answer: Deferred[Response]) -> None:
        if self._answer is not answer:
            return
        self._attempt = self._answer = self._loop = None
        for handle in (self._soon, self._timer):
            if handle is not None:
                handle.cancel()
        self._soon = self._timer = None


def key_of(replica: Replica) -> PartitionKey:
    """As fetch sessions know a partition."""
    return PartitionKey(replica.topic_id, replica.facts.index)

"""An observer that keeps the events of a client's hooks, with times, for a failure's message.

Tests of recovery give one to each client; a figure that is too large is explained by its lines. It
judges nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TypeVar

from kclient.hooks import BatchDelivered, Event, Fetched, RequestCompleted

E = TypeVar("E", bound=Event)
_SLOW = 0.6
"""Seconds: a fetch that waits for records takes half a second."""


class Diary:
    """The events of one client, oldest first."""

    def __init__(self, client: str) -> None:
        self.client = client
        self._events: list[tuple[float, Event]] = []

    def observe(self, event: Event, /) -> None:
        """Take one event."""
        self._events.append((time.monotonic(), event))

    def times(self, kind: type[Event], start: float, end: float = math.inf) -> Sequence[float]:
        """When events of a kind were reported in a window."""
        return [at for at, event in self._events if start <= at < end and isinstance(event, kind)]

    def of(self, kind: type[E], start: float, end: float = math.inf) -> Sequence[E]:
        """The events of a kind that were reported in a window."""
        return [
            event for at, event in self._events if start <= at < end and isinstance(event, kind)
        ]

    def requests(
        self, api: str, start: float, end: float = math.inf
    ) -> Sequence[tuple[float, RequestCompleted]]:
        """When which requests of an API were completed in a window."""
        return [
            (at, event)
            for at, event in self._events
            if start <= at < end and isinstance(event, RequestCompleted) and event.api == api
        ]

    def lines(self, start: float, end: float, zero: float) -> list[str]:
        """The same as text, seconds reckoned from ``zero``, without those of an undisturbed run."""
        return [
            f"{at - zero:+7.3f} {self.client} {event}"
            for at, event in self._events
            if start <= at < end and not _usual(event)
        ]


def _usual(event: Event) -> bool:
    """One of those that come with nearly every record, and would hide the others."""
    if isinstance(event, RequestCompleted):
        return event.api in ("Produce", "Fetch") and event.error is None and event.seconds < _SLOW
    return isinstance(event, BatchDelivered | Fetched)

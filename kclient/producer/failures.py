"""Failures that nobody looked at: counted, logged now and then, and told to the next flush.

The host of all deliveries of one producer. A failed batch reports here when the last handle to it
is gone without having been awaited. Sans-IO but for the log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kclient.producer.flush import FailureTally

if TYPE_CHECKING:
    import asyncio

    from kclient.hooks import ClientLog, Counters
    from kclient.producer.hot import BatchOutcome

logger = logging.getLogger("kclient.producer")

LOG_EVERY = 10.0
"""Seconds between two log lines about one topic: an outage fails thousands of batches at once."""


class UnseenFailures:
    """What deliveries need of their producer.

    Attributes:
        loop: The producer's loop, set by ``start``.
        log: Where they are told; the producer puts its own in place.
        tally: Unseen failures since the last ``take``.
    """

    __slots__ = ("_counters", "_logged_at", "_not_logged", "log", "loop", "tally")

    def __init__(self, counters: Counters) -> None:
        self.loop: asyncio.AbstractEventLoop
        self.tally = FailureTally()
        self.log: logging.Logger | ClientLog = logger
        self._counters = counters
        self._logged_at: dict[str, float] = {}
        self._not_logged: dict[str, int] = {}

    def unseen_failure(self, outcome: BatchOutcome, count: int, /) -> None:
        """``count`` records of a failed batch were dropped without anyone looking."""
        if outcome.error is None:
            return
        self.tally.add(count, outcome.error)
        self._counters.add("producer.unseen_failures", count)
        topic, now = outcome.topic, self.loop.time()
        if now - self._logged_at.get(topic, -LOG_EVERY) < LOG_EVERY:
            self._not_logged[topic] = self._not_logged.get(topic, 0) + count
            return
        self._logged_at[topic] = now
        self.log.error(
            "records were not delivered, and nobody looked: topic=%s partition=%d records=%d "
            "since_last_line=%d maybe_written=%s error=%s",
            topic,
            outcome.partition,
            count,
            self._not_logged.pop(topic, 0) + count,
            outcome.error.maybe_written,
            outcome.error,
        )

    def take(self) -> FailureTally:
        """The tally so far, which then starts anew."""
        tally, self.tally = self.tally, FailureTally()
        return tally

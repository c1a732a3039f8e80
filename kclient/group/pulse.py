"""Pulse: when the next heartbeat is due, when the session is over, and how late heartbeats were.

Sans-IO; ``heartbeats`` asks and tells. A session counts from when the latest answered heartbeat
was *sent*: the coordinator's own count began later, so nobody else has our share before we know.
"""

from __future__ import annotations

import math


class Pulse:
    """The heartbeats of one membership.

    Args:
        interval: Seconds between two.
        session: Seconds without one after which the coordinator takes us for gone.

    Attributes:
        answered_at: When the latest one that was answered was sent; before the first, -inf.
        due: When to send the next one.
        blocks: How often one came late by more than ``interval``, as nothing else could run.
        longest_block: Seconds of the longest such delay.
    """

    __slots__ = ("answered_at", "blocks", "due", "interval", "longest_block", "session")

    def __init__(self, interval: float, session: float) -> None:
        self.interval = interval
        self.session = session
        self.answered_at = -math.inf
        self.due = math.inf
        self.blocks = 0
        self.longest_block = 0.0

    @property
    def patience(self) -> float:
        """Seconds after which a coordinator that says nothing is looked for elsewhere."""
        return self.session / 3

    @property
    def over_at(self) -> float:
        """When the session ends."""
        return self.answered_at + self.session

    def begin(self, now: float) -> None:
        """The coordinator has just counted us in."""
        self.answered(now)

    def answered(self, sent_at: float) -> None:
        """The coordinator knows that we were there at ``sent_at``."""
        self.answered_at = max(self.answered_at, sent_at)
        self.due = sent_at + self.interval

    def unproved(self, sent_at: float) -> None:
        """There was an answer to what was sent at ``sent_at`` that says nothing for us."""
        self.due = sent_at + self.interval

    def failed(self, now: float, wait: float) -> None:
        """The coordinator didn't hear of us: try again soon."""
        self.due = now + min(wait, self.interval)

    def woke(self, now: float) -> float:
        """Its time has come. Seconds by which it is late, if that is worth a word; else 0."""
        late = now - self.due
        if late <= self.interval:
            return 0.0
        self.blocks += 1
        self.longest_block = max(self.longest_block, late)
        return late

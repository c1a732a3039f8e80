"""PollWatch: notices that the user's code has not come back for ``max_poll_interval`` (KIP-62).

The group side starts and stops it. A call that waits counts as having come, and so does each step
of an ``async for``: those are noticed by how many of the records that it took are handed over.
"""

from __future__ import annotations

import asyncio
import operator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient.clock import Clock
    from kclient.consumer.handed_over import HandedOver

LOOKS = 8
"""Looks per interval while an ``async for`` has records, or one per second if those are more: so
exactly is its last step known."""
LONGEST = 1.0
"""Seconds between two such looks at most."""
SOONEST = 0.001
"""Seconds to the next look at least: what is left may be too little to move a clock."""


class PollWatch:
    """Measures how long ago the user last came. One timer, from ``start`` to ``stop``.

    Args:
        clock: Of the client.
        handed_over: Knows the calls.
        interval: Seconds, ``max_poll_interval``.
        on_late: Told once, with the seconds, when they are over; ``start`` begins anew.
    """

    def __init__(
        self,
        clock: Clock,
        handed_over: HandedOver,
        interval: float,
        on_late: Callable[[float], object],
    ) -> None:
        self._clock = clock
        self._handed_over = handed_over
        self._interval = interval
        self._on_late = on_late
        self._timer: asyncio.TimerHandle | None = None
        self._steps = 0
        self._stepped_at = 0.0

    def start(self) -> None:
        """Begin to measure, from now on; nothing happens while it does already."""
        if self._timer is None:
            self._stepped_at = self._clock.now()
            self._steps = self._handed_over.steps
            self._arm(self._interval)

    def taken(self) -> None:
        """An ``async for`` takes records one by one from now on, which is to be looked at."""
        timer, now = self._timer, self._clock.now()
        if timer is not None and timer.when() > now + LONGEST:
            timer.cancel()
            # The first of them is handed over in this step.
            self._steps, self._stepped_at = self._handed_over.steps + 1, now
            self._arm(min(self._interval / LOOKS, LONGEST))

    def stop(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def seconds(self) -> float:
        """How long ago the user last came; 0 during a call."""
        if self._handed_over.visitors:
            return 0.0
        return self._clock.now() - max(self._handed_over.visited_at, self._stepped_at)

    def _look(self) -> None:
        self._timer = None
        steps = self._handed_over.steps
        if steps != self._steps:
            self._steps = steps
            self._stepped_at = self._clock.now()
        seconds = self.seconds
        if seconds >= self._interval:
            self._on_late(seconds)
            return
        wait = max(self._interval - seconds, SOONEST)
        at_hand = operator.length_hint(self._handed_over.handout.left)
        self._arm(min(wait, self._interval / LOOKS, LONGEST) if at_hand else wait)

    def _arm(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

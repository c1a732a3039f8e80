"""JoinWatch: a consumer that can't get into its group is an error for its user, never silence.

The group side starts and stops it with the subscription, and has it look before each wait of the
user's calls. Waiting for the other members of a rebalance is no trouble, however long it takes:
only attempts that fail are. Those who wait are also woken for names that no topic has.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kclient.consumer.wanted import LOOK
from kclient.errors import ConsumerStalled

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient.clock import Clock
    from kclient.consumer.wanted import Wanted
    from kclient.group.membership import Membership

LOOKS = 4
"""Looks per patience of its own, for those who wait for records without a limit."""


class JoinWatch:
    """Knows since when the consumer has been no member, and whether trouble goes on.

    Timers: one, from ``start`` to ``stop``.

    Args:
        clock: Of the client.
        membership: What is watched.
        group_id: Its group.
        patience: Seconds, ``api_timeout``.
        wanted: What is subscribed to.
        wake: Wakes those who wait for records, so that they ``look``.
    """

    def __init__(
        self,
        clock: Clock,
        membership: Membership,
        group_id: str,
        patience: float,
        wanted: Wanted,
        wake: Callable[[], object],
    ) -> None:
        self._clock = clock
        self._membership = membership
        self._group_id = group_id
        self._patience = patience
        self._wanted = wanted
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None
        self._since: float | None = None
        self._told_at: float | None = None
        self._trouble: object = None
        self._trouble_at = 0.0

    def start(self) -> None:
        """The group shall be joined; nothing happens where it is watched already."""
        if self._timer is None:
            self._since = None
            self._arm()

    def stop(self) -> None:
        """It shan't."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self) -> None:
        """Raise ConsumerStalled where nothing but trouble came for too long.

        It is raised again after as long.
        """
        if self._timer is None:
            return
        if self._membership.joined:
            self._since = None
            return
        now, error = self._clock.now(), self._membership.trouble
        if self._since is None:
            self._since = self._told_at = now
        if error is not self._trouble:
            self._trouble, self._trouble_at = error, now
        assert self._told_at is not None
        if error is None or now - self._told_at < self._patience:
            return
        if now - self._trouble_at > self._patience / 2:
            return  # it has been answered since: the group waits for others
        self._told_at = now
        stalled = ConsumerStalled(
            f"the consumer has not been in group {self._group_id!r} for {now - self._since:.1f} s; "
            f"last trouble: {error}",
            hint="it goes on by itself once the coordinator answers: poll again; see health()",
        )
        stalled.__cause__ = error
        raise stalled

    def _arm(self) -> None:
        wait = self._patience / LOOKS
        if self._wanted.lacking():
            wait = min(wait, LOOK)
        self._timer = asyncio.get_running_loop().call_later(wait, self._ring)

    def _ring(self) -> None:
        self._arm()
        self._wanted.look()
        if not self._membership.joined or self._wanted.unknown:
            self._wake()

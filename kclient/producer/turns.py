"""When a user's loop that writes has to let others run, and for how long.

``enqueue`` and ``send_many`` seldom suspend by themselves. Their callers' loop takes a turn of the
event loop whenever a few batches were sealed, so that the sender gets at them, and after a few
milliseconds where records fill no batch for long. ``send_many`` and ``send_arrow``, which wait for
all their records in the end, have no reason to be far ahead of the sender, either: ``Pace`` holds
them to that. Must cost next to nothing per record.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from kclient.clock import work_clock
from kclient.producer.hot import Turn

if TYPE_CHECKING:
    from kclient.producer.flush import FlushWait
    from kclient.producer.hot import Account

TURN = 0.005
"""Seconds after which the loop gets a turn, the user's own work between two records included."""
PATIENCE = 0.05
"""Seconds for which a call waits for the sender before it may have twice as much unsent."""


def turns(account: Account) -> Turn:
    """The turns of one writing loop. Made on the event loop."""
    return Turn(account, work_clock(monotonic), TURN)


async def take_turn(turn: Turn) -> None:
    """Let others run.

    Cancellation: leaves nothing behind.
    """
    turn.note()
    await asyncio.sleep(0)
    turn.begin()


class Pace:
    """The turns of one call, which waits for the sender where it is far ahead of it.

    More unsent would only be more memory to touch for the first time, which made up a third of what
    a record cost. That is no reason to stop: where the sender gets nowhere for a moment, as all of
    it may be for a leader that is away, the call goes on until there is no room.

    Args:
        turn: The turns that it takes anyway.
        wait: Counts what it has unsent.
        ahead: Bytes that it may have unsent.
    """

    def __init__(self, turn: Turn, wait: FlushWait, ahead: int) -> None:
        self._turn = turn
        self._wait = wait
        self._least = self._ahead = ahead

    async def take_turn(self) -> None:
        """Let others run; with too much unsent until it is half as much, or patience is over.

        Cancellation: leaves nothing behind.
        """
        unsent = self._wait.unsent
        if unsent <= self._least // 2:
            self._ahead = self._least
        if unsent <= self._ahead:
            await take_turn(self._turn)
            return
        self._turn.note()
        if not await self._few_unsent(self._ahead // 2):
            self._ahead *= 2
        self._turn.begin()

    async def _few_unsent(self, few: int) -> bool:
        """Wait until no more than ``few`` bytes are unsent; whether that came in time."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[bool] = loop.create_future()

        def end(in_time: bool) -> None:
            if not over.done():
                over.set_result(in_time)

        self._wait.when_few_unsent(few, lambda: end(True))
        timer = loop.call_later(PATIENCE, end, False)
        try:
            return await over
        finally:
            timer.cancel()

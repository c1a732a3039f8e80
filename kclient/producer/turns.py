"""When a user's loop that writes has to let others run.

``enqueue`` and ``send_many`` seldom suspend by themselves. Their callers' loop takes a turn of the
event loop whenever a batch was sealed, so that the sender gets at it, and after a few milliseconds
where records fill no batch for long. One that waits for all its records in the end has no reason to
be far ahead of the sender, either. Must cost next to nothing per record.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from kclient.producer.hot import Turn
from kclient.surroundings import effort_clock

if TYPE_CHECKING:
    from kclient.producer.flush import FlushWait
    from kclient.producer.hot import Account

TURN = 0.005
"""Seconds after which the loop gets a turn, the user's own work between two records included."""


def turns(account: Account) -> Turn:
    """The turns of one writing loop. Made on the event loop."""
    return Turn(account, effort_clock(monotonic), TURN)


async def take_turn(turn: Turn, wait: FlushWait | None = None, ahead: int = 0) -> None:
    """Let others run; where ``wait`` has more than ``ahead`` bytes unsent, until it has half.

    Cancellation: leaves nothing behind.
    """
    turn.note()
    if wait is None or wait.unsent <= ahead:
        await asyncio.sleep(0)
    else:
        await _few_unsent(wait, ahead // 2)
    turn.begin()


async def _few_unsent(wait: FlushWait, few: int) -> None:
    fewer = asyncio.get_running_loop().create_future()

    def notify() -> None:
        if not fewer.done():
            fewer.set_result(None)

    wait.when_few_unsent(few, notify)
    await fewer

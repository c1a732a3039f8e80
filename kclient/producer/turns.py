"""When a user's loop that writes has to let others run.

``enqueue`` and ``send_many`` seldom suspend by themselves. Their callers' loop takes a turn of the
event loop whenever a batch was sealed, so that the sender gets at it, and after a few milliseconds
where records fill no batch for long. Must cost next to nothing per record.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from kclient.surroundings import effort_clock

if TYPE_CHECKING:
    from kclient.producer.accumulator import Accumulator

TURN = 0.005
"""Seconds after which the loop gets a turn, the user's own work between two records included."""


class Turns:
    """The turns of one writing loop. Made on the event loop."""

    __slots__ = ("_accumulator", "_effort", "_sealed", "_until")

    def __init__(self, accumulator: Accumulator) -> None:
        self._accumulator = accumulator
        self._effort = effort_clock(monotonic)
        self._sealed = accumulator.sealed_count
        self._until = self._effort() + TURN

    def due(self) -> bool:
        """Whether it is time for one."""
        return self._accumulator.sealed_count != self._sealed or self._effort() >= self._until

    async def take(self) -> None:
        """Let others run.

        Cancellation: leaves nothing behind.
        """
        self._sealed = self._accumulator.sealed_count
        await asyncio.sleep(0)
        self._until = self._effort() + TURN

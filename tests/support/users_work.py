"""How long the application's code may run between two iterations of the event loop."""

from __future__ import annotations

import asyncio
import itertools


class UsersWork:
    """A clock that only the application's code moves, and its time at each loop iteration."""

    RECORD = 0.0003
    """Seconds that the application's code takes for one record."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns = [0.0]

    def clock(self) -> float:
        return self.now

    def do(self) -> None:
        self.now += self.RECORD

    async def watch(self) -> None:
        while True:
            self.turns.append(self.now)
            await asyncio.sleep(0)

    def longest(self) -> float:
        """Seconds of work between two loop iterations, at most."""
        pairs = itertools.pairwise([*self.turns, self.now])
        return max(later - earlier for earlier, later in pairs)

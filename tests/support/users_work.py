"""How long the user's own code may run between two turns of the event loop."""

from __future__ import annotations

import asyncio
import itertools


class UsersWork:
    """A clock that only the user's own code moves, and what it showed at each turn of the loop."""

    RECORD = 0.0003
    """Seconds that the user's code takes over one record."""

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
        """Seconds of work between two turns at most."""
        pairs = itertools.pairwise([*self.turns, self.now])
        return max(later - earlier for earlier, later in pairs)

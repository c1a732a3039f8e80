"""The order of events for a group of several clients: the play of CI, and a long one.

``run`` calls `play`. The member that joins first leads: a foreign client at first; then, once that
is killed, the coordinator's choice; and in the end a member of kclient, which was alone for a
moment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from tests.mixed.process import Member
from tests.mixed.scenario import Scenario

OURS = "kclient"
WAYS = ("poll", "iterate", "run")
"""How members of kclient read and commit, round robin."""


async def play(scene: Scenario, ours: int, foreign: Sequence[str], *, long: bool) -> None:
    """Play all of it.

    Args:
        ours: How many members of kclient there are.
        foreign: The other clients, one member of each.
    """
    cast = _Cast(scene)
    first, *others = foreign
    await cast.join([first], "the first member")
    await cast.join([*[OURS] * ours, *others], "the others join")
    mine = OURS if ours else others[-1]
    await cast.leave(mine)
    await cast.freeze(OURS if ours > 1 else others[0])
    await cast.kill(first)  # the leader
    await cast.thaw()
    await cast.join([mine, first], "those that are missing join")
    await cast.freeze(others[0])
    await cast.kill(mine)
    await cast.thaw()
    if long:
        await cast.join([mine], "the one that was killed joins")
        for client in dict.fromkeys([OURS] * bool(ours) + list(foreign)):
            await cast.leave(client)
            await cast.join([client], f"{client} joins anew")
            await cast.kill(client)
            await cast.join([client], f"{client} joins anew")
            await cast.freeze(client)
            await cast.thaw()
    if ours:
        await cast.leave_alone(OURS)
        await cast.join(foreign, "the others join the one that is left, which leads")


class _Cast:
    """The members by their clients."""

    def __init__(self, scene: Scenario) -> None:
        self._scene = scene
        self._frozen: Member | None = None
        self._joined = 0

    async def join(self, clients: Sequence[str], what: str) -> None:
        """Members start, all at once."""
        began = time.monotonic()
        for client in clients:
            way = ""
            if client == OURS:
                way = WAYS[self._joined % len(WAYS)]
                self._joined += 1
            await self._scene.start(client, way)
        await self._scene.settled(f"{what}: {', '.join(clients)}", began, bounded=False)

    async def leave(self, client: str) -> None:
        """A member leaves."""
        member, began = self._of(client), time.monotonic()
        await self._scene.leave(member)
        await self._scene.settled(f"{member} leaves", began)

    async def leave_alone(self, client: str) -> None:
        """All leave at once but one member of a client."""
        one, began = self._of(client), time.monotonic()
        others = [member for member in self._scene.members.values() if member is not one]
        await asyncio.gather(*(self._scene.leave(member) for member in others))
        await self._scene.settled(f"all leave but {one}", began)

    async def kill(self, client: str) -> None:
        """A member is killed."""
        member, began = self._of(client), time.monotonic()
        await self._scene.kill(member)
        await self._scene.settled(f"kill -9 of {member}", began)

    async def freeze(self, client: str) -> None:
        """A member is stopped until the group has recovered without it."""
        member, began = self._of(client), time.monotonic()
        self._scene.freeze(member)
        self._frozen = member
        await self._scene.settled(f"SIGSTOP of {member}", began)

    async def thaw(self) -> None:
        """The member that was stopped goes on, and belongs to the group again."""
        member, began = self._frozen, time.monotonic()
        assert member is not None
        member.thaw()
        self._frozen = None
        await self._scene.settled(f"SIGCONT of {member}", began)

    def _of(self, client: str) -> Member:
        """The oldest live member of a client."""
        members = self._scene.members.values()
        return next(one for one in members if one.client == client and not one.frozen)

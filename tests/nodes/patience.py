"""How long clients wait on connections to one node, as the fault proxy before it sees it.

It polls the connections from a task of its own, independently of the clients: one that waits for
ever, or keeps a connection that yields no response, is seen whatever the client reports.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.faults import FaultProxy, Session

_PERIOD = 0.02


@dataclass(slots=True)
class _Wait:
    answers: int
    since: float


class Patience:
    """The waits on connections to a node; `patience_with` looks at them.

    A wait begins with a connection, with a response, and with a request where none was in flight.
    It ends with a whole response, or with the connection: some bytes of a response don't end it.
    Of an opaque proxy, only connections that are opened later are looked at; a test must let none
    of them become usable.
    """

    def __init__(self, proxy: FaultProxy, node: int | None = None) -> None:
        self._proxy = proxy
        self._node = node
        self._ignored = set(proxy.sessions(node)) if proxy.opaque else set()
        self._waits: dict[Session, _Wait] = {}
        self.longest = 0.0
        """Seconds, those that last included."""
        self.ended = 0
        """Connections that the client closed."""

    def look(self) -> None:
        """See what there is now."""
        now = time.monotonic()
        sessions = set(self._proxy.sessions(self._node)) - self._ignored
        for session in sessions:
            asked = sum(session.requests.values())
            under_way = sum(session.in_flight(api) for api in session.requests)
            answers = asked - under_way
            wait = self._waits.get(session)
            if wait is None:
                self._waits[session] = _Wait(answers, now)
            elif wait.answers != answers or (asked and not under_way):
                wait.answers, wait.since = answers, now
            else:
                self.longest = max(self.longest, now - wait.since)
        for session in self._waits.keys() - sessions:
            del self._waits[session]
            self.ended += 1

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_PERIOD)


@contextlib.asynccontextmanager
async def patience_with(proxy: FaultProxy, node: int | None = None) -> AsyncIterator[Patience]:
    """See how long clients wait for a node, or for any, for the time of the context."""
    patience = Patience(proxy, node)
    task = asyncio.create_task(patience.run())
    try:
        yield patience
        patience.look()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

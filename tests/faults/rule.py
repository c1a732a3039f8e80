"""What all rules of the proxy have in common: which frames they match, and how many.

``rules.py`` has the rules themselves, ``proxy.py`` calls them for each frame. A rule holds no
transport and no timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from kclient.testing.api_versions import ApiName, api_key_of
from tests.faults.passage import FETCH, PRODUCE, Ending, Passage, Side

if TYPE_CHECKING:
    from tests.faults.session import Session

REACH_TIMEOUT = 30.0

When: TypeAlias = Callable[[Passage], bool]


class Which(TypedDict, total=False):
    """Which frames a rule is for; what is left out matches all."""

    node: int
    """Of the broker behind the connection."""
    client_id: str
    """As the client calls itself."""
    session: Session
    """One connection."""
    topic: str
    """One of those that a Produce or Fetch is about; no other API has it."""
    partition: int
    """With ``topic``."""
    when: When
    """Gets the ``Passage``: ``lambda p: p.request.acks == -1``, ``lambda p: p.answer.brokers``."""
    skip: int
    """So many that match pass before it begins to act."""
    times: int | None
    """On how many it acts; None: on all."""


class Rule:
    """What all rules have in common.

    Attributes:
        api: Kafka's number of the API it is for; None: all.
        on: The direction it acts in; None: both.
        fate: Of rules on the accepting of connections: what becomes of one.
        left: On how many more it acts; None: no end.
        hits: On how many it acted.
    """

    fate: Ending | None = None

    def __init__(
        self, api: ApiName | None, on: Side | None, which: Which, *, times: int | None = 1
    ) -> None:
        self.api = None if api is None else api_key_of(api)
        self.on = on
        self.left = which.get("times", times)
        self.hits = 0
        self._skip = which.get("skip", 0)
        self._which = which
        self._awaited: list[tuple[int, asyncio.Future[None]]] = []
        if "topic" in which and self.api not in (PRODUCE, FETCH):
            raise ValueError(f"topic is for rules on Produce and Fetch, not on {api!r}")
        if "partition" in which and "topic" not in which:
            raise ValueError("partition needs topic")

    @property
    def spent(self) -> bool:
        """It acts no more, and holds nothing."""
        return self.left == 0

    def is_for(self, session: Session) -> bool:
        """Whether it is for that connection."""
        which = self._which
        return (
            which.get("node", session.node) == session.node
            and which.get("client_id", session.client_id) == session.client_id
            and which.get("session", session) is session
        )

    def wants(self, passage: Passage) -> bool:
        """Whether it is to act on that frame."""
        if (
            self.left == 0
            or self.fate is not None
            or (self.api is not None and self.api != passage.api)
            or (self.on is not None and self.on != passage.on)
            or not self.is_for(passage.session)
            or not self._names(passage)
            or not self.applies(passage)
        ):
            return False
        when = self._which.get("when")
        if when is not None and not when(passage):
            return False
        return self._begun()

    def wants_new(self, session: Session) -> bool:
        """Whether its ``fate`` is that of a connection that was just accepted."""
        return bool(self.fate and self.left != 0 and self.is_for(session)) and self._begun()

    def _names(self, passage: Passage) -> bool:
        """Whether the frame is about its topic and partition, if it has any."""
        topic, partition = self._which.get("topic"), self._which.get("partition")
        return topic is None or any(
            topic == name and partition in (None, index) for name, index in passage.partitions()
        )

    def _begun(self) -> bool:
        if self._skip:
            self._skip -= 1
            return False
        return True

    def applies(self, passage: Passage) -> bool:
        """Whether there is anything for it to do; for subclasses."""
        return True

    def use(self) -> None:
        """It acts now."""
        self.hits += 1
        if self.left is not None:
            self.left -= 1
        for count, waiter in self._awaited:
            if self.hits >= count and not waiter.done():
                waiter.set_result(None)

    def act(self, passage: Passage) -> None:
        """Set what it wants done; for subclasses."""

    def release(self) -> None:
        """Act no more."""
        self.left = 0

    async def reached(self, hits: int = 1, *, timeout: float = REACH_TIMEOUT) -> None:
        """Wait until it acted so often; TimeoutError if it doesn't."""
        if self.hits < hits:
            waiter = asyncio.get_running_loop().create_future()
            entry = (hits, waiter)
            self._awaited.append(entry)
            try:
                async with asyncio.timeout(timeout):
                    await waiter
            finally:
                self._awaited.remove(entry)

"""``Registry``: what a quorum of controllers would agree on: sessions, one claim, one image.

A broker opens a session when it comes up; the first that claims the controllership has it, with an
epoch one higher than the last, until its session ends or it resigns. Only the claim's holder may
write the next image: a write of an older epoch is refused, so a controller that was replaced
without hearing of it changes nothing. Watchers hear of sessions and of the claim. This stands in
for KRaft's log, and is the one simplification of the cluster's inside. What happens it tells
``listen``'s listeners as ``events``. No waiting, no clock.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import replace

from kclient.testing.events import (
    BrokerDown,
    BrokerFenced,
    BrokerUp,
    ClusterEvent,
    ControllerElected,
    ControllerLost,
    changes,
)
from kclient.testing.image import NO_LEADER, MetadataImage


class News(enum.Enum):
    """What watchers hear of."""

    SESSION_OPENED = enum.auto()
    """A broker is up, in a new session."""
    SESSION_ENDED = enum.auto()
    """A broker is gone, or wasn't heard of for too long."""
    CLAIM_TAKEN = enum.auto()
    """A broker is the controller now."""
    CLAIM_FREE = enum.auto()
    """Nobody is: whoever claims first will be."""


class Fenced(Exception):
    """A controller writes whose epoch is over."""


class Registry:
    """The state that outlives every controller.

    Attributes:
        holder: Node id of the controller, -1 while there is none.
        epoch: Of the claim; rises each time that it is taken.
        image: The newest one.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._sessions: dict[int, int] = {}
        self._last_session = -1
        self._watchers: list[Callable[[News, int], None]] = []
        self._listeners: list[Callable[[ClusterEvent], None]] = []
        self.holder = NO_LEADER
        self.epoch = 0
        self.image = image

    def watch(self, watcher: Callable[[News, int], None]) -> None:
        """Call ``watcher`` with what happened and to which node."""
        self._watchers.append(watcher)

    def listen(self, listener: Callable[[ClusterEvent], None]) -> None:
        """Call ``listener`` with each event, before the watchers act on it."""
        self._listeners.append(listener)

    def tell(self, event: ClusterEvent) -> None:
        """Something happened."""
        for listener in self._listeners:
            listener(event)

    def session_of(self, node_id: int) -> int | None:
        """The number of a broker's session, None while it has none."""
        return self._sessions.get(node_id)

    @property
    def sessions(self) -> dict[int, int]:
        """Numbers of sessions by node id, in the order of opening."""
        return dict(self._sessions)

    def open_session(self, node_id: int) -> int:
        """A broker comes up; the number of its session, its broker epoch."""
        self.end_session(node_id)
        self._last_session += 1
        self._sessions[node_id] = self._last_session
        self.tell(BrokerUp(node_id, self._last_session))
        self._tell(News.SESSION_OPENED, node_id)
        return self._last_session

    def end_session(self, node_id: int, *, expired: bool = False) -> None:
        """A broker is gone, and with it its claim; does nothing if it has no session.

        Args:
            node_id: Whose.
            expired: It wasn't heard of for too long.
        """
        session = self._sessions.pop(node_id, None)
        if session is None:
            return
        self.tell((BrokerFenced if expired else BrokerDown)(node_id, session))
        held = self.holder == node_id
        if held:
            self._free()
        self._tell(News.SESSION_ENDED, node_id)
        if held:
            self._tell(News.CLAIM_FREE, node_id)

    def claim(self, node_id: int) -> int | None:
        """The epoch of the new controller, None if somebody was first or it has no session."""
        if self.holder != NO_LEADER or node_id not in self._sessions:
            return None
        self.holder = node_id
        self.epoch = epoch = self.epoch + 1
        self.tell(ControllerElected(node_id, epoch))
        self._tell(News.CLAIM_TAKEN, node_id)
        return epoch

    def resign(self, node_id: int, epoch: int) -> None:
        """Give the claim back, if it is still held in that epoch."""
        if self.holder == node_id and self.epoch == epoch:
            self._free()
            self._tell(News.CLAIM_FREE, node_id)

    def _free(self) -> None:
        lost = ControllerLost(self.holder, self.epoch)
        self.holder = NO_LEADER
        self.tell(lost)

    def write(self, node_id: int, epoch: int, image: MetadataImage) -> MetadataImage:
        """Make ``image`` the newest one, made in that epoch.

        Raises:
            Fenced: Another controller was there since.
        """
        if self.holder != node_id or self.epoch != epoch:
            raise Fenced
        before = self.image
        self.image = written = replace(
            image, version=before.version + 1, controller_id=node_id, controller_epoch=epoch
        )
        for event in changes(before, written):
            self.tell(event)
        return written

    def _tell(self, news: News, node_id: int) -> None:
        for watcher in tuple(self._watchers):
            watcher(news, node_id)

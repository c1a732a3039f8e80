"""``Quorum``: the state of a controller quorum: broker sessions, one claim, one image.

A broker opens a session when it starts; the first that claims the controllership has it, with an
epoch one higher than the last, until its session ends or it resigns. Only the claim's holder may
write the next image: a write of an older epoch is refused, so a controller that was replaced
without noticing changes nothing. Watchers are notified of sessions and of the claim. This replaces
KRaft's log, and is the one simplification of the control plane. Listeners (``listen``) get
``events``. No waiting, no clock.
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


class QuorumEvent(enum.Enum):
    """Notifications for watchers."""

    SESSION_OPENED = enum.auto()
    """A broker is up, in a new session."""
    SESSION_ENDED = enum.auto()
    """A broker is down, or was unreachable for too long."""
    CONTROLLER_ELECTED = enum.auto()
    """A broker is the controller now."""
    CONTROLLER_LOST = enum.auto()
    """No broker is the controller: the first that claims will be."""


class Fenced(Exception):
    """A write of a controller with a stale epoch was refused."""


class Quorum:
    """The state that outlives every controller.

    Attributes:
        controller_id: Node id of the controller, -1 while there is none.
        epoch: Of the claim; rises each time that it is taken.
        image: The newest metadata image.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._sessions: dict[int, int] = {}
        self._last_session = -1
        self._watchers: list[Callable[[QuorumEvent, int], None]] = []
        self._listeners: list[Callable[[ClusterEvent], None]] = []
        self.controller_id = NO_LEADER
        self.epoch = 0
        self.image = image

    def watch(self, watcher: Callable[[QuorumEvent, int], None]) -> None:
        """Call ``watcher`` with each notification and the node it is about."""
        self._watchers.append(watcher)

    def listen(self, listener: Callable[[ClusterEvent], None]) -> None:
        """Call ``listener`` with each event, before the watchers act on it."""
        self._listeners.append(listener)

    def notify(self, event: ClusterEvent) -> None:
        """Notify the listeners of an event."""
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
        """Open a session of a broker; return its number, which is the broker epoch."""
        self.end_session(node_id)
        self._last_session += 1
        self._sessions[node_id] = self._last_session
        self.notify(BrokerUp(node_id, self._last_session))
        self._notify_watchers(QuorumEvent.SESSION_OPENED, node_id)
        return self._last_session

    def end_session(self, node_id: int, *, expired: bool = False) -> None:
        """End a broker's session, and its claim; does nothing if it has no session.

        Args:
            node_id: Of the broker.
            expired: It was unreachable for too long.
        """
        session = self._sessions.pop(node_id, None)
        if session is None:
            return
        self.notify((BrokerFenced if expired else BrokerDown)(node_id, session))
        held = self.controller_id == node_id
        if held:
            self._free()
        self._notify_watchers(QuorumEvent.SESSION_ENDED, node_id)
        if held:
            self._notify_watchers(QuorumEvent.CONTROLLER_LOST, node_id)

    def claim(self, node_id: int) -> int | None:
        """Claim; return the epoch, None if another broker holds it or this one has no session."""
        if self.controller_id != NO_LEADER or node_id not in self._sessions:
            return None
        self.controller_id = node_id
        self.epoch = epoch = self.epoch + 1
        self.notify(ControllerElected(node_id, epoch))
        self._notify_watchers(QuorumEvent.CONTROLLER_ELECTED, node_id)
        return epoch

    def resign(self, node_id: int, epoch: int) -> None:
        """Release the claim, if it is still held in that epoch."""
        if self.controller_id == node_id and self.epoch == epoch:
            self._free()
            self._notify_watchers(QuorumEvent.CONTROLLER_LOST, node_id)

    def _free(self) -> None:
        lost = ControllerLost(self.controller_id, self.epoch)
        self.controller_id = NO_LEADER
        self.notify(lost)

    def write(self, node_id: int, epoch: int, image: MetadataImage) -> MetadataImage:
        """Make ``image`` the newest one, made in that epoch.

        Raises:
            Fenced: The claim was released or taken by another controller since.
        """
        if self.controller_id != node_id or self.epoch != epoch:
            raise Fenced
        before = self.image
        self.image = written = replace(
            image, version=before.version + 1, controller_id=node_id, controller_epoch=epoch
        )
        for event in changes(before, written):
            self.notify(event)
        return written

    def _notify_watchers(self, news: QuorumEvent, node_id: int) -> None:
        for watcher in tuple(self._watchers):
            watcher(news, node_id)

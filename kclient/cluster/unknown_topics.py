"""Brokers that say that there is no such topic: for how long, and how many must. Sans-IO.

``MetadataState`` notes each response here. Producers and consumers ask before they give a topic up:
a single response proves nothing, as a broker may lag behind, and neither does one to a request of
before the topic was wanted. What the view is to be is decided in ``merge``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kclient.cluster.topic import ERROR
from kclient.error_codes import ErrorCode

if TYPE_CHECKING:
    from kclient.cluster.topic import Facts

SEVERAL = 2
"""Brokers that must not know a topic, where there are as many."""


@dataclass(slots=True)
class _Unknown:
    """One topic that no broker has known since.

    Attributes:
        since: When that was first said.
        latest: When it was said again.
        nodes: Who said it, and when the latest request was made that they answered so.
    """

    since: float
    latest: float
    nodes: dict[int, float] = field(default_factory=dict)


class UnknownTopics:
    """Topics of one client that brokers don't know, as long as none says otherwise."""

    def __init__(self) -> None:
        self._unknown: dict[str, _Unknown] = {}

    def note(self, new: Facts, node_id: int, asked: float, now: float) -> None:
        """A broker that was ``asked`` then said ``new`` of a topic."""
        name = new[0]
        if new[ERROR] != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._unknown.pop(name, None)
            return
        found = self._unknown.setdefault(name, _Unknown(now, now))
        found.nodes[node_id], found.latest = asked, now

    def forget(self, name: str) -> None:
        """Nobody wants that topic any more."""
        self._unknown.pop(name, None)

    def surely(self, topic: str, brokers: int, since: float, grace: float) -> bool:
        """Whether all responses about ``topic`` were for long that the broker doesn't know it.

        That is ``grace`` seconds up to the latest response, counted from ``since`` at the earliest,
        where two brokers said so after it or there is but one, and twice as long where only one of
        several (``brokers``) could be asked.
        """
        found = self._unknown.get(topic)
        if found is None or not any(at > since for at in found.nodes.values()):
            return False
        sure = self.by_several(topic, brokers, since)
        return found.latest - max(found.since, since) >= (grace if sure else 2 * grace)

    def by_several(self, topic: str, brokers: int, since: float) -> bool:
        """Whether two, or all there are, said when they were asked after ``since`` that they don't
        know ``topic``, and none said otherwise."""
        found = self._unknown.get(topic)
        if found is None:
            return False
        # A bootstrap address is that of a broker, and counts for none.
        asked = sum(at > since for node_id, at in found.nodes.items() if node_id >= 0)
        return asked >= min(SEVERAL, brokers)

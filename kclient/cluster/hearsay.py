"""What brokers keep saying of a topic: that there is none, that it lacks a partition, or that it
was made anew. Sans-IO.

``MetadataState`` notes each answer here, and the producer asks, before it gives records up: a
single answer proves nothing, as a broker may lag behind, and neither does one to a question of
before the record was there. What the view is to be is decided in ``merge``; this only remembers
since when and by whom the same was said.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kclient.cluster.topic import ERROR, LEADERS
from kclient.error_codes import ErrorCode

if TYPE_CHECKING:
    from kclient.cluster.merge import Past
    from kclient.cluster.topic import Facts

SEVERAL_UNKNOWN = 2
"""Brokers that must say that there is no such topic or partition, where there are as many."""
SEVERAL_LACK = 3
"""Brokers that must tell of a topic that was made anew, where there are as many."""


@dataclass(slots=True)
class _Said:
    """One and the same, by all who answered.

    Attributes:
        topic_id: Of the topic; empty where it was that there is none.
        partitions: That it has.
        since: When it was first said.
        latest: When it was said again.
        nodes: Who said it, and when the latest question was asked that they answered so.
    """

    topic_id: bytes
    partitions: int
    since: float
    latest: float = -math.inf
    nodes: dict[int, float] = field(default_factory=dict)

    def for_long(self, since: float, grace: float, now: float) -> bool:
        """For ``grace`` seconds, counted from ``since`` at the earliest."""
        return now - max(self.since, since) >= grace

    def by(self, wanted: int, brokers: int, since: float = -math.inf) -> bool:
        """By as many as ``wanted``, or all there are, in answer to questions after ``since``."""
        # A bootstrap address is that of a broker, and counts for none.
        asked = sum(at > since for node_id, at in self.nodes.items() if node_id >= 0)
        return asked >= min(wanted, brokers)

    def again(self, since: float) -> bool:
        """By anybody, in answer to a question after ``since``."""
        return any(at > since for at in self.nodes.values())


class Hearsay:
    """What was said of the topics of one client, as long as nobody said otherwise."""

    __slots__ = ("_anew", "_counts", "_unknown")

    def __init__(self) -> None:
        self._counts: dict[str, dict[int, tuple[float, int]]] = {}
        self._unknown: dict[str, _Said] = {}
        self._anew: dict[str, _Said] = {}

    def note(self, new: Facts, past: Past, node_id: int, asked: float, now: float) -> None:
        """Somebody who was ``asked`` then said ``new`` of a topic; ``past`` has judged it."""
        name, error = new[0], new[ERROR]
        if self._counts and name in self._counts:
            if error:
                self._counts[name].pop(node_id, None)
            else:
                self._counts[name][node_id] = asked, len(new[LEADERS])
        if error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            _add(self._unknown, name, (b"", 0), node_id, asked, now)
        elif self._unknown:
            self._unknown.pop(name, None)
        if error or past.doubts(name):
            if self._anew:
                self._anew.pop(name, None)
        elif past.made_anew(name):
            _add(self._anew, name, (new[1], len(new[LEADERS])), node_id, asked, now)

    def forget(self, name: str) -> None:
        """Nobody wants that topic any more."""
        self._unknown.pop(name, None)
        self._anew.pop(name, None)
        self._counts.pop(name, None)

    def count(self, name: str) -> None:
        """Remember from now on how many partitions of the topic each broker tells of."""
        self._counts.setdefault(name, {})

    def surely_unknown(self, topic: str, brokers: int, since: float, grace: float) -> bool:
        """Whether all answers about ``topic`` were for long that the broker doesn't know it.

        That is ``grace`` seconds up to the latest answer, counted from ``since`` at the earliest,
        where two brokers said so after it or there is but one, and twice as long where only one of
        several (``brokers``) could be asked.
        """
        said = self._unknown.get(topic)
        if said is None or not said.again(since):
            return False
        sure = self.several_lack(topic, brokers, since)
        return said.for_long(since, grace if sure else 2 * grace, said.latest)

    def several_lack(self, topic: str, brokers: int, since: float) -> bool:
        """Whether two, or all there are, said when they were asked after ``since`` that they don't
        know ``topic``, and nobody said otherwise."""
        said = self._unknown.get(topic)
        return said is not None and said.by(SEVERAL_UNKNOWN, brokers, since)

    def fewer_since(self, topic: str, partition: int, brokers: int, grace: float) -> float:
        """Before when somebody must have wanted ``partition`` for it to be sure that it isn't.

        Two brokers, or all there are, told of fewer partitions when they were asked after that, one
        of them after another ``grace`` seconds; or one of several (``brokers``) after twice as
        many. Nobody told of more since. Minus infinity where ``count`` was not called before.
        """
        told = self._counts.get(topic, {})
        fewer = {node: at for node, (at, count) in told.items() if count <= partition}
        if not fewer:
            return -math.inf
        by_age = sorted((at for node, at in fewer.items() if node >= 0), reverse=True)
        latest, wanted = max(fewer.values()), min(SEVERAL_UNKNOWN, brokers)
        sure = latest - 2 * grace
        if 0 < wanted <= len(by_age):
            sure = max(sure, min(latest - grace, by_age[wanted - 1]))
        more = max((at for at, count in told.values() if count > partition), default=-math.inf)
        return sure if more < sure else -math.inf

    def surely_lacks(
        self, topic: str, partition: int, brokers: int, since: float, grace: float, now: float
    ) -> bool:
        """Whether ``topic`` was made anew without ``partition``, and nobody tells otherwise.

        All answers about it were of the same id and as few partitions for ``grace`` seconds,
        counted from ``since`` at the earliest, and came from three brokers where there are as many.
        One that looked like the past, or said something else, starts the time anew.
        """
        said = self._anew.get(topic)
        if said is None or partition < said.partitions:
            return False
        return said.by(SEVERAL_LACK, brokers) and said.for_long(since, grace, now)


def _add(
    said: dict[str, _Said],
    name: str,
    what: tuple[bytes, int],
    node_id: int,
    asked: float,
    now: float,
) -> None:
    found = said.get(name)
    if found is None or (found.topic_id, found.partitions) != what:
        found = said[name] = _Said(*what, now)
    found.nodes[node_id], found.latest = asked, now

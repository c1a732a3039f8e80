"""Leaders that gave no answer, and for how long to look whether others lead now. Sans-IO.

``MetadataState`` has one, told by ``MetadataUpdater`` what the producer's sender and the consumer's
fetcher find out. When to ask, and what an answer changes, is not decided here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kclient.cluster.topic import LEADERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient.cluster.view import Cluster

LONGEST_LOOK = 0.4
"""Seconds between two looks for a new leader at most, unless answers are large or it takes long."""
ELECTION = 30.0
"""Seconds that an election may take; from then on there is no election_pending."""
FORGOTTEN = 60.0
"""Seconds after which a leader that isn't wanted any more is forgotten."""


@dataclass(slots=True)
class _Missing:
    """One leader: since when, and when it was last wanted."""

    since: float
    wanted_at: float


class UnreachableLeaders:
    """The leaders of one client that gave no answer."""

    def __init__(self) -> None:
        self._nodes: dict[int, _Missing] = {}

    def __bool__(self) -> bool:
        """Whether to look after some."""
        return bool(self._nodes)

    def add(self, node_id: int, now: float) -> bool:
        """It gave no answer. Whether that is news."""
        news = not self.wanted(node_id, now)
        if news:
            self._nodes[node_id] = _Missing(now, now)
        return news

    def wanted(self, node_id: int, now: float) -> bool:
        """It would be asked now; whether it is one of these already."""
        missing = self._nodes.get(node_id)
        if missing is not None:
            missing.wanted_at = now
        return missing is not None

    def review(self, view: Cluster, is_unreachable: Callable[[int], bool], now: float) -> None:
        """Forget brokers that are back, lead nothing any more, or aren't wanted."""
        for node_id, missing in list(self._nodes.items()):
            unwanted = now - missing.wanted_at >= FORGOTTEN
            if unwanted or not is_unreachable(node_id) or not _leads(view, node_id):
                del self._nodes[node_id]

    def election_pending(self, now: float) -> bool:
        """Whether an election may be about to end."""
        return any(now - missing.since < ELECTION for missing in self._nodes.values())


def _leads(view: Cluster, node_id: int) -> bool:
    """Whether it leads anything; asked without an object for each topic."""
    return any(node_id in facts[LEADERS] for facts in view.topics.raw.values())

"""Which partitions moved between which members while the sticky assignors balance. Pure.

If a partition is to go from A to B and another one of its topic came from B to A, then that one
goes back instead: one movement less instead of one more.
"""

from __future__ import annotations

from collections.abc import Sequence

Pair = tuple[int, int]


class Movements:
    """From where to where partitions moved.

    Args:
        topic_of: Partition -> its topic.
    """

    __slots__ = ("_came", "_topic_of", "_where")

    def __init__(self, topic_of: Sequence[int]) -> None:
        self._topic_of = topic_of
        self._where: dict[int, Pair] = {}
        self._came: dict[tuple[int, Pair], set[int]] = {}

    def better(self, part: int, member: int, new: int) -> int:
        """What should move to ``new`` instead of ``part``, which ``member`` has; maybe itself."""
        if part in self._where:
            member = self._where[part][0]
        back = self._came.get((self._topic_of[part], (new, member)), ())
        return min(back, default=part)

    def note(self, part: int, member: int, new: int) -> None:
        """``part`` moves from ``member`` to ``new``."""
        topic = self._topic_of[part]
        before = self._where.pop(part, None)
        if before is not None:
            self._came[topic, before].remove(part)
            if before[0] == new:
                return
            member = before[0]
        pair = self._where[part] = (member, new)
        self._came.setdefault((topic, pair), set()).add(part)

"""Which partitions moved between which members while the sticky assignors balance. Pure.

If a partition is to go from A to B and another one of its topic came from B to A, then that one
goes back instead: one movement less instead of one more. Which, if there are several, is the first
of a Java HashSet.
"""

from __future__ import annotations

from collections.abc import Sequence

from kclient.group.assignors.java_order import HashOrder, java_hash, partition_hash
from kclient.types import TopicPartition

Pair = tuple[int, int]


class Movements:
    """From where to where partitions moved.

    Args:
        parts: Partitions by number.
        topic_of: Partition -> its topic.
        topics: Names by number.
    """

    __slots__ = ("_came", "_hashes", "_parts", "_topic_of", "_where")

    def __init__(
        self, parts: Sequence[TopicPartition], topic_of: Sequence[int], topics: Sequence[str]
    ) -> None:
        self._parts = parts
        self._topic_of = topic_of
        self._hashes = [java_hash(topic) for topic in topics]
        self._where: dict[int, Pair] = {}
        self._came: dict[tuple[int, Pair], HashOrder[int]] = {}

    def better(self, part: int, member: int, new: int) -> int:
        """What should move to ``new`` instead of ``part``, which ``member`` has; maybe itself."""
        if part in self._where:
            member = self._where[part][0]
        back = self._came.get((self._topic_of[part], (new, member)))
        return part if back is None else back.first()

    def note(self, part: int, member: int, new: int) -> None:
        """``part`` moves from ``member`` to ``new``."""
        topic, code = self._topic_of[part], self._code(part)
        before = self._where.pop(part, None)
        if before is not None:
            came = self._came[topic, before]
            came.remove(part, code)
            if not came:
                del self._came[topic, before]
            if before[0] == new:
                return
            member = before[0]
        pair = self._where[part] = (member, new)
        self._came.setdefault((topic, pair), HashOrder()).put(part, code)

    def _code(self, part: int) -> int:
        return partition_hash(self._hashes[self._topic_of[part]], self._parts[part].partition)

"""Which partition a record goes to: Java's choice by key, else uniform sticky (KIP-794).

The accumulator holds one ``TopicPartitioner`` per topic. Records with a key go where Java's
producer would send them. Records without stay on one partition for about a batch's worth of
bytes, then move on at random, so that batches fill and load evens out; of two random
candidates the one with fewer waiting batches is taken, which steers round a slow broker.
Sans-IO: randomness comes in as ``rng``. A user's own ``Partitioner`` replaces both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.errors import InvalidArgument
from kclient.record import murmur2

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from kclient.hooks import Partitioner


def partition_of_key(key: bytes, partition_count: int) -> int:
    """Java's partition of ``key``: the same key lands together whatever client wrote it."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyChoice:
    """The partition that records without a key go to for now.

    Args:
        switch_bytes: Move on after about so many bytes (the batch size).
        rng: Source of the choices.
        backlog: Waiting batches of a partition, by index.
    """

    __slots__ = ("_backlog", "_left", "_rng", "_switch_bytes", "current")

    def __init__(
        self, switch_bytes: int, rng: random.Random, backlog: Callable[[int], int]
    ) -> None:
        self.current = -1
        self._left = 0
        self._switch_bytes = switch_bytes
        self._rng = rng
        self._backlog = backlog

    def note(self, size: int) -> None:
        """``size`` bytes were added to the current partition."""
        self._left -= size

    def due(self) -> bool:
        """The current partition had its share: move on when its batch is complete."""
        return self._left <= 0

    def overdue(self) -> bool:
        """It had so much more than its share that the batch doesn't matter any more."""
        return self._left <= -self._switch_bytes

    def move(self, available: Sequence[int], partition_count: int) -> int:
        """Choose anew among ``available``, the partitions with a leader; all if there are none."""
        self._left = self._switch_bytes
        if available:
            first = available[self._pick(len(available))]
            second = available[self._pick(len(available))]
        else:
            first, second = self._pick(partition_count), self._pick(partition_count)
        fewer = self._backlog(second) < self._backlog(first)
        self.current = second if fewer else first
        return self.current

    def _pick(self, count: int) -> int:
        return int(self._rng.random() * count)


def checked_choice(
    partitioner: Partitioner, topic: str, key: bytes | None, partition_count: int
) -> int:
    """Ask a user's ``partitioner``; InvalidArgument if it answers outside of the topic."""
    chosen = partitioner.partition(topic, key, partition_count)
    if not isinstance(chosen, int) or isinstance(chosen, bool):
        raise InvalidArgument(
            f"{type(partitioner).__name__} chose {chosen!r} for topic {topic}: "
            "a partitioner must return an int"
        )
    if not 0 <= chosen < partition_count:
        raise InvalidArgument(
            f"{type(partitioner).__name__} chose partition {chosen} of topic {topic}, "
            f"which has {partition_count}: allowed is 0 to {partition_count - 1}"
        )
    return chosen

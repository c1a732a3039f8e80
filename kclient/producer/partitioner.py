"""Which partition a record goes to: Java's choice by key, else uniform sticky (KIP-794).

Records with a key go where Java's producer would send them; ``StickyChoice`` in ``quick`` has the
others. A user's own ``Partitioner`` replaces both. Sans-IO.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.errors import InvalidArgument
from kclient.record import murmur2

if TYPE_CHECKING:
    from kclient.hooks import Partitioner


def partition_of_key(key: bytes, partition_count: int) -> int:
    """Java's partition of ``key``: the same key lands together whatever client wrote it."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


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

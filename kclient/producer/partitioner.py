"""Which partition a user's own ``Partitioner`` chose. Sans-IO.

Without one, records with a key go where Java's producer would send them (``record.murmur``), and
the others by ``StickyChoice`` in ``quick`` (uniform sticky, KIP-794).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.errors import InvalidArgument

if TYPE_CHECKING:
    from kclient.hooks import Partitioner


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

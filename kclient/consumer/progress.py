"""How far the user's work on records has come: what may be committed, and when it comes to rest.

Interface only. ``handed_over`` (poll and ``async for``: what was handed over before the latest call
is finished) and ``run`` (handlers) implement it; the group side asks it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kclient.types import OffsetAndMetadata, TopicPartition


class Progress(Protocol):
    """The work on what was handed over."""

    def finished(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """By partition, the offset up to which all records are finished, for a commit.

        Of all assigned partitions of which it is known, changed or not since the last commit.
        """
        ...

    async def drain(self, partitions: Collection[TopicPartition], deadline: float) -> None:
        """Wait until nobody works on records of ``partitions``, of which no more are handed over.

        Not longer than ``deadline`` on the client's clock.

        Cancellation: safe.
        """
        ...

    def hurry(self, deadline: float) -> None:
        """Whoever waits in ``drain`` has no longer than that; minus infinity: waits in vain."""
        ...

    def dropped(self, partitions: Collection[TopicPartition]) -> None:
        """These were taken away: nothing of their records is to be committed."""
        ...

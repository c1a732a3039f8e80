"""How far the user's work on records has come: what may be committed, and when it comes to rest.

Interface only. ``handed_over`` (poll and ``async for``: what was handed over before the latest call
is finished) and ``run`` (handlers) implement it; ``handover`` asks it.
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

        Of all assigned partitions of which it is known, changed or not since the last commit; but
        not where nothing was consumed since a seek or an explicit commit.
        """

    def finished_of(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """The same of one partition; None where nothing is to be committed."""

    def stand(self, partition: TopicPartition) -> None:
        """The application committed an offset, which stands until it has finished more."""

    async def drain(self, partitions: Collection[TopicPartition], deadline: float) -> None:
        """Wait until nobody works on records of ``partitions``, of which no more are handed over.

        Not longer than ``deadline`` on the client's clock.

        Cancellation: safe.
        """

    def hurry(self, deadline: float) -> None:
        """Whoever waits in ``drain`` has no longer than that; minus infinity: waits in vain."""

    def dropped(self, partitions: Collection[TopicPartition]) -> None:
        """These were taken away: nothing of their records is to be committed."""

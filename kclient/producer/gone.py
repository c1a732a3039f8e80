"""Partitions that are gone since their topic was made anew with fewer: what waits for them fails.

Nobody could take those batches any more, and without this they would wait in silence for all of
``delivery_timeout``. Fewer partitions of the same topic id are no reason, and another id alone is
none at once: to a client that starts in the middle of it, a broker that lags behind tells of a
former topic that looks as new. So answers must say it for a while, from several brokers, and none
that is doubted may come in between: ``MetadataState.surely_lacks`` tells. The sender asks in its
steps; what happens to a batch is in ``settlement``. Sans-IO.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kclient.producer.batch_states import UNDER_WAY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kclient.producer.accumulator import Accumulator
    from kclient.producer.hot import PartitionQueue, ProducerBatch
    from kclient.producer.settlement import Settlement

SURE_AFTER = 3.0
"""Seconds for which brokers must have told of the same topic."""
_BATCH_COST = 10
"""What giving up a batch costs by itself, in records."""


class Confirmed(Protocol):
    """What is asked of the metadata updater."""

    def surely_lacks(self, topic: str, partition: int, since: float, grace: float) -> bool:
        """Whether the topic was made anew without that partition, as all say for so long."""
        ...


class GonePartitions:
    """Looks after the busy queues of partitions that their topics lack."""

    __slots__ = ("_accumulator", "_metadata", "_seen", "_settlement")

    def __init__(
        self, accumulator: Accumulator, settlement: Settlement, metadata: Confirmed
    ) -> None:
        self._accumulator = accumulator
        self._settlement = settlement
        self._metadata = metadata
        self._seen: dict[PartitionQueue, float] = {}

    def look(self, now: float, most: int) -> bool:
        """Fail what waits for partitions that are surely gone.

        Args:
            now: The time.
            most: Records to fail at once, about; at least a batch.

        Returns:
            False where more is left to be failed at once.
        """
        gone, seen, done = self._accumulator.gone, self._seen, True
        self._seen = {}
        for queue in list(gone):
            topic = self._accumulator.topics[queue.topic]
            if queue.idle or not topic.lacks(queue.index):
                del gone[queue]
                continue
            since = self._seen[queue] = seen.get(queue, now)
            if not self._metadata.surely_lacks(topic.name, queue.index, since, SURE_AFTER):
                continue
            for batch in _waiting(queue):
                if most <= 0:
                    done = False
                    break
                most -= batch.records().record_count + _BATCH_COST
                self._settlement.partition_gone(batch, topic.count, now)
        return done


def _waiting(queue: PartitionQueue) -> Iterator[ProducerBatch]:
    """What isn't under way: an answer may still tell that it was written."""
    for batch in [*queue.outstanding, *queue.sealed]:
        if batch.state not in UNDER_WAY:
            yield batch
    if queue.open is not None:
        yield queue.open

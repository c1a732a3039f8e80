"""Partitions that are gone since their topic was made anew with fewer: what waits for them fails.

Nobody could take those batches any more, and without this they would wait in silence for all of
``delivery_timeout``. Fewer partitions of the same topic id are no reason, and another id alone
is none at once: to a client that starts in the middle of it, a broker that lags behind tells of a
former topic that looks as new. So the view has to say it for a while, through several answers. The
sender asks in its steps; what happens to a batch is in ``settlement``. Sans-IO.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kclient.producer.batch_states import UNDER_WAY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kclient.producer.accumulator import Accumulator, TopicQueues
    from kclient.producer.hot import PartitionQueue, ProducerBatch
    from kclient.producer.settlement import Settlement

SURE_AFTER = 3.0
"""Seconds for which the view must have told of the same topic."""
SURE_VIEWS = 3
"""Views that must have come since the first that told of it."""
_BATCH_COST = 10
"""What giving up a batch costs by itself, in records."""


class _Sighting(NamedTuple):
    """The topic as it was when its lack was first seen."""

    topic_id: bytes | None
    partitions: int
    version: int
    time: float


class GonePartitions:
    """Looks after the busy queues of partitions that their topics lack."""

    __slots__ = ("_accumulator", "_seen", "_settlement")

    def __init__(self, accumulator: Accumulator, settlement: Settlement) -> None:
        self._accumulator = accumulator
        self._settlement = settlement
        self._seen: dict[str, _Sighting] = {}

    def look(self, version: int, now: float, most: int) -> bool:
        """Fail what waits for partitions that are surely gone.

        Args:
            version: Of the view that the accumulator knows.
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
            first = _first_sighting(topic, seen.get(topic.name), version, now)
            self._seen[topic.name] = seen[topic.name] = first
            if now < first.time + SURE_AFTER or version < first.version + SURE_VIEWS:
                continue
            for batch in _waiting(queue):
                if most <= 0:
                    done = False
                    break
                most -= batch.records().record_count + _BATCH_COST
                self._settlement.partition_gone(batch, topic.count, now)
        return done


def _first_sighting(
    topic: TopicQueues, before: _Sighting | None, version: int, now: float
) -> _Sighting:
    if before is not None and (before.topic_id, before.partitions) == (topic.topic_id, topic.count):
        return before
    return _Sighting(topic.topic_id, topic.count, version, now)


def _waiting(queue: PartitionQueue) -> Iterator[ProducerBatch]:
    """What isn't under way: an answer may still tell that it was written."""
    for batch in [*queue.outstanding, *queue.sealed]:
        if batch.state not in UNDER_WAY:
            yield batch
    if queue.open is not None:
        yield queue.open

"""Records for partitions that their topics don't have, as far as is known: they wait for proof.

A topic may just have been grown, and an answer that tells of fewer partitions proves nothing: the
broker may lag behind, or was asked before. So ``MetadataState`` is asked whether brokers have kept
saying so since the record came, as it is of topics that there aren't. The intake drives this; it
must not put records into batches. Sans-IO.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kclient.cluster.retry import UNKNOWN_TOPIC_GRACE
from kclient.errors import InvalidArgument, KafkaError, MetadataTimedOut

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kclient.producer.accumulator import TopicQueues
    from kclient.producer.parking import Parked, ParkingLot
    from kclient.types import TopicPartition


class Counted(Protocol):
    """What is asked of the metadata updater."""

    def touch(self, topic: str) -> None:
        """Keep the topic in the view."""
        ...

    def count_partitions(self, topic: str) -> None:
        """Remember what brokers say of how many it has."""
        ...

    def fewer_since(self, topic: str, partition: int, grace: float) -> float:
        """Before when a record must have come for it to be sure that it has no ``partition``."""
        ...

    def request_update(self, topic: str | None = None) -> None:
        """Have it refreshed soon."""
        ...


class AbsentPartitions:
    """Looks after the lines for partitions that aren't there.

    Args:
        lot: Where they stand.
        known: What is known of topics.
        metadata: Knows what brokers keep saying.
        wake: Called when there is somebody to ``refuse``.
    """

    __slots__ = ("_known", "_lot", "_metadata", "_sure", "_wake")

    def __init__(
        self,
        lot: ParkingLot,
        known: Mapping[str, TopicQueues],
        metadata: Counted,
        wake: Callable[[], None],
    ) -> None:
        self._lot = lot
        self._known = known
        self._metadata = metadata
        self._wake = wake
        self._sure: dict[TopicPartition, float] = {}  # who came before then waits in vain

    def hold(self, parked: Parked, partition: int, now: float) -> None:
        """Have a record wait for ``partition``."""
        self._lot.wait_for_partition(parked, partition, now)
        self._ask(parked.topic)

    def look(self) -> None:
        """There is a newer view: see whose partition came, and whose there surely isn't."""
        self._sure.clear()
        for place in self._lot.absent_partitions():
            if place.partition < self._known[place.topic].count:
                self._lot.partition_came(place)
                continue
            self._sure[place] = self._metadata.fewer_since(*place, UNKNOWN_TOPIC_GRACE)
            if self._first_in_vain(place) is not None:
                self._wake()  # the sender has them given up
            self._ask(place.topic)

    def refuse(self, most: int) -> int:
        """Give up who waits in vain, ``most`` at once; returns how many that were."""
        refused = 0
        for place in list(self._sure):
            while refused < most and (parked := self._first_in_vain(place)) is not None:
                count = self._known[place.topic].count
                parked.refused(no_such_partition(*place, count))
                refused += 1
            if self._lot.first_for(place) is None:
                del self._sure[place]
        return refused

    def overdue(self, parked: Parked, setting: str) -> KafkaError | None:
        """Why it is given up after ``setting``; None if it doesn't wait for a partition."""
        words = self.words(parked)
        return None if words is None else unsure(words, setting)

    def words(self, parked: Parked) -> str | None:
        """What it waits for; None if that isn't a partition."""
        if not self._lot.awaits_partition(parked):
            return None
        return not_known(parked.topic, parked.wanted, self._known[parked.topic].count)

    def _first_in_vain(self, place: TopicPartition) -> Parked | None:
        parked = self._lot.first_for(place)
        return parked if parked is not None and parked.came < self._sure[place] else None

    def _ask(self, topic: str) -> None:
        self._metadata.touch(topic)
        self._metadata.count_partitions(topic)
        self._metadata.request_update(topic)


def not_known(topic: str, partition: object, count: int) -> str:
    """What there is to say as long as nothing is sure."""
    return f"partition {partition} of topic {topic} isn't known: it has {count}, 0 to {count - 1}"


def unsure(words: str, setting: str) -> MetadataTimedOut:
    """The error where there was no proof in time, neither of it nor of its absence."""
    return MetadataTimedOut(
        f"{words}, and brokers have not said so for long enough within {setting} to be sure",
        hint="check its number, and that the brokers are up and reachable from here",
        maybe_written=False,
    )


def no_such_partition(topic: str, partition: object, count: int) -> InvalidArgument:
    """The error for a record or row that names a partition that there isn't."""
    return InvalidArgument(
        f"partition {partition} of topic {topic} doesn't exist: it has {count}, 0 to {count - 1}",
        maybe_written=False,
    )

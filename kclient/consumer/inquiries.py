"""What a consumer answers about topics, offsets and itself, without a change of its positions.

``Consumer`` inherits it, so these are methods of the public door like the others there. It checks
arguments and says what each call promises; the work is behind ``engine``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.consumer.arguments import (
    checked_partitions,
    checked_timeout,
    checked_times,
)
from kclient.types import OffsetAndTimestamp, OffsetSpec, TopicPartition, check_topic_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from kclient.cluster.partition import Partition
    from kclient.config import ConsumerConfig
    from kclient.consumer.engine import Engine
    from kclient.consumer.health import ConsumerHealth


class Inquiries:
    """The questions that a consumer answers."""

    _config: ConsumerConfig
    _engine: Engine

    async def partitions_for(
        self, topic: str, *, timeout: float | None = None
    ) -> Sequence[Partition]:
        """The partitions of ``topic``, assigned or not.

        Args:
            topic: Its name.
            timeout: Seconds; ``api_timeout`` by default.

        Returns:
            One value per partition in order, with leader, replicas and so on.

        Raises:
            UnknownTopicOrPartition: It doesn't exist.
            TopicAuthorizationFailed: It may not be seen.
            MetadataTimedOut: No answer in time.

        Cancellation: safe.

        Example::

            indexes = [p.index for p in await consumer.partitions_for("flights")]
        """
        self._engine.core.check_usable()
        metadata, name = self._engine.core.metadata, check_topic_name(topic)
        return (await metadata.wait_for_topic(name, self._seconds(timeout))).partitions

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset that is still there, of each of ``partitions``, assigned or not.

        Args:
            partitions: Which ones.
            timeout: Seconds for all; ``api_timeout`` by default.

        Returns:
            Offset by partition. Positions don't change.

        Raises:
            KafkaError: The error of the first partition that failed: UnknownTopicOrPartition,
                TopicAuthorizationFailed, RequestTimedOut ...

        Cancellation: safe.

        Example::

            first = await consumer.beginning_offsets(consumer.assignment)
        """
        return await self._ends(partitions, OffsetSpec.EARLIEST, timeout)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset behind the last readable record, of each of ``partitions``.

        Args:
            partitions: Which ones, assigned or not.
            timeout: Seconds for all; ``api_timeout`` by default.

        Returns:
            Offset by partition: the high watermark, or with ``read_committed`` the last stable
            offset. Positions don't change.

        Raises:
            KafkaError: As with ``beginning_offsets``.

        Cancellation: safe.

        Example::

            last = await consumer.end_offsets(consumer.assignment)
        """
        return await self._ends(partitions, OffsetSpec.LATEST, timeout)

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int | datetime], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition whose timestamp is not before the one given.

        Args:
            times: By partition, assigned or not: an aware datetime, or int milliseconds since the
                epoch as in ``record.timestamp``.
            timeout: Seconds for all; ``api_timeout`` by default.

        Returns:
            Offset and timestamp of that record by partition, which ``seek`` takes; None where all
            records are older. ``seek`` to the datetime itself goes to the end then.

        Raises:
            InvalidArgument: A time before 1970, or a datetime without a time zone.
            KafkaError: As with ``beginning_offsets``.

        Cancellation: safe.

        Example::

            hour_ago = datetime.now(UTC) - timedelta(hours=1)
            found = await consumer.offsets_for_times(dict.fromkeys(partitions, hour_ago))
        """
        found = await self._engine.look_up(checked_times(times), self._seconds(timeout))
        return {key: answer if answer.offset >= 0 else None for key, answer in found.items()}

    async def _ends(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, timeout: float | None
    ) -> dict[TopicPartition, int]:
        specs = dict.fromkeys(checked_partitions(partitions), spec)
        found = await self._engine.look_up(specs, self._seconds(timeout))
        return {key: answer.offset for key, answer in found.items()}

    def metrics(self) -> dict[str, float]:
        """All counters and gauges of this consumer by name, as ``room.what``."""
        self._engine.handed_over.settle()
        return self._engine.core.metrics()

    def health(self) -> ConsumerHealth:
        """How the consumer is now; cheap, and free to call at any time.

        Returns:
            A ``kclient.consumer.health.ConsumerHealth``: ``ok``, ``lag`` (None where it would be
            out of date), the last fetch, and a ``PartitionHealth`` for each assigned partition;
            and in ``client`` a ``kclient.cluster.core.Health`` with metadata, internal tasks,
            ``nodes`` (a ``NodeHealth`` per broker: last answer, last failure) and ``connections``
            (a ``ConnectionHealth`` each).

        Raises:
            WrongContext: Called from another loop, thread or process than ``start``.

        Example::

            health = consumer.health()
            stalled = [name for name, part in health.partitions.items() if part.stalled]
        """
        self._engine.core.check_context()
        self._engine.handed_over.settle()
        return self._engine.health()

    def _seconds(self, timeout: float | None) -> float:
        return self._config.api_timeout if timeout is None else checked_timeout(timeout)

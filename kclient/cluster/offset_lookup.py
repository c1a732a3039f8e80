"""Offset lookup: where partitions start, end, or pass a point in time, by ListOffsets. Sans-IO.

The consumer asks for its start positions here, Admin for its users; the loop over leaders and
retries is in ``fanout``. ``OffsetQuery`` hides what differs between the versions: before version 1
an answer is a list, before 4 it has no epochs, and the newer symbolic offsets need newer brokers,
so they are asked for in requests of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

from kclient.broker_errors import UnsupportedForMessageFormat
from kclient.cluster.fanout import fan_out
from kclient.errors import (
    InvalidArgument,
    KafkaError,
    NoCommonVersion,
    ProtocolError,
    broker_error,
)
from kclient.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kclient.types import IsolationLevel, OffsetAndTimestamp, OffsetSpec, TopicPartition

if TYPE_CHECKING:
    from kclient.cluster.calls import Calls
    from kclient.cluster.core import ClientCore
    from kclient.cluster.view import Cluster
    from kclient.protocol.message import Request

SINCE = {
    OffsetSpec.MAX_TIMESTAMP: (7, "3.0"),
    OffsetSpec.EARLIEST_LOCAL: (8, "3.4"),
    OffsetSpec.LATEST_TIERED: (9, "3.8"),
}
"""ListOffsets version, and Kafka release, that brought a symbolic offset."""

CONSUMER = -1
"""Replica id of a client."""

NOT_FOUND = -1
"""The offset that stands for none: no record is so young."""

BROKER_SHARE = 0.8
"""Part of the request's time that the broker may use up; the rest is for the way."""


async def list_offsets(
    core: ClientCore,
    specs: Mapping[TopicPartition, OffsetSpec | int],
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    timeout: float | None = None,
    found: Callable[[Mapping[TopicPartition, OffsetAndTimestamp]], object] | None = None,
) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError]:
    """Look up one offset per partition, at all leaders at once.

    Args:
        core: The client's.
        specs: Per partition an ``OffsetSpec``, or int milliseconds since the epoch for the first
            record that is not older.
        isolation: ``READ_COMMITTED`` makes ``LATEST`` the last stable offset, and a time find
            committed records only.
        timeout: Seconds for all, retries included; ``api_timeout`` by default.
        found: Called with offsets as they come, while others are asked for again.

    Returns:
        The offset found, or the error, of each partition in the order of ``specs``. ``offset`` is
        -1 where no record is young enough. Errors: ``RequestTimedOut``, ``NoCommonVersion`` (the
        broker is too old for that ``OffsetSpec``), ``UnknownTopicOrPartition``,
        ``TopicAuthorizationFailed``.

    Raises:
        InvalidArgument: A spec that has no meaning, or a topic name that Kafka can't have.
        ClientClosed, BackgroundTaskDied: The client ended meanwhile.

    Cancellation: safe, nothing is changed anywhere.

    Example::

        found = await list_offsets(core, {TopicPartition("flights", 0): OffsetSpec.EARLIEST})
    """
    query = OffsetQuery(specs, isolation)
    return await fan_out(core.calls, query, query.keys, timeout, found)


class OffsetQuery:
    """What to look up for each partition.

    Args:
        specs: An ``OffsetSpec``, or int milliseconds since the epoch, per partition.
        isolation: Which end ``LATEST`` means, and which records a time finds.
    """

    what = "ListOffsets"
    api: type[Request] = ListOffsetsRequest

    def __init__(
        self, specs: Mapping[TopicPartition, OffsetSpec | int], isolation: IsolationLevel
    ) -> None:
        self._specs = {key: _checked(key, spec) for key, spec in specs.items()}
        self._isolation = isolation

    @property
    def keys(self) -> list[TopicPartition]:
        """The partitions, in the order given."""
        return list(self._specs)

    def node_for(self, key: TopicPartition, calls: Calls) -> tuple[int, Hashable]:
        """The leader; apart from others if the offset needs a newer broker than they do."""
        since, _ = SINCE.get(self._specs[key], (0, ""))  # type: ignore[call-overload]
        return calls.leader_of(key), since

    def build(
        self, keys: Sequence[TopicPartition], version: int, view: Cluster, seconds: float
    ) -> ListOffsetsRequest:
        """The request to the leader of ``keys``."""
        self._check_version(keys[0], version)
        by_topic: dict[str, list[ListOffsetsPartition]] = {}
        for key in keys:
            partition = ListOffsetsPartition(
                partition_index=key.partition, timestamp=int(self._specs[key])
            )
            if version >= 4:
                partition.current_leader_epoch = view.leader_epoch(key.topic, key.partition)
            by_topic.setdefault(key.topic, []).append(partition)
        request = ListOffsetsRequest(
            replica_id=CONSUMER,
            topics=[ListOffsetsTopic(name=name, partitions=p) for name, p in by_topic.items()],
        )
        if version >= 2:
            request.isolation_level = int(self._isolation)
        if version >= 10:
            request.timeout_ms = broker_timeout_ms(seconds)
        return request

    def _check_version(self, key: TopicPartition, version: int) -> None:
        spec = self._specs[key]
        if spec in SINCE and version < SINCE[OffsetSpec(spec)][0]:
            since, release = SINCE[OffsetSpec(spec)]
            raise NoCommonVersion(
                f"OffsetSpec.{OffsetSpec(spec).name} needs ListOffsets version {since}, and the "
                f"leader of {key} has {version}",
                topic_partition=key,
                hint=f"it needs Apache Kafka {release} or newer",
            )

    def read(
        self, response: ListOffsetsResponse, keys: Sequence[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError]:
        """The offset of each partition; -1 where no record is that young."""
        found: dict[TopicPartition, OffsetAndTimestamp | KafkaError] = {}
        for topic in response.topics:
            for said in topic.partitions:
                key = TopicPartition(topic.name, said.partition_index)
                if said.error_code:
                    doing = f"ListOffsets of {key} failed"
                    found[key] = broker_error(said.error_code, doing, topic_partition=key)
                elif said.old_style_offsets:  # version 0: a list, of which one was asked for
                    found[key] = self._checked(key, OffsetAndTimestamp(said.old_style_offsets[0]))
                else:
                    epoch = said.leader_epoch if said.leader_epoch >= 0 else None
                    answer = OffsetAndTimestamp(said.offset, said.timestamp, epoch)
                    found[key] = self._checked(key, answer)
        return found

    def _checked(
        self, key: TopicPartition, answer: OffsetAndTimestamp
    ) -> OffsetAndTimestamp | KafkaError:
        """``answer`` if it can be one: a position must never become what can't be an offset."""
        if answer.offset >= 0:
            return answer
        always_there = self._specs.get(key) in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
        if answer.offset == NOT_FOUND and not always_there:
            return answer
        return ProtocolError(
            f"ListOffsets answered offset {answer.offset} for {key}",
            struct="ListOffsetsPartitionResponse",
            field="offset",
            topic_partition=key,
        )

    def is_final(self, error: KafkaError) -> bool:
        """Old message formats have no timestamps, however often they are asked for them."""
        return isinstance(error, UnsupportedForMessageFormat)


def broker_timeout_ms(seconds: float) -> int:
    """How long a broker may work on a request that we wait ``seconds`` for."""
    return max(1, int(seconds * 1000 * BROKER_SHARE))


def _checked(key: TopicPartition, spec: OffsetSpec | int) -> OffsetSpec | int:
    if type(spec) is OffsetSpec:
        return spec
    if isinstance(spec, bool) or not isinstance(spec, int):
        raise InvalidArgument(
            f"the offset asked of {key} must be an OffsetSpec or int milliseconds since the "
            f"epoch, not {spec!r}"
        )
    if spec >= 0:
        return spec
    try:
        return OffsetSpec(spec)
    except ValueError:
        raise InvalidArgument(
            f"the offset asked of {key} is {spec}: below 0 only an OffsetSpec has a meaning"
        ) from None

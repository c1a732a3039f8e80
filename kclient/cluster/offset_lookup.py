"""Offset lookup: where partitions start, end, or pass a point in time.

The consumer asks for its start positions here, Admin for its users. Thin: the question is in
``offset_query``, the loop over leaders and retries in ``fanout``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kclient.cluster.fanout import ask_all
from kclient.cluster.offset_query import OffsetQuery
from kclient.types import IsolationLevel, OffsetAndTimestamp, OffsetSpec, TopicPartition

if TYPE_CHECKING:
    from kclient.cluster.core import ClientCore
    from kclient.errors import KafkaError


async def list_offsets(
    core: ClientCore,
    specs: Mapping[TopicPartition, OffsetSpec | int],
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    timeout: float | None = None,
) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError]:
    """Look up one offset per partition, at all leaders at once.

    Args:
        core: The client's.
        specs: Per partition an ``OffsetSpec``, or int milliseconds since the epoch for the first
            record that is not older.
        isolation: ``READ_COMMITTED`` makes ``LATEST`` the last stable offset, and a time find
            committed records only.
        timeout: Seconds for all, retries included; ``api_timeout`` by default.

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
    return await ask_all(core.calls, query, query.keys, timeout)

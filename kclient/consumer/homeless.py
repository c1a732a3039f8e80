"""Why a partition has no broker to ask, and when the user must hear of it, sans-IO.

Asked by ``offsets`` about the partitions that ``FetchPlan`` found no broker for. One without a
leader is waited for, though not for ever in silence; a topic that doesn't exist, or may not be
seen, is an error that poll raises, again and again but not in a rush, while the others go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kclient.broker_errors import LeaderNotAvailable, UnknownTopicOrPartition
from kclient.error_codes import TABLE, ErrorCode
from kclient.errors import broker_error

if TYPE_CHECKING:
    from kclient.cluster.view import Cluster
    from kclient.errors import KafkaError
    from kclient.types import TopicPartition

UNKNOWN_GRACE: Final = 5.0
"""Seconds that a new topic may take until every broker knows it."""
_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def explain(
    view: Cluster, partition: TopicPartition, waited: float, patience: float, *, unknown: bool
) -> KafkaError | None:
    """The error that says why ``partition`` can't be read; None as long as it may come.

    Args:
        view: The cluster as it is known.
        partition: One without a broker to ask.
        waited: Seconds for which that has been so.
        patience: Seconds after which the user hears even of what may pass by itself.
        unknown: Brokers agree for ``UNKNOWN_GRACE`` seconds that they don't know its topic; one
            response proves nothing, as its broker may lag behind.
    """
    error = _final(view, partition, waited, unknown=unknown)
    if error is None and waited >= patience:
        return LeaderNotAvailable(
            f"{partition} has had no leader that can be asked for {waited:.0f} s",
            topic_partition=partition,
        )
    return error


def _final(
    view: Cluster, partition: TopicPartition, waited: float, *, unknown: bool
) -> KafkaError | None:
    topic = view.topic(partition.topic)
    if topic is None:
        return None  # no answer about it yet
    code = view.topic_error(partition.topic)
    if code and code not in _UNKNOWN:
        info = TABLE.get(code)
        if info is not None and info.retriable:
            return None
        return broker_error(code, f"{partition} can't be read", topic_partition=partition)
    if waited < UNKNOWN_GRACE or (code and not unknown):
        return None
    if code:
        return UnknownTopicOrPartition(
            f"{partition} can't be read: the brokers don't know topic {partition.topic}, "
            f"asked for {waited:.1f} s",
            topic_partition=partition,
            hint="create the topic, or check its spelling",
        )
    count = view.partition_count(partition.topic)
    if count is not None and partition.partition >= count:
        return UnknownTopicOrPartition(
            f"{partition} can't be read: topic {partition.topic} has {count} partitions, "
            f"0 to {count - 1}",
            topic_partition=partition,
            hint="assign partitions that exist; see partitions_for()",
        )
    return None

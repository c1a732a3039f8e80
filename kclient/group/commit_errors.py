"""What errors mean for a commit of offsets, and for how long it may be repeated. Sans-IO.

``commit_error_action`` is the one place that decides what an error means; all retries follow it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kclient.cluster.retry import MISSING_PARTITION_GRACE, UNKNOWN_TOPIC_GRACE
from kclient.error_codes import ErrorCode
from kclient.errors import BrokerError, KafkaError, broker_error, some_of

if TYPE_CHECKING:
    from kclient.cluster.view import Cluster
    from kclient.types import TopicPartition

SHOWN: Final = 5
"""Partitions that an error text names."""


class CommitErrorAction(enum.Enum):
    """What follows from an error of a commit."""

    RETRY = "the same commit may succeed in a while"
    REBALANCING = "the group rebalances: it may succeed once, or until, this member has joined anew"
    FENCED = "the coordinator doesn't have this member, or not in that generation"
    REFUSED = "it would fail again"


_OUSTED = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
_UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_UNKNOWN_HINT: Final = (
    "check that the topic exists, and how many partitions it has; without the right to describe a "
    "topic it looks as if it did not exist"
)
_FINAL = frozenset({ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE})


def commit_error_action(error: KafkaError) -> CommitErrorAction:
    """The action after ``error``. An unknown topic may not have reached the coordinator yet."""
    if isinstance(error, BrokerError):
        if error.code in _OUSTED:
            return CommitErrorAction.FENCED
        if error.code == ErrorCode.REBALANCE_IN_PROGRESS:
            return CommitErrorAction.REBALANCING
        if error.code in _FINAL:
            return CommitErrorAction.REFUSED
    return CommitErrorAction.RETRY if error.retriable else CommitErrorAction.REFUSED


def is_unknown(error: KafkaError) -> bool:
    """Whether ``error`` reports an unknown partition, which may still be propagating."""
    return isinstance(error, BrokerError) and error.code in _UNKNOWN


def was_recreated(partition: TopicPartition, topic_id: bytes | None, view: Cluster) -> bool:
    """Whether ``view`` has another topic of that name than the one of ``topic_id``."""
    return bool(topic_id) and view.topic_id(partition.topic) not in (None, topic_id)


def patience(
    partition: TopicPartition,
    view: Cluster,
    topic_id: bytes | None = None,
    *,
    by_name: bool = False,
) -> float:
    """Return for how many seconds a coordinator may not know ``partition``.

    For ever where the view has it, as then it is the coordinator that lags behind. A request by
    name is not repeated for long: a topic that is recreated would take the offset.

    Args:
        partition: The partition.
        view: The current view of the cluster.
        topic_id: Of the topic that the offset was read from, empty where brokers have no ids; None
            for an offset that was not read here.
        by_name: The request named the topic.
    """
    if was_recreated(partition, topic_id, view):
        return 0.0
    count = view.partition_count(partition.topic)
    if by_name and (topic_id is not None or count is not None):
        return MISSING_PARTITION_GRACE
    if count is None:
        return UNKNOWN_TOPIC_GRACE
    return MISSING_PARTITION_GRACE if partition.partition >= count else math.inf


def combined_error(errors: Mapping[TopicPartition, KafkaError], group_id: str) -> KafkaError:
    """Combine the errors of a commit that failed for these partitions into one.

    It is that of the first partition, naming all with the same kind; others are in its notes.
    """
    kinds: dict[type[KafkaError], list[TopicPartition]] = {}
    for partition, error in errors.items():
        kinds.setdefault(type(error), []).append(partition)
    (kind, partitions), *others = kinds.items()
    error = errors[partitions[0]]
    if issubclass(kind, BrokerError):
        doing = f"commit of {some_of(partitions, SHOWN)} by group {group_id}"
        about = partitions[0] if len(partitions) == 1 else None
        hint = _UNKNOWN_HINT if is_unknown(error) else None
        node_id = error.node_id
        error = broker_error(kind.code, doing, topic_partition=about, node_id=node_id, hint=hint)
    for other, some in others:
        error.add_note(f"{some_of(some, SHOWN)}: {other.__name__}: {errors[some[0]]}")
    return error

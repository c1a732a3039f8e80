"""Which logs a broker has: what the handlers of DescribeLogDirs and DeleteRecords look up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from kclient.error_codes import ErrorCode
from kclient.testing.log import PartitionLog
from kclient.testing.refused import Refused
from kclient.testing.topic_configs import TopicConfig

if TYPE_CHECKING:
    from kclient.testing.call import Call


class LocalLog(NamedTuple):
    """A partition's log on one broker."""

    topic: str
    partition: int
    log: PartitionLog
    config: TopicConfig


def local_logs(call: Call) -> Iterator[LocalLog]:
    """All logs of the broker that was asked."""
    for one in call.state.partitions():
        if call.node_id in one.replicas:
            yield LocalLog(one.topic, one.index, one.log, one.config)


def leading_log(call: Call, topic: str, index: int) -> LocalLog:
    """The log of a partition that the broker leads.

    Raises:
        Refused: UNKNOWN_TOPIC_OR_PARTITION, or NOT_LEADER_OR_FOLLOWER.
    """
    found = call.state.partition(topic, index)
    if found is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if found.leader != call.node_id:
        raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return LocalLog(topic, index, found.log, found.config)

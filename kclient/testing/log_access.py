"""Which logs a broker has: what the handlers of DescribeLogDirs and DeleteRecords look up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kclient.protocol.primitives import ZERO_UUID
from kclient.testing.replica import Replica

if TYPE_CHECKING:
    from kclient.testing.call import Call


def local_replicas(call: Call) -> Iterator[Replica]:
    """All that the broker that was asked has."""
    for replica in call.broker.replicas:
        call.broker.hosted.tidy(replica)
        yield replica


def leading_replica(call: Call, topic: str, index: int) -> Replica:
    """That of a partition which the broker leads.

    Raises:
        Refused: UNKNOWN_TOPIC_OR_PARTITION, or NOT_LEADER_OR_FOLLOWER.
    """
    return call.replica(call.topic(topic, ZERO_UUID, False), index, leader_only=True)

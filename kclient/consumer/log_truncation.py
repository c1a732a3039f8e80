"""Log truncation: detected by OffsetForLeaderEpoch after a change of leader (KIP-320).

Sent by ``positions`` through ``cluster.fanout``; sans-IO. The leader's response has the offset
where the epoch that we read under ends in its log. An end before our position means that the log
was cut there, by an unclean election.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kclient.errors import KafkaError, LogTruncated, NoCommonVersion, ProtocolError, broker_error
from kclient.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kclient.types import TopicPartition

if TYPE_CHECKING:
    from kclient.cluster.calls import Calls
    from kclient.cluster.view import Cluster
    from kclient.consumer.partition_state import PartitionState
    from kclient.protocol.message import Request

FIRST_FOR_CONSUMERS: Final = 3
"""Earlier versions need the permission of a broker (KIP-320)."""
UNDEFINED: Final = -1


class EpochEnd(NamedTuple):
    """Where an epoch ends in the leader's log; -1 where the leader doesn't know it.

    A leader of a later epoch that lost ours reports where its own begins; -1 comes from logs that
    keep no epochs. So it is no data loss, where Java resets the position: a log that is too short
    for the position is out of range at the next fetch.
    """

    leader_epoch: int
    end_offset: int

    def cuts(self, position: int) -> bool:
        """Whether the leader's log diverges from ours before ``position``."""
        known = self.leader_epoch != UNDEFINED and self.end_offset != UNDEFINED
        return known and self.end_offset < position

    def truncation_error(self, partition: TopicPartition, position: int) -> LogTruncated:
        """The error for poll where the log was cut before ``position``, without a reset policy."""
        return LogTruncated(
            f"the log of {partition} was cut at offset {self.end_offset} by an unclean "
            f"election: records up to {position} that were read are no longer in it",
            offset=self.end_offset,
            topic_partition=partition,
            hint=f"seek to {self.end_offset}, or set auto_offset_reset",
        )


def standing_of(state: PartitionState) -> tuple[int, int, int]:
    """What a validation depends on; its response is void where this has changed meanwhile."""
    return state.position_version, state.position_epoch, state.leader_epoch


class EpochQuery:
    """Looks up where each partition's epoch ends.

    Args:
        epochs: Per partition the epoch of the last record read.
    """

    what = "OffsetForLeaderEpoch"
    api: type[Request] = OffsetForLeaderEpochRequest

    def __init__(self, epochs: Mapping[TopicPartition, int]) -> None:
        self._epochs = epochs

    def node_for(self, key: TopicPartition, calls: Calls) -> tuple[int, Hashable]:
        """Route the partition to its leader."""
        return calls.leader_of(key), None

    def build(
        self, keys: Sequence[TopicPartition], version: int, view: Cluster, seconds: float
    ) -> OffsetForLeaderEpochRequest:
        """Build the request to the leader of ``keys``."""
        if version < FIRST_FOR_CONSUMERS:
            raise NoCommonVersion(
                f"OffsetForLeaderEpoch version {version} is for brokers only",
                hint="it needs Apache Kafka 2.3 or newer",
            )
        by_topic: dict[str, list[OffsetForLeaderPartition]] = {}
        for key in keys:
            by_topic.setdefault(key.topic, []).append(
                OffsetForLeaderPartition(
                    partition=key.partition,
                    current_leader_epoch=view.leader_epoch(key.topic, key.partition),
                    leader_epoch=self._epochs[key],
                )
            )
        topics = [OffsetForLeaderTopic(topic=t, partitions=p) for t, p in by_topic.items()]
        return OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)

    def read(
        self, response: OffsetForLeaderEpochResponse, keys: Sequence[TopicPartition]
    ) -> dict[TopicPartition, EpochEnd | KafkaError]:
        """Read the end of each partition's epoch."""
        found: dict[TopicPartition, EpochEnd | KafkaError] = {}
        for topic in response.topics:
            for result in topic.partitions:
                key = TopicPartition(topic.topic, result.partition)
                if result.error_code:
                    doing = f"OffsetForLeaderEpoch of {key} failed"
                    found[key] = broker_error(result.error_code, doing, topic_partition=key)
                elif result.end_offset < UNDEFINED:
                    found[key] = ProtocolError(
                        f"OffsetForLeaderEpoch answered offset {result.end_offset} for {key}",
                        struct="EpochEndOffset",
                        field="end_offset",
                        topic_partition=key,
                    )
                else:
                    found[key] = EpochEnd(result.leader_epoch, result.end_offset)
        return found

    def is_final(self, error: KafkaError) -> bool:
        """No error is final."""
        return False

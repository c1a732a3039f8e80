"""One OffsetFetch: the request in any version, what its answer says of each partition. Sans-IO.

Made by ``offsets`` for each attempt. A partition whose offset isn't told has an error, never a
default: a consumer must not start from nowhere.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from kclient.errors import KafkaError, NoCommonVersion, ProtocolError, broker_error
from kclient.group.topic_ids import LAST_BY_NAME, TopicIds, by_topic
from kclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kclient.cluster.view import Cluster

_FIRST_IN_KAFKA: Final = 1
_FIRST_STABLE: Final = 7
"""Older brokers can't be asked to wait for open transactions (KIP-447)."""
_FIRST_OF_GROUPS: Final = 8


class OffsetFetch:
    """A question for the committed offsets of some partitions.

    Args:
        group_id: Of the group.
        partitions: About which.
        view: Where the ids of topics are looked up.
        require_stable: Offsets that a transaction is about to change are an error, which is
            retriable. Brokers before 2.5 tell the old ones all the same.

    Attributes:
        max_version: Highest version that can be built; None for no limit.
    """

    __slots__ = ("_group_id", "_ids", "_partitions", "_require_stable", "max_version")

    def __init__(
        self,
        group_id: str,
        partitions: Collection[TopicPartition],
        view: Cluster,
        *,
        require_stable: bool,
    ) -> None:
        self._group_id = group_id
        self._partitions = partitions
        self._require_stable = require_stable
        self._ids = TopicIds(view, {partition.topic for partition in partitions})
        self.max_version = None if self._ids.complete else LAST_BY_NAME

    def build(self, version: int) -> OffsetFetchRequest:
        """The request for ``version``.

        Raises:
            NoCommonVersion: The version doesn't know of offsets in Kafka, or is over
                ``max_version``.
        """
        self._ids.check(version)
        if version < _FIRST_IN_KAFKA:
            raise NoCommonVersion(
                "OffsetFetch version 0 reads offsets from ZooKeeper",
                hint="it needs Apache Kafka 0.9 or newer",
            )
        request = OffsetFetchRequest(
            require_stable=self._require_stable and version >= _FIRST_STABLE
        )
        topics = by_topic(self._partitions).items()
        if version < _FIRST_OF_GROUPS:
            request.group_id = self._group_id
            request.topics = [
                OffsetFetchRequestTopic(name=name, partition_indexes=[p.partition for p in some])
                for name, some in topics
            ]
            return request
        wanted = []
        for name, some in topics:
            topic = OffsetFetchRequestTopics(partition_indexes=[p.partition for p in some])
            if version > LAST_BY_NAME:
                topic.topic_id = self._ids.id_of(name)
            else:
                topic.name = name
            wanted.append(topic)
        request.groups = [OffsetFetchRequestGroup(group_id=self._group_id, topics=wanted)]
        return request

    def read(
        self, response: OffsetFetchResponse
    ) -> dict[TopicPartition, OffsetAndMetadata | KafkaError | None]:
        """What is committed for each partition: None for nothing, or why that isn't told."""
        code, topics = self._ours(response)
        if code:
            doing = f"OffsetFetch of group {self._group_id} failed"
            return {key: broker_error(code, doing, topic_partition=key) for key in self._partitions}
        found: dict[TopicPartition, OffsetAndMetadata | KafkaError | None] = {}
        for topic in topics:
            if isinstance(topic, OffsetFetchResponseTopics):
                name = self._ids.name_of(topic.name, topic.topic_id)
            else:
                name = topic.name
            for said in topic.partitions:
                key = TopicPartition(name, said.partition_index)
                found[key] = self._committed(key, said)
        return {key: found[key] if key in found else _left_out(key) for key in self._partitions}

    def _ours(
        self, response: OffsetFetchResponse
    ) -> tuple[int, Sequence[OffsetFetchResponseTopic | OffsetFetchResponseTopics]]:
        for group in response.groups:
            if group.group_id == self._group_id:
                return group.error_code, group.topics
        return response.error_code, response.topics

    def _committed(
        self,
        key: TopicPartition,
        said: OffsetFetchResponsePartition | OffsetFetchResponsePartitions,
    ) -> OffsetAndMetadata | KafkaError | None:
        if said.error_code:
            doing = f"OffsetFetch of {key} in group {self._group_id} failed"
            return broker_error(said.error_code, doing, topic_partition=key)
        if said.committed_offset < 0:  # brokers take any number, and -1 stands for nothing
            return None
        epoch = said.committed_leader_epoch
        return OffsetAndMetadata(
            said.committed_offset, epoch if epoch >= 0 else None, said.metadata or ""
        )


def _left_out(key: TopicPartition) -> ProtocolError:
    return ProtocolError(
        f"the answer of OffsetFetch leaves out {key}",
        struct="OffsetFetchResponse",
        field="topics",
        topic_partition=key,
    )

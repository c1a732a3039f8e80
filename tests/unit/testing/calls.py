"""Short builders of the verbose request messages."""

from __future__ import annotations

from kclient.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from kclient.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kclient.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kclient.protocol.primitives import ZERO_UUID

MIB = 1 << 20


def produce(
    topic: str | bytes, records: bytes | None, *, partition: int = 0, acks: int = -1
) -> ProduceRequest:
    """One batch to one partition; the topic by name, or by id as bytes (v13 on)."""
    data = TopicProduceData(partition_data=[PartitionProduceData(partition, records)])
    if isinstance(topic, bytes):
        data.topic_id = topic
    else:
        data.name = topic
    return ProduceRequest(None, acks, 5000, [data])


def fetch(
    topic: str | bytes | None,
    *partitions: int,
    offset: int = 0,
    session: tuple[int, int] = (0, -1),
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = MIB,
    partition_max_bytes: int = MIB,
    leader_epoch: int = -1,
    last_epoch: int = -1,
    isolation: int = 0,
    forget: tuple[int, ...] = (),
) -> FetchRequest:
    """Fetch partitions of one topic, by name or id; without a topic, what the session has."""
    name, topic_id = (topic or "", ZERO_UUID) if not isinstance(topic, bytes) else ("", topic)
    wanted = [
        FetchPartition(one, leader_epoch, offset, last_epoch, -1, partition_max_bytes)
        for one in partitions
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(name, topic_id, wanted)] if wanted else [],
        forgotten_topics_data=[ForgottenTopic(name, topic_id, list(forget))] if forget else [],
    )


def list_offsets(
    topic: str, timestamp: int, *, partition: int = 0, leader_epoch: int = -1, isolation: int = 0
) -> ListOffsetsRequest:
    """Look up an offset in one partition."""
    wanted = ListOffsetsPartition(partition, leader_epoch, timestamp)
    return ListOffsetsRequest(-1, isolation, [ListOffsetsTopic(topic, [wanted])])

"""Builders of decoded Metadata responses for the cluster tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kclient.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

A = b"A" * 16
B = b"B" * 16
NO_ID = bytes(16)


def topic(
    name: str,
    partitions: Mapping[int, tuple[int, int]] | Sequence[tuple[int, int]] = (),
    *,
    topic_id: bytes = NO_ID,
    error: int = 0,
) -> MetadataResponseTopic:
    """Return a topic whose partitions are (leader, epoch) pairs, by index or in order."""
    items = partitions.items() if isinstance(partitions, Mapping) else enumerate(partitions)
    return MetadataResponseTopic(
        name=name,
        topic_id=topic_id,
        error_code=error,
        partitions=[
            MetadataResponsePartition(
                partition_index=index,
                leader_id=leader,
                leader_epoch=epoch,
                replica_nodes=[1, 2],
                isr_nodes=[1, 2],
                offline_replicas=[],
            )
            for index, (leader, epoch) in items
        ],
    )


def answer(
    *topics: MetadataResponseTopic,
    brokers: Sequence[int] = (1, 2),
    cluster_id: str | None = "c",
    controller_id: int = 1,
    error: int = 0,
) -> MetadataResponse:
    """Return a complete response; broker N listens at host bN, port 9000 + N."""
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=n, host=f"b{n}", port=9000 + n, rack=None)
            for n in brokers
        ],
        cluster_id=cluster_id,
        controller_id=controller_id,
        topics=list(topics),
        error_code=error,
    )

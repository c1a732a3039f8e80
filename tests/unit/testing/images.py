"""Metadata images for unit tests, without brokers behind them."""

from __future__ import annotations

from kclient.testing.broker_configs import BrokerConfig
from kclient.testing.image import (
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)


def cluster(
    brokers: int = 3, racks: tuple[str | None, ...] = (), down: tuple[int, ...] = ()
) -> MetadataImage:
    """Return an image of brokers without topics, all alive but for those in ``down``."""
    image = MetadataImage("cluster", BrokerConfig({}))
    for node_id in range(1, brokers + 1):
        rack = racks[node_id - 1] if racks else None
        facts = BrokerRegistration(node_id, "127.0.0.1", rack, 9092, node_id not in down, node_id)
        image = image.with_broker(facts)
    return image


def add(image: MetadataImage, name: str, *assignments: list[int]) -> MetadataImage:
    """Add a topic; first replicas lead, and all replicas are in sync."""
    partitions = tuple(
        PartitionRegistration(name, index, tuple(replicas), tuple(replicas), replicas[0])
        for index, replicas in enumerate(assignments)
    )
    topic_id = name.encode().ljust(16, b"\x01")
    return image.with_topics(TopicImage(name, topic_id, image.topic_config({}), partitions))

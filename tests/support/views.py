"""Views of a cluster made by hand: topics out of partitions, and views with something changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from kclient.cluster.topic import NO_NODE, NO_TOPIC_ID, Partition, Topic, Topics, pack_row
from kclient.cluster.view import Broker, Cluster


def topic_of(
    name: str,
    partitions: Iterable[Partition] = (),
    *,
    topic_id: bytes = NO_TOPIC_ID,
    is_internal: bool = False,
    error: int = 0,
) -> Topic:
    """A topic with these partitions, which are numbered from 0 without holes, in any order."""
    listed = sorted(partitions, key=lambda partition: partition.index)
    assert [partition.index for partition in listed] == list(range(len(listed)))
    return Topic.of_columns(
        name,
        topic_id,
        is_internal,
        error,
        [NO_NODE if p.leader is None else p.leader for p in listed],
        [p.leader_epoch for p in listed],
        [pack_row(p.replicas, p.isr, p.offline_replicas) for p in listed],
        {p.index: p.error for p in listed if p.error},
    )


def view_of(
    brokers: Iterable[Broker] = (),
    topics: Iterable[Topic] = (),
    *,
    version: int = 0,
    cluster_id: str | None = None,
    controller_id: int | None = None,
) -> Cluster:
    """A view out of lists of values."""
    by_id = MappingProxyType({broker.node_id: broker for broker in brokers})
    by_name = Topics({topic.name: topic.facts for topic in topics})
    return Cluster(version, cluster_id, controller_id, by_id, by_name)


def with_topic(view: Cluster, topic: Topic) -> Cluster:
    """The next view, with ``topic`` added, or in place of the one of the same name."""
    topics = Topics({**view.topics.raw, topic.name: topic.facts})
    return replace(view, version=view.version + 1, topics=topics)


def without_topic(view: Cluster, name: str) -> Cluster:
    """The next view, without that topic, if it was there."""
    topics = Topics({n: facts for n, facts in view.topics.raw.items() if n != name})
    return replace(view, version=view.version + 1, topics=topics)


def with_partition(view: Cluster, partition: Partition) -> Cluster:
    """The next view, with one partition replaced, or added as its topic's last."""
    topic = view.topic(partition.topic)
    if topic is None:
        return with_topic(view, topic_of(partition.topic, [partition]))
    others = [other for other in topic.partitions if other.index != partition.index]
    changed = topic_of(
        topic.name,
        [*others, partition],
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        error=topic.error,
    )
    return with_topic(view, changed)


def with_brokers(view: Cluster, brokers: Mapping[int, Broker]) -> Cluster:
    """The next view, with these brokers."""
    return replace(view, version=view.version + 1, brokers=MappingProxyType(brokers))

"""Which topics and partitions a request names: for faults that are for some of them.

``Call.entries`` asks. It goes by the names of fields, which Kafka's messages nearly share, so an
API that is served anew needs nothing here as long as its fields are called as those of the others;
only one that names whole topics says so. ``fault_arguments`` asks whether there can be any at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from kclient.protocol.message import Request, Struct

Entry: TypeAlias = tuple[str | None, int | None]
TopicName: TypeAlias = Callable[[str | None, bytes], str | None]
"""The name where a request gives name or id."""

_LISTS = ("topics", "topic_data", "topic_partitions")
_NAMES = ("topic", "name")
_PARTITIONS = ("partitions", "partition_data", "partition_indexes")
_INDEXES = ("index", "partition", "partition_index")
_TOPIC = 2
"""The type of a resource of configurations."""
_WHOLE_TOPICS = frozenset((3, 19, 20, 32, 33, 37, 44, 75))
"""APIs that name no partitions, only topics."""


def names_topics(request_class: type[Request]) -> bool:
    """Whether requests of a kind name topics at all."""
    return bool(_present(request_class, (*_LISTS, "topic_names", "resources")))


def names_partitions(request_class: type[Request]) -> bool:
    """Whether requests of a kind name partitions of topics."""
    return names_topics(request_class) and request_class.API_KEY not in _WHOLE_TOPICS


def named_entries(request: Any, topic_name: TopicName) -> Iterator[Entry]:
    """(topic, partition) of what is named; None for the partition where the API has none."""
    for name in _present(request, _LISTS):
        for topic in getattr(request, name) or ():
            yield from _of_topic(topic, topic_name)
    slots = request.__slots__
    if "topic_names" in slots:  # DeleteTopics
        yield from ((name, None) for name in request.topic_names)
    if "resources" in slots:  # configurations
        for one in request.resources:
            if one.resource_type == _TOPIC:
                yield one.resource_name, None
    if "groups" in slots:  # OffsetFetch; those of DescribeGroups are names
        for group in request.groups:
            if isinstance(group, Struct):
                yield from named_entries(group, topic_name)


def _of_topic(topic: Any, topic_name: TopicName) -> Iterator[Entry]:
    slots = topic.__slots__
    names = _present(topic, _NAMES)
    name = getattr(topic, names[0]) if names else None  # ConsumerGroupHeartbeat has ids alone
    if "topic_id" in slots:
        name = topic_name(name, topic.topic_id)
    lists = _present(topic, _PARTITIONS)
    if not lists:
        yield name, None
    for part in (part for field in lists for part in getattr(topic, field) or ()):
        yield name, part if isinstance(part, int) else getattr(part, _present(part, _INDEXES)[0])


def _present(struct: Any, names: Iterable[str]) -> list[str]:
    slots = struct.__slots__
    return [name for name in names if name in slots]

"""Checks of Admin's arguments, so that a bad one fails at once and by name. Sans-IO."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from kclient.admin.topics import MAX_PARTITIONS, NewTopic, TopicRef, check_assignments
from kclient.errors import InvalidArgument
from kclient.types import (
    IsolationLevel,
    OffsetAndMetadata,
    OffsetSpec,
    TopicPartition,
    check_topic_name,
    checked_commit,
    checked_partition,
)

TOPIC_ID_BYTES = 16
MAX_PARTITION = 2**31 - 1
MAX_TIME = 2**63 - 1
"""The latest time, in milliseconds since the epoch, that the protocol can express."""

T = TypeVar("T")

When = OffsetSpec | int | datetime.datetime
"""What offset to look up: a spec, int milliseconds since the epoch, or an aware datetime."""


def new_topics(topics: Iterable[NewTopic]) -> dict[str, NewTopic]:
    """Index the new topics by name, each once."""
    if isinstance(topics, NewTopic | str | bytes):
        raise InvalidArgument("topics must be an iterable of NewTopic, such as [NewTopic('a')]")
    by_name: dict[str, NewTopic] = {}
    for topic in each("topics", topics):
        if not isinstance(topic, NewTopic):
            raise InvalidArgument(f"topics holds {topic!r}: allowed is NewTopic")
        if topic.name in by_name:
            raise InvalidArgument(f"topics holds {topic.name!r} twice")
        by_name[topic.name] = topic
    return by_name


def each(name: str, values: Iterable[T]) -> Iterable[T]:
    """Check that ``values`` can be iterated over, and is no text."""
    if isinstance(values, str | bytes):
        raise InvalidArgument(f"{name}={values!r}: allowed is an iterable, such as a list")
    try:
        return iter(values)
    except TypeError:
        raise InvalidArgument(f"{name} must be an iterable, not {type(values).__name__}") from None


def check_flag(name: str, value: bool) -> None:
    """Refuse a value that is neither True nor False."""
    if not isinstance(value, bool):
        raise InvalidArgument(f"{name}={value!r}: allowed are True and False")


def check_isolation(value: IsolationLevel) -> None:
    """Refuse a value that is no IsolationLevel."""
    if not isinstance(value, IsolationLevel):
        raise InvalidArgument(f"isolation={value!r}: allowed is a kclient.IsolationLevel")


def topic_refs(topics: Iterable[TopicRef]) -> list[TopicRef]:
    """Check names and ids, and keep each once."""
    if isinstance(topics, str | bytes):
        raise InvalidArgument(f"topics must be an iterable of names, such as [{topics!r}]")
    refs: dict[TopicRef, None] = {}
    for ref in each("topics", topics):
        if not isinstance(ref, bytes):
            check_topic_name(ref, "topics holds a name that")
        elif len(ref) != TOPIC_ID_BYTES or not any(ref):
            raise InvalidArgument(
                f"topics holds {ref!r}: a topic id has {TOPIC_ID_BYTES} bytes, not all of them 0"
            )
        refs[ref] = None
    return list(refs)


def totals(
    counts: Mapping[str, int], assignments: Mapping[str, Sequence[Sequence[int]]] | None
) -> tuple[dict[str, int], dict[str, tuple[tuple[int, ...], ...]]]:
    """Check the arguments of ``create_partitions``."""
    if not isinstance(counts, Mapping):
        raise InvalidArgument("totals must be a mapping of topic name to number of partitions")
    for name, count in counts.items():
        check_topic_name(name, "totals has a name that")
        whole = isinstance(count, int) and not isinstance(count, bool)
        if not whole or not 1 <= count <= MAX_PARTITIONS:
            raise InvalidArgument(f"totals[{name!r}]={count!r}: allowed is an int from 1")
    if assignments is not None and not isinstance(assignments, Mapping):
        raise InvalidArgument("assignments must be a mapping of topic name to lists of node ids")
    for name in assignments or {}:
        if name not in counts:
            raise InvalidArgument(f"assignments names topic {name!r}, which totals does not")
    checked = {
        name: check_assignments(f"assignments[{name!r}]", given)
        for name, given in (assignments or {}).items()
    }
    return dict(counts), checked


def offset_specs(
    specs: Mapping[TopicPartition, When],
) -> dict[TopicPartition, OffsetSpec | int]:
    """Check the argument of ``list_offsets``; datetimes become milliseconds."""
    if not isinstance(specs, Mapping):
        raise InvalidArgument("specs must be a mapping of TopicPartition to OffsetSpec or time")
    return {_partition(key): _when(key, when) for key, when in specs.items()}


def group_offsets(
    group: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Check the arguments of ``alter_consumer_group_offsets``."""
    if not isinstance(group, str) or not group:
        raise InvalidArgument(f"group={group!r}: allowed is a str that is not empty")
    if not isinstance(offsets, Mapping):
        raise InvalidArgument("offsets must be a mapping of TopicPartition to offset")
    return {checked_partition(key): checked_commit(value) for key, value in offsets.items()}


def _partition(key: object) -> TopicPartition:
    if not isinstance(key, tuple) or len(key) != 2:
        raise InvalidArgument(f"specs has the key {key!r}: allowed is TopicPartition")
    topic, partition = key
    check_topic_name(topic, "specs has a topic that")
    if isinstance(partition, bool) or not isinstance(partition, int) or partition < 0:
        raise InvalidArgument(f"specs has partition {partition!r}: allowed is an int from 0")
    if partition > MAX_PARTITION:
        raise InvalidArgument(f"specs has partition {partition}: {MAX_PARTITION} is the largest")
    return TopicPartition(topic, partition)


def _when(key: object, when: When) -> OffsetSpec | int:
    if not isinstance(when, datetime.datetime):
        if isinstance(when, int) and when > MAX_TIME:
            raise InvalidArgument(f"the time {when} asked of {key} is over {MAX_TIME}")
        return when  # the lookup checks the rest
    if when.tzinfo is None:
        raise InvalidArgument(f"the time {when!r} asked of {key} has no time zone")
    return int(when.timestamp() * 1000)

"""Checks of what users hand to a consumer's calls. Each returns the value or raises, naming it."""

from __future__ import annotations

import math
from collections.abc import Iterable

from kclient.errors import InvalidArgument, InvalidConfig
from kclient.types import TopicPartition, check_topic_name

_MAX_OFFSET = 2**63 - 1
_MAX_PARTITION = 2**31 - 1


def checked_partition(value: object) -> TopicPartition:
    """A (topic, partition) pair as a TopicPartition."""
    if not isinstance(value, tuple) or len(value) != 2:
        raise InvalidArgument(f"a TopicPartition is needed, not {value!r}")
    topic, partition = value
    check_topic_name(topic)
    if isinstance(partition, bool) or not isinstance(partition, int):
        raise InvalidArgument(f"partition must be an int, not {type(partition).__name__}")
    if not 0 <= partition <= _MAX_PARTITION:
        raise InvalidArgument(f"partition {partition} of {topic} can't be: they count from 0")
    return value if isinstance(value, TopicPartition) else TopicPartition(topic, partition)


def checked_partitions(values: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Several of them; a single one, or a str, is a mistake that would go a long way."""
    if isinstance(values, str | TopicPartition):
        raise InvalidArgument(f"an iterable of TopicPartition is needed, not {values!r}")
    return [checked_partition(value) for value in values]


def checked_topics(values: Iterable[object]) -> tuple[str, ...]:
    """Names of topics, each once."""
    for value in values:
        if isinstance(value, Iterable) and not isinstance(value, (str, bytes, bytearray)):
            raise InvalidArgument(
                f"topic must be a str, not {type(value).__name__}",
                hint="give each topic as an argument: `Consumer(bootstrap, *topics)`",
            )
    return tuple(dict.fromkeys(check_topic_name(value) for value in values))


def checked_offset(value: object) -> int:
    """An offset to read from."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(
            f"offset must be an int or an OffsetAndMetadata, not {type(value).__name__}"
        )
    if not 0 <= value <= _MAX_OFFSET:
        raise InvalidArgument(
            f"offset {value} can't be: they count from 0",
            hint="use seek_to_beginning() or seek_to_end() for the ends of the log",
        )
    return value


def checked_time(value: object) -> int:
    """A point in time to look up."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidArgument(
            f"a time must be int milliseconds since the epoch, of at least 0, not {value!r}"
        )
    return value


def checked_limit(value: object) -> int:
    """A number of records."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidArgument(f"max_records must be an int of at least 1, not {value!r}")
    return value


def checked_timeout(value: object) -> float:
    """Seconds; None stands for no limit."""
    if value is None:
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise InvalidArgument(f"timeout must be seconds of at least 0, or None, not {value!r}")
    return float(value)


def refuse_group(group: str | None) -> InvalidConfig:
    """The error of all that needs a group, which this release doesn't have."""
    wants = "commit() needs a group" if group is None else f"group={group!r} was given"
    return InvalidConfig(
        f"{wants}, and consumer groups are not in this release",
        hint="read with assign(), or by topic names without a group, and keep offsets yourself",
    )

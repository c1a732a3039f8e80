"""Checks of the arguments of a consumer's calls, and the values made of them. Sans-IO.

Each check returns the value or raises, naming it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kclient.consumer.offset_reset import AtTime
from kclient.errors import InvalidArgument, InvalidConfig, a_or_an
from kclient.frozen import Frozen, frozen
from kclient.types import (
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
    check_topic_name,
    checked_offset,
    checked_partition,
    timestamp_of,
)

if TYPE_CHECKING:
    from kclient.cluster.view import Cluster
    from kclient.consumer.rebalance_listener import RebalanceListener

_ENDS = "use seek_to_beginning() or seek_to_end() for the ends of the log"


def checked_partitions(values: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Several of them; refuses a single partition or a str, which are iterables by mistake."""
    if isinstance(values, str | TopicPartition):
        raise InvalidArgument(f"an iterable of TopicPartition is needed, not {values!r}")
    try:
        each = iter(values)
    except TypeError:
        raise InvalidArgument(f"an iterable of TopicPartition is needed, not {values!r}") from None
    return [checked_partition(value) for value in each]


def checked_topics(values: Iterable[object], call: str) -> tuple[str, ...]:
    """Names of topics, each once. ``call`` shows how they are given."""
    for value in values:
        if isinstance(value, re.Pattern):
            raise InvalidArgument(
                f"topic must be a str, not {type(value).__name__}",
                hint="give it as the pattern, without names: `pattern='orders-.*'`",
            )
        if isinstance(value, Iterable) and not isinstance(value, (str, bytes, bytearray)):
            raise InvalidArgument(
                f"topic must be a str, not {type(value).__name__}",
                hint=f"give each topic as an argument: `{call}`",
            )
    return tuple(
        dict.fromkeys(check_topic_name(value, hint=_belongs(value, call)) for value in values)
    )


def _belongs(value: object, call: str) -> str | None:
    """A hint where a str that is no topic name belongs; None if there is none."""
    if not isinstance(value, str):
        return None
    if not set(value).isdisjoint("^$*+?|()[]{}\\"):
        return f"a regular expression is given as `pattern={value!r}`"
    if "," in value:
        return "give each topic as an argument of its own"
    if ":" in value and "bootstrap" in call:
        return f"the address comes first: `{call}`"
    return None


def checked_target(value: object) -> AtTime | tuple[int, int]:
    """Where ``seek`` goes: a time, or an offset with the epoch of its leader, -1 if unknown."""
    if isinstance(value, OffsetAndMetadata | OffsetAndTimestamp):
        epoch = -1 if value.leader_epoch is None else value.leader_epoch
        return checked_offset(value.offset, _ENDS), epoch
    if isinstance(value, int) and not isinstance(value, bool):
        return checked_offset(value, _ENDS), -1
    if value is None:
        raise InvalidArgument(
            "None is no offset: committed() returns it where nothing is committed, "
            "offsets_for_times() where all records are older",
            hint="seek_to_end() goes behind them, as does seek() to the datetime itself",
        )
    import datetime  # not loaded by most programs

    if isinstance(value, datetime.datetime):
        return AtTime(value.isoformat(), timestamp_of(value))
    raise InvalidArgument(
        "offset must be an int, an OffsetAndMetadata, an OffsetAndTimestamp or a datetime, "
        f"not {a_or_an(type(value).__name__)}"
    )


def checked_time(value: object) -> int:
    """A point in time to look up, as int milliseconds since the epoch."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 2**63 - 1:
        return value
    import datetime  # not loaded by most programs

    if isinstance(value, datetime.datetime):
        return timestamp_of(value)
    hint = "seconds such as time.time() times 1000" if isinstance(value, float) else None
    raise InvalidArgument(
        "a time must be an aware datetime or int milliseconds since the epoch, of at least 0, "
        f"not {value!r}",
        hint=hint,
    )


def checked_times(times: object) -> dict[TopicPartition, int]:
    """Points in time to look up, by partition."""
    if not isinstance(times, Mapping):
        raise InvalidArgument(
            f"a mapping of TopicPartition to a time is needed, not {a_or_an(type(times).__name__)}",
            hint="one time for all: dict.fromkeys(partitions, when)",
        )
    return {checked_partition(key): checked_time(time) for key, time in times.items()}


def checked_limit(value: object) -> int:
    """A number of records."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        hint = f"seconds to wait are `timeout={value!r}`" if isinstance(value, float) else None
        raise InvalidArgument(f"max_records must be an int of at least 1, not {value!r}", hint=hint)
    return value


def refuse_group(what: str | None = None) -> InvalidConfig:
    """The error of calls that need a group, for a consumer without one. ``what`` was given."""
    given = "" if what is None else f"{what} was given, and "
    return InvalidConfig(
        f"{given}this consumer has no group",
        hint='make it with one, Consumer(bootstrap, "flights", group="audit"); without one, name '
        "topics there or assign() partitions",
    )


def checked_group(value: object) -> str:
    """The name of a group."""
    if not isinstance(value, str) or not value:
        raise InvalidConfig(f"group={value!r} can't be used: allowed is a str that is not empty")
    return value


def checked_sources(topics: tuple[str, ...], pattern: object) -> re.Pattern[str] | None:
    """The compiled pattern of topic names, if one was given; refuses names beside it."""
    if pattern is None:
        return None
    if topics:
        raise InvalidArgument(
            "names of topics and a pattern were given: give topics or a pattern, not both"
        )
    if isinstance(pattern, re.Pattern) and isinstance(pattern.pattern, str):
        return pattern
    if not isinstance(pattern, str) or not pattern:
        raise InvalidArgument(f"pattern={pattern!r} can't be used: allowed is a regular expression")
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidArgument(
            f"pattern={pattern!r} is no regular expression: {error}",
            hint="all topics that begin with 'orders' are 'orders.*'",
        ) from None


@frozen
class TopicFilter(Frozen):
    """What a consumer in a group subscribes to: topics by name, or those that match a pattern.

    The topics that match a pattern change with the cluster, so they are taken from each new view.

    Attributes:
        topics: Names; empty where there is a pattern.
        pattern: Matched against the whole name; None where there are names.
        internal: Whether the pattern also matches Kafka's own topics.
    """

    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    internal: bool = False

    def __bool__(self) -> bool:
        return bool(self.topics) or self.pattern is not None

    def topics_in(self, view: Cluster) -> tuple[str, ...]:
        """Names of the subscribed topics, sorted; those given by name also if unknown."""
        if self.pattern is None:
            return tuple(sorted(self.topics))
        return tuple(sorted(name for name in view.listed if self.means(name, view)))

    def means(self, topic: str, view: Cluster) -> bool:
        """Whether ``topic`` is subscribed to."""
        if self.pattern is None:
            return topic in self.topics
        matches = self.pattern.fullmatch(topic) is not None
        return matches and (self.internal or not view.is_internal(topic))


NOTHING = TopicFilter()
"""Nothing is subscribed to."""


@frozen
class GroupOptions(Frozen):
    """How a consumer joins its group.

    Attributes:
        group: The group.
        topic_filter: What is subscribed to from the start.
        listener: The callbacks of rebalances.
    """

    group: str
    topic_filter: TopicFilter
    listener: RebalanceListener

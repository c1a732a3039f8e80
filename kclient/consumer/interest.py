"""What a consumer in a group subscribes to: topics by name, or all whose name matches a pattern.

A value, sans-IO; ``wanted`` keeps the present one. Which topics a pattern means changes with
cluster, so it is asked anew with each view.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kclient.errors import InvalidArgument
from kclient.frozen import Frozen, frozen

if TYPE_CHECKING:
    from kclient.cluster.view import Cluster


@frozen
class Interest(Frozen):
    """Topics by name, or a pattern.

    Attributes:
        topics: Names; empty where there is a pattern.
        pattern: Matched against the whole name; None where there are names.
        internal: Whether the pattern also means Kafka's own topics.
    """

    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    internal: bool = False

    def __bool__(self) -> bool:
        return bool(self.topics) or self.pattern is not None

    def topics_in(self, view: Cluster) -> tuple[str, ...]:
        """Names of the topics that are meant, sorted; those given by name also if unknown."""
        if self.pattern is None:
            return tuple(sorted(self.topics))
        matches = self.pattern.fullmatch
        return tuple(
            sorted(
                name
                for name in view.listed
                if matches(name) and (self.internal or not view.is_internal(name))
            )
        )

    def means(self, topic: str, view: Cluster) -> bool:
        """Whether records of ``topic`` are wanted."""
        if self.pattern is None:
            return topic in self.topics
        return bool(self.pattern.fullmatch(topic)) and (
            self.internal or not view.is_internal(topic)
        )


NOTHING = Interest()
"""Nothing is subscribed to."""


def checked_sources(
    topics: tuple[str, ...], pattern: str | re.Pattern[str] | None
) -> re.Pattern[str] | None:
    """The pattern, if one was given, and then no names beside it."""
    if topics and pattern is not None:
        raise InvalidArgument("names of topics and a pattern were given: one of both is enough")
    return None if pattern is None else checked_pattern(pattern)


def checked_pattern(value: object) -> re.Pattern[str]:
    """A pattern of topic names, compiled."""
    if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
        return value
    if not isinstance(value, str) or not value:
        raise InvalidArgument(f"pattern={value!r} can't be used: allowed is a regular expression")
    try:
        return re.compile(value)
    except re.error as error:
        raise InvalidArgument(
            f"pattern={value!r} is no regular expression: {error}",
            hint="all topics that begin with 'orders' are 'orders.*'",
        ) from None

"""Checks of the arguments that tests pass to a ``Cluster``; an invalid one raises at once.

Called by ``cluster``, ``cluster_topics`` and ``broker``. It checks types, and what Kafka has no
rule for; ``topic_rules.py`` checks what a client could send.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard, TypeVar

from kclient.errors import InvalidArgument
from kclient.settings import nearest

T = TypeVar("T")
_MOST_REPLICAS = 3


def is_whole(value: object) -> TypeGuard[int]:
    """Whether it is an int and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is an int or a float, and not NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def whole(name: str, value: object, least: int | None = None) -> int:
    """``value`` if it is an int, of at least ``least``. Raises InvalidArgument."""
    if not is_whole(value) or (least is not None and value < least):
        allowed = "an int" if least is None else f"an int of at least {least}"
        raise InvalidArgument(f"{name}={value!r} must be {allowed}")
    return value


def seconds_of(name: str, value: object) -> float:
    """``value`` if it is a number of seconds. Raises InvalidArgument."""
    if not is_number(value) or value < 0:
        raise InvalidArgument(f"{name}={value!r} must be seconds, 0 or more")
    return value


def text(name: str, value: object) -> str:
    """``value`` if it is a str. Raises InvalidArgument."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{name}={value!r} must be a str")
    return value


def flag(name: str, value: object) -> bool:
    """``value`` if it is a bool. Raises InvalidArgument."""
    if not isinstance(value, bool):
        raise InvalidArgument(f"{name}={value!r} must be True or False")
    return value


def node_of(name: str, value: object, known: Iterable[int]) -> int:
    """``value`` if it is one of these node ids. Raises InvalidArgument."""
    ids = sorted(known)
    if not is_whole(value) or value not in ids:
        raise InvalidArgument(_no_node(name, value, ids))
    return value


def _no_node(name: str, value: object, ids: list[int]) -> str:
    named = ", ".join(str(one) for one in ids)
    return f"{name}={value!r} must be the node id of a broker: {named}"


class ByNodeId(dict[int, T]):
    """A value for each broker; the KeyError for an unknown node id names the known ones."""

    def __missing__(self, key: object) -> T:
        """Raise KeyError."""
        raise KeyError(_no_node("broker", key, sorted(self)))


def configs_of(name: str, value: object) -> dict[str, object]:
    """``value`` if it maps names to values; none for None. Raises InvalidArgument."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidArgument(
            f"{name}={value!r} must be a mapping by Kafka's names, "
            'such as {"cleanup.policy": "compact"}'
        )
    for key in value:
        text(f"a name in {name}", key)
    return dict(value)


def rack_of(name: str, value: object) -> str | None:
    """``value`` if it is the name of a rack, or None. Raises InvalidArgument."""
    if value is not None and (not isinstance(value, str) or not value):
        raise InvalidArgument(f"{name}={value!r} must be the name of a rack, or None")
    return value


def racks_of(value: object, brokers: int) -> list[str | None]:
    """The rack of each broker. Raises InvalidArgument."""
    if value is None:
        return [None] * brokers
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InvalidArgument(f"racks={value!r} must be a list, one for each broker")
    if len(value) != brokers:
        raise InvalidArgument(f"racks names {len(value)} racks for {brokers} brokers")
    return [rack_of(f"racks[{index}]", one) for index, one in enumerate(value)]


def assignments_of(value: object) -> list[tuple[int, list[int]]]:
    """The replicas of each partition; none for None. Raises InvalidArgument."""
    if value is None:
        return []
    found = _listed(value)
    replicas = [_listed(one) for one in found]
    if replicas and all(one and all(is_whole(node) for node in one) for one in replicas):
        return [
            (index, [node for node in one if is_whole(node)]) for index, one in enumerate(replicas)
        ]
    raise InvalidArgument(
        f"assignments={value!r} must be node ids of each partition's replicas, "
        "such as [[1, 2], [2, 3]]"
    )


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else ()


def did_you_mean(word: object, known: Iterable[str], form: str = "{!r}") -> str:
    """``: did you mean 'topic'?``, ignoring case; empty if no known word is close."""
    if not isinstance(word, str):
        return ""
    small = {one.lower(): one for one in known}
    near = nearest(word.lower(), small)
    return "" if near is None else f": did you mean {form.format(small[near])}?"


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """Counts for topics that are created without them.

    Attributes:
        partitions: Number of partitions.
        replication_factor: Replicas of each; None for 3, or all brokers if there are fewer.

    Raises:
        InvalidArgument: A count is not a positive int.
    """

    partitions: int = 1
    replication_factor: int | None = None

    def __post_init__(self) -> None:
        whole("partitions", self.partitions, 1)
        if self.replication_factor is not None:
            whole("replication_factor", self.replication_factor, 1)


def broker_configs_of(
    brokers: int, defaults: TopicDefaults | None, auto_create_topics: bool, configs: object
) -> dict[str, object]:
    """The configuration of all brokers, by Kafka's names."""
    if defaults is not None and not isinstance(defaults, TopicDefaults):
        raise InvalidArgument(f"topic_defaults={defaults!r} must be TopicDefaults")
    said = TopicDefaults() if defaults is None else defaults
    counts = {
        "num.partitions": said.partitions,
        "default.replication.factor": said.replication_factor or min(brokers, _MOST_REPLICAS),
    }
    return {
        **{name: count for name, count in counts.items() if count != 1},  # which is Kafka's default
        "auto.create.topics.enable": flag("auto_create_topics", auto_create_topics),
        **configs_of("broker_configs", configs),
    }

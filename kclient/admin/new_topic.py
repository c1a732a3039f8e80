"""What is said about a topic that is to be made, was made, or was deleted. Frozen values; sans-IO.

``NewTopic`` checks itself when made, so that a bad argument fails where it was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from kclient.errors import InvalidArgument
from kclient.types import check_topic_name

MAX_REPLICATION = 32_767
MAX_PARTITIONS = 2**31 - 1

ConfigValue = str | int | float | bool | None
"""A setting of a topic; None leaves the broker's default."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    Attributes:
        name: 1 to 249 characters out of letters, digits, ``.``, ``_`` and ``-``.
        partitions: How many; None takes the brokers' default (``num.partitions``).
        replication_factor: Copies of each; None takes the brokers' default.
        configs: Settings of the topic by Kafka's names, such as ``{"retention.ms": 60_000}``.
            Numbers and booleans are written as Kafka writes them; None leaves a default.
        assignments: Instead of the two numbers: for each partition the node ids of its replicas,
            the preferred leader first.

    Raises:
        InvalidArgument: The name can't be a topic's, a number is out of range, or ``assignments``
            contradicts the numbers.
    """

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, ConfigValue] = field(default_factory=dict)
    assignments: Sequence[Sequence[int]] | None = None

    def __post_init__(self) -> None:
        check_topic_name(self.name, "name")
        _check_count("partitions", self.partitions, MAX_PARTITIONS)
        _check_count("replication_factor", self.replication_factor, MAX_REPLICATION)
        configs = MappingProxyType(dict(_checked_configs(self.configs)))
        object.__setattr__(self, "configs", configs)
        if self.assignments is not None:
            self._check_assignments(self.assignments)

    def _check_assignments(self, given: Sequence[Sequence[int]]) -> None:
        assignments = check_assignments("assignments", given)
        object.__setattr__(self, "assignments", assignments)
        if self.partitions not in (None, len(assignments)):
            raise InvalidArgument(
                f"partitions={self.partitions} of topic {self.name}, but assignments has "
                f"{len(assignments)}: give one of them"
            )
        if self.replication_factor not in (None, len(assignments[0])):
            raise InvalidArgument(
                f"replication_factor={self.replication_factor} of topic {self.name}, but "
                f"assignments has {len(assignments[0])} replicas: give one of them"
            )

    def __reduce__(self) -> tuple[object, ...]:
        # A mapping proxy can't be pickled.
        return NewTopic, (
            self.name,
            self.partitions,
            self.replication_factor,
            dict(self.configs),
            self.assignments,
        )

    @property
    def needs_defaults(self) -> bool:
        """The brokers must choose a number, which they can from CreateTopics version 4 on."""
        missing = self.partitions is None or self.replication_factor is None
        return missing and self.assignments is None

    def with_defaults(self, partitions: int, replication_factor: int) -> NewTopic:
        """The same topic with these numbers where it leaves them open."""
        return replace(
            self,
            partitions=partitions if self.partitions is None else self.partitions,
            replication_factor=(
                replication_factor if self.replication_factor is None else self.replication_factor
            ),
        )


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was created, or with ``validate_only`` could be.

    Attributes:
        name: Its name.
        topic_id: Its id of 16 bytes; None where the brokers don't report it (before 2.8).
        partitions: How many it has; None where it wasn't given and brokers (before 2.4) don't say.
        replication_factor: Likewise.
        configs: All settings that it has, by name; empty where the brokers don't report them.
    """

    name: str
    topic_id: bytes | None = None
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """A topic that was deleted.

    Attributes:
        name: Its name; None where it was deleted by id and may not be named to this client.
        topic_id: Its id of 16 bytes; None where the brokers don't report it (before 2.8).
    """

    name: str | None
    topic_id: bytes | None = None


def check_assignments(argument: str, given: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Replicas per partition as tuples, or InvalidArgument that names ``argument``."""
    try:
        assignments = tuple(tuple(replicas) for replicas in given)
    except TypeError:
        raise InvalidArgument(f"{argument} must be a list of lists of node ids") from None
    if not assignments:
        raise InvalidArgument(f"{argument} is empty: give the node ids of at least one partition")
    for index, replicas in enumerate(assignments):
        if not all(_is_node_id(node) for node in replicas):
            raise InvalidArgument(
                f"{argument}[{index}]={list(replicas)!r}: node ids are ints from 0"
            )
        if not replicas or len(set(replicas)) != len(replicas):
            raise InvalidArgument(
                f"{argument}[{index}]={list(replicas)!r}: give at least one node id, each once"
            )
        if len(replicas) != len(assignments[0]):
            raise InvalidArgument(
                f"{argument}[{index}] has {len(replicas)} replicas and {argument}[0] "
                f"{len(assignments[0])}: all partitions must have equally many"
            )
    return assignments


def _is_node_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _check_count(argument: str, value: int | None, maximum: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= maximum:
        raise InvalidArgument(
            f"{argument}={value!r}: allowed is an int from 1 to {maximum:,}, or None for the "
            "brokers' default"
        )


def _checked_configs(configs: object) -> Iterable[tuple[str, str]]:
    if not isinstance(configs, Mapping):
        raise InvalidArgument(f"configs must be a mapping, not {type(configs).__name__}")
    for name, value in configs.items():
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"configs has the name {name!r}: names are str")
        if value is None:
            continue
        if isinstance(value, bool):
            yield name, "true" if value else "false"
        elif isinstance(value, str | int | float):
            yield name, str(value)
        else:
            raise InvalidArgument(
                f"configs[{name!r}]={value!r}: allowed are str, int, float, bool and None"
            )

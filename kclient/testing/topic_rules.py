"""How Kafka's controller checks topics that are to be created, grown or deleted.

Used by the topic handlers, by auto-creation in Metadata, and by ``Cluster.create_topic``, so that
a test can't make a topic that a client could not. Error texts are Kafka's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kclient.error_codes import ErrorCode
from kclient.testing.image import MetadataImage, TopicFacts
from kclient.testing.refused import Refused
from kclient.testing.topic_configs import TopicConfig

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_MAX_NAME = 249
METADATA_TOPIC = "__cluster_metadata"
MOST_PER_REQUEST = 10_000
"""Partitions that one request may create."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as asked for; -1 stands for the brokers' defaults.

    Attributes:
        name: Topic name.
        partitions: How many.
        replication_factor: Replicas of each.
        assignments: Replicas of each partition index, in place of the two counts.
        configs: Topic configurations.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckedTopic:
    """A topic that may be created."""

    name: str
    assignments: list[list[int]]
    config: TopicConfig


def check_name(name: str) -> None:
    """Raise Refused (INVALID_TOPIC_EXCEPTION) unless Kafka allows the name."""
    if not name:
        problem = "the empty string is not allowed"
    elif name in (".", ".."):
        problem = f"'{name}' is not allowed"
    elif len(name) > _MAX_NAME:
        problem = f"the length of '{name}' is longer than the max allowed length {_MAX_NAME}"
    elif not _LEGAL.fullmatch(name):
        problem = (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    else:
        return
    raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def check_total(partitions: int) -> None:
    """Raise Refused (POLICY_VIOLATION) where a request wants so many partitions, as KRaft does."""
    if partitions > MOST_PER_REQUEST:
        raise Refused(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )


def check_new_topic(
    image: MetadataImage, spec: TopicSpec, before: MetadataImage | None = None
) -> CheckedTopic:
    """Check a topic that is to be created, in Kafka's order.

    Args:
        image: The newest.
        spec: What is asked for.
        before: Of before the request: names collide only with those of it. The newest if None.

    Raises:
        Refused: With the code and text that Kafka answers.
    """
    if spec.name == METADATA_TOPIC:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited."
        )
    check_name(spec.name)
    _check_collision(image if before is None else before, spec.name)
    if spec.name in image.topics:
        raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{spec.name}' already exists.")
    nulls = [name for name, value in spec.configs.items() if value is None]
    if nulls:
        raise Refused(
            ErrorCode.INVALID_CONFIG,
            f"Null value not supported for topic configs: {','.join(nulls)}",
        )
    config = image.topic_config({k: v for k, v in spec.configs.items() if v is not None})
    if spec.assignments:
        return CheckedTopic(spec.name, _assigned(image, spec), config)
    return CheckedTopic(spec.name, _placed(image, spec), config)


def _check_collision(image: MetadataImage, name: str) -> None:
    if "." not in name and "_" not in name:
        return
    flat = name.replace(".", "_")
    for other in image.topics:
        if other != name and other.replace(".", "_") == flat:
            raise Refused(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {other}",
            )


def _placed(image: MetadataImage, spec: TopicSpec) -> list[list[int]]:
    factor = spec.replication_factor
    if factor < -1 or factor == 0:
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if spec.partitions < -1 or spec.partitions == 0:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    if factor == -1:
        factor = image.config.replication_factor
    count = image.config.partitions if spec.partitions == -1 else spec.partitions
    try:
        return image.place(count, factor)
    except Refused as refused:
        raise Refused(
            refused.code, f"Unable to replicate the partition {factor} time(s): {refused.message}"
        ) from refused


def _assigned(image: MetadataImage, spec: TopicSpec) -> list[list[int]]:
    for field_name, value in (
        ("replication factor", spec.replication_factor),
        ("numPartitions", spec.partitions),
    ):
        if value != -1:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {field_name} was not set to -1.",
            )
    found: dict[int, list[int]] = {}
    factor = None
    for index, replicas in spec.assignments:
        if index in found:
            raise _bad_assignment(
                f"Found multiple manual partition assignments for partition {index}"
            )
        check_assignment(image, replicas, factor)
        _check_alive(image, index, replicas)
        factor = len(replicas)
        found[index] = list(replicas)
    if sorted(found) != list(range(len(found))):
        raise _bad_assignment("partitions should be a consecutive 0-based integer sequence")
    return [found[index] for index in range(len(found))]


def check_growth(
    image: MetadataImage,
    topic: TopicFacts,
    count: int,
    assignments: Sequence[Sequence[int]] | None,
) -> list[list[int]]:
    """Replicas of the partitions that bring ``topic`` to ``count``.

    Raises:
        Refused: With the code and text that Kafka answers.
    """
    has = len(topic.partitions)
    if count == has:
        raise Refused(ErrorCode.INVALID_PARTITIONS, f"Topic already has {has} partition(s).")
    if count < has:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {has} partition(s); {count} would not be an "
            "increase.",
        )
    more = count - has
    factor = topic.replication_factor
    if assignments is None:
        return image.place(more, factor, first=has)
    if len(assignments) != more:
        raise _bad_assignment(
            f"Attempted to add {more} additional partition(s), but only {len(assignments)} "
            "assignment(s) were specified."
        )
    for step, replicas in enumerate(assignments):
        check_assignment(image, replicas, factor)
        _check_alive(image, has + step, replicas)
    return [list(replicas) for replicas in assignments]


def check_assignment(image: MetadataImage, replicas: Sequence[int], factor: int | None) -> None:
    """Raise Refused (INVALID_REPLICA_ASSIGNMENT) unless the replicas of a partition can be."""
    words = "The manual partition assignment includes"
    if not replicas:
        raise _bad_assignment(f"{words} an empty replica list.")
    previous = None
    for node_id in sorted(replicas):
        if node_id not in image.brokers:
            raise _bad_assignment(f"{words} broker {node_id}, but no such broker is registered.")
        if node_id == previous:
            raise _bad_assignment(f"{words} the broker {node_id} more than once.")
        previous = node_id
    if factor is not None and len(replicas) != factor:
        raise _bad_assignment(
            f"{words} a partition with {len(replicas)} replica(s), but this is not consistent with "
            f"previous partitions, which have {factor} replica(s)."
        )


def _check_alive(image: MetadataImage, index: int, replicas: Sequence[int]) -> None:
    if not any(image.brokers[one].alive for one in replicas):
        raise _bad_assignment(
            "All brokers specified in the manual partition assignment for partition "
            f"{index} are fenced or in controlled shutdown."
        )


def _bad_assignment(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)

"""How Kafka's controller checks topics that are to be created, grown or deleted.

Used by the topic handlers, by auto-creation in Metadata, and by ``Cluster.create_topic``, so that
a test can't make a topic that a client could not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kclient.error_codes import ErrorCode
from kclient.testing.image import MetadataImage, TopicImage
from kclient.testing.responses import ApiError, bad_config, bad_request
from kclient.testing.topic_configs import TopicConfig

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_MAX_NAME = 249
METADATA_TOPIC = "__cluster_metadata"
MOST_PER_REQUEST = 10_000
"""Maximum number of partitions that one request may create."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A requested topic; -1 stands for the brokers' defaults.

    Attributes:
        name: Topic name.
        partitions: Number of partitions.
        replication_factor: Replicas of each.
        assignments: Replicas of each partition index, instead of the two counts.
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
    """Raise ApiError (INVALID_TOPIC_EXCEPTION) unless Kafka allows the name."""
    if name in (".", "..") or len(name) > _MAX_NAME or not _LEGAL.fullmatch(name):
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"A topic can't be named {name!r}: it takes up to {_MAX_NAME} of a-z, A-Z, 0-9, '.', "
            "'_' and '-'.",
        )


def check_total(partitions: int) -> None:
    """Raise ApiError (POLICY_VIOLATION) if a request has too many partitions, as KRaft does."""
    if partitions > MOST_PER_REQUEST:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION, f"A request takes up to {MOST_PER_REQUEST} partitions."
        )


def check_new_topic(
    image: MetadataImage, spec: TopicSpec, before: MetadataImage | None = None
) -> CheckedTopic:
    """Check a topic that is to be created, in Kafka's order.

    Args:
        image: The newest image.
        spec: The requested topic.
        before: The image before the request, whose names are checked for collisions; the newest
            if None.

    Raises:
        ApiError: With Kafka's error code.
    """
    if spec.name == METADATA_TOPIC:
        raise bad_request(f"{METADATA_TOPIC} can't be created.")
    check_name(spec.name)
    _check_collision(image if before is None else before, spec.name)
    if spec.name in image.topics:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {spec.name!r} exists already.")
    given = {name: value for name, value in spec.configs.items() if value is not None}
    if len(given) < len(spec.configs):
        raise bad_config("A configuration can't be null.")
    config = image.topic_config(given)
    if spec.assignments:
        return CheckedTopic(spec.name, _assigned(image, spec), config)
    return CheckedTopic(spec.name, _placed(image, spec), config)


def _check_collision(image: MetadataImage, name: str) -> None:
    if "." not in name and "_" not in name:
        return
    flat = name.replace(".", "_")
    for other in image.topics:
        if other != name and other.replace(".", "_") == flat:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{name!r} collides with topic {other!r}.",
            )


def _placed(image: MetadataImage, spec: TopicSpec) -> list[list[int]]:
    factor = spec.replication_factor
    if factor < -1 or factor == 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "The replication factor must be -1 or above 0.",
        )
    if spec.partitions < -1 or spec.partitions == 0:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS, "The number of partitions must be -1 or above 0."
        )
    if factor == -1:
        factor = image.config.replication_factor
    count = image.config.partitions if spec.partitions == -1 else spec.partitions
    return image.place(count, factor)


def _assigned(image: MetadataImage, spec: TopicSpec) -> list[list[int]]:
    if spec.replication_factor != -1 or spec.partitions != -1:
        raise bad_request("Replicas that are assigned leave no choice of counts.")
    found: dict[int, list[int]] = {}
    factor = None
    for index, replicas in spec.assignments:
        if index in found:
            raise _bad_assignment(f"Partition {index} is assigned twice.")
        _check_assignment(image, replicas, factor)
        factor = len(replicas)
        found[index] = list(replicas)
    if sorted(found) != list(range(len(found))):
        raise _bad_assignment("Assigned partitions must be numbered from 0 on.")
    return [found[index] for index in range(len(found))]


def check_growth(
    image: MetadataImage,
    topic: TopicImage,
    count: int,
    assignments: Sequence[Sequence[int]] | None,
) -> list[list[int]]:
    """Replicas of the partitions that are added to ``topic`` to reach ``count``.

    Raises:
        ApiError: With Kafka's error code.
    """
    has = len(topic.partitions)
    if count <= has:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"{topic.name!r} has {has} partitions.")
    more = count - has
    factor = topic.replication_factor
    if assignments is None:
        return image.place(more, factor, first=has)
    if len(assignments) != more:
        raise _bad_assignment(f"{len(assignments)} of {more} new partitions are assigned.")
    for replicas in assignments:
        _check_assignment(image, replicas, factor)
    return [list(replicas) for replicas in assignments]


def _check_assignment(image: MetadataImage, replicas: Sequence[int], factor: int | None) -> None:
    if not replicas or len(set(replicas)) < len(replicas):
        raise _bad_assignment("A partition needs replicas on different brokers.")
    if not image.brokers.keys() >= set(replicas):
        raise _bad_assignment(f"Some of the brokers {list(replicas)} aren't there.")
    if factor is not None and len(replicas) != factor:
        raise _bad_assignment(f"Each partition must have {factor} replicas.")
    if not any(image.brokers[one].alive for one in replicas):
        raise _bad_assignment("All brokers of a partition are down.")


def _bad_assignment(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)

"""The controller's checks of new and growing topics, with Kafka's codes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kclient.error_codes import ErrorCode
from kclient.testing.image import MetadataImage
from kclient.testing.responses import ApiError
from kclient.testing.topic_rules import (
    TopicSpec,
    check_growth,
    check_name,
    check_new_topic,
    check_total,
)
from tests.unit.testing.images import add, cluster

INVALID_ASSIGNMENT = ErrorCode.INVALID_REPLICA_ASSIGNMENT


def refusal(image: MetadataImage, spec: TopicSpec) -> ApiError:
    with pytest.raises(ApiError) as caught:
        check_new_topic(image, spec)
    return caught.value


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 249, "..."])
def test_names_that_kafka_allows(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "ä", "a\n"])
def test_names_that_kafka_refuses(name: str) -> None:
    with pytest.raises(ApiError) as caught:
        check_name(name)
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_defaults_fill_in_for_minus_one() -> None:
    assert check_new_topic(cluster(), TopicSpec("n")).assignments == [[1]]


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (TopicSpec("n", 0), ErrorCode.INVALID_PARTITIONS),
        (TopicSpec("n", -2), ErrorCode.INVALID_PARTITIONS),
        (TopicSpec("n", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (TopicSpec("n", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (TopicSpec("n", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (TopicSpec("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (TopicSpec("t"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (TopicSpec("n", configs={"nope": "1"}), ErrorCode.INVALID_CONFIG),
        (TopicSpec("n", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
    ],
)
def test_topics_that_cannot_be(spec: TopicSpec, code: ErrorCode) -> None:
    image = add(cluster(), "t", [1])
    assert refusal(image, spec).code is code


@pytest.mark.parametrize(("old", "new"), [("a.b", "a_b"), ("a_b", "a.b"), ("a.b_c", "a_b.c")])
def test_names_that_differ_in_dots_and_underscores_only_collide(old: str, new: str) -> None:
    image = add(cluster(), old, [1])
    refused = refusal(image, TopicSpec(new))
    assert refused.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_assignments_are_taken_as_given() -> None:
    spec = TopicSpec("n", assignments=[(1, [3, 1]), (0, [2, 3])])
    assert check_new_topic(cluster(), spec).assignments == [[2, 3], [3, 1]]


@pytest.mark.parametrize(
    "assignments",
    [
        [(0, [])],
        [(0, [1, 1])],
        [(0, [9])],
        [(0, [1]), (0, [2])],
        [(1, [1])],
        [(0, [1]), (1, [1, 2])],
    ],
)
def test_assignments_that_cannot_be(assignments: Sequence[tuple[int, Sequence[int]]]) -> None:
    refused = refusal(cluster(), TopicSpec("n", assignments=assignments))
    assert refused.code is INVALID_ASSIGNMENT


def test_an_assignment_to_brokers_that_are_down_is_refused() -> None:
    image = cluster(down=(3,))
    refused = refusal(image, TopicSpec("n", assignments=[(0, [3])]))
    assert refused.code is INVALID_ASSIGNMENT


@pytest.mark.parametrize("counts", [(1, -1), (-1, 1)])
def test_assignments_and_counts_exclude_each_other(counts: tuple[int, int]) -> None:
    refused = refusal(cluster(), TopicSpec("n", *counts, [(0, [1])]))
    assert refused.code is ErrorCode.INVALID_REQUEST


def grow(count: int, assignments: list[list[int]] | None = None) -> list[list[int]]:
    image = add(cluster(), "t", [1, 2], [2, 3])
    return check_growth(image, image.topics["t"], count, assignments)


def test_growth_is_placed_on() -> None:
    assert grow(4) == [[3, 1], [1, 2]]


def test_growth_takes_assignments() -> None:
    assert grow(3, [[3, 2]]) == [[3, 2]]


@pytest.mark.parametrize(
    ("count", "assignments", "code"),
    [
        (2, None, ErrorCode.INVALID_PARTITIONS),
        (1, None, ErrorCode.INVALID_PARTITIONS),
        (4, [[1, 2]], INVALID_ASSIGNMENT),
        (3, [[1]], INVALID_ASSIGNMENT),
        (3, [[1, 9]], INVALID_ASSIGNMENT),
    ],
)
def test_growth_that_cannot_be(
    count: int, assignments: list[list[int]] | None, code: ErrorCode
) -> None:
    with pytest.raises(ApiError) as caught:
        grow(count, assignments)
    assert caught.value.code is code


def test_one_request_is_for_so_many_partitions_at_most() -> None:
    check_total(10_000)
    with pytest.raises(ApiError) as caught:
        check_total(10_001)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION

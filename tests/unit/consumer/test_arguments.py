"""What users may hand to a consumer's calls, and what they are told otherwise."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kclient.consumer.arguments import (
    checked_group,
    checked_limit,
    checked_offset,
    checked_partition,
    checked_partitions,
    checked_time,
    checked_timeout,
    refuse_group,
)
from kclient.errors import InvalidArgument, InvalidConfig
from kclient.types import TopicPartition

P = TopicPartition("t", 0)


def test_a_plain_pair_is_a_partition() -> None:
    assert checked_partition(("t", 0)) == P
    assert isinstance(checked_partition(("t", 0)), TopicPartition)
    assert checked_partition(P) is P


@pytest.mark.parametrize(
    "value", ["t", ("t",), ("t", "0"), ("t", True), ("t", -1), ("t", 2**31), ("a b", 0), None, 5]
)
def test_no_partition(value: Any) -> None:
    with pytest.raises(InvalidArgument):
        checked_partition(value)


@pytest.mark.parametrize("value", ["t", P])
def test_one_partition_is_not_several(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="an iterable of TopicPartition"):
        checked_partitions(value)


@pytest.mark.parametrize("value", [-1, -2, 2**63, 1.0, "5", True, None])
def test_no_offset(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="offset"):
        checked_offset(value)


def test_offsets() -> None:
    assert checked_offset(0) == 0
    assert checked_offset(2**63 - 1) == 2**63 - 1


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "1"])
def test_no_limit(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="max_records"):
        checked_limit(value)


@pytest.mark.parametrize("value", [-0.1, math.nan, "1", True])
def test_no_timeout(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="timeout"):
        checked_timeout(value)


def test_timeouts() -> None:
    assert checked_timeout(None) == math.inf
    assert checked_timeout(0) == 0.0
    assert checked_timeout(2.5) == 2.5


@pytest.mark.parametrize("value", [-1, 1.0, None, True])
def test_no_time(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="milliseconds"):
        checked_time(value)


def test_what_needs_a_group_says_how_to_have_one() -> None:
    error = refuse_group()
    assert isinstance(error, InvalidConfig)
    assert "has no group" in str(error) and 'group="audit"' in str(error)


@pytest.mark.parametrize("group", ["", 5, b"audit"])
def test_a_group_is_a_name(group: object) -> None:
    with pytest.raises(InvalidConfig, match="a str that is not empty"):
        checked_group(group)

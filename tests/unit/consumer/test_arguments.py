"""The arguments of a consumer's calls, and the errors for bad ones."""

from __future__ import annotations

import datetime
import math
from typing import Any

import pytest

from kclient.consumer.arguments import (
    checked_group,
    checked_limit,
    checked_partitions,
    checked_target,
    checked_time,
    refuse_group,
)
from kclient.consumer.offset_reset import AtTime
from kclient.durations import call_timeout
from kclient.errors import InvalidArgument, InvalidConfig
from kclient.types import (
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
    checked_offset,
    checked_partition,
)

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
        call_timeout(value, optional=True)


def test_timeouts() -> None:
    assert call_timeout(None, optional=True) == math.inf
    assert call_timeout(0, optional=True) == 0.0
    assert call_timeout(2.5, optional=True) == 2.5


@pytest.mark.parametrize("value", [-1, 1.0, None, True])
def test_no_time(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="milliseconds"):
        checked_time(value)


NOON = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
NOON_MS = 1_714_564_800_000


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        (0, 0),
        (NOON_MS, NOON_MS),
        (2**63 - 1, 2**63 - 1),
        (NOON, NOON_MS),
        (NOON.astimezone(datetime.timezone(datetime.timedelta(hours=-5))), NOON_MS),
        (NOON.replace(microsecond=500), NOON_MS + 1),  # a record of NOON_MS is before it
        (datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC), 0),
    ],
)
def test_times_are_milliseconds_or_aware_datetimes(value: Any, milliseconds: int) -> None:
    assert checked_time(value) == milliseconds


@pytest.mark.parametrize("check", [checked_time, checked_target])
def test_a_datetime_without_a_zone_is_refused_with_the_ways_to_make_it_aware(check: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"no time zone.*astimezone.*tzinfo=datetime\.UTC"):
        check(NOON.replace(tzinfo=None))


@pytest.mark.parametrize("check", [checked_time, checked_target])
def test_a_datetime_before_the_epoch_is_refused(check: Any) -> None:
    with pytest.raises(InvalidArgument, match="before 1970"):
        check(datetime.datetime(1969, 12, 31, tzinfo=datetime.UTC))


def test_seconds_are_refused_as_a_time_with_the_way_to_milliseconds() -> None:
    with pytest.raises(InvalidArgument, match=r"time\.time\(\) times 1000"):
        checked_time(1_714_564_800.5)


@pytest.mark.parametrize(
    ("value", "target"),
    [
        (7, (7, -1)),
        (OffsetAndMetadata(7), (7, -1)),
        (OffsetAndMetadata(7, 3, "note"), (7, 3)),
        (OffsetAndTimestamp(7, NOON_MS), (7, -1)),
        (OffsetAndTimestamp(7, NOON_MS, 3), (7, 3)),
        (NOON, AtTime("2024-05-01T12:00:00+00:00", NOON_MS)),
    ],
)
def test_what_one_seeks_is_an_offset_in_any_form_or_a_time(value: Any, target: Any) -> None:
    assert checked_target(value) == target


@pytest.mark.parametrize("value", [-1, OffsetAndTimestamp(-1), True, "5", 1.0, NOON.date()])
def test_nothing_to_seek(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="offset"):
        checked_target(value)


def test_what_lookups_return_for_nothing_is_no_target_and_the_error_names_one() -> None:
    with pytest.raises(InvalidArgument, match=r"nothing is committed.*older.*seek_to_end\(\)"):
        checked_target(None)


def test_what_needs_a_group_is_refused_with_the_way_to_have_one() -> None:
    error = refuse_group()
    assert isinstance(error, InvalidConfig)
    assert "has no group" in str(error) and 'group="audit"' in str(error)


@pytest.mark.parametrize("group", ["", 5, b"audit"])
def test_a_group_is_a_name(group: object) -> None:
    with pytest.raises(InvalidConfig, match="a str that is not empty"):
        checked_group(group)

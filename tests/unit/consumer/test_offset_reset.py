"""What ``auto_offset_reset`` means to a lookup."""

from __future__ import annotations

import pytest

from kclient.consumer.offset_reset import AtTime, ByDuration, ends_first, looked_up, reset_of
from kclient.types import OffsetSpec, TopicPartition

NOW = 1_800_000_000_123
P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("setting", "meant"),
    [
        ("earliest", OffsetSpec.EARLIEST),
        ("latest", OffsetSpec.LATEST),
        ("none", None),
        ("by_duration:PT1.5S", ByDuration("by_duration:PT1.5S", 1_500_000_000)),
    ],
)
def test_each_setting_has_a_meaning(setting: str, meant: object) -> None:
    assert reset_of(setting) == meant


def test_symbols_are_asked_for_as_they_are() -> None:
    assert looked_up(OffsetSpec.EARLIEST, NOW) is OffsetSpec.EARLIEST


@pytest.mark.parametrize(
    ("duration", "asked"),
    [
        ("PT0S", NOW),
        ("PT1.5S", NOW - 1500),
        ("PT0.0000001S", NOW - 1),  # as Java: less than a millisecond is one
        ("P1D", NOW - 86_400_000),
        ("P99999D", 0),  # below would be a symbol
    ],
)
def test_a_duration_is_counted_back_from_the_time_of_the_lookup(duration: str, asked: int) -> None:
    reset = reset_of(f"by_duration:{duration}")
    assert reset is not None
    assert looked_up(reset, NOW) == asked


def test_only_for_times_ends_are_asked_for_too() -> None:
    hour = ByDuration("by_duration:PT1H", 3600 * 10**9)
    assert ends_first({P: OffsetSpec.EARLIEST, Q: hour}) == {Q: OffsetSpec.LATEST}
    assert ends_first({P: OffsetSpec.LATEST, Q: AtTime("noon", NOW)}) == {Q: OffsetSpec.LATEST}


def test_a_time_is_asked_for_as_it_is() -> None:
    assert looked_up(AtTime("noon", 5), NOW) == 5

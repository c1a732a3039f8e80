"""ISO 8601 durations, parsed as Java's ``Duration.parse`` does, and the setting that takes one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kclient.config import ConsumerConfig
from kclient.errors import InvalidConfig
from kclient.settings import iso_duration_ns

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("PT1H30M", 5400),
        ("P1D", 86400),
        ("P1DT2H3M4.5S", 93784.5),
        ("pt1h", 3600),
        ("P1dT1h", 90000),
        ("PT36H", 129600),
        ("PT1.S", 1),
        ("PT1,5S", 1.5),
        ("PT1.000S", 1),
        ("PT0S", 0),
        ("PT-1H", -3600),
        ("-PT1H", -3600),
        ("-PT-1H", 3600),
        ("+PT+1H", 3600),
        ("PT1H-30M", 1800),
        ("P-1DT25H", 3600),
        ("PT-0.5S", -0.5),
        ("PT1M-59.5S", 0.5),
        ("PT1M-60.5S", -0.5),
        ("PT9223372036854775807S", 2**63 - 1),
    ],
)
def test_what_java_takes_is_taken(said: str, seconds: float) -> None:
    assert iso_duration_ns(said) == int(seconds * 2) * SECOND // 2


def test_fractions_go_down_to_nanoseconds() -> None:
    assert iso_duration_ns("PT0.123456789S") == 123_456_789
    assert iso_duration_ns("PT-1.000000001S") == -SECOND - 1


@pytest.mark.parametrize(
    "said",
    [
        *("", "P", "PT", "P1DT", "-P", "1H", "PT1", "P1H", "PT1D", "--PT1H", "PT--1S"),
        *("P1W", "P1M", "P1Y", "PT1.5H", "PT.5S", "PT-.5S", "PT0.1234567891S", "PT1S.5"),
        *("PT1M1H", "PT1S1M", "PT-30M1H", " PT1H", "PT1H ", "PT1H\n", "PT\uff11S"),
        *("PT9223372036854775808S", "PT" + "9" * 5000 + "S"),
    ],
)
def test_what_java_refuses_is_refused(said: str) -> None:
    with pytest.raises(ValueError, match=r"duration|is too long|integer string"):
        iso_duration_ns(said)


@given(
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.integers(0, 999_999_999),
)
def test_the_parts_add_up(days: int, hours: int, minutes: int, seconds: int, nanos: int) -> None:
    said = f"P{days}DT{hours}H{minutes}M{seconds}.{nanos:09}S"
    whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    assert iso_duration_ns(said) == whole * SECOND + nanos
    assert iso_duration_ns("-" + said) == -(whole * SECOND + nanos)


@pytest.mark.parametrize("value", ["by_duration:PT1H30M", "by_duration:PT0S", "by_duration:-PT-1H"])
def test_a_reset_policy_may_be_a_duration(value: str) -> None:
    assert ConsumerConfig(auto_offset_reset=value).auto_offset_reset == value
    properties = {"auto.offset.reset": value}
    assert ConsumerConfig.from_properties(properties).auto_offset_reset == value


@pytest.mark.parametrize("value", ["by_duration:", "by_duration:1h", "by_duration:-PT1H"])
def test_a_duration_that_is_none_or_below_0_is_refused_with_an_example(value: str) -> None:
    with pytest.raises(InvalidConfig, match=rf"{value}.*'by_duration:P1DT2H30M0\.5S'"):
        ConsumerConfig(auto_offset_reset=value)


@pytest.mark.parametrize("value", ["by_duration", "BY_DURATION:PT1H", "PT1H", "", 3600])
def test_other_policies_are_refused_with_all_that_are_allowed(value: object) -> None:
    with pytest.raises(InvalidConfig, match=r"'latest'.*'by_duration:PT1H30M'"):
        ConsumerConfig(auto_offset_reset=value)  # type: ignore[arg-type]

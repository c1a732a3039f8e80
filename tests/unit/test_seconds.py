"""Durations are seconds: milliseconds are refused, with the intended value in the error."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from kclient import Retries
from kclient.config import AdminConfig, ConsumerConfig, GroupMemberConfig, ProducerConfig
from kclient.durations import MAX_SECONDS, call_timeout
from kclient.errors import InvalidArgument, InvalidConfig
from kclient.settings import Settings

CLIENTS: list[type[Settings]] = [AdminConfig, ConsumerConfig, GroupMemberConfig, ProducerConfig]
USUAL_MS = {
    "api_timeout": (5_000, 60_000),
    "auto_commit_interval": (1_000, 5_000),
    "bootstrap_timeout": (1_000, 10_000),
    "connection_setup_timeout": (1_000, 10_000),
    "connection_setup_timeout_max": (1_000, 30_000),
    "connections_max_idle": (60_000, 540_000),
    "delivery_timeout": (5_000, 120_000),
    "transaction_timeout": (10_000_000, 900_000_000),
    "fetch_max_wait": (100, 500),
    "heartbeat_interval": (1_000, 3_000),
    "linger": (5, 100),
    "max_block": (1_000, 60_000),
    "max_poll_interval": (300_000, 600_000),
    "metadata_max_age": (5_000, 300_000),
    "metadata_max_idle": (5_000, 300_000),
    "metadata_recovery_rebootstrap_trigger": (5_000, 300_000),
    "rebalance_timeout": (5_000, 60_000),
    "reconnect_backoff": (50, 100),
    "reconnect_backoff_max": (1_000, 10_000),
    "request_timeout": (1_000, 30_000),
    "retry_backoff": (50, 100),
    "retry_backoff_max": (1_000, 10_000),
    "session_timeout": (6_000, 45_000),
}
"""Usual values of other clients, in milliseconds; each must be over the bound."""
LONG = {
    "api_timeout": 3600,
    "delivery_timeout": 3600,
    "linger": 4,
    "max_poll_interval": 24 * 3600,
    "metadata_max_age": 3600,
    "request_timeout": 600,
    "session_timeout": 1800,
}
"""Legitimate long durations, in seconds."""
ENDLESS = {
    *("api_timeout", "bootstrap_timeout", "connections_max_idle", "delivery_timeout", "max_block"),
    *("max_poll_interval", "metadata_max_age", "metadata_max_idle"),
    "metadata_recovery_rebootstrap_trigger",
}


def durations() -> list[tuple[type[Settings], str]]:
    """Return all settings of all clients whose type is a float."""
    return [
        (config, field.name)
        for config in CLIENTS
        for field in dataclasses.fields(config)
        if "float" in str(field.type)
    ]


DURATIONS = durations()


def test_each_duration_has_milliseconds_that_it_refuses() -> None:
    assert {name for _, name in DURATIONS} == set(USUAL_MS)


@pytest.mark.parametrize(("config", "name"), DURATIONS)
def test_milliseconds_are_refused_with_the_seconds_that_were_meant(
    config: type[Settings], name: str
) -> None:
    for given in USUAL_MS[name]:
        with pytest.raises(InvalidConfig) as raised:
            config(**{name: given})
        text = str(raised.value)
        assert text.startswith(f"{name}={given} can't be used")
        assert "durations are in seconds" in text
        assert f"{given / 1000:g} s is {name}={given / 1000!r}" in text or given / 1000 < 1


@pytest.mark.parametrize(("config", "name"), DURATIONS)
def test_a_duration_without_end_is_allowed_where_it_makes_sense(
    config: type[Settings], name: str
) -> None:
    if name not in ENDLESS:
        with pytest.raises(InvalidConfig, match=f"{name}=inf"):
            config(**{name: math.inf})
        return
    value = getattr(config(**{name: math.inf}), name)
    assert value == (None if name == "max_block" else MAX_SECONDS)
    assert getattr(dataclasses.replace(config(**{name: math.inf})), name) == value


@pytest.mark.parametrize(("config", "name"), [one for one in DURATIONS if one[1] in LONG])
def test_long_durations_that_make_sense_are_taken(config: type[Settings], name: str) -> None:
    assert getattr(config(**{name: LONG[name]}), name) == LONG[name]


def test_the_text_has_how_long_it_would_be() -> None:
    with pytest.raises(InvalidConfig) as raised:
        ProducerConfig(request_timeout=30000)
    assert "30000 s are over 8 hours; 30 s is request_timeout=30.0" in str(raised.value)


@pytest.mark.parametrize("given", [10**400, -(10**400), math.nan, -math.inf, "5", None, True])
def test_what_is_no_duration_is_refused(given: Any) -> None:
    with pytest.raises(InvalidConfig, match="linger="):
        ProducerConfig(linger=given)


@pytest.mark.parametrize("given", [1000, 30_000, 900.5, 10**400])
def test_milliseconds_are_refused_as_the_timeout_of_a_call(given: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"timeout={given} can't be used.*or None"):
        call_timeout(given, optional=True)
    with pytest.raises(InvalidArgument, match="durations are in seconds"):
        call_timeout(given)


def test_the_timeout_of_a_call_may_have_no_limit() -> None:
    assert call_timeout(math.inf) == call_timeout(None, optional=True) == math.inf
    with pytest.raises(InvalidArgument, match="not None"):
        call_timeout(None)
    with pytest.raises(InvalidArgument, match="above 0, not 0"):
        call_timeout(0, positive=True)


def test_handlers_may_be_retried_hours_apart() -> None:
    assert Retries(max_backoff=3600.0).max_backoff == 3600.0


@pytest.mark.parametrize("wrong", [{"backoff": 1000, "max_backoff": 900}, {"max_backoff": 10_000}])
def test_milliseconds_are_refused_in_retries(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=r"durations are in seconds.*=1"):
        Retries(**wrong)

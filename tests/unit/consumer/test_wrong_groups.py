"""What is no group, or needs one: an error at once, with the name of what was given."""

from __future__ import annotations

from typing import Any

import pytest

import kclient
from kclient.errors import InvalidConfig


@pytest.mark.parametrize("name", ["group_id", "groups"])
def test_the_names_that_other_clients_have_lead_to_ours(name: str) -> None:
    with pytest.raises(InvalidConfig, match=f"'{name}' is not a setting: .*group='audit'"):
        kclient.Consumer("localhost", "orders", **{name: "g"})  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pattern", "orders.*"),
        ("group_instance_id", "a"),
        ("on_assigned", print),
        ("on_revoked", print),
        ("on_lost", print),
    ],
)
def test_what_needs_a_group_is_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidConfig, match=f"{name} was given, and this consumer has no group"):
        kclient.Consumer("localhost", **{name: value})  # type: ignore[call-overload]


@pytest.mark.parametrize("callback", [5, "print", lambda: None, lambda one, two: None])
def test_a_callback_takes_partitions(callback: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"on_revoked=.*callable\(partitions\)"):
        kclient.Consumer("localhost", "orders", group="g", on_revoked=callback)


def test_a_heartbeat_that_is_too_rare_is_refused_with_what_is_wise() -> None:
    with pytest.raises(InvalidConfig, match="a third of it or less"):
        kclient.Consumer("localhost", group="g", heartbeat_interval=10.0, session_timeout=6.0)

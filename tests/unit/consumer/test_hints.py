"""What a consumer's errors advise: it must help in the caller's situation."""

from __future__ import annotations

import re
from typing import Any

import pytest

import kclient
from kclient.consumer.arguments import checked_limit, checked_sources, checked_topics
from kclient.errors import InvalidArgument, InvalidConfig, KafkaError
from kclient.types import TopicPartition
from tests.unit.consumer.subscribing import new_subscription

P = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        ("Consumer(bootstrap, *topics)", "`Consumer(bootstrap, *topics)`"),
        ("subscribe(*topics)", "`subscribe(*topics)`"),
    ],
)
def test_a_list_of_topics_is_refused_by_the_name_of_the_call(call: str, hint: str) -> None:
    with pytest.raises(InvalidArgument, match="topic must be a str, not list") as refused:
        checked_topics((["t"],), call)
    assert hint in str(refused.value)


def test_a_pattern_among_the_names_is_refused_with_where_it_belongs() -> None:
    with pytest.raises(InvalidArgument, match=r"not Pattern .*`pattern='orders"):
        checked_topics(("t", re.compile("a")), "subscribe(*topics)")


def test_seconds_in_the_place_of_a_number_of_records_are_refused_with_where_they_belong() -> None:
    with pytest.raises(InvalidArgument, match=r"not 1\.5 \(seconds to wait are `timeout=1\.5`\)"):
        checked_limit(1.5)
    with pytest.raises(InvalidArgument, match=r"not 0$"):
        checked_limit(0)


def test_names_and_a_pattern_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="give topics or a pattern, not both"):
        checked_sources(("t",), "t.*")
    assert checked_sources(("t",), None) is None
    assert checked_sources((), None) is None


def refusal(grouped: bool, expecting: bool) -> str:
    subscription = new_subscription(grouped=grouped)
    subscription.expecting = expecting
    with pytest.raises(InvalidArgument, match="t-0 is not assigned to this consumer") as refused:
        subscription.require(P)
    return str(refused.value)


def test_without_a_group_the_hint_for_a_seek_is_to_assign() -> None:
    assert "call assign() with it first, or name its topic" in refusal(False, False)


def test_the_hint_for_a_member_is_that_the_group_assigns() -> None:
    text = refusal(True, True)
    assert "call assign()" not in text
    assert "the group" in text
    assert "on_assigned" in text


def test_the_hint_for_a_member_that_subscribes_to_nothing_is_to_subscribe() -> None:
    assert "subscribe()" in refusal(True, False)


@pytest.mark.parametrize("name", ["topics", "topic"])
def test_topics_are_no_setting(name: str) -> None:
    settings: Any = {name: ["t"]}
    with pytest.raises(InvalidConfig, match=r"Consumer\(bootstrap, \"orders\"") as refused:
        kclient.Consumer("localhost:9092", **settings)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("name", ["group_id", "groups", "group.id"])
def test_the_name_of_the_group_in_other_clients_leads_to_ours(name: str) -> None:
    with pytest.raises(InvalidConfig, match="group='audit'"):
        kclient.Consumer("localhost:9092", "t", **{name: "g"})


@pytest.mark.parametrize("name", ["pattern", "on_assigned", "on_revoked", "on_lost"])
def test_what_needs_a_group_is_refused_by_its_name(name: str) -> None:
    settings: Any = {name: "t.*" if name == "pattern" else print}
    with pytest.raises(KafkaError, match=f"{name} was given.*no group"):
        kclient.Consumer("localhost:9092", **settings)


def test_a_heartbeat_longer_than_the_session_is_no_matter_of_units() -> None:
    with pytest.raises(InvalidConfig, match="heartbeat_interval=10") as refused:
        kclient.Consumer("localhost:9092", "t", group="g", heartbeat_interval=10, session_timeout=6)
    assert "durations are in seconds" not in str(refused.value)

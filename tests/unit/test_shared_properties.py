"""Properties that several clients share, or that hold what this package can't have."""

from __future__ import annotations

from typing import Any

import pytest

import kclient
from kclient.config import ConsumerConfig
from kclient.errors import InvalidConfig
from kclient.settings import Settings

SHARED: dict[str, Any] = {
    "bootstrap.servers": "one:9092",
    "group.id": "audit",
    "auto.offset.reset": "earliest",
    "linger.ms": "5",
    "retries": "3",
    "acks": "all",
}


def refusal(config: type[Settings], properties: Any) -> str:
    """The text of the error."""
    with pytest.raises(InvalidConfig) as raised:
        config.from_properties(properties)
    return str(raised.value)


def test_a_topic_in_the_place_of_the_address_does_not_override_it() -> None:
    config = ConsumerConfig.from_properties(SHARED)
    with pytest.raises(InvalidConfig, match=r"bootstrap='orders'.*write None"):
        kclient.Consumer("orders", config=config)
    other = kclient.Consumer("two:9092", "orders", config=config)
    assert other._config.bootstrap == (("two", 9092),)
    same = kclient.Consumer("one", "orders", config=config)
    assert same._config.bootstrap == (("one", 9092),)
    local = kclient.Consumer("one", "orders", config=ConsumerConfig(group="audit"))
    assert local._config.bootstrap == (("one", 9092),)

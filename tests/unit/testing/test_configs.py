"""Configurations of topics and brokers: Kafka's names, kinds and bounds."""

from __future__ import annotations

import pytest

from kclient.error_codes import ErrorCode
from kclient.errors import InvalidConfig
from kclient.testing.broker_configs import BrokerConfig
from kclient.testing.config_defs import as_text
from kclient.testing.responses import ApiError
from kclient.testing.topic_configs import DEFINITIONS, TopicConfig


def topic(**given: str) -> TopicConfig:
    return TopicConfig({name.replace("_", "."): value for name, value in given.items()}, {})


def test_every_default_is_valid() -> None:
    for definition in DEFINITIONS.values():
        definition.parse(definition.default)


@pytest.mark.parametrize(("name", "meant"), [("retention", "retention.ms"), ("x", None)])
def test_an_unknown_name_is_refused_with_the_nearest(name: str, meant: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        TopicConfig({name: "1"}, {})
    hint = f" Did you mean {meant!r}?" if meant else ""
    assert caught.value.message == f"Topics have no configuration {name!r}.{hint}"


def test_values_that_matter_are_attributes() -> None:
    config = topic(
        max_message_bytes="77",
        cleanup_policy="compact,delete",
        message_timestamp_type="LogAppendTime",
        min_insync_replicas="2",
    )
    assert config.max_message_bytes == 77
    assert config.compacted
    assert config.log_append_time
    assert config.min_insync_replicas == 2
    assert config.value("retention.ms") == 604_800_000


def test_broker_defaults_lie_below_the_topics_own_configs() -> None:
    defaults = {"max.message.bytes": "10"}
    assert TopicConfig({}, defaults).max_message_bytes == 10
    assert TopicConfig({"max.message.bytes": "20"}, defaults).max_message_bytes == 20


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("foo", "1"),
        ("retention.ms", "abc"),
        ("retention.ms", ""),
        ("retention.ms", "1_0"),
        ("retention.ms", "-5"),
        ("retention.ms", str(1 << 63)),
        ("min.insync.replicas", "99999999999"),
        ("min.insync.replicas", "0"),
        ("cleanup.policy", "x"),
        ("message.timestamp.type", "Foo"),
        ("preallocate", "maybe"),
        ("min.cleanable.dirty.ratio", "2"),
        ("min.cleanable.dirty.ratio", "x"),
        ("compression.gzip.level", "20"),
    ],
)
def test_values_that_kafka_refuses(name: str, value: str) -> None:
    with pytest.raises(ApiError, match=name) as caught:
        TopicConfig({name: value}, {})
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_values_are_checked_together() -> None:
    with pytest.raises(ApiError) as caught:
        TopicConfig({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "1"}, {})
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_a_number_beside_the_bounds_is_allowed_where_kafka_does() -> None:
    assert topic(compression_gzip_level="-1").value("compression.gzip.level") == -1


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (False, "false"), (5, "5"), (0.5, "0.5"), (["a", "b"], "a,b")],
)
def test_python_values_become_kafkas_text(value: object, text: str) -> None:
    assert as_text(value) == text


def test_broker_configs_give_topic_defaults_by_their_own_names() -> None:
    config = BrokerConfig({"message.max.bytes": 5, "log.cleanup.policy": "compact"})
    assert config.topic_defaults == {
        "max.message.bytes": "5",
        "cleanup.policy": "compact",
        "min.insync.replicas": "1",
    }


def test_an_unknown_broker_config_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidConfig, match=r"did you mean 'message\.max\.bytes'"):
        BrokerConfig({"message.max.byte": 5})


def test_a_broker_config_that_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"num\.partitions can't be '0'"):
        BrokerConfig({"num.partitions": 0})

"""Properties that several clients share, or that hold what this package can't have."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import kclient
from kclient.config import ConsumerConfig, ProducerConfig
from kclient.errors import InvalidConfig
from kclient.serializers import JsonSerializer, StringDeserializer
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


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("linger.sm", "linger.ms"),
        ("lingre.ms", "linger.ms"),
        ("linger.mz", "linger.ms"),
        ("liger.ms", "linger.ms"),
        ("akcs", "acks"),
        ("ack", "acks"),
        ("Linger.Sm", "linger.ms"),
        ("cilent.id", "client.id"),
        ("max.request.szie", "max.request.size"),
    ],
)
def test_a_slip_of_one_letter_is_found_even_in_a_short_name(name: str, meant: str) -> None:
    assert f"did you mean {meant!r}" in refusal(ProducerConfig, {name: "1"})


@pytest.mark.parametrize("name", ["commit.interval.ms", "schema.registry.url", "linger", "x", ""])
def test_a_name_that_is_not_near_enough_is_only_logged(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    ConsumerConfig.from_properties({name: "1"})
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_underscores_and_dashes_are_as_good_as_dots() -> None:
    for mark in "._-":
        given = {f"group{mark}id": "billing", f"session{mark}timeout{mark}ms": "6000"}
        config = ConsumerConfig.from_properties(given)
        assert (config.group, config.session_timeout) == ("billing", 6.0)


@pytest.mark.parametrize(
    "named", ["com.acme.Foo", "io.confluent.kafka.serializers.KafkaAvroSerializer", ""]
)
def test_nothing_is_sent_raw_where_a_file_names_a_serializer_of_the_application(
    named: str,
) -> None:
    config = ProducerConfig.from_properties({"value.serializer": named, "client.id": "x"})
    with pytest.raises(InvalidConfig) as raised:
        kclient.Producer("h:1", config=config)
    for words in (f"value.serializer={named!r}", "give value_serializer=", "take the line out"):
        assert words in str(raised.value)
    own = JsonSerializer()
    assert kclient.Producer("h:1", config=config, value_serializer=own)._serializers[1] is own


def test_nothing_is_read_raw_where_a_file_names_a_deserializer_of_the_application() -> None:
    config = ConsumerConfig.from_properties({"key.deserializer": "com.acme.Foo"})
    with pytest.raises(InvalidConfig, match=r"key\.deserializer='com\.acme\.Foo'"):
        kclient.Consumer("h:1", "orders", config=config)
    with pytest.raises(InvalidConfig, match="give key_deserializer="):
        assert config.key_deserializer is not None
        config.key_deserializer("orders", b"")
    deserialize = StringDeserializer()
    kclient.Consumer(
        "h:1",
        "orders",
        config=config,
        key_deserializer=deserialize,
        value_deserializer=deserialize,
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("error_cb", "errors are raised where you await"),
        ("stats_cb", "metrics() returns all counters"),
        ("throttle_cb", "observers="),
        ("on_delivery", "add_done_callback"),
        ("dr_cb", "add_done_callback"),
        ("on_commit", "commit_nowait() returns a future"),
        ("partitioner_cb", "give partitioner= to the client"),
        ("value.deserializer", "give value_deserializer= to the client"),
        ("logger", 'logging.getLogger("kclient")'),
    ],
)
def test_a_callback_is_answered_with_what_there_is_in_its_place(name: str, words: str) -> None:
    text = refusal(ConsumerConfig, {"group.id": "g", name: print})
    assert f"{name!r}, a builtin_function_or_method" in text
    assert "allowed are str, int, float and bool" in text
    assert words in text


def test_all_callbacks_of_a_mapping_are_named_at_once() -> None:
    text = refusal(ProducerConfig, {"error_cb": print, "stats_cb": print, "linger.ms": 5})
    assert "'error_cb'" in text
    assert "'stats_cb'" in text


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

"""Properties that several clients share, or whose values this package can't support."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any

import pytest

import kclient
from kclient.config import AdminConfig, ConsumerConfig, GroupMemberConfig, ProducerConfig
from kclient.errors import InvalidConfig
from kclient.properties import OF_THE_PRODUCER
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
    """Return the text of the error."""
    with pytest.raises(InvalidConfig) as raised:
        config.from_properties(properties)
    return str(raised.value)


# Names


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


# What belongs to which client


@pytest.mark.parametrize(
    ("name", "owner", "other"),
    [
        ("buffer.memory", ProducerConfig, ConsumerConfig),
        ("queue.buffering.max.kbytes", ProducerConfig, ConsumerConfig),
        ("queued.max.messages.kbytes", ConsumerConfig, ProducerConfig),
        ("fetch.error.backoff.ms", ConsumerConfig, ProducerConfig),
        ("fetch.error.backoff.ms", ConsumerConfig, AdminConfig),
    ],
)
def test_a_setting_of_one_client_leaves_another_alone(
    name: str, owner: type[Settings], other: type[Settings], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    given = {name: "131072"} if name != "fetch.error.backoff.ms" else {name: "900"}
    assert owner.from_properties(given) != owner()
    assert "of the" not in caplog.text
    assert other.from_properties(given) == other()
    assert f"of the {owner.__name__.removesuffix('Config')}: {name}" in caplog.text


def test_what_only_the_producer_can_not_have_stops_no_consumer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    given = {
        "partitioner.class": "com.acme.Mine",
        "value.serializer": "com.acme.Avro",
        "compression.level": "many",
    }
    assert ConsumerConfig.from_properties(given) == ConsumerConfig()
    assert "of the Producer: compression.level, partitioner.class, value.serializer" in caplog.text


def test_the_list_of_settings_of_the_producer_is_complete() -> None:
    common = {field.name for field in dataclasses.fields(AdminConfig)}
    named = {field.name for field in dataclasses.fields(ProducerConfig) if field.metadata["kafka"]}
    compression = {"compression_level"}  # it has no name in Java's client
    assert (named - common) | compression | {"partitioner"} == OF_THE_PRODUCER


@pytest.mark.parametrize(
    ("config", "given"),
    [
        (ProducerConfig, {"linger.ms": "5", "queue.buffering.max.ms": "50"}),
        (ProducerConfig, {"buffer.memory": "65536", "queue.buffering.max.kbytes": "128"}),
        (ConsumerConfig, {"bootstrap.servers": "a:1", "metadata.broker.list": "b:1"}),
        (ConsumerConfig, {"group.id": "a", "group_id": "b"}),
    ],
)
def test_two_names_of_one_setting_must_not_contradict(
    config: type[Settings], given: dict[str, str]
) -> None:
    text = refusal(config, given)
    assert all(name in text for name in given)
    assert "take one out" in text


@pytest.mark.parametrize(
    "given",
    [
        {"socket.timeout.ms": "60000", "request.timeout.ms": "40000"},
        {"request.timeout.ms": "40000", "socket.timeout.ms": "60000"},
    ],
)
def test_kafkas_name_goes_before_one_that_is_beside_it_in_librdkafka(given: dict[str, str]) -> None:
    assert ProducerConfig.from_properties(given).request_timeout == 40.0


def test_two_names_of_one_setting_may_agree() -> None:
    given = {"buffer.memory": "131072", "queue.buffering.max.kbytes": "128"}
    assert ProducerConfig.from_properties(given).buffer_memory == 131072


# Values


@pytest.mark.parametrize(
    ("config", "name", "field", "largest"),
    [
        (ProducerConfig, "queue.buffering.max.kbytes", "buffer_memory", 2**40),
        (ConsumerConfig, "queued.max.messages.kbytes", "buffer_memory", 2**40),
        (ProducerConfig, "max.request.size", "max_request_size", 2**30 - 1),
        (ConsumerConfig, "fetch.max.bytes", "fetch_max_bytes", 2**31 - 1),
        (ProducerConfig, "max.in.flight", "max_in_flight", 1000),
    ],
)
def test_the_largest_int_is_the_largest_size(
    config: type[Settings], name: str, field: str, largest: int
) -> None:
    for given in (2**31 - 1, str(2**31 - 1), str(2**63 - 1)):
        assert getattr(config.from_properties({name: given}), field) == largest


def test_the_largest_int_is_no_limit_of_a_duration_that_must_have_one() -> None:
    assert "request.timeout.ms=" in refusal(ProducerConfig, {"request.timeout.ms": 2**31 - 1})


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


@pytest.mark.parametrize("off", [False, "false", "False"])
def test_offsets_that_the_application_stores_need_commits_of_its_own(
    off: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for given in ({}, {"enable.auto.commit": "true"}):
        text = refusal(ConsumerConfig, {"enable.auto.offset.store": off, **given})
        assert "enable.auto.commit=false" in text
        assert "await consumer.commit(record)" in text
    manual = {"enable.auto.offset.store": off, "enable.auto.commit": False}
    assert not ConsumerConfig.from_properties(manual).enable_auto_commit
    assert "enable.auto.offset.store (" in caplog.text
    assert ConsumerConfig.from_properties({"enable.auto.offset.store": True}).enable_auto_commit
    assert ProducerConfig.from_properties({"enable.auto.offset.store": off}) == ProducerConfig()


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
def test_a_callback_is_refused_with_what_there_is_in_its_place(name: str, words: str) -> None:
    text = refusal(ConsumerConfig, {"group.id": "g", name: print})
    assert f"{name!r}, a builtin_function_or_method" in text
    assert "allowed are str, int, float and bool" in text
    assert words in text


def test_all_callbacks_of_a_mapping_are_named_at_once() -> None:
    text = refusal(ProducerConfig, {"error_cb": print, "stats_cb": print, "linger.ms": 5})
    assert "'error_cb'" in text
    assert "'stats_cb'" in text


# The log


def test_an_ordinary_file_is_no_reason_for_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    ProducerConfig.from_properties(SHARED)
    ConsumerConfig.from_properties(SHARED)
    GroupMemberConfig.from_properties(SHARED)
    producers, consumers, members = caplog.records
    assert {record.levelno for record in caplog.records} == {logging.INFO}
    assert "of the Consumer: auto.offset.reset, group.id" in producers.getMessage()
    assert "of the Producer: acks, linger.ms" in consumers.getMessage()
    assert "of the Consumer: auto.offset.reset" in members.getMessage()
    assert "without meaning here: retries (delivery_timeout" in producers.getMessage()


def test_the_warning_has_the_unknown_names_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "client.properties"
    path.write_text("acme.team=a\nacme.mail=b\nretries=3\ngroup.id=g\n")
    ProducerConfig.from_properties(path)
    warning, info = sorted(caplog.records, key=lambda record: -record.levelno)
    assert (warning.levelno, info.levelno) == (logging.WARNING, logging.INFO)
    assert warning.getMessage().endswith("unknown, and ignored: acme.mail, acme.team")
    assert str(path) in warning.getMessage()
    assert "acme" not in info.getMessage()


# The texts of errors


@pytest.mark.parametrize(
    ("config", "name", "value"),
    [
        (ProducerConfig, "acks", "2"),
        (ProducerConfig, "compression.type", "brotli"),
        (ConsumerConfig, "auto.offset.reset", "never"),
        (ConsumerConfig, "fetch.max.bytes", "0"),
        (ProducerConfig, "client.id", ""),
        (ProducerConfig, "send.buffer.bytes", "12"),
    ],
)
def test_an_error_has_the_name_and_the_value_once(
    config: type[Settings], name: str, value: str
) -> None:
    text = refusal(config, {name: value})
    assert text.startswith(f"{name}=")
    assert text.count("=") == 1
    assert "None" not in text


def test_an_error_keeps_the_guess_at_what_was_meant() -> None:
    assert "did you mean 'earliest'" in refusal(ConsumerConfig, {"auto.offset.reset": "earlest"})


@pytest.mark.parametrize(
    "text", ["linger.sm=5", "acks=2", "security.protocol=TLS", "acks=1\nenable.idempotence=true"]
)
def test_an_error_about_what_a_file_holds_names_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "client.properties"
    path.write_text(text)
    assert refusal(ProducerConfig, path).startswith(f"{path}: ")
    assert refusal(ProducerConfig, str(path)).startswith(f"{path}: ")


def test_a_missing_file_is_named_once_and_as_it_is_written() -> None:
    text = refusal(ProducerConfig, Path("/no/such.properties"))
    assert "can't be read" in text
    assert text.count("/no/such.properties") == 1
    assert "PosixPath" not in text


# The address


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

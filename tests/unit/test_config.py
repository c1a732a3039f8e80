"""Settings: refused when absurd, named when unknown, and with the same names for type checkers."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from fractions import Fraction
from typing import Any

import pytest

from kclient import Producer, keywords
from kclient.config import (
    AdminConfig,
    CommonConfig,
    ConsumerConfig,
    ProducerConfig,
    parse_bootstrap,
)
from kclient.errors import InvalidConfig
from kclient.foreign_settings import ARGUMENTS
from kclient.serializers import JsonSerializer
from tools.settings_table import PAGE, page

PAIRS = [
    (AdminConfig, keywords.AdminSettings),
    (ConsumerConfig, keywords.ConsumerSettings),
    (ProducerConfig, keywords.ProducerSettings),
]


@pytest.mark.parametrize(("config", "typed"), PAIRS)
def test_typed_keywords_are_the_settings_of_the_class(
    config: type[CommonConfig], typed: type
) -> None:
    names = {field.name for field in dataclasses.fields(config)} - ARGUMENTS
    assert set(typing.get_type_hints(typed)) == names


@pytest.mark.parametrize("config", [AdminConfig, ConsumerConfig, ProducerConfig])
def test_defaults_pass_their_own_checks(config: type[CommonConfig]) -> None:
    assert config().bootstrap == (("localhost", 9092),)
    for field in dataclasses.fields(config):
        assert field.metadata["doc"]
        assert field.metadata["check"].__doc__


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        ("h", (("h", 9092),)),
        ("h:1", (("h", 1),)),
        ("a:1, b:2", (("a", 1), ("b", 2))),
        (["a:1", "[::1]:2"], (("a", 1), ("::1", 2))),
        ("[fe80::1]", (("fe80::1", 9092),)),
        ("PLAINTEXT://h:1", (("h", 1),)),
    ],
)
def test_bootstrap_forms(given: object, parsed: object) -> None:
    assert parse_bootstrap("bootstrap", given) == parsed


@pytest.mark.parametrize(
    "given",
    ["", ",", "h:", "h:0", "h:65536", "h:x", "h:1:2", "::1", "[::1", "[::1]9092", "a b:1",
     "http://h:1", "u@h:1", [], 5, None, [""], [None], b"h:1", "h:-1", "h:٣",
     "9092", ("127.0.0.1", "9092"), "${KAFKA}:9092"],
)  # fmt: skip
def test_bad_bootstrap_is_refused_naming_the_field(given: object) -> None:
    with pytest.raises(InvalidConfig, match="bootstrap"):
        ProducerConfig(bootstrap=given)  # type: ignore[arg-type]


@pytest.mark.parametrize("scheme", ["SSL", "SASL_SSL", "sasl_plaintext"])
def test_an_address_that_asks_for_security_is_not_used_without(scheme: str) -> None:
    with pytest.raises(InvalidConfig, match=r"secures nothing.*security=Security\.tls\(\)"):
        ProducerConfig(bootstrap=f"{scheme}://h:9093")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"linger": -1}, "linger=-1"),
        ({"linger": float("nan")}, "linger=nan"),
        ({"linger": float("inf")}, "linger=inf"),
        ({"request_timeout": 1e12}, "900"),
        ({"linger": True}, "linger=True"),
        ({"linger": "5"}, "linger='5'"),
        ({"linger": 3.0, "delivery_timeout": 1.0}, "delivery_timeout=1.0"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": 1.5}, "batch_size=1.5"),
        ({"batch_size": 2**21, "buffer_memory": 2**20}, "lower batch_size, too"),
        ({"acks": 2}, "acks=2"),
        ({"acks": True}, "acks=True"),
        ({"acks": -1.0}, "acks=-1.0"),
        ({"acks": "1"}, "acks='1'"),
        ({"acks": 1}, "idempotence=False"),
        ({"max_in_flight": 6}, "max_in_flight=6"),
        ({"compression": "brotli"}, "compression='brotli'"),
        ({"compression": "lz4", "compression_level": 17}, "compression_level=17"),
        ({"compression": "snappy", "compression_level": 1}, "compression_level=1"),
        ({"transactional_id": ""}, "transactional_id=''"),
        ({"transactional_id": "a", "idempotence": False, "acks": 1}, "transactional_id"),
        ({"client_id": ""}, "client_id=''"),
        ({"security": "SSL"}, "security='SSL'"),
        ({"request_timeout": 0}, "request_timeout=0"),
        ({"retry_backoff": 2.0}, "retry_backoff_max"),
        ({"reconnect_backoff": 2.0}, "reconnect_backoff_max"),
        ({"receive_frame_limit": 2**31}, "receive_frame_limit"),
    ],
)
def test_absurd_producer_settings_are_refused_with_name_and_value(
    settings: dict[str, object], words: str
) -> None:
    with pytest.raises(InvalidConfig) as raised:
        ProducerConfig(**settings)  # type: ignore[arg-type]
    assert words in str(raised.value)


def test_unknown_setting_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidConfig, match="did you mean 'linger'"):
        ProducerConfig.of(None, {"lingr": 1})


def test_the_page_of_settings_agrees_with_the_classes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


def test_settings_are_laid_over_a_config() -> None:
    config = ConsumerConfig(max_poll_records=7)
    laid = ConsumerConfig.of(config, {"bootstrap": "h:1", "check_crcs": False})
    assert (laid.max_poll_records, laid.check_crcs, laid.bootstrap) == (7, False, (("h", 1),))
    assert config.check_crcs is True


def test_config_of_another_client_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="must be a ProducerConfig"):
        ProducerConfig.of(ConsumerConfig(), {})  # type: ignore[arg-type]


def test_properties_of_the_java_client_are_understood() -> None:
    config = ProducerConfig.from_properties(
        {
            "bootstrap.servers": "a:1,b:2",
            "linger.ms": "20",
            "acks": "-1",
            "enable.idempotence": "true",
            "batch.size": " 1024 ",
            "compression.type": "zstd",
            "delivery.timeout.ms": 5000,
        }
    )
    assert config.bootstrap == (("a", 1), ("b", 2))
    assert (config.linger, config.acks, config.batch_size) == (0.02, "all", 1024)
    assert (config.compression, config.delivery_timeout) == ("zstd", 5.0)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("linger.mss", "1", "linger.ms"),
        ("linger.ms", "x", "linger.ms='x'"),
        ("enable.idempotence", "yes", "true or false"),
        ("client.id", "", "client.id=''"),
    ],
)
def test_bad_properties_are_refused(name: str, value: str, words: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        ProducerConfig.from_properties({name: value})
    assert words in str(raised.value)


def test_property_values_are_taken_literally() -> None:
    config = ProducerConfig.from_properties({"client.id": "${env:HOME}"})
    assert config.client_id == "${env:HOME}"


@pytest.mark.parametrize(
    "plugins",
    [
        {"partitioner": lambda topic, key, count: 0},
        {"value_serializer": "json"},
        {"key_serializer": JsonSerializer},
        {"observers": [print]},
    ],
)
def test_what_is_plugged_in_is_checked_when_the_client_is_made(plugins: dict[str, Any]) -> None:
    (name,) = plugins
    with pytest.raises(InvalidConfig, match=name):
        Producer("localhost:9092", **plugins)


def test_settings_are_equal_by_class_and_values_and_show_all_of_them() -> None:
    one, same = ProducerConfig(linger=0.1), ProducerConfig(linger=0.1)
    assert one == same
    assert hash(one) == hash(same)
    assert one != ProducerConfig(linger=0.2)
    assert CommonConfig() != AdminConfig()
    assert one != "ProducerConfig"
    assert repr(one).startswith("ProducerConfig(bootstrap=(('localhost', 9092),), client_id=")
    shown = [part.partition("=")[0] for part in repr(one).partition("(")[2].split(", ")]
    assert {field.name for field in dataclasses.fields(one)} <= set(shown)


def test_a_settings_class_names_an_unknown_setting_and_what_was_meant() -> None:
    with pytest.raises(InvalidConfig, match="no setting 'lingr': did you mean 'linger'"):
        ProducerConfig(lingr=0.5)  # type: ignore[call-arg]


def test_the_signature_of_a_settings_class_has_its_settings() -> None:
    parameters = inspect.signature(ProducerConfig).parameters
    assert parameters["linger"].default == ProducerConfig().linger
    assert {one.kind for one in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}


def test_a_duration_may_be_any_real_number_but_no_text() -> None:
    assert ProducerConfig(linger=Fraction(1, 4)).linger == 0.25
    with pytest.raises(InvalidConfig, match="linger='1'"):
        ProducerConfig(linger="1")  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [-1, "-1", "all"])
def test_acks_of_minus_one_means_all(given: Any) -> None:
    assert ProducerConfig.of(None, {"acks": given}).acks == "all"

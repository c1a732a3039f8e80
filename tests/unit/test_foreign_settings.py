"""Settings of other clients: each has a row in the table, and errors name its counterpart."""

from __future__ import annotations

import ctypes
import dataclasses
import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest

import kclient
from kclient.config import AdminConfig, ConsumerConfig, GroupMemberConfig, ProducerConfig
from kclient.errors import InvalidConfig
from kclient.foreign_settings import ARGUMENTS, TABLE, counterpart, normalised
from kclient.settings import Settings

CONFIGS: list[type[Settings]] = [AdminConfig, ConsumerConfig, GroupMemberConfig, ProducerConfig]
OURS = {field.name for config in CONFIGS for field in dataclasses.fields(config)} | ARGUMENTS


def names_of_aiokafka() -> set[str]:
    aiokafka = pytest.importorskip("aiokafka")
    admin = importlib.import_module("aiokafka.admin")
    clients = (aiokafka.AIOKafkaProducer, aiokafka.AIOKafkaConsumer, admin.AIOKafkaAdminClient)
    return {name for one in clients for name in inspect.signature(one).parameters}


def names_of_kafka_python() -> set[str]:
    kafka = pytest.importorskip("kafka")
    clients = (kafka.KafkaProducer, kafka.KafkaConsumer, kafka.KafkaAdminClient)
    return {name for one in clients for name in one.DEFAULT_CONFIG}


def names_of_confluent(tmp_path: Path) -> set[str]:
    """Return the properties that the librdkafka inside confluent-kafka prints."""
    package = Path(pytest.importorskip("confluent_kafka").__file__).parent
    libraries = sorted((package.parent / "confluent_kafka.libs").glob("librdkafka-*.so*"))
    if not libraries:
        pytest.skip("this build of confluent-kafka has librdkafka elsewhere")
    library, libc, page = ctypes.CDLL(str(libraries[0])), ctypes.CDLL(None), tmp_path / "page"
    libc.fopen.restype = ctypes.c_void_p
    file = ctypes.c_void_p(libc.fopen(str(page).encode(), b"w"))
    library.rd_kafka_conf_properties_show(file)
    libc.fclose(file)
    rows = [line.split("|") for line in page.read_text().splitlines() if line.count("|") > 3]
    names = {cells[0].strip() for cells in rows} - {"Property"}
    return {name for name in names if not name.startswith("-")} | {"logger", "on_commit"}


@pytest.mark.parametrize("client", ["aiokafka", "kafka-python", "confluent"])
def test_each_setting_of_the_other_clients_has_a_row(client: str, tmp_path: Path) -> None:
    if client == "aiokafka":
        names = names_of_aiokafka()
    elif client == "kafka-python":
        names = names_of_kafka_python()
    else:
        names = names_of_confluent(tmp_path)
        assert len(names) > 100
    assert len(names) > 30
    assert not {name for name in names if counterpart(name) is None}


def test_the_table_is_sorted_and_leads_to_what_there_is() -> None:
    assert list(TABLE) == sorted(TABLE)
    for name, row in TABLE.items():
        assert name == normalised(name)
        assert row.ours in OURS if row.ours else row.note


@pytest.mark.parametrize("config", CONFIGS)
def test_each_of_our_settings_has_a_row_under_its_java_name(config: type[Settings]) -> None:
    for field in dataclasses.fields(config):
        if field.metadata["kafka"]:
            row = counterpart(field.metadata["kafka"])
            assert row is not None
            assert row.ours == field.name


ANSWERS: list[tuple[Any, str, Any, str]] = [
    (kclient.Producer, "request_timeout_ms", 30000, "durations are seconds: request_timeout=30.0"),
    (kclient.Producer, "request.timeout.ms", 30000, "durations are seconds: request_timeout=30.0"),
    (kclient.Producer, "retry_backoff_ms", 100, "durations are seconds: retry_backoff=0.1"),
    (kclient.Producer, "linger_ms", "5", "use linger; durations are in seconds"),
    (kclient.Producer, "queue.buffering.max.kbytes", 2, "sizes are bytes: buffer_memory=2048"),
    (kclient.Producer, "bootstrap_servers", "h", "use bootstrap: the first argument"),
    (kclient.Producer, "metadata.broker.list", "h", "use bootstrap: the first argument"),
    (kclient.Producer, "compression_type", "gzip", "use compression$"),
    (kclient.Producer, "enable_idempotence", True, "use idempotence$"),
    (kclient.Producer, "retries", 3, "delivery_timeout bounds the retries"),
    (kclient.Producer, "sasl_mechanism", "PLAIN", r"use security: Security\.sasl_plain"),
    (kclient.Producer, "security_protocol", "SSL", r"use security: .*Security\.tls\("),
    (kclient.Producer, "ssl.ca.location", "ca.pem", r"use security: Security\.tls\(ca_file"),
    (kclient.Producer, "ssl_crlfile", "crl", r"use security: .*ssl_context="),
    (kclient.Producer, "enable_auto_commit", True, "enable_auto_commit is a setting of other"),
    (kclient.Producer, "group_id", "g", "group='audit'"),
    (kclient.Producer, "loop", None, "event loop"),
    (kclient.Consumer, "group.id", "g", "group='audit'"),
    (kclient.Consumer, "consumer_timeout_ms", 1000, r"poll\(timeout=\) bounds each wait"),
    (kclient.Consumer, "fetch.wait.max.ms", 500, "durations are seconds: fetch_max_wait=0.5"),
    (kclient.Consumer, "enable.partition.eof", True, r"consumer\.lag\(partition\) is 0"),
    (kclient.Consumer, "rebalance_timeout_ms", 5, "rebalance_timeout is a setting of other"),
    (kclient.Admin, "bootstrap.servers", "h", "use bootstrap: the first argument"),
]


@pytest.mark.parametrize(("client", "name", "value", "words"), ANSWERS)
def test_a_name_of_another_client_gets_ours_as_advice(
    client: Any, name: str, value: object, words: str
) -> None:
    with pytest.raises(InvalidConfig, match=words):
        client("localhost:9092", **{name: value})


@pytest.mark.parametrize("client", [kclient.Producer, kclient.Consumer, kclient.Admin])
@pytest.mark.parametrize("name", ["bootstrap_servers", "bootstrap.servers"])
def test_so_is_the_address_alone(client: Any, name: str) -> None:
    with pytest.raises(InvalidConfig, match="use bootstrap: the first argument"):
        client(**{name: "localhost:9092"})


@pytest.mark.parametrize("client", [kclient.Producer, kclient.Consumer, kclient.Admin])
def test_a_mapping_in_the_place_of_the_address_leads_to_from_properties(client: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"from_properties\("):
        client({"bootstrap.servers": "localhost:9092"})


def test_a_name_that_is_ours_but_for_the_unit_needs_no_row() -> None:
    with pytest.raises(InvalidConfig, match=r"durations are seconds: metadata_max_age=5\.0"):
        kclient.Producer("localhost:9092", metadata_max_age_ms=5000)  # type: ignore[call-overload]

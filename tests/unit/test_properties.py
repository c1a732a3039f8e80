"""Properties files of Java's and librdkafka's clients: fully understood, or refused if unsafe."""

from __future__ import annotations

import logging
import math
import ssl
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

import kclient
from kclient import serializers
from kclient.config import AdminConfig, ConsumerConfig, GroupMemberConfig, ProducerConfig
from kclient.durations import MAX_SECONDS
from kclient.errors import InvalidConfig
from kclient.properties import parse
from tests.support.class_path import require

JAVA_CONSUMER = r"""
# an ordinary file of a Java consumer
bootstrap.servers=one:9092,two:9092
group.id = audit
client.id: reader
key.deserializer=org.apache.kafka.common.serialization.StringDeserializer
value.deserializer=org.apache.kafka.common.serialization.ByteArrayDeserializer
enable.auto.commit=false
auto.commit.interval.ms=5000
auto.offset.reset=earliest
max.poll.interval.ms=2147483647
partition.assignment.strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor,\
    org.apache.kafka.clients.consumer.RangeAssignor
isolation.level=read_committed
security.protocol=PLAINTEXT
! of no meaning here
interceptor.classes=com.acme.Tracing
metrics.num.samples=3
retries=3
"""
LIBRDKAFKA: dict[str, Any] = {
    "metadata.broker.list": "one:9092",
    "queue.buffering.max.ms": 0.5,
    "queue.buffering.max.kbytes": 2048,
    "message.timeout.ms": 0,
    "request.required.acks": 1,
    "compression.codec": "zstd",
    "compression.level": -1,
    "socket.keepalive.enable": True,
    "socket.send.buffer.bytes": 0,
    "retry.backoff.ms": 5000,
    "partitioner": "murmur2_random",
}


def written(folder: Path, text: str) -> Path:
    path = folder / "client.properties"
    path.write_text(text, encoding="utf-8")
    return path


def test_an_ordinary_file_of_a_java_consumer_is_read_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    config = ConsumerConfig.from_properties(written(tmp_path, JAVA_CONSUMER))
    assert config.bootstrap == (("one", 9092), ("two", 9092))
    assert (config.group, config.client_id) == ("audit", "reader")
    assert isinstance(config.key_deserializer, serializers.StringDeserializer)
    assert config.value_deserializer is None
    assert (config.enable_auto_commit, config.auto_commit_interval) == (False, 5.0)
    assert config.max_poll_interval == MAX_SECONDS
    assert config.partition_assignment_strategy == ("cooperative-sticky", "range")
    assert (config.auto_offset_reset, config.isolation_level) == ("earliest", "read_committed")
    assert config.security.ssl_context is None
    (line,) = caplog.records
    assert line.levelno == logging.INFO
    for name in ("interceptor.classes", "metrics.num.samples", "retries (delivery_timeout bounds"):
        assert name in line.getMessage()
    assert "com.acme" not in line.getMessage()


def test_the_result_makes_a_client_with_its_group_and_deserializers(tmp_path: Path) -> None:
    config = ConsumerConfig.from_properties(str(written(tmp_path, JAVA_CONSUMER)))
    consumer = kclient.Consumer(None, "orders", config=config)
    assert consumer._engine.group is not None
    assert consumer._engine.group.group_id == "audit"
    assert consumer._converts
    assert not kclient.Consumer(None, config=ConsumerConfig())._converts
    other = kclient.Consumer("h:1", "orders", config=config, group="other")
    assert other._engine.group is not None
    assert other._engine.group.group_id == "other"


def test_properties_of_librdkafka_are_read_whole(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    config = ProducerConfig.from_properties(LIBRDKAFKA)
    assert config.bootstrap == (("one", 9092),)
    assert (config.linger, config.buffer_memory) == (0.0005, 2048 * 1024)
    assert config.delivery_timeout == MAX_SECONDS
    assert (config.acks, config.idempotence) == (1, False)
    assert (config.compression, config.compression_level, config.send_buffer) == (
        "zstd",
        None,
        None,
    )
    assert (config.retry_backoff, config.retry_backoff_max) == (5.0, 5.0)
    assert [record.getMessage().count("socket.keepalive.enable") for record in caplog.records] == [
        1
    ]


def test_the_file_of_one_client_serves_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = written(tmp_path, JAVA_CONSUMER)
    assert ProducerConfig.from_properties(path).client_id == "reader"
    assert AdminConfig.from_properties(path).bootstrap[0] == ("one", 9092)
    assert GroupMemberConfig.from_properties(path).group == "audit"
    assert "group.id, isolation.level" in caplog.text


def test_serializers_of_kafka_itself_become_ours() -> None:
    kafka = "org.apache.kafka.common.serialization."
    names = {"key.serializer": f"{kafka}IntegerSerializer"}
    config = ProducerConfig.from_properties(
        {**names, "value.serializer": f"{kafka}FloatSerializer"}
    )
    assert config.key_serializer is not None
    assert config.value_serializer is not None
    assert config.key_serializer("t", -2) == b"\xff\xff\xff\xfe"
    assert config.value_serializer("t", 0.5) == struct.pack(">f", 0.5)
    assert kclient.Producer(config=config)._serializers == (
        config.key_serializer,
        config.value_serializer,
    )
    assert ProducerConfig.from_properties(names) == ProducerConfig.from_properties(names)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=1\nb = 2\nc:3\nd 4\ne\t:\t5", {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}),
        ("# a=1\n  ! b=2\n\n   c=3", {"c": "3"}),
        ("a=one,\\\n    two\\\r\n  three", {"a": "one,twothree"}),
        ("a=x\\\\\nb=1", {"a": "x\\", "b": "1"}),
        ("a\\ b\\=c=d=e", {"a b=c": "d=e"}),
        ("a=\\u00e9\\t\\q\\n", {"a": "\u00e9\tq\n"}),
        ("a=1\na=2", {"a": "2"}),
        ("a\nb=", {"a": "", "b": ""}),
        ("a=1 ", {"a": "1 "}),
        ("a=#1", {"a": "#1"}),
        ("a=1\\", {"a": "1"}),
        ("\\", {"": ""}),
    ],
)
def test_the_format_is_that_of_java(text: str, pairs: dict[str, str]) -> None:
    assert parse(text) == pairs


def test_a_file_that_is_not_utf_8_is_read_as_java_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "latin"
    path.write_bytes("client.id=caf\u00e9".encode("latin-1"))
    assert ProducerConfig.from_properties(path).client_id == "caf\u00e9"


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"linger.mss": "1"}, "did you mean 'linger.ms'"),
        ({"boostrap.servers": "h"}, "did you mean 'bootstrap.servers'"),
        ({"request.timeout.ms": "x"}, "request.timeout.ms='x'"),
        ({"request.timeout.ms": "3600000"}, "request.timeout.ms='3600000': request_timeout=3600.0"),
        ({"batch.size": "many"}, "batch.size='many'"),
        ({"partitioner": "consistent_random"}, "partitioner="),
        ({"partitioner.class": "com.acme.Mine"}, "partitioner="),
        ({5: "x"}, "properties hold 5"),
        ({"client.id": None}, "properties hold 'client.id'"),
        (5, "allowed is a mapping or the path"),
        ("/no/such.properties", "can't be read"),
    ],
)
def test_what_can_not_be_read_is_refused(properties: Any, words: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        ProducerConfig.from_properties(properties)
    assert words in str(raised.value)


def test_java_switches_idempotence_off_where_acks_contradict_it() -> None:
    assert not ProducerConfig.from_properties({"acks": "1"}).idempotence
    flight = {"max.in.flight.requests.per.connection": "8"}
    assert not ProducerConfig.from_properties(flight).idempotence
    with pytest.raises(InvalidConfig, match="idempotence needs acks"):
        ProducerConfig.from_properties({"acks": "1", "enable.idempotence": "true"})


def test_a_duration_without_limit_is_one_here() -> None:
    given: dict[str, Any] = {"delivery.timeout.ms": 2**31 - 1, "max.block.ms": str(2**63 - 1)}
    config = ProducerConfig.from_properties({**given, "connections.max.idle.ms": -1})
    assert config == ProducerConfig(
        delivery_timeout=math.inf, max_block=math.inf, connections_max_idle=math.inf
    )


# Security


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "X"}, "sasl.mechanism=X isn't in"),
        ({"sasl.mechanism": "PLAIN"}, "security.protocol is missing beside sasl.mechanism"),
        ({"sasl.jaas.config": "secret-word"}, "security.protocol is missing"),
        ({"security.protocol": "TLS"}, "allowed are PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"ssl.ca.location": "ca.pem"}, "security.protocol is missing beside ssl.ca.location"),
        (
            {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""},
            "host names are verified",
        ),
        (
            {"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"},
            "certificates are always verified",
        ),
        ({"enable.ssl.certificate.verification": "false"}, "security.protocol is missing"),
        (
            {"security.protocol": "SSL", "ssl.crl.location": "a"},
            "ssl.crl.location can't be honoured",
        ),
        ({"security.protocol": "SSL", "ssl.cipher.suites": "A"}, "can't be honoured"),
        ({"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/no/ca.pem"}, "ssl.* can't be used"),
    ],
)
def test_what_would_weaken_or_can_not_be_honoured_is_refused(
    properties: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InvalidConfig) as raised:
        ConsumerConfig.from_properties(properties)
    assert words in str(raised.value)
    assert "secret-word" not in str(raised.value) + caplog.text


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the paths of a certificate and its key."""
    folder = tmp_path_factory.mktemp("pem")
    chain, key = folder / "chain.pem", folder / "key.pem"
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-subj", "/CN=localhost", "-out", chain, "-keyout", key)  # fmt: skip
    return chain, key


def openssl(*arguments: object) -> None:
    command = [require("openssl", "it makes certificates"), *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.parametrize("form", ["java files", "java values", "librdkafka files"])
def test_pem_becomes_security_that_verifies(
    form: str, tmp_path: Path, pem: tuple[Path, Path]
) -> None:
    chain, key = (path.read_text() for path in pem)
    both = written(tmp_path, chain + key)
    properties = {
        "java files": {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(both),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(both),
        },
        "java values": {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": chain,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": key,
            "ssl.keystore.certificate.chain": chain,
        },
        "librdkafka files": {
            "ssl.ca.location": str(pem[0]),
            "ssl.certificate.location": str(pem[0]),
            "ssl.key.location": str(pem[1]),
        },
    }[form]
    given = {"security.protocol": "ssl", "ssl.enabled.protocols": "TLSv1.3", **properties}
    context = AdminConfig.from_properties(given).security.ssl_context
    assert context is not None
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.cert_store_stats()["x509"] >= 1
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3


def test_an_encrypted_key_without_a_password_is_refused_without_a_prompt(
    tmp_path: Path, pem: tuple[Path, Path]
) -> None:
    chain, key = pem
    locked = tmp_path / "locked.pem"
    openssl("pkcs8", "-topk8", "-in", key, "-out", locked, "-passout", "pass:open")
    given = {
        "security.protocol": "SSL",
        "ssl.certificate.location": str(chain),
        "ssl.key.location": str(locked),
    }
    with pytest.raises(InvalidConfig, match="key_password is needed"):
        AdminConfig.from_properties(given)
    assert AdminConfig.from_properties({**given, "ssl.key.password": "open"}).security.ssl_context


def test_certificates_beside_plaintext_are_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    given = {"security.protocol": "PLAINTEXT", "ssl.ca.location": "ca.pem"}
    assert AdminConfig.from_properties(given).security.ssl_context is None
    assert "ssl.ca.location (security.protocol is PLAINTEXT)" in caplog.text


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("smallest", "earliest"), ("end", "latest"), ("largest", "latest"), ("error", "none")],
)
def test_resets_have_the_values_of_librdkafka_too(theirs: str, ours: str) -> None:
    config = ConsumerConfig.from_properties({"auto.offset.reset": theirs})
    asked = ConsumerConfig(auto_offset_reset=ours)  # type: ignore[arg-type]
    assert config.auto_offset_reset == asked.auto_offset_reset


def test_a_file_of_librdkafka_warns_that_keys_go_elsewhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    theirs = {"metadata.broker.list": "h:1", "queue.buffering.max.ms": "5"}
    ProducerConfig.from_properties(theirs)
    assert "partitioner=kclient.partitioners.ConsistentRandom()" in caplog.text
    caplog.clear()
    ProducerConfig.from_properties({**theirs, "partitioner": "murmur2_random"})
    ProducerConfig.from_properties({"bootstrap.servers": "h:1", "linger.ms": "5"})
    ConsumerConfig.from_properties({**theirs, "group.id": "g"})
    assert "ConsistentRandom" not in caplog.text
    with pytest.raises(InvalidConfig, match=r"kclient\.partitioners\.ConsistentRandom\(\)"):
        ProducerConfig.from_properties({**theirs, "partitioner": "consistent_random"})


def test_the_new_group_protocol_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    config = ConsumerConfig.from_properties({"group.protocol": "CONSUMER"})
    assert config.group_protocol == "auto"
    assert "group.protocol (groups are joined by the classic protocol)" in caplog.text


def test_our_own_name_of_a_setting_is_no_property() -> None:
    with pytest.raises(InvalidConfig, match=r"linger is no property.*linger=, or 'linger.ms' here"):
        ProducerConfig.from_properties({"linger": 0.005})


def test_a_file_in_utf16_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes("security.protocol=SASL_SSL\n".encode("utf-16"))
    with pytest.raises(InvalidConfig, match=r"NUL bytes.* UTF-16"):
        ProducerConfig.from_properties(path)
